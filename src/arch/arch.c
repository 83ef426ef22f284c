/*
 * Opening and closing an arch, its items and sums. The families themselves are in arch_*.c; which
 * reader a config needs is decided here by model_type alone.
 */
#include "arch/arch_priv.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/mem.h"

static const char *const line_names[] = {
#define TRI_LINE_TEXT(name, text) text,
    TRI_LINE_MAP(TRI_LINE_TEXT)
#undef TRI_LINE_TEXT
};

static const struct {
    const char *name;
    uint32_t bits64;
} numbers[] = {
#define TRI_NUMBER_TEXT(name, text, bits) { text, bits },
    TRI_NUMBER_MAP(TRI_NUMBER_TEXT)
#undef TRI_NUMBER_TEXT
};

const char *tri_arch_line_name(enum tri_arch_line line)
{
    return line_names[line];
}

const char *tri_number_name(enum tri_number number)
{
    return numbers[number].name;
}

uint32_t tri_number_bits64(enum tri_number number)
{
    return numbers[number].bits64;
}

enum tri_status tri_number_parse(enum tri_number *out, const char *name, struct tri_error *err)
{
    for (int i = 0; i < TRI_NUMBERS; i++)
        if (!strcmp(numbers[i].name, name)) {
            *out = (enum tri_number)i;
            return TRI_OK;
        }
    char safe[40];
    return tri_fail(err, TRI_ARG,
                    "%s is no number format; there are bf16, fp8, int8, int4, mxfp4, nvfp4",
                    tri_printable(safe, sizeof safe, name, strlen(name)));
}

uint64_t tri_item_bytes(const struct tri_arch_item *item, uint32_t bits64)
{
    return (item->params * bits64 + 511) / 512;
}

enum tri_status tri__arch_item(struct tri_arch *arch, struct tri__arch_add add,
                               struct tri_error *err)
{
    if (arch->item_count == arch->item_cap) {
        int32_t cap = arch->item_cap ? arch->item_cap * 2 : 256;
        void *grown = tri_realloc(arch->items, (size_t)cap * sizeof *arch->items);
        if (!grown)
            return tri_fail(err, TRI_NOMEM, "%s: no memory for its parts", arch->name);
        arch->items = grown;
        arch->item_cap = cap;
    }
    struct tri_arch_item item = {
        .line = (uint8_t)add.line,
        .cut = (uint8_t)add.cut,
        .number = (uint8_t)add.number,
        .quantised = add.quantised,
        .scale = add.scale,
        .unloaded = add.unloaded,
        .held = (uint8_t)add.held,
        .cols = add.cols,
        .layer = (int16_t)add.layer,
        .bits64 = (uint16_t)(add.bits64 ? add.bits64 : tri_number_bits64(add.number)),
        .units = add.units ? add.units : 1,
        .params = add.params,
    };
    item.used = add.units ? add.used : 1;
    arch->items[arch->item_count++] = item;
    return TRI_OK;
}

/* Sums over the finished list. A token reads one row of the embedding: counted as nothing. */
static void sum_items(struct tri_arch *arch)
{
    for (int i = 0; i < arch->item_count; i++) {
        const struct tri_arch_item *item = &arch->items[i];
        uint64_t params = item->scale ? 0 : item->params;
        arch->bytes += tri_item_bytes(item, item->bits64);
        arch->params += params;
        if (item->line == TRI_LINE_DRAFT)
            arch->draft_params += params;
        else if (item->line != TRI_LINE_EMBED && item->line != TRI_LINE_VISION && !item->scale)
            arch->active_params += item->params / item->units * item->used;
    }
    for (int i = 0; i < arch->layers; i++)
        arch->classes[arch->class_of[i]].layers++;
}

static enum tri_status unknown_family(const char *source, const char *family, struct tri_error *err)
{
    char safe[64];
    return tri_fail(err, TRI_UNSUPPORTED,
                    "%s: model_type %s is not known (kimi_k3, kimi_linear, deepseek_v2, "
                    "deepseek_v3, kimi_k2, kimi_k25, mixtral, mistral, llama, qwen2, qwen2_moe, "
                    "qwen3, qwen3_moe are)",
                    source, tri_printable(safe, sizeof safe, family, strlen(family)));
}

/* The text part of a config: K2.5 and other wrappers nest it. */
static const json_t *text_part(const json_t *root)
{
    const json_t *text = json_object_get(root, "text_config");
    return json_is_object(text) ? text : root;
}

/*
 * The wrapper's own fields: everything but the text part and the vision tower must be harmless.
 * A vision tower that no ledger counts is told at the end, never dropped in silence.
 */
static enum tri_status check_wrapper(const json_t *root, const char *source, bool lenient,
                                     const struct tri_notes *notes, struct tri_error *err)
{
    struct tri__arch_cfg cfg;
    tri__arch_cfg_open(&cfg, root, source, err);
    tri__arch_get(&cfg, "text_config");
    tri__arch_get(&cfg, "quantization_config");
    tri__arch_get(&cfg, "tie_word_embeddings");
    tri__arch_get(&cfg, "vision_config");
    return tri__arch_cfg_finish(&cfg, lenient, notes);
}

