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

/*
 * The same of regular files alone, for what a folder holds and for what is read while a server
 * runs: a pipe that nobody fills is an error there, not a wait without end. *fd is the caller's to
 * close.
 */
TRI_MUST_CHECK enum tri_status tri_read_plain_file(char **out, size_t *out_bytes, const char *path,
                                                   size_t max_bytes, struct tri_error *err);
TRI_MUST_CHECK enum tri_status tri_open_plain(int *fd, const char *path, struct tri_error *err);

/* Appends a number as Python's repr does: the fewest digits that give it back, and a float. */
void tri_json_put_real(struct tri_buf *out, double v);

#endif
