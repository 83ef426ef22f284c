/*
 * Writing safetensors: a shard whose header is known before its data, and the index over shards.
 * For whatever makes checkpoints. Reading them is weights' business. Floor 1. Format: 8 bytes
 * little-endian header length, JSON padded with blanks to a multiple of 8, then the tensors back to
 * back in the order given.
 *
 * Threads: one caller per shard and per index; the data of a shard may be written by any threads.
 */
#ifndef TRI_STFILE_STFILE_H
#define TRI_STFILE_STFILE_H

#include <stddef.h>
#include "base/status.h"

/* The format's own limit. */
enum { TRI_ST_MAX_HEADER_BYTES = 100 * 1000 * 1000 };

struct tri_st_entry {
    char name[192];        /* as stored, prefix included; no character that JSON must escape */
    const char *dtype;     /* safetensors' own name */
    int32_t rank;          /* 0..4 */
    int64_t shape[4];      /* outermost first */
    uint64_t bytes;        /* of its data */
    uint64_t offset_bytes; /* from the start of the file; filled by tri_st_create */
};

/*
 * Creates `path` (must not exist), writes the header and gives the file its full size, all data
 * still holes. *fd is open for pwrite; the caller closes it. On failure nothing is left behind.
 */
TRI_MUST_CHECK enum tri_status tri_st_create(int *fd, const char *path,
                                             struct tri_st_entry *entries, size_t count,
                                             struct tri_error *err);

/* pwrite until all is written; errors name `path`. */
TRI_MUST_CHECK enum tri_status tri_st_write(int fd, const char *path, uint64_t offset_bytes,
                                            const void *data, size_t bytes, struct tri_error *err);

/* Bytes of the header that tri_st_create would write, its length field included; 0: no memory. */
uint64_t tri_st_header_bytes(const struct tri_st_entry *entries, size_t count);

/* model.safetensors.index.json, written beside its final name and renamed when closed well. */
struct tri_st_index;

TRI_MUST_CHECK enum tri_status tri_st_index_open(struct tri_st_index **out, const char *path,
                                                 uint64_t total_bytes, struct tri_error *err);
/* `file` is the shard's plain name. Failures are kept and reported by close. */
void tri_st_index_add(struct tri_st_index *index, const char *tensor, const char *file);
/* Puts the index in place. Always releases it; on failure no index is left. */
TRI_MUST_CHECK enum tri_status tri_st_index_close(struct tri_st_index *index,
                                                  struct tri_error *err);
/* Gives up: nothing is left. NULL is fine. */
void tri_st_index_drop(struct tri_st_index *index);

#endif
