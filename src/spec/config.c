/*
 * config.json into a tri_spec: the outer object, the quantisation, the vision shapes and the token
 * ids (K3 spec 1.1, 1.3, 1.4); text_config is in config_text.c.
 */
#include "spec/spec_priv.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/json.h"
#include "base/mem.h"

#define COUNT(keys) (sizeof(keys) / sizeof(keys)[0])

/* One quantisation is known: compressed-tensors' mxfp4-pack-quantized (1.4, 2.3). */
static void read_quantization(struct tri__spec_reader *outer, struct tri__spec_reader *text,
                              struct tri_spec *s)
{
    const char *key = "quantization_config";
    struct tri__spec_reader *owner = tri__spec_get(outer, key) ? outer : text;
    const json_t *object = tri__spec_get(owner, key);
    if (!object)
        return;
    if (!json_is_object(object)) {
        tri__spec_refuse(owner, TRI_FORMAT, key, "it must be an object");
        text->st = owner->st;
        return;
    }
    char section[64];
    snprintf(section, sizeof section, "%s%s.", owner->section, key);
    struct tri__spec_reader r = *owner;
    r.section = section;
    r.object = object;
    if (strcmp(tri__spec_text(&r, "quant_method", ""), "compressed-tensors") != 0)
        tri__spec_refuse(&r, TRI_UNSUPPORTED, "quant_method", "supported: \"compressed-tensors\"");
    if (strcmp(tri__spec_text(&r, "format", ""), "mxfp4-pack-quantized") != 0)
        tri__spec_refuse(&r, TRI_UNSUPPORTED, "format", "supported: \"mxfp4-pack-quantized\"");
    if (tri__spec_get(&r, "kv_cache_scheme"))
        tri__spec_refuse(&r, TRI_UNSUPPORTED, "kv_cache_scheme", "supported: null");
    s->experts_packed = true;
    text->st = r.st;
}
/* Defaults are those of K3 (1.3): each key may be absent. */
static void read_vision(struct tri__spec_reader *outer, struct tri_spec *s)
{
    enum { W = TRI_SPEC_MAX_WIDTH / 64, SIDE = 4096 };
    struct {
        struct tri_vision_spec v;
        int64_t mm_hidden;
    } f;
#define AT(name) offsetof(struct tri_vision_spec, name)
    static const struct tri__spec_int_key keys[] = {
        { "vt_num_hidden_layers", AT(layers), 1, TRI_SPEC_MAX_LAYERS, 27 },
        { "vt_hidden_size", AT(hidden), 1, W, 1024 },
        { "vt_intermediate_size", AT(inter), 1, W, 4096 },
        { "qkv_hidden_size", AT(qkv), 1, W, 1536 },
        { "patch_size", AT(patch), 1, 256, 14 },
        { "init_pos_emb_height", AT(pos_rows), 1, SIDE, 64 },
        { "init_pos_emb_width", AT(pos_cols), 1, SIDE, 64 },
        { "text_hidden_size", AT(text_hidden), 1, TRI_SPEC_MAX_WIDTH, 7168 },
        { "mm_hidden_size", sizeof(struct tri_vision_spec), 1, W, 1024 },
    };
#undef AT
    const json_t *object = tri__spec_get(outer, "vision_config");
    if (!object)
        return;
    if (!json_is_object(object)) {
        tri__spec_refuse(outer, TRI_FORMAT, "vision_config", "it must be an object");
        return;
    }
    struct tri__spec_reader r = *outer;
    r.section = "vision_config.";
    r.object = object;
    tri__spec_ints(&r, &f, keys, COUNT(keys));
    const json_t *merge = tri__spec_get(&r, "merge_kernel_size");
    int64_t side[2] = { 2, 2 };
    for (size_t i = 0; merge && i < 2; i++) {
        side[i] = json_integer_value(json_array_get(merge, i));
        if (json_array_size(merge) != 2 || side[i] < 1 || side[i] > 8)
            tri__spec_refuse(&r, TRI_FORMAT, "merge_kernel_size",
                             "it must be two whole numbers from 1 to 8");
    }
    outer->st = r.st;
    if (r.st)
        return;
    f.v.merged = f.mm_hidden * side[0] * side[1];
    s->vision = f.v;
    s->has_vision = true;
}

