/*
 * The compute and traffic ledgers and the workspace: operations per token, bytes a step must read,
 * what ranks send each other. A multiply-add is two operations.
 */
#include "ledger/ledger_priv.h"

#include <math.h>
#include <string.h>

double tri_distinct_experts(double experts, double topk, double tokens)
{
    if (experts <= 0)
        return 0;
    return experts * (1 - pow(1 - topk / experts, tokens));
}

/* Attention beside its projections: pairs of tokens for softmax, a fixed cost for KDA. */
static void add_attention(const struct tri_ledger_ask *ask, const struct tri_arch_class *c,
                          struct tri_rank_work *out)
{
    double heads = ceil((double)c->heads / ask->layout->tp);
    if (c->family == TRI_FAMILY_KDA) {
        /* decay, two rank-one updates and one read of the d x v state: about 8 per element */
        out->kda_flops_per_token += 8.0 * heads * c->head_dim * c->v_dim;
        out->kda_state_bytes +=
            2.0 * (double)tri__ledger_kda_bytes(ask) * heads * c->head_dim * c->v_dim;
        return;
    }
    if (c->window_tokens)
        return;
    out->attn_flops_per_pair += 2.0 * heads * (c->head_dim + c->v_dim);
    /* decode works on the latent itself (absorbed): kv_rank + rope for scores, kv_rank for values
     */
    double width =
        c->family == TRI_FAMILY_MLA ? 2.0 * c->kv_rank + c->rope : c->head_dim + c->v_dim;
    out->attn_decode_flops_per_token += 2.0 * heads * width;
}

static void add_item(const struct tri_ledger_ask *ask, const struct tri_arch_item *item,
                     struct tri_rank_work *out)
{
    double share = 1.0 / (double)tri__ledger_ways(ask, item), params = (double)item->params;
    double bytes = (double)tri__ledger_bytes(ask, item, item->params) * share;
    if (item->line == TRI_LINE_EXPERTS) {
        out->expert_bytes_each += bytes / item->units;
        if (!item->scale)
            out->expert_flops += 2 * params / item->units * item->used * share;
    } else if (item->line == TRI_LINE_HEAD) {
        out->head_bytes += bytes;
        out->head_flops += 2 * params * share;
    } else if (item->line != TRI_LINE_EMBED && item->line != TRI_LINE_VISION &&
               item->line != TRI_LINE_DRAFT) {
        out->dense_bytes += bytes;
        if (!item->scale)
            out->dense_flops += 2 * params * share;
    }
}

void tri_ledger_work(const struct tri_ledger_ask *ask, int stage, struct tri_rank_work *out)
{
    const struct tri_arch *a = ask->arch;
    const struct tri_layout *l = ask->layout;
    memset(out, 0, sizeof *out);
    for (int i = 0; i < a->item_count; i++) {
        const struct tri_arch_item *item = &a->items[i];
        if (!item->unloaded && tri__ledger_on_stage(ask, item, stage))
            add_item(ask, item, out);
        if (item->line == TRI_LINE_EMBED && a->tied && stage == l->pp - 1) { /* read as the head */
            out->head_bytes += (double)tri__ledger_tied_bytes(ask, item) / l->tp;
            out->head_flops += 2 * (double)item->params / l->tp;
        }
    }
    for (int layer = 0; layer < a->layers; layer++)
        if (tri__ledger_stage_of(l, layer) == stage) {
            out->layers++;
            out->moe_layers += a->moe[layer];
            add_attention(ask, &a->classes[a->class_of[layer]], out);
        }
    out->expert_slots = l->ep ? ceil((double)a->experts / tri_layout_expert_ranks(l)) : a->experts;
}

/* DCP: every rank's queries go to all of the group, partial results and their sums come back. */
static void add_context(const struct tri_ledger_ask *ask, const struct tri_arch_class *c,
                        double tokens, struct tri_rank_traffic *out)
{
    const struct tri_layout *l = ask->layout;
    if (l->cp <= 1 || c->family == TRI_FAMILY_KDA)
        return;
    double heads = ceil((double)c->heads / l->tp);
    double width =
        c->family == TRI_FAMILY_MLA ? 2.0 * c->kv_rank + c->rope : (double)(c->head_dim + c->v_dim);
    out->context_messages += 2;
    out->context_bytes += tokens * heads * (width + 2) * 2.0 * (l->cp - 1);
}