static enum tri_status read_family(struct tri_arch *arch, const json_t *root, const char *source,
                                   bool lenient, const struct tri_notes *notes,
                                   struct tri_error *err)
{
    static const char *const plain[] = { "llama", "mistral",   "mixtral",  "qwen2",
                                         "qwen3", "qwen2_moe", "qwen3_moe" };
    const json_t *text = text_part(root);
    if (text != root) {
        enum tri_status status = check_wrapper(root, source, lenient, notes, err);
        if (status)
            return status;
    }
    struct tri__arch_cfg cfg;
    tri__arch_cfg_open(&cfg, text, source, err);
    const char *type = tri__arch_text(&cfg, "model_type", "");
    snprintf(arch->family, sizeof arch->family, "%s", type);
    bool deepseek =
        !strcmp(type, "deepseek_v2") || !strcmp(type, "deepseek_v3") || !strcmp(type, "kimi_k2");
    bool known = deepseek;
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        known |= !strcmp(type, plain[i]);
    if (!cfg.status && !known)
        return unknown_family(source, *type ? type : "(none)", err);
    enum tri_status status = cfg.status ? cfg.status
                             : deepseek ? tri__arch_deepseek(arch, &cfg)
                                        : tri__arch_dense_family(arch, &cfg, type);
    if (!status)
        status = tri__arch_cfg_finish(&cfg, lenient, notes);
    if (!status && json_object_get(root, "vision_config"))
        tri_note(notes, "%s: the vision tower is not counted (text only)", source);
    return status;
}

static bool is_kimi_k3(const json_t *root)
{
    const char *type = json_string_value(json_object_get(root, "model_type"));
    return type && (!strcmp(type, "kimi_k3") || !strcmp(type, "kimi_linear"));
}

enum tri_status tri_arch_parse(struct tri_arch **out, const char *source, const char *json,
                               size_t bytes, bool lenient, const struct tri_notes *notes,
                               struct tri_error *err)
{
    json_t *root = NULL;
    enum tri_status status =
        tri_json_parse(&root, source, json, bytes, TRI_ARCH_MAX_CONFIG_BYTES, err);
    if (status)
        return status;
    struct tri_arch *arch = tri_calloc(1, sizeof *arch);
    if (!arch) {
        status = tri_fail(err, TRI_NOMEM, "%s: no memory", source);
        goto out;
    }
    snprintf(arch->name, sizeof arch->name, "%.*s", (int)sizeof arch->name - 1, source);
    if (is_kimi_k3(root))
        status = tri__arch_kimi(arch, source, json, bytes, notes, err);
    else
        status = read_family(arch, root, source, lenient, notes, err);
    if (status)
        goto out;
    sum_items(arch);
    *out = arch;
    arch = NULL;
out:
    tri_arch_close(arch);
    json_decref(root);
    return status;
}

enum tri_status tri_arch_of_spec(struct tri_arch **out, const struct tri_spec *spec,
                                 const char *name, struct tri_error *err)
{
    struct tri_arch *arch = tri_calloc(1, sizeof *arch);
    if (!arch)
        return tri_fail(err, TRI_NOMEM, "%s: no memory", name);
    snprintf(arch->name, sizeof arch->name, "%.*s", (int)sizeof arch->name - 1, name);
    enum tri_status status = tri__arch_kimi_of(arch, spec, err);
    if (status) {
        tri_arch_close(arch);
        return status;
    }
    sum_items(arch);
    *out = arch;
    return TRI_OK;
}

enum tri_status tri_arch_open(struct tri_arch **out, const char *name, bool lenient,
                              const struct tri_notes *notes, struct tri_error *err)
{
    char *text = NULL, path[4096];
    size_t bytes = 0;
    enum tri_status status = tri__arch_preset_text(&text, name, err);
    if (status)
        return status;
    if (text) {
        bytes = strlen(text);
    } else {
        struct stat st;
        bool folder = !stat(name, &st) && S_ISDIR(st.st_mode);
        if (!folder && stat(name, &st))
            return tri_fail(err, TRI_ARG,
                            "%.200s is neither a known model nor a file; known: kimi-k3, kimi-k2, "
                            "deepseek-v3, qwen3-32b, ... (--list models)",
                            name);
        snprintf(path, sizeof path, "%s%s", name, folder ? "/config.json" : "");
        status = tri_read_file(&text, &bytes, path, TRI_ARCH_MAX_CONFIG_BYTES, err);
    }
    if (!status)
        status = tri_arch_parse(out, name, text, bytes, lenient, notes, err);
    tri_free(text);
    return status;
}

void tri_arch_close(struct tri_arch *arch)
{
    if (!arch)
        return;
    tri_free(arch->items);
    tri_free(arch);
}
