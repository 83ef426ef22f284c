/*
 * What a step costs: operations and bytes from the ledger, which the planner uses too, in the
 * formats this engine holds.
 */
#include "cli/speed.h"

#include "arch/arch.h"
#include "cli/info.h"
#include "layout/layout.h"
#include "spec/spec.h"
#include "state/state.h"
#include "weights/weights.h"

static int dense_number(enum tri_trunk trunk)
{
    switch (trunk) {
    case TRI_TRUNK_F32:
        return TRI_NUM_F32;
    case TRI_TRUNK_BF16:
        return TRI_NUM_BF16;
    case TRI_TRUNK_INT8:
        return TRI_NUM_INT8;
    case TRI_TRUNK_INT4:
        return TRI_NUM_INT4;
    case TRI_TRUNK_AUTO:
    case TRI_TRUNK_DISK:
    case TRI_TRUNK_STREAM:
        break;
    }
    return -1;
}

/* The ledger of the model's layers (the first of `arch`), and the head's part, which lies on the
 * last stage. */
static void ask_ledger(struct speed_cost *out, const struct tri_arch *arch,
                       const struct tri_model *model)
{
    int64_t layers = tri_model_spec(model)->layers;
    struct tri_layout layout;
    struct tri_rank_work last;
    tri_layout_one(&layout, arch->layers);
    if (layers < arch->layers) {
        layout.pp = 2;
        layout.stage_layers[0] = (int32_t)layers;
        layout.stage_layers[1] = arch->layers - (int32_t)layers;
    }
    struct tri_ledger_ask ask = { .arch = arch,
                                  .layout = &layout,
                                  .experts_number = -1,
                                  .dense_number = dense_number(tri_model_trunk(model)),
                                  .trireme = true,
                                  .cache = TRI_CACHE_F32,
                                  .kda_bf16 = tri_model_state_form(model).kda == TRI_DT_BF16 };
    tri_ledger_work(&ask, 0, &out->work);
    if (layout.pp == 2) {
        tri_ledger_work(&ask, 1, &last);
        out->work.head_flops = last.head_flops;
        out->work.head_bytes = last.head_bytes;
    }
}

/* Bytes of the trunk that every step reads, as this engine holds them, and of the state. */
static enum tri_status weigh(struct speed_cost *out, const struct tri_opened *o,
                             enum tri_trunk trunk, struct tri_error *err)
{
    const struct tri_spec *spec = tri_model_spec(o->model);
    struct tri_checkpoint *ckpt = NULL;
    struct tri_info_needs needs = { 0 };
    struct tri_trunk_bytes bytes = { 0 };
    enum tri_status st = tri_checkpoint_open(&ckpt, o->folder, spec, 1, NULL, err);
    if (!st)
        st = tri_info_weigh(&needs, ckpt, spec, err);
    if (!st)
        st = tri_trunk_weigh(&bytes, spec, ckpt, dense_number(trunk), err);
    tri_checkpoint_close(ckpt);
    if (st)
        return st;
    out->trunk_bytes = (double)bytes.read_bytes;
    if (spec->moe_layers)
        out->expert_bytes = (double)needs.experts_bytes / (out->moe_layers * out->experts);
    struct tri_state_bytes state;
    tri_state_cost(spec, tri_model_slice(o->model), tri_model_state_form(o->model), &state);
    out->state_bytes = 2.0 * (double)state.kda_bytes;
    out->mla_bytes = (double)state.mla_bytes_per_token;
    return TRI_OK;
}

enum tri_status speed_cost_of(struct speed_cost *out, const struct tri_opened *o,
                              struct tri_error *err)
{
    const struct tri_spec *spec = tri_model_spec(o->model);
    enum tri_trunk trunk = tri_model_trunk(o->model);
    struct tri_arch *arch = NULL;
    enum tri_status st = tri_arch_open(&arch, o->folder, true, NULL, err);
    if (st)
        return st;
    *out = (struct speed_cost){ .experts = (double)spec->experts,
                                .topk = (double)spec->topk,
                                .moe_layers = (double)spec->moe_layers };
    ask_ledger(out, arch, o->model);
    tri_arch_close(arch);
    return weigh(out, o, trunk, err);
}

double speed_step_bytes(const struct speed_cost *c, const struct speed_step *s)
{
    double cached = s->depth + s->tokens / s->sequences; /* tokens of one sequence */
    return c->trunk_bytes + s->distinct * c->expert_bytes +
           s->sequences * (c->state_bytes + cached * c->mla_bytes);
}

double speed_step_ops(const struct speed_cost *c, const struct speed_step *s)
{
    const struct tri_rank_work *w = &c->work;
    double each = s->tokens / s->sequences;
    double ops = s->tokens * (w->dense_flops + w->expert_flops + w->kda_flops_per_token) +
                 s->logits * w->head_flops;
    if (each <= 1) /* decode works on the compressed cache */
        return ops + s->sequences * s->depth * w->attn_decode_flops_per_token;
    return ops + s->sequences * (each * s->depth + each * each / 2) * w->attn_flops_per_pair;
}

double speed_limit_s(const struct speed_report *report, const struct speed_row *row,
                     bool *by_reading)
{
    const struct tri_peak *peak = tri_peak_best(report->peak, report->peaks, TRI_PEAK_INT8);
    if (!peak)
        peak = tri_peak_best(report->peak, report->peaks, TRI_PEAK_F32);
    double reading = row->read_bytes_per_s > 0 ? row->bytes / row->read_bytes_per_s : 0;
    double computing = peak ? row->ops / peak->ops_per_s : 0;
    *by_reading = reading >= computing;
    return *by_reading ? reading : computing;
}