/* A token id: outer object first, then text_config; a list gives its first; -1 when absent. */
static int64_t read_token_id(struct tri__spec_reader *outer, struct tri__spec_reader *text,
                             const char *key, int64_t vocab)
{
    struct tri__spec_reader *r = tri__spec_get(outer, key) ? outer : text;
    const json_t *value = tri__spec_get(r, key);
    if (!value)
        return -1;
    bool listed = json_is_array(value);
    value = listed ? json_array_get(value, 0) : value;
    int64_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < 0 || id >= vocab) {
        tri__spec_refuse(r, TRI_FORMAT, key, "it must be a token id from 0 to %lld",
                         (long long)vocab - 1);
        text->st = r->st;
    } else if (listed) {
        tri_note(r->notes, "%s: %s%s is a list; its first entry is used", r->file, r->section, key);
    }
    return id;
}

/* Where the text model's keys are: in text_config, or in the outer object of a bare kimi_linear. */
static void open_text(struct tri__spec_reader *outer, struct tri__spec_reader *text,
                      struct tri_spec *s)
{
    const char *type = tri__spec_text(outer, "model_type", "");
    if (strcmp(type, "kimi_k3") != 0 && strcmp(type, "kimi_linear") != 0)
        tri__spec_refuse(outer, TRI_UNSUPPORTED, "model_type",
                         "supported: \"kimi_k3\", \"kimi_linear\"");
    snprintf(s->model_type, sizeof s->model_type, "%s", type);
    const json_t *object = tri__spec_get(outer, "text_config");
    bool nested = object || strcmp(type, "kimi_k3") == 0;
    if (nested && !json_is_object(object))
        tri__spec_refuse(outer, TRI_FORMAT, "text_config", "it must be an object");
    *text = *outer;
    if (outer->st || !nested)
        return;
    text->section = "text_config.";
    text->object = object;
    if (strcmp(tri__spec_text(text, "model_type", "kimi_linear"), "kimi_linear") != 0)
        tri__spec_refuse(text, TRI_UNSUPPORTED, "model_type", "supported: \"kimi_linear\"");
}

static enum tri_status read_config(struct tri_spec *s, const char *name, const json_t *json,
                                   const struct tri_notes *notes, struct tri_error *err)
{
    struct tri__spec_reader text, outer = { name, "", json, TRI_OK, notes, err };
    if (!json_is_object(json))
        return tri_fail(err, TRI_FORMAT, "%s: not a JSON object", name);
    open_text(&outer, &text, s);
    if (!text.st)
        read_quantization(&outer, &text, s);
    if (!text.st)
        tri__spec_read_text_config(&text, s);
    if (text.st)
        return text.st;
    s->bos_id = read_token_id(&outer, &text, "bos_token_id", s->vocab);
    s->eos_id = read_token_id(&outer, &text, "eos_token_id", s->vocab);
    s->pad_id = read_token_id(&outer, &text, "pad_token_id", s->vocab);
    struct tri__spec_reader *tied = tri__spec_get(&text, "tie_word_embeddings") ? &text : &outer;
    s->tied_embeddings = tri__spec_bool(tied, "tie_word_embeddings", false);
    read_vision(&outer, s);
    return text.st ? text.st : outer.st;
}

enum tri_status tri_spec_parse(struct tri_spec *out, const char *name, const char *json,
                               size_t json_bytes, const struct tri_notes *notes,
                               struct tri_error *err)
{
    json_t *tree = NULL;
    struct tri_spec spec = { 0 };
    enum tri_status st =
        tri_json_parse(&tree, name, json, json_bytes, TRI_SPEC_MAX_CONFIG_BYTES, err);
    if (st)
        return st;
    st = read_config(&spec, name, tree, notes, err);
    json_decref(tree);
    if (!st)
        *out = spec;
    return st;
}

enum tri_status tri_spec_load(struct tri_spec *out, const char *config_path,
                              const struct tri_notes *notes, struct tri_error *err)
{
    char path[4096];
    struct stat sb;
    const char *tail = stat(config_path, &sb) == 0 && S_ISDIR(sb.st_mode) ? "/config.json" : "";
    if ((size_t)snprintf(path, sizeof path, "%s%s", config_path, tail) >= sizeof path)
        return tri_fail(err, TRI_ARG, "path of the config is longer than %zu bytes", sizeof path);
    char *text = NULL;
    size_t bytes = 0;
    enum tri_status st = tri_spec_read_text(&text, &bytes, path, TRI_SPEC_MAX_CONFIG_BYTES, err);
    if (st)
        return st;
    st = tri_spec_parse(out, path, text, bytes, notes, err);
    tri_free(text);
    return st;
}
