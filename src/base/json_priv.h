/* Inside the base room: parsing that survives a lack of memory. */
#ifndef TRI_BASE_JSON_PRIV_H
#define TRI_BASE_JSON_PRIV_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* json_loadb, NULL with *why for what is no JSON. False: no memory, and none is held. */
bool tri__json_load(json_t **out, const char *text, size_t bytes, json_error_t *why);

#endif
