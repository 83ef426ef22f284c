/*
 * trireme tokenize: text to ids and back, a chat request to its prompt, and sampled ids to what a
 * client would see. Everything is done by the text room; here are the options and the printing.
 */
#include "cli/cli.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "base/json.h"
#include "base/mem.h"
#include "cli/model_path.h"
#include "cli/usage.h"
#include "text/text.h"

enum { IDS_MAX_BYTES = 64 << 20 };

enum job { ENCODE, DECODE, CHAT, PARSE };

struct options {
    enum job job;
    bool markup, json, tools, ids;
    enum tri_channel start;
    const char *vocab, *chat, *tools_path;
    char **words; /* what is left: [MODEL] and TEXT or ids */
    size_t word_count;
};

enum {
    KEY_VOCAB = 256,
    KEY_MARKUP,
    KEY_JSON,
    KEY_IDS,
    KEY_CHAT,
    KEY_PARSE,
    KEY_START,
    KEY_TOOLS,
    KEY_NO_TOOLS
};

static const struct argp_option option_list[] = {
    { "vocab", KEY_VOCAB, "FILE", 0,
      "a tiktoken.model (tokenizer_config.json beside it names the special tokens)", 0 },
    { "markup", KEY_MARKUP, 0, 0, "names of special tokens in TEXT become their ids", 0 },
    { "json", KEY_JSON, 0, 0, "print JSON", 0 },
    { "ids", KEY_IDS, 0, 0, "the other way: ids, apart by blanks or commas, to text", 0 },
    { "chat", KEY_CHAT, "FILE", 0, "encode a chat request as the model's own encoder does", 1 },
    { "parse", KEY_PARSE, 0, 0, "read sampled ids as a reply; prints JSON", 2 },
    { "start", KEY_START, "think|response", 0, "what the prompt of that reply opened (think)", 2 },
    { "tools", KEY_TOOLS, "FILE", 0, "the request whose tools are declared (any name is fine)", 2 },
    { "no-tools", KEY_NO_TOOLS, 0, 0, "no tools are declared: calls are swallowed", 2 },
    { 0 },
};

static const char help[] =
    "Turn text into token ids, and back.\v"
    "MODEL is a folder with tiktoken.model; without it and --vocab, the nano model. TEXT and FILE "
    "may be - for standard input, which is read to its last byte.\n"
    "\n"
    "  trireme tokenize 'Hello, world'\n"
    "  trireme tokenize --json models/nano - < README.md\n"
    "  trireme tokenize --ids 163587 2778\n"
    "  trireme tokenize --chat request.json --json\n"
    "  trireme tokenize --parse --start think --ids - < sampled.txt\n"
    "\n"
    "--json prints {\"ids\", \"pieces\"}: a piece is the token's text, with <0xE4> for each byte "
    "that is not UTF-8 by itself. With --chat: {\"ids\", \"segments\"}, each segment [text, "
    "is_marker]. --parse prints {\"reasoning\", \"content\", \"tool_calls\": [{\"index\", "
    "\"name\", "
    "\"arguments\"}], \"finish\", \"deviations\"}; index counts from 0, arguments are JSON text, "
    "finish is length unless the ids end the message.";

static error_t take_option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case KEY_VOCAB:
        o->vocab = arg;
        return 0;
    case KEY_MARKUP:
        o->markup = true;
        return 0;
    case KEY_JSON:
        o->json = true;
        return 0;
    case KEY_IDS:
        o->ids = true;
        return 0;
    case KEY_CHAT:
        o->job = CHAT;
        o->chat = arg;
        return 0;
    case KEY_PARSE:
        o->job = PARSE;
        return 0;
    case KEY_START:
        o->start = strcmp(arg, "think") == 0 ? TRI_CHANNEL_THINK : TRI_CHANNEL_RESPONSE;
        if (o->start == TRI_CHANNEL_RESPONSE && strcmp(arg, "response") != 0)
            argp_error(state, "--start is think or response, not '%s'", arg);
        return 0;
    case KEY_TOOLS:
        o->tools_path = arg;
        return 0;
    case KEY_NO_TOOLS:
        o->tools = false;
        return 0;
    case ARGP_KEY_ARGS:
        o->words = state->argv + state->next;
        o->word_count = (size_t)(state->argc - state->next);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- input ---- */

