/*
 * From text to ids: validity, slices, names of special tokens (markup only), pre-tokens, merges.
 * Also the id list itself.
 */
#include "text/text_priv.h"

#include <string.h>
#include "base/mem.h"

void tri_ids_fini(struct tri_ids *ids)
{
    tri_free(ids->data);
    *ids = (struct tri_ids){ 0 };
}

enum tri_status tri_ids_add(struct tri_ids *ids, int32_t id)
{
    if (ids->count_tokens == ids->cap_tokens) {
        size_t cap = ids->cap_tokens ? ids->cap_tokens * 2 : 64;
        int32_t *data = tri_realloc(ids->data, cap * sizeof *data);
        if (!data)
            return TRI_NOMEM;
        ids->data = data;
        ids->cap_tokens = cap;
    }
    ids->data[ids->count_tokens++] = id;
    return TRI_OK;
}

enum tri_status tri__encoder_init(struct tri__encoder *encoder, const struct tri_tokenizer *tok,
                                  struct tri_error *err)
{
    *encoder = (struct tri__encoder){ .tok = tok };
    return tri__split_work_open(&encoder->split, tok->splitter, err);
}

void tri__encoder_fini(struct tri__encoder *encoder)
{
    tri__split_work_close(encoder->split);
    tri__bpe_work_fini(&encoder->bpe);
}

static enum tri_status encode_plain(struct tri__encoder *encoder, const char *text, size_t bytes,
                                    struct tri_ids *ids, struct tri_error *err)
{
    for (size_t at = 0; at < bytes;) {
        size_t count = 0;
        enum tri_status st = tri__split_next(encoder->split, text + at, bytes - at, &count, err);
        if (st)
            return st;
        if (tri__bpe_encode(encoder->tok, &encoder->bpe, text + at, count, ids))
            return tri_fail(err, TRI_NOMEM, "no memory to encode a word of %zu bytes", count);
        at += count;
    }
    return TRI_OK;
}

/* The special token whose name stands at the start of `text`, the longest one; -1 if none does. */
static int32_t name_at(const struct tri_tokenizer *tok, const char *text, size_t bytes)
{
    if (!tok->starts_name[(unsigned char)*text])
        return -1;
    for (uint32_t i = 0; i < tok->name_length_count; i++) {
        uint16_t length = tok->name_lengths[i];
        int32_t id = length <= bytes ? tri__token_find(tok, &tok->by_name, text, length) : -1;
        if (id >= 0)
            return id;
    }
    return -1;
}

static enum tri_status encode_markup(struct tri__encoder *encoder, const char *text, size_t bytes,
                                     struct tri_ids *ids, struct tri_error *err)
{
    size_t done = 0;
    enum tri_status st = TRI_OK;
    for (size_t at = 0; at < bytes && !st;) {
        int32_t id = name_at(encoder->tok, text + at, bytes - at);
        if (id < 0) {
            at++;
            continue;
        }
        st = encode_plain(encoder, text + done, at - done, ids, err);
        if (!st && tri_ids_add(ids, id))
            st = tri_fail(err, TRI_NOMEM, "no memory for the ids");
        at += encoder->tok->length[id];
        done = at;
    }
    return st ? st : encode_plain(encoder, text + done, bytes - done, ids, err);
}

enum tri_status tri__encode(struct tri__encoder *encoder, const char *text, size_t bytes,
                            enum tri_encode_mode mode, struct tri_ids *ids, struct tri_error *err)
{
    if (bytes > TRI_ENCODE_MAX_BYTES)
        return tri_fail(err, TRI_LIMIT, "a text of %zu bytes, at most %d are encoded", bytes,
                        TRI_ENCODE_MAX_BYTES);
    size_t valid = tri_utf8_valid(text, bytes);
    if (valid < bytes)
        return tri_fail(err, TRI_FORMAT, "not valid UTF-8 at byte %zu (0x%02x)", valid,
                        (unsigned)(unsigned char)text[valid]);
    size_t had = ids->count_tokens;
    struct tri__slicer slicer = { 0 };
    enum tri_status st = TRI_OK;
    for (size_t at = 0; at < bytes && !st;) {
        size_t slice = tri__slice_next(&slicer, text + at, bytes - at);
        /* As in the reference, a name that a cut divides is not recognised. */
        st = mode == TRI_MARKUP ? encode_markup(encoder, text + at, slice, ids, err)
                                : encode_plain(encoder, text + at, slice, ids, err);
        at += slice;
    }
    if (st)
        ids->count_tokens = had;
    return st;
}

enum tri_status tri_encode(const struct tri_tokenizer *tok, const char *text, size_t bytes,
                           enum tri_encode_mode mode, struct tri_ids *ids, struct tri_error *err)
{
    struct tri__encoder encoder;
    enum tri_status st = tri__encoder_init(&encoder, tok, err);
    if (st)
        return st;
    st = tri__encode(&encoder, text, bytes, mode, ids, err);
    tri__encoder_fini(&encoder);
    return st;
}