/*
 * Per layer and step: one all-reduce after attention and one after the FFN (K3 joins the routed
 * sum in the latent space with the shared one). Experts under DP exchange tokens instead of
 * the second all-reduce: dispatch at one byte a value, combine at two (DeepEP's practice).
 */
void tri_ledger_traffic(const struct tri_ledger_ask *ask, int stage, double tokens,
                        struct tri_rank_traffic *out)
{
    const struct tri_arch *a = ask->arch;
    const struct tri_layout *l = ask->layout;
    memset(out, 0, sizeof *out);
    double hidden = a->hidden * 2.0 * tokens;
    for (int layer = 0; layer < a->layers; layer++) {
        if (tri__ledger_stage_of(l, layer) != stage)
            continue;
        bool exchange = a->moe[layer] && l->dp > 1;
        if (l->tp > 1) {
            bool latent = a->moe[layer] && a->expert_width != a->hidden;
            out->reduce_messages += exchange ? 1 : 2;
            out->reduce_bytes += hidden;
            if (!exchange)
                out->reduce_bytes += hidden + (latent ? a->expert_width * 2.0 * tokens : 0);
        }
        if (exchange) {
            double copies = l->ep ? (double)a->topk : tri_layout_expert_ranks(l);
            out->exchange_messages += 2;
            out->exchange_bytes += tokens / l->tp * copies * a->expert_width * 3.0;
        }
        add_context(ask, &a->classes[a->class_of[layer]], tokens, out);
    }
    if (stage + 1 < l->pp) {
        out->send_messages = 1;
        out->send_bytes = hidden * (1 + a->bank_vectors);
    }
}

static uint64_t moe_buffers(const struct tri_ledger_ask *ask, uint64_t chunk)
{
    const struct tri_arch *a = ask->arch;
    uint64_t ranks = (uint64_t)tri_layout_expert_ranks(ask->layout);
    uint64_t slots = chunk * (uint64_t)a->topk;
    uint64_t per_slot = (uint64_t)a->expert_width * 2; /* permuted inputs, then outputs */
    uint64_t inner = (uint64_t)a->moe_inter * 2 * 2;   /* gate and up */
    if (ask->layout->ep)
        slots = slots / ranks + 1;
    else
        inner /= ranks;
    return a->experts ? slots * (per_slot + inner) : 0;
}

void tri_ledger_workspace(const struct tri_ledger_ask *ask, const struct tri_workspace_ask *work,
                          struct tri_rank_workspace *out)
{
    const struct tri_arch *a = ask->arch;
    const struct tri_layout *l = ask->layout;
    uint64_t chunk = (uint64_t)work->chunk_tokens, hidden = (uint64_t)a->hidden, widest = 0;
    memset(out, 0, sizeof *out);
    out->attnres_bytes = chunk * (uint64_t)a->bank_vectors * hidden * 2;
    out->moe_bytes = moe_buffers(ask, chunk);
    for (int i = 0; i < a->class_count; i++) {
        uint64_t wide = (uint64_t)a->classes[i].heads * (uint64_t)a->classes[i].head_dim * 5;
        wide /= (uint64_t)l->tp;
        widest = wide > widest ? wide : widest;
    }
    out->activation_bytes = chunk * (4 * hidden + widest) * 2 +
                            (uint64_t)work->max_sequences * (uint64_t)a->vocab * 4 * 2;
    out->graph_bytes = work->graph_bytes;
    out->runtime_bytes = work->runtime_bytes;
    out->collective_bytes = l->tp * l->dp * l->pp > 1 ? work->collective_bytes : 0;
    double moving = (double)(out->moe_bytes + out->activation_bytes);
    out->fragmentation_bytes = (uint64_t)(work->fragmentation * moving);
    out->total_bytes = out->attnres_bytes + out->moe_bytes + out->activation_bytes +
                       out->graph_bytes + out->runtime_bytes + out->collective_bytes +
                       out->fragmentation_bytes;
}