/* Adds where the fault is to a message that cannot know it. */
static enum tri_status blame(struct tri_error *err, const char *source, const struct tri_error *why)
{
    return tri_fail(err, why->status, "%s: %s", source, why->text);
}

static enum tri_status read_stdin(struct tri_buf *out, struct tri_error *err)
{
    char block[65536];
    for (size_t got; (got = fread(block, 1, sizeof block, stdin)) > 0;)
        if (tri_buf_add(out, block, got))
            return tri_fail(err, out->failed, "standard input: more than %zu bytes",
                            out->max_bytes);
    return ferror(stdin) ? tri_fail(err, TRI_IO, "standard input: cannot be read") : TRI_OK;
}

/* A file, or standard input for "-". */
static enum tri_status read_source(const char *path, struct tri_buf *out, struct tri_error *err)
{
    if (!strcmp(path, "-"))
        return read_stdin(out, err);
    char *data = NULL;
    size_t bytes = 0;
    enum tri_status st = tri_read_file(&data, &bytes, path, out->max_bytes, err);
    if (!st && tri_buf_add(out, data, bytes))
        st = tri_fail(err, out->failed, "%s: no memory to read it", path);
    tri_free(data);
    return st;
}

static const char *source_name(const char *path)
{
    return strcmp(path, "-") ? path : "standard input";
}

static bool is_between_ids(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == ',';
}

static enum tri_status read_ids_text(const char *text, size_t bytes, struct tri_ids *ids,
                                     struct tri_error *err)
{
    for (size_t i = 0; i < bytes;) {
        if (is_between_ids(text[i])) {
            i++;
            continue;
        }
        size_t from = i;
        int32_t id = 0;
        while (i < bytes && text[i] >= '0' && text[i] <= '9' && i - from < 9)
            id = id * 10 + (text[i++] - '0');
        if (i == from || (i < bytes && !is_between_ids(text[i]))) {
            char safe[40];
            size_t rest = bytes - from;
            tri_printable(safe, sizeof safe, text + from, rest < 20 ? rest : 20);
            return tri_fail(err, TRI_FORMAT, "--ids: '%s' is no token id (a whole number)", safe);
        }
        if (tri_ids_add(ids, id))
            return tri_fail(err, TRI_NOMEM, "--ids: no memory");
    }
    return TRI_OK;
}

static enum tri_status read_ids(const struct options *o, struct tri_ids *ids, struct tri_error *err)
{
    struct tri_buf in;
    tri_buf_init(&in, IDS_MAX_BYTES);
    enum tri_status st = TRI_OK;
    for (size_t i = 0; i < o->word_count && !st; i++) {
        tri_buf_clear(&in);
        if (!strcmp(o->words[i], "-"))
            st = read_stdin(&in, err);
        else if (tri_buf_puts(&in, o->words[i]))
            st = tri_fail(err, in.failed, "--ids: more than %d bytes", IDS_MAX_BYTES);
        if (!st && in.len_bytes)
            st = read_ids_text(in.data, in.len_bytes, ids, err);
    }
    tri_buf_fini(&in);
    return st;
}

/* ---- output ---- */

static void put_ids(struct tri_buf *out, const struct tri_ids *ids, const char *between)
{
    for (size_t i = 0; i < ids->count_tokens; i++)
        tri_buf_printf(out, "%s%d", i ? between : "", ids->data[i]);
}

