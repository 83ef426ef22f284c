/*
 * Where a model is when the person named none: the nano model that is shipped with Trireme.
 */
#ifndef TRI_CLI_MODEL_PATH_H
#define TRI_CLI_MODEL_PATH_H

#include <stddef.h>
#include "base/status.h"

enum { TRI_MODEL_PATH_MAX_BYTES = 4096 };

/*
 * Writes the model's folder into `out`. `named` (may be NULL) is taken as it is; else, first that
 * exists wins: $TRIREME_MODEL, <program>/../share/trireme/models/nano, models/nano of the source
 * tree it was built from, ./models/nano. Fails with TRI_IO, telling the places, if there is none.
 */
TRI_MUST_CHECK enum tri_status tri_model_path(char out[TRI_MODEL_PATH_MAX_BYTES], const char *named,
                                              struct tri_error *err);

#endif
