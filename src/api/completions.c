/* /v1/completions: plain text or token ids continued, no chat format. */
#include "api/api_priv.h"

#include <string.h>

static void open_object(struct tri__exchange *x, struct tri_buf *out)
{
    tri_buf_printf(out, "{\"id\":\"%s\",\"object\":\"text_completion\",\"created\":%lld,\"model\":",
                   x->id, (long long)x->created);
    tri__put_quoted(out, x->p.model);
    tri_buf_puts(out, ",\"system_fingerprint\":\"trireme-" TRI_VERSION "\"");
}

/* The end of a choice, after its log probabilities. */
static void put_end(struct tri_buf *out, struct tri__choice *c, const char *finish)
{
    tri__openai_token_ids(out, c);
    tri_buf_puts(out, ",\"finish_reason\":");
    if (finish)
        tri__put_quoted(out, finish);
    else
        tri_buf_puts(out, "null");
    tri_buf_puts(out, ",\"stop_reason\":");
    if (finish && c->found >= 0)
        tri__put_quoted(out, c->x->p.stop[c->found]);
    else
        tri_buf_puts(out, "null");
    tri_buf_puts(out, "}");
}

/* --- log probabilities: {"tokens", "token_logprobs", "top_logprobs", "text_offset"} ----------- */

static void put_token_name(struct tri_buf *out, const struct tri__choice *c, int32_t id)
{
    size_t bytes = 0;
    const char *text = tri_token_bytes(c->x->api->options.tok, id, &bytes);
    if (text && tri_utf8_valid(text, bytes) == bytes) {
        tri_json_quote(out, text, bytes);
        return;
    }
    tri_buf_puts(out, "\"bytes:");
    for (size_t i = 0; text && i < bytes; i++)
        tri_buf_printf(out, "\\\\x%02x", (unsigned char)text[i]);
    tri_buf_puts(out, "\"");
}

/* Characters that a token adds: bytes that do not go on with one. */
static int64_t characters(const struct tri__choice *c, int32_t id)
{
    size_t bytes = 0;
    int64_t n = 0;
    const char *text = tri_token_bytes(c->x->api->options.tok, id, &bytes);
    for (size_t i = 0; text && i < bytes; i++)
        n += ((unsigned char)text[i] & 0xc0) != 0x80;
    return n;
}

/* item: names; offsets: in characters of the text. */
static void add_name(struct tri__choice *c, int32_t id, const char *comma)
{
    tri_buf_puts(&c->item, comma);
    put_token_name(&c->item, c, id);
    tri_buf_printf(&c->offsets, "%s%lld", comma, (long long)c->text_offset);
    c->text_offset += characters(c, id);
}

/* items: log probabilities; logprobs: the likeliest, and the token itself if it is none of them. */
static void add_token(struct tri__choice *c, const struct tri_logprob *chosen,
                      const struct tri_logprob *top, int64_t n_top)
{
    const char *comma = c->item.len_bytes ? "," : "";
    bool told = false;
    add_name(c, chosen->id, comma);
    tri_buf_printf(&c->items, "%s%.6f", comma, (double)chosen->logprob);
    tri_buf_printf(&c->logprobs, "%s{", comma);
    for (int64_t i = 0; i < n_top + 1; i++) {
        const struct tri_logprob *t = i < n_top ? &top[i] : chosen;
        if (i == n_top && told)
            break;
        told |= t->id == chosen->id;
        tri_buf_puts(&c->logprobs, i ? "," : "");
        put_token_name(&c->logprobs, c, t->id);
        tri_buf_printf(&c->logprobs, ":%.6f", (double)t->logprob);
    }
    tri_buf_puts(&c->logprobs, "}");
}

/* Before anything of the answer: the prompt's tokens. Nothing comes before the first, so it has no
 * probability. */
static void add_prompt_scores(struct tri__choice *c)
{
    size_t n = 0;
    const int32_t *ids = tri__choice_prompt(c, &n);
    const struct tri_scores *scores = tri_job_scores(c->job);
    TRI_ASSERT(scores->n_done == (int64_t)n - 1);
    add_name(c, ids[0], "");
    tri_buf_puts(&c->items, "null");
    tri_buf_puts(&c->logprobs, "null");
    for (size_t i = 1; i < n; i++)
        add_token(c, &scores->chosen[i], scores->top + (int64_t)i * scores->n_top,
                  c->x->p.top_logprobs);
}

static void put_chunk(struct tri__choice *c, const char *text, size_t n, const char *finish);
static void stream_echo(struct tri__choice *c);