/* A token's text in quotes; bytes that are no UTF-8 by themselves as <0xE4>. */
static void put_piece(struct tri_buf *out, const char *data, size_t bytes)
{
    struct tri_buf text;
    tri_buf_init(&text, (size_t)TRI_TOKEN_MAX_BYTES * 6);
    for (size_t i = 0; i < bytes;) {
        size_t good = tri_utf8_valid(data + i, bytes - i);
        tri_buf_add(&text, data + i, good);
        i += good;
        if (i < bytes)
            tri_buf_printf(&text, "<0x%02X>", (unsigned)(unsigned char)data[i++]);
    }
    tri_json_quote(out, text.data ? text.data : "", text.len_bytes);
    tri_buf_fini(&text);
}

static void put_pieces(struct tri_buf *out, const struct tri_tokenizer *tok,
                       const struct tri_ids *ids)
{
    tri_buf_puts(out, ", \"pieces\": [");
    for (size_t i = 0; i < ids->count_tokens; i++) {
        size_t bytes = 0;
        const char *data = tri_token_bytes(tok, ids->data[i], &bytes);
        tri_buf_puts(out, i ? ", " : "");
        put_piece(out, data, bytes);
    }
    tri_buf_puts(out, "]");
}

static void put_segments(struct tri_buf *out, const struct tri_prompt *prompt)
{
    size_t count = 0;
    const struct tri_segment *s = tri_prompt_segments(prompt, &count);
    tri_buf_puts(out, ", \"segments\": [");
    for (size_t i = 0; i < count; i++) {
        tri_buf_puts(out, i ? ", [" : "[");
        tri_json_quote(out, s[i].text, s[i].bytes);
        tri_buf_puts(out, s[i].is_marker ? ", true]" : ", false]");
    }
    tri_buf_puts(out, "]");
}

static void put_turn(struct tri_buf *out, const struct tri_turn *turn)
{
    tri_buf_puts(out, "{\"reasoning\": ");
    tri_json_quote(out, turn->reasoning, turn->reasoning_bytes);
    tri_buf_puts(out, ", \"content\": ");
    tri_json_quote(out, turn->content, turn->content_bytes);
    tri_buf_puts(out, ", \"tool_calls\": [");
    for (size_t i = 0; i < turn->call_count; i++) {
        tri_buf_printf(out, "%s{\"index\": %zu, \"name\": ", i ? ", " : "", i);
        tri_json_quote(out, turn->calls[i].name, turn->calls[i].name_bytes);
        tri_buf_puts(out, ", \"arguments\": ");
        tri_json_quote(out, turn->calls[i].arguments, turn->calls[i].arguments_bytes);
        tri_buf_puts(out, "}");
    }
    tri_buf_printf(out, "], \"finish\": \"%s\", \"deviations\": {", tri_finish_name(turn->finish));
    const char *between = "";
    for (int i = 0; i < TRI_DEVIATIONS; i++)
        if (turn->deviations[i]) {
            tri_buf_printf(out, "%s\"%s\": %u", between, tri_deviation_name(i),
                           (unsigned)turn->deviations[i]);
            between = ", ";
        }
    tri_buf_puts(out, "}}");
}

/* ---- the four jobs; each fills `out` ---- */

static enum tri_status encode(const struct options *o, const struct tri_tokenizer *tok,
                              struct tri_buf *out, struct tri_error *err)
{
    const char *word = o->words[o->word_count - 1];
    bool from_stdin = !strcmp(word, "-");
    struct tri_buf in;
    struct tri_ids ids = { 0 };
    struct tri_error why = { 0 };
    tri_buf_init(&in, TRI_ENCODE_MAX_BYTES);
    enum tri_status st = from_stdin ? read_stdin(&in, err) : TRI_OK;
    const char *text = from_stdin ? in.data : word;
    size_t bytes = from_stdin ? in.len_bytes : strlen(word);
    if (!st && bytes &&
        tri_encode(tok, text, bytes, o->markup ? TRI_MARKUP : TRI_PLAIN, &ids, &why))
        st = blame(err, from_stdin ? "standard input" : "TEXT", &why);
    if (!st) {
        tri_buf_puts(out, o->json ? "{\"ids\": [" : "");
        put_ids(out, &ids, o->json ? ", " : " ");
        tri_buf_puts(out, o->json ? "]" : "");
        if (o->json)
            put_pieces(out, tok, &ids);
        tri_buf_puts(out, o->json ? "}" : "");
    }
    tri_ids_fini(&ids);
    tri_buf_fini(&in);
    return st;
}

