/* XXH3 behind our name. */
#include "base/hash.h"

#include <xxhash.h>

uint64_t tri_hash64(uint64_t seed, const void *data, size_t bytes)
{
    return XXH3_64bits_withSeed(data, bytes, seed);
}
