/* One 64-bit hash for files and fingerprints: XXH3 (libxxhash). Not for secrets. */
#ifndef TRI_BASE_HASH_H
#define TRI_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Hash of `bytes`, chained: pass the last result as `seed` to go on, 0 to start. The pieces are
 * part of the result: reader and writer must cut at the same places. */
uint64_t tri_hash64(uint64_t seed, const void *data, size_t bytes);

#endif