static enum tri_status decode(const struct options *o, const struct tri_tokenizer *tok,
                              struct tri_buf *out, struct tri_error *err)
{
    struct tri_ids ids = { 0 };
    struct tri_buf text;
    struct tri_detok detok;
    tri_detok_init(&detok, tok, false);
    tri_buf_init(&text, SIZE_MAX / 2);
    enum tri_status st = read_ids(o, &ids, err);
    for (size_t i = 0; i < ids.count_tokens && !st; i++)
        st = tri_detok_push(&detok, ids.data[i], &text, err);
    if (!st && tri_detok_finish(&detok, &text))
        st = tri_fail(err, text.failed, "no memory for the text");
    const char *data = text.data ? text.data : "";
    if (!st && o->json) {
        tri_buf_puts(out, "{\"ids\": [");
        put_ids(out, &ids, ", ");
        tri_buf_puts(out, "], \"text\": ");
        tri_json_quote(out, data, text.len_bytes);
        put_pieces(out, tok, &ids);
        tri_buf_puts(out, "}");
    } else if (!st) {
        tri_buf_add(out, data, text.len_bytes);
    }
    tri_buf_fini(&text);
    tri_ids_fini(&ids);
    return st;
}

/* Reads and renders a request; what a file has to say is told with its name. */
static enum tri_status render(const char *path, struct tri_prompt **out, struct tri_error *err)
{
    struct tri_buf in;
    tri_buf_init(&in, TRI_CHAT_MAX_BYTES);
    enum tri_status st = read_source(path, &in, err);
    if (!st)
        st = tri_chat_render(out, source_name(path), in.data ? in.data : "", in.len_bytes, NULL,
                             err);
    tri_buf_fini(&in);
    return st;
}

static enum tri_status chat(const struct options *o, const struct tri_tokenizer *tok,
                            struct tri_buf *out, struct tri_error *err)
{
    struct tri_prompt *prompt = NULL;
    struct tri_ids ids = { 0 };
    enum tri_status st = render(o->chat, &prompt, err);
    if (!st)
        st = tri_prompt_encode(prompt, tok, &ids, err);
    if (!st) {
        tri_buf_puts(out, o->json ? "{\"ids\": [" : "");
        put_ids(out, &ids, o->json ? ", " : " ");
        tri_buf_puts(out, o->json ? "]" : "");
        if (o->json)
            put_segments(out, prompt);
        tri_buf_puts(out, o->json ? "}" : "");
    }
    tri_ids_fini(&ids);
    tri_prompt_close(prompt);
    return st;
}

static enum tri_status parse(const struct options *o, const struct tri_tokenizer *tok,
                             struct tri_buf *out, struct tri_error *err)
{
    struct tri_parser_options settings = { .start = o->start, .tools = o->tools };
    struct tri_prompt *declared = NULL;
    struct tri_parser *parser = NULL;
    struct tri_ids ids = { 0 };
    struct tri_turn turn;
    enum tri_status st = o->tools_path ? render(o->tools_path, &declared, err) : TRI_OK;
    if (declared) {
        settings.names = tri_prompt_tools(declared, &settings.name_count);
        settings.tools = settings.tools && settings.name_count;
    }
    if (!st)
        st = read_ids(o, &ids, err);
    if (!st)
        st = tri_parser_open(&parser, tok, &settings, err);
    for (size_t i = 0; i < ids.count_tokens && !st; i++)
        st = tri_parser_push(parser, ids.data[i], err);
    if (!st)
        st = tri_parser_finish(parser, true, &turn, err);
    if (!st)
        put_turn(out, &turn);
    tri_parser_close(parser);
    tri_prompt_close(declared);
    tri_ids_fini(&ids);
    return st;
}

