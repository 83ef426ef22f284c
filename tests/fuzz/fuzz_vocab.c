/*
 * Vocabulary files: any bytes as tiktoken.model and, after a NUL, as tokenizer_config.json. An
 * input of a few lines lacks the 256 bytes that a vocabulary needs, so those may be put before it
 * (first byte 'b'). What loads must encode and give its text back.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "base/buf.h"
#include "text/text.h"

static void put_bytes(struct tri_buf *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (int b = 0; b < 256; b++)
        tri_buf_printf(out, "%c%c== %d\n", digits[b >> 2], digits[(b & 3) << 4], b);
}

static void use(const struct tri_tokenizer *tok)
{
    static const char text[] = "The ship<|open|> a'll \xE8\x88\xB9 12345";
    for (int mode = 0; mode < 2; mode++) {
        struct tri_ids ids = { 0 };
        struct tri_buf out;
        struct tri_detok detok;
        tri_buf_init(&out, 1 << 20);
        tri_detok_init(&detok, tok, false);
        TRI_ASSERT(!tri_encode(tok, text, sizeof text - 1, (enum tri_encode_mode)mode, &ids, NULL));
        for (size_t i = 0; i < ids.count_tokens; i++)
            TRI_ASSERT(!tri_detok_push(&detok, ids.data[i], &out, NULL));
        TRI_ASSERT(!tri_detok_finish(&detok, &out));
        TRI_ASSERT(out.len_bytes == sizeof text - 1 && !memcmp(out.data, text, out.len_bytes));
        tri_buf_fini(&out);
        tri_ids_fini(&ids);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *text = (const char *)data;
    if (bytes < 1 || bytes > 1 << 20)
        return 0;
    struct tri_buf ranks;
    struct tri_tokenizer *tok = NULL;
    struct tri_error err = { 0 };
    const char *nul = memchr(text + 1, 0, bytes - 1);
    size_t first = nul ? (size_t)(nul - text) - 1 : bytes - 1;
    tri_buf_init(&ranks, 1 << 22);
    if (*text == 'b')
        put_bytes(&ranks);
    tri_buf_add(&ranks, text + 1, first);
    struct tri_vocab_text vocab = { .name = "fuzz",
                                    .ranks = ranks.data ? ranks.data : "",
                                    .ranks_bytes = ranks.len_bytes,
                                    .config = nul ? nul + 1 : NULL,
                                    .config_bytes = nul ? bytes - first - 2 : 0 };
    if (tri_tokenizer_read(&tok, &vocab, &err))
        TRI_ASSERT(err.text[0] && !strchr(err.text, '\n'));
    else
        use(tok);
    tri_tokenizer_close(tok);
    tri_buf_fini(&ranks);
    return 0;
}