/* Once, when the prompt has been computed; in a stream with its text. */
static void tell_prompt(struct tri__choice *c)
{
    if (!c->x->p.echo || !c->x->p.logprobs || c->scored)
        return;
    c->scored = true;
    add_prompt_scores(c);
    if (c->x->p.stream)
        stream_echo(c);
}

static void note_logprob(struct tri__choice *c, const struct tri_job_event *e)
{
    tell_prompt(c);
    add_token(c, &e->chosen, e->top, e->n_top);
}

static void put_logprobs(struct tri_buf *out, struct tri__choice *c)
{
    if (!c->x->p.logprobs) {
        tri_buf_puts(out, "null");
        return;
    }
    tri_buf_puts(out, "{\"tokens\":[");
    tri_buf_add(out, c->item.data, c->item.len_bytes);
    tri_buf_puts(out, "],\"token_logprobs\":[");
    tri_buf_add(out, c->items.data, c->items.len_bytes);
    tri_buf_puts(out, "],\"text_offset\":[");
    tri_buf_add(out, c->offsets.data, c->offsets.len_bytes);
    tri_buf_puts(out, "],\"top_logprobs\":");
    if (c->x->p.top_logprobs) {
        tri_buf_puts(out, "[");
        tri_buf_add(out, c->logprobs.data, c->logprobs.len_bytes);
        tri_buf_puts(out, "]}");
    } else {
        tri_buf_puts(out, "null}");
    }
    tri_buf_clear(&c->item);
    tri_buf_clear(&c->offsets);
    tri_buf_clear(&c->items);
    tri_buf_clear(&c->logprobs);
}

/* --- stream ---------------------------------------------------------------------------------- */

static void put_chunk(struct tri__choice *c, const char *text, size_t n, const char *finish)
{
    struct tri__exchange *x = c->x;
    tri_buf_puts(&x->out, "data: ");
    open_object(x, &x->out);
    tri_buf_printf(&x->out, ",\"choices\":[{\"index\":%lld,\"text\":", (long long)c->index);
    tri_json_quote(&x->out, text, n);
    tri_buf_puts(&x->out, ",\"logprobs\":");
    if (c->item.len_bytes)
        put_logprobs(&x->out, c);
    else
        tri_buf_puts(&x->out, "null");
    if (!c->prompt_told)
        tri__openai_prompt_ids(&x->out, c);
    c->prompt_told = true;
    put_end(&x->out, c, finish);
    tri_buf_puts(&x->out, "]");
    if (x->p.include_usage)
        tri_buf_puts(&x->out, ",\"usage\":null");
    tri_buf_puts(&x->out, "}\n\n");
}

static void put_echo(struct tri_buf *out, const struct tri__choice *c)
{
    const struct tri__exchange *x = c->x;
    size_t n = 0;
    const int32_t *ids = tri__choice_prompt(c, &n);
    struct tri_detok detok;
    struct tri_buf text;
    tri_buf_init(&text, TRI_TURN_MAX_BYTES);
    tri_detok_init(&detok, x->api->options.tok, false);
    for (size_t i = 0; i < n; i++)
        if (tri_detok_push(&detok, ids[i], &text, NULL) != TRI_OK)
            break;
    tri_detok_finish(&detok, &text);
    tri_buf_add(out, text.data ? text.data : "", text.len_bytes);
    tri_buf_fini(&text);
}

static void stream_echo(struct tri__choice *c)
{
    struct tri_buf text;
    tri_buf_init(&text, TRI_TURN_MAX_BYTES);
    put_echo(&text, c);
    put_chunk(c, text.data ? text.data : "", text.len_bytes, NULL);
    tri_buf_fini(&text);
}

/* With log probabilities the prompt waits for them. */
static void begin(struct tri__exchange *x)
{
    for (int64_t i = 0; i < x->n_choices && x->p.echo && !x->p.logprobs; i++)
        stream_echo(&x->choice[i]);
}

static void text_piece(struct tri__choice *c, enum tri_event_kind kind, const char *bytes, size_t n)
{
    (void)kind;
    put_chunk(c, bytes, n, NULL);
}

static void call(struct tri__choice *c, const struct tri_event *event)
{
    (void)c; /* plain text has no calls */
    (void)event;
}

static void choice_end(struct tri__choice *c)
{
    tell_prompt(c); /* max_tokens 0: there was no token */
    put_chunk(c, "", 0, c->finish);
}

