/*
 * Standard input, output and error as they come from whoever started the program: perhaps closed,
 * perhaps a full disk.
 */
#ifndef TRI_CLI_STREAMS_H
#define TRI_CLI_STREAMS_H

#include "base/status.h"

/*
 * To be called first. Puts a file that can only fail at each of the three places that is closed:
 * else the next file opened would get its number, and messages would be written into a model. A
 * write past a limit on file sizes then fails with EFBIG instead of ending the program.
 */
void tri_streams_guard(void);

/* TRI_IO if anything written to standard output so far was lost. */
TRI_MUST_CHECK enum tri_status tri_streams_written(struct tri_error *err);

#endif
