/*
 * The tokens beside the ranks: from tokenizer_config.json ("added_tokens_decoder"), or K3's own
 * names when that file is absent and the vocabulary has K3's size. As in the reference, an id that
 * is not named, between the ranks and the highest named id, is <|reserved_token_ID|>.
 */
#include "text/text_priv.h"

#include <stdio.h>
#include <string.h>
#include "base/json.h"
#include "base/mem.h"

enum { CONFIG_MAX_BYTES = 16 << 20 };

/* The release's names: tokenizer_config.json of Kimi K3, spec section 5. */
enum { K3_RANKS = 163584, K3_ADDED = 256 };
static const struct {
    int32_t id;
    const char *name;
} k3_names[] = {
    { 163584, "[BOS]" },
    { 163585, "[EOS]" },
    { 163586, "<|end_of_msg|>" },
    { 163587, "<|open|>" },
    { 163588, "<|close|>" },
    { 163589, "<|sep|>" },
    { 163590, "[start_header_id]" },
    { 163591, "[end_header_id]" },
    { 163593, "[EOT]" },
    { 163602, "<|media_begin|>" },
    { 163603, "<|media_content|>" },
    { 163604, "<|media_end|>" },
    { 163605, "<|media_pad|>" },
    { 163649, "<osagent_mode>" },
    { 163838, "[UNK]" },
    { 163839, "[PAD]" },
};

/* The added tokens while they are collected; index 0 is the first id after the ranks. */
struct added {
    const char **name; /* borrowed; NULL: reserved */
    size_t *bytes;
    size_t count;
};

static void added_fini(struct added *added)
{
    tri_free(added->name);
    tri_free(added->bytes);
}

static enum tri_status added_init(struct added *added, size_t count)
{
    added->count = count;
    added->name = tri_calloc(count, sizeof *added->name);
    added->bytes = tri_calloc(count, sizeof *added->bytes);
    return added->name && added->bytes ? TRI_OK : TRI_NOMEM;
}

/* Makes room for the added tokens behind the ranks. */
static enum tri_status grow(struct tri_tokenizer *tok, const struct added *added)
{
    enum { RESERVED_MAX_BYTES = 40 };
    size_t tokens = (size_t)tok->ranks + added->count, blob = 0;
    for (int32_t id = 0; id < tok->ranks; id++)
        blob += tok->length[id];
    for (size_t i = 0; i < added->count; i++)
        blob += added->name[i] ? added->bytes[i] : RESERVED_MAX_BYTES;
    char *bytes = tri_realloc(tok->blob, blob);
    if (bytes)
        tok->blob = bytes;
    uint32_t *start = tri_realloc(tok->start, tokens * sizeof *start);
    if (start)
        tok->start = start;
    uint16_t *length = tri_realloc(tok->length, tokens * sizeof *length);
    if (length)
        tok->length = length;
    tok->name_lengths = tri_calloc(added->count, sizeof *tok->name_lengths);
    return bytes && start && length && tok->name_lengths &&
                   !tri__token_table_init(&tok->by_name, added->count)
               ? TRI_OK
               : TRI_NOMEM;
}

/* Keeps the distinct lengths, longest first: that is the order in which names are tried. */
static void note_length(struct tri_tokenizer *tok, uint16_t length)
{
    uint32_t at = 0;
    while (at < tok->name_length_count && tok->name_lengths[at] > length)
        at++;
    if (at < tok->name_length_count && tok->name_lengths[at] == length)
        return;
    memmove(tok->name_lengths + at + 1, tok->name_lengths + at,
            (tok->name_length_count - at) * sizeof *tok->name_lengths);
    tok->name_lengths[at] = length;
    tok->name_length_count++;
}

static enum tri_status install(struct tri_tokenizer *tok, const char *name,
                               const struct added *added, struct tri_error *err)
{
    if (grow(tok, added))
        return tri_fail(err, TRI_NOMEM, "%s: no memory for %zu special tokens", name, added->count);
    size_t at = 0;
    for (int32_t id = 0; id < tok->ranks; id++)
        at += tok->length[id];
    for (size_t i = 0; i < added->count; i++) {
        int32_t id = tok->ranks + (int32_t)i;
        char reserved[64];
        int reserved_bytes = snprintf(reserved, sizeof reserved, "<|reserved_token_%d|>", id);
        const char *text = added->name[i] ? added->name[i] : reserved;
        size_t bytes = added->name[i] ? added->bytes[i] : (size_t)reserved_bytes;
        memcpy(tok->blob + at, text, bytes);
        tok->start[id] = (uint32_t)at;
        tok->length[id] = (uint16_t)bytes;
        at += bytes;
        tok->tokens = id + 1;
        tok->starts_name[(unsigned char)text[0]] = true;
        note_length(tok, (uint16_t)bytes);
        int32_t same = tri__token_insert(tok, &tok->by_name, id);
        if (same >= 0)
            return tri_fail(err, TRI_FORMAT, "%s: special tokens %d and %d have the same name",
                            name, same, id);
    }
    return TRI_OK;
}

