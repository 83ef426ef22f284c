/* An index: what is accepted names plain files only, and every tensor's file is one of them. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "weights/weights_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct tri__weights_index index;
    struct tri_error err = { 0 };
    if (tri__weights_parse_index(&index, "i", (const char *)data, bytes, &err)) {
        TRI_ASSERT(err.status && err.text[0] && !strchr(err.text, '\n'));
        return 0;
    }
    TRI_ASSERT(index.count > 0 && index.file_count > 0);
    for (size_t i = 0; i < index.file_count; i++) {
        TRI_ASSERT(index.files[i][0] && index.files[i][0] != '.');
        TRI_ASSERT(!strpbrk(index.files[i], "/\\\n"));
        TRI_ASSERT(i == 0 || strcmp(index.files[i - 1], index.files[i]) < 0);
    }
    for (size_t i = 0; i < index.count; i++)
        TRI_ASSERT(index.placed[i].file >= 0 && (size_t)index.placed[i].file < index.file_count);
    tri__weights_index_fini(&index);
    return 0;
}
