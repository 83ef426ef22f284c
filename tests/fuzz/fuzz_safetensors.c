/*
 * A safetensors header: whatever the bytes, parsing ends, and what it accepts keeps the format's
 * promises (tensors inside the file, in order, without overlap or hole).
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "weights/weights_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct tri__weights_header h;
    struct tri_error err = { 0 };
    uint64_t payload = 0;
    if (bytes < 2)
        return 0;
    memcpy(&payload, data, 2); /* how many data bytes the file has after its header */
    uint64_t file = 8 + (bytes - 2) + (payload & 0xffff);
    if (tri__weights_parse_header(&h, "f", 0, (const char *)data + 2, bytes - 2, file, &err)) {
        TRI_ASSERT(err.status && err.text[0] && !strchr(err.text, '\n'));
        return 0;
    }
    uint64_t at = file - (payload & 0xffff);
    for (size_t i = 0; i < h.count; i++) {
        TRI_ASSERT(h.tensors[i].offset_bytes == at && h.tensors[i].rank >= 0);
        at += h.tensors[i].bytes;
    }
    TRI_ASSERT(at == file);
    tri__weights_header_fini(&h);
    return 0;
}