static void end(struct tri__exchange *x)
{
    if (x->p.include_usage) {
        tri_buf_puts(&x->out, "data: ");
        open_object(x, &x->out);
        tri__openai_usage_chunk(x);
    }
    tri_buf_puts(&x->out, "data: [DONE]\n\n");
}

/* --- whole ----------------------------------------------------------------------------------- */

static void whole(struct tri__exchange *x, struct tri_buf *out)
{
    open_object(x, out);
    tri_buf_puts(out, ",\"choices\":[");
    for (int64_t i = 0; i < x->n_choices; i++) {
        struct tri__choice *c = &x->choice[i];
        struct tri_buf text;
        tri_buf_init(&text, 2u * TRI_TURN_MAX_BYTES);
        if (x->p.echo)
            put_echo(&text, c);
        tri_buf_add(&text, c->content.data ? c->content.data : "", c->content.len_bytes);
        tri_buf_printf(out, "%s{\"index\":%lld,\"text\":", i ? "," : "", (long long)i);
        tri_json_quote(out, text.data, text.len_bytes);
        tri_buf_fini(&text);
        tri_buf_puts(out, ",\"logprobs\":");
        tell_prompt(c);
        put_logprobs(out, c);
        tri__scores_put(out, c);
        tri__openai_prompt_ids(out, c);
        put_end(out, c, c->finish);
    }
    tri_buf_puts(out, "],\"usage\":");
    tri__openai_usage(out, x);
    tri__profile_put(out, &x->choice[0]);
    tri_buf_puts(out, "}");
}

static const struct tri__format format = { .begin = begin,
                                           .text = text_piece,
                                           .call = call,
                                           .logprob = note_logprob,
                                           .choice_end = choice_end,
                                           .end = end,
                                           .error = tri__openai_error,
                                           .keepalive = tri__openai_keepalive,
                                           .whole = whole };

static bool add_ids(struct tri__exchange *x, const json_t *list, struct tri__fault *fault)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *id = json_array_get(list, i);
        size_t bytes = 0;
        json_int_t v = json_integer_value(id);
        if (!json_is_integer(id) || v < 0 || v > INT32_MAX ||
            !tri_token_bytes(x->api->options.tok, (int32_t)v, &bytes))
            return tri__fault_bad(fault, "prompt", "prompt[%zu] is no token id", i);
        if (tri_ids_add(&x->ids, (int32_t)v) != TRI_OK)
            return tri__fault_is(fault, 503, "no_memory", "no memory");
    }
    return true;
}

/* One prompt: a text, or a list of ids. */
static bool add_prompt(struct tri__exchange *x, const json_t *prompt, struct tri__fault *fault)
{
    struct tri_error err = { 0 };
    size_t had = x->ids.count_tokens;
    if (json_is_string(prompt)) {
        if (tri_encode(x->api->options.tok, json_string_value(prompt), json_string_length(prompt),
                       TRI_PLAIN, &x->ids, &err) != TRI_OK)
            return tri__fault_from(fault, &err);
    } else if (!json_is_array(prompt)) {
        return tri__fault_bad(fault, "prompt", "a prompt is a text or a list of ids");
    } else if (!add_ids(x, prompt, fault)) {
        return false;
    }
    if (x->ids.count_tokens == had)
        return tri__fault_bad(fault, "prompt", "a prompt is empty");
    x->prompt_end[x->n_prompts++] = x->ids.count_tokens;
    return true;
}

/* A prompt, or a list of them. */
static bool read_prompt(struct tri__exchange *x, const json_t *prompt, struct tri__fault *fault)
{
    size_t n = json_array_size(prompt);
    if (n == 0 || json_is_integer(json_array_get(prompt, 0)))
        return add_prompt(x, prompt, fault);
    if (n > TRI_API_MAX_PROMPTS)
        return tri__fault_bad(fault, "prompt", "at most %d prompts a request", TRI_API_MAX_PROMPTS);
    for (size_t i = 0; i < n; i++)
        if (!add_prompt(x, json_array_get(prompt, i), fault))
            return false;
    return true;
}

static bool prepare(struct tri__exchange *x, struct tri__fault *fault)
{
    return tri__params_read(&x->p, x->api, TRI__COMPLETIONS, x->body, fault) &&
           read_prompt(x, json_object_get(x->body, "prompt"), fault) && tri__scores_check(x, fault);
}

const struct tri__endpoint tri__completions = { "cmpl-", &format, TRI__COMPLETIONS,
                                                prepare, NULL,    false };