/* The id that a key of added_tokens_decoder spells; -1 if it is none. */
static int32_t key_id(const char *key)
{
    int32_t id = 0;
    size_t digits = strlen(key);
    for (size_t i = 0; i < digits; i++) {
        if (key[i] < '0' || key[i] > '9' || digits > 7)
            return -1;
        id = id * 10 + key[i] - '0';
    }
    return digits ? id : -1;
}

/* Checks one entry of added_tokens_decoder and files it. */
static enum tri_status take_entry(const struct tri_tokenizer *tok, const char *name,
                                  const char *key, const json_t *entry, struct added *added,
                                  struct tri_error *err)
{
    char safe[64];
    tri_printable(safe, sizeof safe, key, strlen(key));
    int32_t id = key_id(key);
    const json_t *content = json_object_get(entry, "content");
    if (id < 0 || !json_is_string(content))
        return tri_fail(err, TRI_FORMAT,
                        "%s: added_tokens_decoder.%s: not an id with a \"content\" string", name,
                        safe);
    if (id < tok->ranks || id >= TRI_VOCAB_MAX_TOKENS)
        return tri_fail(err, id < tok->ranks ? TRI_FORMAT : TRI_LIMIT,
                        "%s: added_tokens_decoder.%s: special tokens of this vocabulary are %d to "
                        "%d",
                        name, safe, tok->ranks, TRI_VOCAB_MAX_TOKENS - 1);
    size_t bytes = json_string_length(content), i = (size_t)(id - tok->ranks);
    if (bytes < 1 || bytes > TRI_TOKEN_MAX_BYTES)
        return tri_fail(err, bytes ? TRI_LIMIT : TRI_FORMAT,
                        "%s: added_tokens_decoder.%s: content of %zu bytes, 1 to %d are allowed",
                        name, safe, bytes, TRI_TOKEN_MAX_BYTES);
    if (added->name) {
        if (added->name[i])
            return tri_fail(err, TRI_FORMAT, "%s: added_tokens_decoder: id %d stands twice", name,
                            id);
        added->name[i] = json_string_value(content);
        added->bytes[i] = bytes;
    } else if (added->count <= i) {
        added->count = i + 1;
    }
    return TRI_OK;
}

static enum tri_status from_config(struct tri_tokenizer *tok, const char *name, const json_t *root,
                                   struct tri_error *err)
{
    json_t *table = json_object_get(root, "added_tokens_decoder");
    if (!json_is_object(root) || (table && !json_is_object(table)))
        return tri_fail(err, TRI_FORMAT, "%s: added_tokens_decoder must be an object", name);
    struct added added = { 0 };
    enum tri_status st = TRI_OK;
    const char *key;
    json_t *entry;
    /* The first round only finds the highest id, the second fills in. */
    for (int round = 0; round < 2 && !st; round++) {
        json_object_foreach(table, key, entry)
        {
            st = st ? st : take_entry(tok, name, key, entry, &added, err);
        }
        if (!round && !st && added.count && added_init(&added, added.count))
            st = tri_fail(err, TRI_NOMEM, "%s: no memory", name);
    }
    if (!st && added.count)
        st = install(tok, name, &added, err);
    added_fini(&added);
    return st;
}

static enum tri_status from_k3(struct tri_tokenizer *tok, const char *name, struct tri_error *err)
{
    struct added added = { 0 };
    enum tri_status st = added_init(&added, K3_ADDED);
    for (size_t i = 0; i < sizeof k3_names / sizeof k3_names[0] && !st; i++) {
        added.name[k3_names[i].id - K3_RANKS] = k3_names[i].name;
        added.bytes[k3_names[i].id - K3_RANKS] = strlen(k3_names[i].name);
    }
    st = st ? tri_fail(err, st, "%s: no memory", name) : install(tok, name, &added, err);
    added_fini(&added);
    return st;
}

enum tri_status tri__added_read(struct tri_tokenizer *tok, const char *name, const char *config,
                                size_t bytes, struct tri_error *err)
{
    if (!config)
        return tok->ranks == K3_RANKS ? from_k3(tok, name, err) : TRI_OK;
    json_t *root = NULL;
    enum tri_status st = tri_json_parse(&root, name, config, bytes, CONFIG_MAX_BYTES, err);
    if (st)
        return st;
    st = from_config(tok, name, root, err);
    json_decref(root);
    return st;
}
