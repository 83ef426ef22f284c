/* What a run of a checkpoint takes from the memory budget, told from its headers alone: the
 * ledger's weights as this engine holds them, the checkpoint's experts, the state's bytes. */
#include "cli/info.h"

#include "arch/arch.h"
#include "layout/layout.h"
#include "ledger/ledger.h"
#include "state/state.h"

const char *const tri_info_precision[TRI_INFO_PRECISIONS] = { "disk", "f32", "bf16", "int8",
                                                              "int4" };

const char *const tri_info_state[TRI_INFO_STATES] = { "f32", "bf16" };
const char *const tri_info_cache[TRI_INFO_CACHES] = { "f32", "bf16", "fp8" };
static const enum tri_dtype states[TRI_INFO_STATES] = { TRI_DT_F32, TRI_DT_BF16 };
static const enum tri_dtype caches[TRI_INFO_CACHES] = { TRI_DT_F32, TRI_DT_BF16, TRI_DT_E4M3 };

enum tri_status tri_trunk_weigh(struct tri_trunk_bytes *out, const struct tri_spec *spec,
                                const struct tri_checkpoint *ckpt, int dense_number,
                                struct tri_error *err)
{
    const struct tri_tensor *table = tri_checkpoint_find(ckpt, "model.embed_tokens.weight");
    struct tri_arch *arch = NULL;
    struct tri_layout one;
    enum tri_status status = tri_arch_of_spec(&arch, spec, "the model", err);
    if (status)
        return status;
    tri_layout_one(&one, arch->layers);
    struct tri_ledger_ask ask = { .arch = arch,
                                  .layout = &one,
                                  .trireme = true,
                                  .stored_f32 = table && table->dtype != TRI_DT_BF16,
                                  .experts_number = -1,
                                  .dense_number = dense_number };
    tri_ledger_trunk(&ask, out);
    tri_arch_close(arch);
    return TRI_OK;
}

static int add_experts(void *arg, const struct tri_tensor_spec *want)
{
    struct tri_info_needs *n = ((void **)arg)[0];
    const struct tri_tensor *t =
        want->part == TRI_PART_EXPERTS ? tri_checkpoint_find(((void **)arg)[1], want->name) : NULL;
    n->experts_bytes += t ? t->bytes : 0;
    return 0;
}

enum tri_status tri_info_weigh(struct tri_info_needs *out, const struct tri_checkpoint *ckpt,
                               const struct tri_spec *spec, struct tri_error *err)
{
    static const int numbers[TRI_INFO_PRECISIONS] = { -1, TRI_NUM_F32, TRI_NUM_BF16, TRI_NUM_INT8,
                                                      TRI_NUM_INT4 };
    struct tri_spec form = *spec;
    struct tri_slice whole;
    struct tri_state_bytes state;
    void *arg[2] = { out, (void *)(uintptr_t)ckpt };
    *out = (struct tri_info_needs){ .checkpoint_bytes = tri_checkpoint_bytes(ckpt) };
    form.experts_packed = tri_checkpoint_packed(ckpt); /* what is on disk, not the config's word */
    tri_spec_tensors(&form, add_experts, arg);
    for (int i = 0; i < TRI_INFO_PRECISIONS; i++) {
        struct tri_trunk_bytes trunk;
        enum tri_status status = tri_trunk_weigh(&trunk, spec, ckpt, numbers[i], err);
        if (status)
            return status;
        out->trunk_bytes[i] = trunk.held_bytes;
    }
    tri_slice_whole(&whole, spec);
    for (int i = 0; i < TRI_INFO_STATES; i++) {
        tri_state_cost(spec, &whole, (struct tri_state_form){ TRI_DT_F32, states[i] }, &state);
        out->kda_bytes[i] = state.kda_bytes;
    }
    for (int i = 0; i < TRI_INFO_CACHES; i++) {
        tri_state_cost(spec, &whole, (struct tri_state_form){ caches[i], TRI_DT_F32 }, &state);
        out->mla_bytes_per_token[i] = state.mla_bytes_per_token;
    }
    return TRI_OK;
}