/* ---- the command ---- */

static bool looks_like_ids(const char *word)
{
    return !strcmp(word, "-") || word[strspn(word, "0123456789, \t\r\n")] == 0;
}

/*
 * Takes MODEL off the front of the words: before ids the word that is no id, before TEXT the first
 * of two. Returns the model's path, NULL if none is named.
 */
static const char *take_model(struct options *o)
{
    bool has_model = false;
    if (o->job == CHAT)
        has_model = o->word_count > 0;
    else if (o->job == ENCODE)
        has_model = o->word_count > 1;
    else
        has_model = o->word_count > 0 && !looks_like_ids(o->words[0]);
    if (!has_model)
        return NULL;
    o->word_count--;
    return *o->words++;
}

static enum tri_status check_usage(const struct options *o, const char *model,
                                   struct tri_error *err)
{
    if (model && o->vocab)
        return tri_fail(err, TRI_ARG, "'%s' and --vocab: name one vocabulary", model);
    if (o->job == ENCODE && o->word_count != 1)
        return tri_fail(err, TRI_ARG,
                        o->word_count ? "TEXT must be one word: quote it, or give - "
                                        "and write to standard input"
                                      : "TEXT is missing (- reads standard input)");
    if (o->job == CHAT && o->word_count)
        return tri_fail(err, TRI_ARG, "--chat takes no TEXT: '%s'", o->words[0]);
    if ((o->job == DECODE || o->job == PARSE) && !o->word_count)
        return tri_fail(err, TRI_ARG, "the ids are missing (- reads standard input)");
    return TRI_OK;
}

static enum tri_status run(struct options *o, struct tri_buf *out, struct tri_error *err)
{
    static enum tri_status (*const jobs[])(const struct options *, const struct tri_tokenizer *,
                                           struct tri_buf *,
                                           struct tri_error *) = { encode, decode, chat, parse };
    const char *model = take_model(o);
    char path[TRI_MODEL_PATH_MAX_BYTES];
    struct tri_tokenizer *tok = NULL;
    enum tri_status st = check_usage(o, model, err);
    if (!st && !o->vocab)
        st = tri_model_path(path, model, err);
    if (!st)
        st = tri_tokenizer_open(&tok, o->vocab ? o->vocab : path, err);
    if (!st)
        st = jobs[o->job](o, tok, out, err);
    tri_tokenizer_close(tok);
    if (!st && tri_buf_putc(out, '\n'))
        st = tri_fail(err, out->failed, "no memory for the output");
    return st;
}

int tri_cmd_tokenize(int argc, char **argv)
{
    static const struct argp argp = {
        option_list, take_option, "[MODEL] TEXT|-\n[MODEL] --ids ID...", help, NULL, NULL, NULL
    };
    struct options o = { .tools = true, .start = TRI_CHANNEL_THINK };
    struct tri_error err = { 0 };
    struct tri_buf out;
    tri_cli_parse(&argp, argc, argv, TRI_EXIT_USAGE, &o);
    if (o.ids && o.job == ENCODE)
        o.job = DECODE;
    tri_buf_init(&out, SIZE_MAX / 2);
    int code = TRI_EXIT_OK;
    if (run(&o, &out, &err))
        code = tri_cli_fail(&err);
    else if (fwrite(out.data, 1, out.len_bytes, stdout) != out.len_bytes || fflush(stdout)) {
        tri_fail_errno(&err, TRI_IO, errno, "standard output");
        code = tri_cli_fail(&err);
    }
    tri_buf_fini(&out);
    return code;
}
