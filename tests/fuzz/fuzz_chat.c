/*
 * Any bytes as a chat request: refused in one line, or a prompt whose text segments give no marker
 * id and whose decoded ids are its segments.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "base/buf.h"
#include "text/text.h"

static struct tri_tokenizer *tok;

static void check_prompt(const struct tri_prompt *prompt)
{
    size_t count = 0;
    const struct tri_segment *s = tri_prompt_segments(prompt, &count);
    struct tri_ids ids = { 0 };
    TRI_ASSERT(!tri_prompt_encode(prompt, tok, &ids, NULL));
    struct tri_buf text, decoded;
    struct tri_detok detok;
    tri_buf_init(&text, 1 << 28);
    tri_buf_init(&decoded, 1 << 28);
    tri_detok_init(&detok, tok, false);
    for (size_t i = 0; i < count; i++) {
        struct tri_ids alone = { 0 };
        TRI_ASSERT(s[i].bytes);
        tri_buf_add(&text, s[i].text, s[i].bytes);
        if (s[i].is_marker)
            continue;
        TRI_ASSERT(!tri_encode(tok, s[i].text, s[i].bytes, TRI_PLAIN, &alone, NULL));
        for (size_t k = 0; k < alone.count_tokens; k++)
            TRI_ASSERT(!tri_token_is_added(tok, alone.data[k]));
        tri_ids_fini(&alone);
    }
    for (size_t i = 0; i < ids.count_tokens; i++)
        TRI_ASSERT(!tri_detok_push(&detok, ids.data[i], &decoded, NULL));
    tri_detok_finish(&detok, &decoded);
    TRI_ASSERT(text.len_bytes == decoded.len_bytes);
    TRI_ASSERT(!text.len_bytes || !memcmp(text.data, decoded.data, text.len_bytes));
    tri_buf_fini(&text);
    tri_buf_fini(&decoded);
    tri_ids_fini(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (!tok)
        TRI_ASSERT(!tri_tokenizer_open(&tok, TRI_TEST_SOURCE "/tests/data/text/small", NULL));
    struct tri_prompt *prompt = NULL;
    struct tri_error err = { 0 };
    if (tri_chat_render(&prompt, "fuzz", (const char *)data, bytes, NULL, &err))
        TRI_ASSERT(!prompt && err.text[0] && !strchr(err.text, '\n'));
    else
        check_prompt(prompt);
    tri_prompt_close(prompt);
    return 0;
}
