/* /tokenize and /detokenize, in the shapes of vLLM and of llama.cpp. */
#include "api/api_priv.h"

#include <string.h>

static void put_ids(struct tri_buf *out, const struct tri_ids *ids)
{
    tri_buf_puts(out, "[");
    for (size_t i = 0; i < ids->count_tokens; i++)
        tri_buf_printf(out, i ? ",%d" : "%d", (int)ids->data[i]);
    tri_buf_puts(out, "]");
}

static bool encode(const struct tri_api *api, const json_t *text, bool markup, struct tri_ids *ids,
                   struct tri__fault *fault)
{
    struct tri_error err = { 0 };
    if (!json_is_string(text))
        return tri__fault_bad(fault, "prompt",
                              "a prompt (or content) of text, or messages, is "
                              "needed");
    if (tri_encode(api->options.tok, json_string_value(text), json_string_length(text),
                   markup ? TRI_MARKUP : TRI_PLAIN, ids, &err) != TRI_OK)
        return tri__fault_from(fault, &err);
    return true;
}

static bool tokenize(struct tri__exchange *x, struct tri__fault *fault)
{
    const json_t *content = json_object_get(x->body, "content");
    bool ok = json_object_get(x->body, "messages")
                  ? tri__params_read(&x->p, x->api, TRI__CHAT, x->body, fault) &&
                        tri__exchange_render(x, x->text.data, x->text.len_bytes, fault)
                  : encode(x->api, content ? content : json_object_get(x->body, "prompt"),
                           json_is_true(json_object_get(x->body, "parse_special")), &x->ids, fault);
    if (!ok)
        return false;
    tri_buf_printf(&x->out,
                   "{\"count\":%zu,\"max_model_len\":%lld,\"tokens\":", x->ids.count_tokens,
                   (long long)tri_sched_context_tokens(x->api->options.sched));
    put_ids(&x->out, &x->ids);
    tri_buf_puts(&x->out, "}\n");
    return true;
}

static bool decode(const struct tri_api *api, const json_t *tokens, struct tri_buf *text,
                   struct tri__fault *fault)
{
    struct tri_detok detok;
    struct tri_error err = { 0 };
    if (!json_is_array(tokens))
        return tri__fault_bad(fault, "tokens", "tokens must be a list of ids");
    tri_detok_init(&detok, api->options.tok, false);
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        const json_t *id = json_array_get(tokens, i);
        json_int_t x = json_integer_value(id);
        if (!json_is_integer(id) || x < 0 || x > INT32_MAX)
            return tri__fault_bad(fault, "tokens", "tokens[%zu] is no id", i);
        if (tri_detok_push(&detok, (int32_t)x, text, &err) != TRI_OK)
            return tri__fault_bad(fault, "tokens", "tokens[%zu]: %s", i, err.text);
    }
    return tri_detok_finish(&detok, text) == TRI_OK ||
           tri__fault_bad(fault, "tokens", "the text is too long");
}

static bool detokenize(struct tri__exchange *x, struct tri__fault *fault)
{
    struct tri_buf text;
    tri_buf_init(&text, TRI_TURN_MAX_BYTES);
    bool ok = decode(x->api, json_object_get(x->body, "tokens"), &text, fault);
    const char *data = text.data ? text.data : "";
    tri_buf_puts(&x->out, "{\"prompt\":");
    tri_json_quote(&x->out, data, text.len_bytes);
    tri_buf_puts(&x->out, ",\"content\":");
    tri_json_quote(&x->out, data, text.len_bytes);
    tri_buf_puts(&x->out, "}\n");
    tri_buf_fini(&text);
    return ok;
}

static const struct tri__format plain = { .anthropic = false };

const struct tri__endpoint tri__tokenize = { "tok-", &plain, TRI__CHAT, tokenize, NULL, true };
const struct tri__endpoint tri__detokenize = { "tok-", &plain, TRI__CHAT, detokenize, NULL, true };
