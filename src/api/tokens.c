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

static bool tokens_of(struct tri_api *api, struct tri_http_request *q, const json_t *body,
                      struct tri_ids *ids, struct tri__fault *fault)
{
    struct tri__exchange x = { .api = api };
    size_t bytes = 0;
    const char *text = tri_http_body(q, &bytes);
    const json_t *content = json_object_get(body, "content");
    if (!json_object_get(body, "messages"))
        return encode(api, content ? content : json_object_get(body, "prompt"),
                      json_is_true(json_object_get(body, "parse_special")), ids, fault);
    bool ok = tri__params_read(&x.p, api, TRI__CHAT, body, fault) &&
              tri__exchange_render(&x, text, bytes, fault);
    *ids = x.ids;
    tri_prompt_close(x.prompt);
    tri__params_fini(&x.p);
    return ok;
}

void tri__serve_tokenize(struct tri_api *api, struct tri_http_request *q, json_t *body)
{
    struct tri_ids ids = { 0 };
    struct tri__fault fault = { 0 };
    struct tri_buf out;
    tri_buf_init(&out, TRI__API_MAX_OUT_BYTES);
    if (!tokens_of(api, q, body, &ids, &fault)) {
        tri__fault_reply(q, &fault, false);
    } else {
        tri_buf_printf(&out, "{\"count\":%zu,\"max_model_len\":%lld,\"tokens\":", ids.count_tokens,
                       (long long)tri_sched_context_tokens(api->options.sched));
        put_ids(&out, &ids);
        tri_buf_puts(&out, "}\n");
        tri_http_reply(q, 200, "application/json", out.data, out.len_bytes);
    }
    tri_buf_fini(&out);
    tri_ids_fini(&ids);
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

void tri__serve_detokenize(struct tri_api *api, struct tri_http_request *q, json_t *body)
{
    struct tri__fault fault = { 0 };
    struct tri_buf text, out;
    tri_buf_init(&text, TRI_TURN_MAX_BYTES);
    tri_buf_init(&out, TRI__API_MAX_OUT_BYTES);
    if (!decode(api, json_object_get(body, "tokens"), &text, &fault)) {
        tri__fault_reply(q, &fault, false);
    } else {
        const char *data = text.data ? text.data : "";
        tri_buf_puts(&out, "{\"prompt\":");
        tri_json_quote(&out, data, text.len_bytes);
        tri_buf_puts(&out, ",\"content\":");
        tri_json_quote(&out, data, text.len_bytes);
        tri_buf_puts(&out, "}\n");
        tri_http_reply(q, 200, "application/json", out.data, out.len_bytes);
    }
    tri_buf_fini(&text);
    tri_buf_fini(&out);
}
