/* Opens and closes vocabularies, answers what a token is, and turns ids back into text. */
#include "text/text_priv.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include "base/json.h"
#include "base/mem.h"

/* `config_name` is told in errors about the special tokens. */
static enum tri_status read_both(struct tri_tokenizer **out, const struct tri_vocab_text *text,
                                 const char *config_name, struct tri_error *err)
{
    struct tri_tokenizer *tok = tri_calloc(1, sizeof *tok);
    if (!tok)
        return tri_fail(err, TRI_NOMEM, "%s: no memory", text->name);
    enum tri_status st = tri__vocab_read(tok, text->name, text->ranks, text->ranks_bytes, err);
    if (!st)
        st = tri__added_read(tok, config_name, text->config, text->config_bytes, err);
    if (!st)
        st = tri__splitter_open(&tok->splitter, err);
    if (st) {
        tri_tokenizer_close(tok);
        return st;
    }
    *out = tok;
    return TRI_OK;
}

enum tri_status tri_tokenizer_read(struct tri_tokenizer **out, const struct tri_vocab_text *text,
                                   struct tri_error *err)
{
    return read_both(out, text, text->name, err);
}

/* Writes folder/file to *out: the folder of `path`, or `path` itself if it is one. */
static enum tri_status beside(struct tri_buf *out, const char *path, bool is_folder,
                              const char *file, struct tri_error *err)
{
    const char *slash = strrchr(path, '/');
    size_t folder = is_folder ? strlen(path) : slash ? (size_t)(slash - path) : 0;
    tri_buf_add(out, path, folder);
    if (folder || slash)
        tri_buf_putc(out, '/');
    if (tri_buf_puts(out, file))
        return tri_fail(err, out->failed, "the path of the vocabulary is too long");
    return TRI_OK;
}

enum tri_status tri_tokenizer_open(struct tri_tokenizer **out, const char *path,
                                   struct tri_error *err)
{
    enum { PATH_MAX_BYTES = 4096, CONFIG_MAX_BYTES = 16 << 20 };
    struct stat sb;
    if (stat(path, &sb))
        return tri_fail_errno(err, TRI_IO, errno, "%s", path);
    struct tri_buf ranks_path, config_path;
    tri_buf_init(&ranks_path, PATH_MAX_BYTES);
    tri_buf_init(&config_path, PATH_MAX_BYTES);
    char *ranks = NULL, *config = NULL;
    struct tri_vocab_text text = { 0 };
    bool is_folder = S_ISDIR(sb.st_mode);
    enum tri_status st = beside(&config_path, path, is_folder, "tokenizer_config.json", err);
    if (!st && is_folder)
        st = beside(&ranks_path, path, true, "tiktoken.model", err);
    if (st)
        goto out;
    text.name = is_folder ? ranks_path.data : path;
    if (is_folder)
        st = tri_read_plain_file(&ranks, &text.ranks_bytes, text.name, TRI_VOCAB_MAX_BYTES, err);
    else /* named by a person: may be a pipe */
        st = tri_read_file(&ranks, &text.ranks_bytes, text.name, TRI_VOCAB_MAX_BYTES, err);
    /* lstat: a link to a file that is gone is damage, not a model without special tokens */
    if (!st && lstat(config_path.data, &sb) == 0)
        st = tri_read_plain_file(&config, &text.config_bytes, config_path.data, CONFIG_MAX_BYTES,
                                 err);
    text.ranks = ranks;
    text.config = config;
    if (!st)
        st = read_both(out, &text, config ? config_path.data : text.name, err);
out:
    tri_free(ranks);
    tri_free(config);
    tri_buf_fini(&ranks_path);
    tri_buf_fini(&config_path);
    return st;
}

void tri_tokenizer_close(struct tri_tokenizer *tok)
{
    if (!tok)
        return;
    tri__splitter_close(tok->splitter);
    tri__token_table_fini(&tok->by_bytes);
    tri__token_table_fini(&tok->by_name);
    tri_free(tok->name_lengths);
    tri_free(tok->blob);
    tri_free(tok->start);
    tri_free(tok->length);
    tri_free(tok);
}

int32_t tri_tokenizer_ranks(const struct tri_tokenizer *tok)
{
    return tok->ranks;
}

int32_t tri_tokenizer_tokens(const struct tri_tokenizer *tok)
{
    return tok->tokens;
}

const char *tri_token_bytes(const struct tri_tokenizer *tok, int32_t id, size_t *bytes)
{
    if (id < 0 || id >= tok->tokens || !tok->length[id])
        return NULL;
    *bytes = tok->length[id];
    return tok->blob + tok->start[id];
}

bool tri_token_is_added(const struct tri_tokenizer *tok, int32_t id)
{
    return id >= tok->ranks && id < tok->tokens;
}

int32_t tri_token_named(const struct tri_tokenizer *tok, const char *name)
{
    return tri__token_find(tok, &tok->by_name, name, strlen(name));
}

enum tri_status tri_chat_ids_find(struct tri_chat_ids *out, const struct tri_tokenizer *tok,
                                  struct tri_error *err)
{
    static const char *const required[] = { "<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>" };
    int32_t id[4];
    for (size_t i = 0; i < 4; i++) {
        id[i] = tri_token_named(tok, required[i]);
        if (id[i] < 0)
            return tri_fail(err, TRI_UNSUPPORTED,
                            "this vocabulary of %d tokens has no %s: it does not speak the Kimi K3 "
                            "chat format (is it tiktoken.model with the tokenizer_config.json of "
                            "the same model?)",
                            tok->tokens, required[i]);
    }
    *out = (struct tri_chat_ids){
        .open = id[0],
        .close = id[1],
        .sep = id[2],
        .end_of_msg = id[3],
        .media_begin = tri_token_named(tok, "<|media_begin|>"),
        .media_content = tri_token_named(tok, "<|media_content|>"),
        .media_end = tri_token_named(tok, "<|media_end|>"),
        .media_pad = tri_token_named(tok, "<|media_pad|>"),
        .bos = tri_token_named(tok, "[BOS]"),
        .eos = tri_token_named(tok, "[EOS]"),
        .pad = tri_token_named(tok, "[PAD]"),
    };
    return TRI_OK;
}

void tri_detok_init(struct tri_detok *detok, const struct tri_tokenizer *tok, bool skip_added)
{
    *detok = (struct tri_detok){ .tok = tok, .skip_added = skip_added };
}

enum tri_status tri_detok_push(struct tri_detok *detok, int32_t id, struct tri_buf *out,
                               struct tri_error *err)
{
    size_t bytes = 0;
    const char *data = tri_token_bytes(detok->tok, id, &bytes);
    if (!data)
        return tri_fail(err, TRI_FORMAT, "id %d is no token: this vocabulary has 0 to %d", id,
                        detok->tok->tokens - 1);
    if (detok->skip_added && tri_token_is_added(detok->tok, id))
        return TRI_OK;
    if (tri_utf8_push(&detok->hold, data, bytes, out))
        return tri_fail(err, out->failed, "no room for the text: at most %zu bytes",
                        out->max_bytes);
    return TRI_OK;
}

enum tri_status tri_detok_finish(struct tri_detok *detok, struct tri_buf *out)
{
    return tri_utf8_finish(&detok->hold, out);
}
