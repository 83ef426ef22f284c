/*
 * Named models, so that a plan needs no download: data/models.json, our own file with the numbers
 * of the published configs, compiled in.
 */
#include "arch/arch_priv.h"

#include <string.h>
#include "base/mem.h"

extern const unsigned char tri__data_models[];
extern const size_t tri__data_models_bytes;

static const char *const names[] = {
    "kimi-k3",          "kimi-linear-48b", "kimi-k2",        "kimi-k2-thinking", "kimi-k2.5",
    "kimi-k2.6",        "kimi-k2.7-code",  "deepseek-v3",    "deepseek-r1",      "deepseek-v2",
    "deepseek-v2-lite", "mixtral-8x7b",    "mixtral-8x22b",  "mistral-7b",       "llama-3.1-8b",
    "llama-3.1-70b",    "llama-3.1-405b",  "qwen2.5-7b",     "qwen2.5-14b",      "qwen2.5-32b",
    "qwen2.5-72b",      "qwen3-4b",        "qwen3-8b",       "qwen3-14b",        "qwen3-32b",
    "qwen3-30b-a3b",    "qwen3-235b-a22b", "qwen2-57b-a14b",
};

const char *tri_arch_preset(int i)
{
    return i >= 0 && i < (int)(sizeof names / sizeof names[0]) ? names[i] : NULL;
}

enum tri_status tri__arch_preset_text(char **out, const char *name, struct tri_error *err)
{
    json_t *all = NULL;
    *out = NULL;
    bool known = false;
    for (int i = 0; tri_arch_preset(i); i++)
        known |= !strcmp(tri_arch_preset(i), name);
    if (!known)
        return TRI_OK;
    enum tri_status status =
        tri_json_parse(&all, "data/models.json", (const char *)tri__data_models,
                       tri__data_models_bytes, TRI_ARCH_MAX_CONFIG_BYTES, err);
    if (status)
        return status;
    char *text = json_dumps(json_object_get(all, name), JSON_COMPACT);
    json_decref(all);
    if (!text)
        return tri_fail(err, TRI_NOMEM, "%s: no memory for its config", name);
    *out = tri_strdup(text);
    json_free_t release;
    json_get_alloc_funcs(NULL, &release);
    release(text);
    return *out ? TRI_OK : tri_fail(err, TRI_NOMEM, "%s: no memory for its config", name);
}
