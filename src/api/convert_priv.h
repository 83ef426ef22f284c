/* Shared by the two converters of requests (convert.c, from_responses.c). */
#ifndef TRI_API_CONVERT_PRIV_H
#define TRI_API_CONVERT_PRIV_H

#include "api/api_priv.h"

/* The "type" member of a block or item, "" without one. */
const char *tri__conv_type(const json_t *block);
/* A string's text, quoted; anything else as an empty one. */
void tri__conv_text(struct tri_buf *out, const json_t *text);
/* `,"name":` and the text. */
void tri__conv_member(struct tri_buf *out, const char *name, const json_t *text);
/* A comma before all but the first. */
void tri__conv_comma(struct tri_buf *out, bool *any);
/* {name, description, <schema>} as {"type":"function","function":{..., "parameters"}}; hosted tools
 * are left out. */
bool tri__conv_tools(struct tri_buf *out, const json_t *tools, const char *schema,
                     struct tri__fault *fault);
/* Responses' and Anthropic's form of response_format as the chat's. */
void tri__conv_format(struct tri_buf *out, const json_t *format);
/* Ends the object; false when it became too large. */
bool tri__conv_closed(struct tri_buf *out, struct tri__fault *fault);

#endif
