/* A reply as the assistant message of the next request. */
#include "text/text_priv.h"

static void put_call(struct tri_buf *out, const struct tri_call *call, const char *prefix, size_t i)
{
    tri_buf_printf(out, "%s{\"id\": \"%s%zu\", \"type\": \"function\", \"function\": {\"name\": ",
                   i ? ", " : "", prefix, i);
    tri_json_quote(out, call->name, call->name_bytes);
    tri_buf_puts(out, ", \"arguments\": ");
    tri_json_quote(out, call->arguments, call->arguments_bytes);
    tri_buf_puts(out, "}}");
}

enum tri_status tri_turn_message(struct tri_buf *out, const struct tri_turn *turn,
                                 const char *call_id_prefix)
{
    tri_buf_puts(out, "{\"role\": \"assistant\", \"reasoning_content\": ");
    tri_json_quote(out, turn->reasoning, turn->reasoning_bytes);
    tri_buf_puts(out, ", \"content\": ");
    tri_json_quote(out, turn->content, turn->content_bytes);
    if (turn->call_count) {
        tri_buf_puts(out, ", \"tool_calls\": [");
        for (size_t i = 0; i < turn->call_count; i++)
            put_call(out, &turn->calls[i], call_id_prefix, i);
        tri_buf_puts(out, "]");
    }
    return tri_buf_puts(out, "}");
}
