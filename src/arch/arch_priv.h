/* Shared inside arch: the strict config reader and the item builder. */
#ifndef TRI_ARCH_ARCH_PRIV_H
#define TRI_ARCH_ARCH_PRIV_H

#include "arch/arch.h"
#include "base/json.h"

struct tri_spec;

enum { TRI__ARCH_MAX_KEYS = 160 };

/*
 * One object of a config, read field by field. Every field asked for counts as known; finish()
 * refuses whatever was neither asked for nor is known to cost nothing. The first failure sticks in
 * `err`, so that readers run through and check once.
 */
struct tri__arch_cfg {
    const json_t *object;
    const char *source;
    struct tri_error *err;
    enum tri_status status;
    const char *asked[TRI__ARCH_MAX_KEYS];
    int asked_count;
};

void tri__arch_cfg_open(struct tri__arch_cfg *cfg, const json_t *object, const char *source,
                        struct tri_error *err);
/* A whole number in [min, max]; absent or null gives `fallback`, or a refusal when that is -1. */
int64_t tri__arch_int(struct tri__arch_cfg *cfg, const char *key, int64_t min, int64_t max,
                      int64_t fallback);
bool tri__arch_bool(struct tri__arch_cfg *cfg, const char *key, bool fallback);
const char *tri__arch_text(struct tri__arch_cfg *cfg, const char *key, const char *fallback);
const json_t *tri__arch_get(struct tri__arch_cfg *cfg, const char *key);
bool tri__arch_has(struct tri__arch_cfg *cfg, const char *key);
enum tri_status tri__arch_cfg_finish(struct tri__arch_cfg *cfg, bool lenient,
                                     const struct tri_notes *notes);

/* Building: `number` as published; bits come from it unless the model sets its own. */
struct tri__arch_add {
    enum tri_arch_line line;
    enum tri_cut cut;
    enum tri_number number;
    bool quantised, scale, unloaded;
    enum tri_held held;
    int layer;
    uint32_t cols;
    uint32_t bits64;      /* 0: of the number */
    uint32_t units, used; /* 0: one unit, used */
    uint64_t params;
};
enum tri_status tri__arch_item(struct tri_arch *arch, struct tri__arch_add add,
                               struct tri_error *err);

/* How the linear layers of a checkpoint are stored (quantization_config). */
struct tri__arch_store {
    enum tri_number dense, experts;
    uint32_t dense_bits64, expert_bits64;
    int block; /* fp8: one f32 scale per block x block, 0 none */
};
enum tri_status tri__arch_store_read(struct tri__arch_store *out, struct tri__arch_cfg *cfg);

/* Each fills an arch whose name is set; cfg holds the text part of the config. */
enum tri_status tri__arch_dense_family(struct tri_arch *arch, struct tri__arch_cfg *cfg,
                                       const char *family);
enum tri_status tri__arch_deepseek(struct tri_arch *arch, struct tri__arch_cfg *cfg);
enum tri_status tri__arch_kimi(struct tri_arch *arch, const char *source, const char *json,
                               size_t bytes, const struct tri_notes *notes, struct tri_error *err);
enum tri_status tri__arch_kimi_of(struct tri_arch *arch, const struct tri_spec *spec,
                                  struct tri_error *err);

/* The text of a preset's config; NULL when there is none of that name. */
enum tri_status tri__arch_preset_text(char **out, const char *name, struct tri_error *err);

#endif
