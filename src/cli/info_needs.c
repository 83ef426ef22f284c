/* What a run of a checkpoint takes from the memory budget, told from its headers alone. Follows
 * model's own rules of what is kept in which format; a test holds the two together. */
#include "cli/info.h"

#include <string.h>
#include "state/state.h"

const char *const tri_info_precision[TRI_INFO_PRECISIONS] = { "disk", "f32", "bf16", "int8",
                                                              "int4" };

struct weighing {
    const struct tri_checkpoint *ckpt;
    struct tri_info_needs *out;
};

static bool ends_with(const char *name, const char *tail)
{
    size_t a = strlen(name), b = strlen(tail);
    return a >= b && strcmp(name + a - b, tail) == 0;
}

/* Matrices that stay as stored at every precision: small, or too sensitive to quantise. */
static bool kept_as_stored(const char *name)
{
    static const char *const tail[] = { ".f_a_proj.weight",    ".f_b_proj.weight", ".b_proj.weight",
                                        ".g_a_proj.weight",    ".g_b_proj.weight", ".gate.weight",
                                        ".embed_tokens.weight" };
    for (size_t i = 0; i < sizeof tail / sizeof tail[0]; i++)
        if (ends_with(name, tail[i]))
            return true;
    return false;
}

static int add_tensor(void *arg, const struct tri_tensor_spec *want)
{
    struct weighing *w = arg;
    struct tri_info_needs *n = w->out;
    const struct tri_tensor *t = tri_checkpoint_find(w->ckpt, want->name);
    if (!t || want->part == TRI_PART_VISION || want->part == TRI_PART_PROJECTOR)
        return 0;
    if (want->part == TRI_PART_EXPERTS) {
        n->experts_bytes += t->bytes;
        return 0;
    }
    bool matrix = want->rank == 2 && want->shape[0] > 1;
    enum tri_dtype disk = t->dtype == TRI_DT_BF16 && matrix ? TRI_DT_BF16 : TRI_DT_F32;
    const enum tri_dtype as[TRI_INFO_PRECISIONS] = { disk, TRI_DT_F32, TRI_DT_BF16, TRI_DT_I8G64,
                                                     TRI_DT_I4G32 };
    int64_t cols = matrix ? want->shape[1] : 1;
    int64_t rows = (int64_t)want->parameters / cols;
    for (int i = 0; i < TRI_INFO_PRECISIONS; i++) {
        bool stored = !matrix || (i > 1 && kept_as_stored(want->name));
        n->trunk_bytes[i] += tri_matrix_bytes(stored ? disk : as[i], rows, cols);
    }
    return 0;
}

void tri_info_weigh(struct tri_info_needs *out, const struct tri_checkpoint *ckpt,
                    const struct tri_spec *spec)
{
    struct tri_spec form = *spec;
    struct tri_slice whole;
    struct tri_state_bytes state;
    struct weighing w = { ckpt, out };
    *out = (struct tri_info_needs){ .checkpoint_bytes = tri_checkpoint_bytes(ckpt) };
    form.experts_packed = tri_checkpoint_packed(ckpt); /* what is on disk, not the config's word */
    tri_spec_tensors(&form, add_tensor, &w);
    tri_slice_whole(&whole, spec);
    tri_state_cost(spec, &whole, TRI_DT_F32, &state);
    out->kda_bytes = state.kda_bytes;
    out->mla_bytes_per_token = state.mla_bytes_per_token;
}
