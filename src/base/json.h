/*
 * Bounded JSON reading over jansson: size and depth limits, duplicate keys refused, one-line
 * errors that name the source. (The chat renderer has its own reader, in text: it must keep number
 * text and the last duplicate, as Python does.)
 */
#ifndef TRI_BASE_JSON_H
#define TRI_BASE_JSON_H

#include <jansson.h>
#include <stddef.h>
#include "base/buf.h"
#include "base/status.h"

enum { TRI_JSON_MAX_DEPTH = 128 }; /* jansson itself is built with 2048 */

/*
 * Parses `bytes` of JSON text. `name` is told in errors (a path, "--chat"). Refuses: more than
 * `max_bytes`, nesting over TRI_JSON_MAX_DEPTH, duplicate keys, invalid UTF-8, trailing text.
 * *out is a new reference (json_decref).
 */
TRI_MUST_CHECK enum tri_status tri_json_parse(json_t **out, const char *name, const char *text,
                                              size_t bytes, size_t max_bytes,
                                              struct tri_error *err);

/* The same for a whole file, read up to max_bytes; a .gz name is not treated specially. */
TRI_MUST_CHECK enum tri_status tri_json_load(json_t **out, const char *path, size_t max_bytes,
                                             struct tri_error *err);

/* Reads a whole file of at most max_bytes; *out is NUL-terminated, freed with tri_free. */
TRI_MUST_CHECK enum tri_status tri_read_file(char **out, size_t *out_bytes, const char *path,
                                             size_t max_bytes, struct tri_error *err);

/* Appends a number as Python's repr does: the fewest digits that give it back, and a float. */
void tri_json_put_real(struct tri_buf *out, double v);

#endif
