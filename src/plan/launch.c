/*
 * Launch commands for the chosen layout, each flag with its reason, and a checklist for a vendor.
 * Flag names: vLLM's and SGLang's own documentation and the K3 recipes (planner notes 1.4);
 * Trireme's own flags from its command line.
 */
#include "plan/report.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_FLAGS = 28 };

struct flags {
    const struct tri_plan *plan;
    char flag[MAX_FLAGS][120];
    const char *why[MAX_FLAGS];
    int count;
};

static void add(struct flags *f, const char *why, const char *format, ...) TRI_PRINTF(3, 4);
static void add(struct flags *f, const char *why, const char *format, ...)
{
    va_list args;
    if (f->count == MAX_FLAGS)
        return;
    va_start(args, format);
    vsnprintf(f->flag[f->count], sizeof f->flag[0], format, args);
    va_end(args);
    f->why[f->count++] = why;
}

static bool is_k3(const struct tri_plan *p)
{
    return !strcmp(p->arch->family, "kimi_k3") || !strcmp(p->arch->family, "kimi_linear");
}

/* Presets by the name their weights are published under; a config of one's own by its folder. */
static const char *weights_of(const struct tri_plan *p)
{
    static const char *const published[][2] = {
        { "kimi-k3", "moonshotai/Kimi-K3" },
        { "kimi-linear-48b", "moonshotai/Kimi-Linear-48B-A3B-Instruct" },
        { "kimi-k2", "moonshotai/Kimi-K2-Instruct" },
        { "kimi-k2-thinking", "moonshotai/Kimi-K2-Thinking" },
        { "kimi-k2.5", "moonshotai/Kimi-K2.5" },
        { "kimi-k2.6", "moonshotai/Kimi-K2.6" },
        { "kimi-k2.7-code", "moonshotai/Kimi-K2.7-Code" },
        { "deepseek-v3", "deepseek-ai/DeepSeek-V3" },
        { "deepseek-r1", "deepseek-ai/DeepSeek-R1" },
        { "deepseek-v2", "deepseek-ai/DeepSeek-V2" },
        { "deepseek-v2-lite", "deepseek-ai/DeepSeek-V2-Lite" },
        { "mixtral-8x7b", "mistralai/Mixtral-8x7B-Instruct-v0.1" },
        { "mixtral-8x22b", "mistralai/Mixtral-8x22B-Instruct-v0.1" },
        { "mistral-7b", "mistralai/Mistral-7B-Instruct-v0.1" },
        { "llama-3.1-8b", "meta-llama/Llama-3.1-8B-Instruct" },
        { "llama-3.1-70b", "meta-llama/Llama-3.1-70B-Instruct" },
        { "llama-3.1-405b", "meta-llama/Llama-3.1-405B-Instruct" },
        { "qwen2.5-7b", "Qwen/Qwen2.5-7B-Instruct" },
        { "qwen2.5-14b", "Qwen/Qwen2.5-14B-Instruct" },
        { "qwen2.5-32b", "Qwen/Qwen2.5-32B-Instruct" },
        { "qwen2.5-72b", "Qwen/Qwen2.5-72B-Instruct" },
        { "qwen3-4b", "Qwen/Qwen3-4B" },
        { "qwen3-8b", "Qwen/Qwen3-8B" },
        { "qwen3-14b", "Qwen/Qwen3-14B" },
        { "qwen3-32b", "Qwen/Qwen3-32B" },
        { "qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B" },
        { "qwen3-235b-a22b", "Qwen/Qwen3-235B-A22B" },
        { "qwen2-57b-a14b", "Qwen/Qwen2-57B-A14B-Instruct" },
    };
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++)
        if (!strcmp(p->arch->name, published[i][0]))
            return published[i][1];
    return p->arch->name;
}

static int nodes_of_replica(const struct tri_plan *p)
{
    const struct tri_layout *l = &p->best.layout;
    int64_t cards = (int64_t)l->tp * l->dp * l->pp;
    return (int)((cards + p->fleet.per_node - 1) / p->fleet.per_node);
}

static int64_t sequences(const struct tri_plan *p)
{
    int64_t n = p->options.max_sequences ? p->options.max_sequences : p->options.concurrency;
    int64_t replicas = p->best.layout.replicas;
    return (n + replicas - 1) / replicas;
}

static double util_of(const struct tri_plan *p)
{
    return p->options.utilisation > 0 ? p->options.utilisation : p->profile->util;
}

static bool fp8_cache(const struct tri_plan *p)
{
    return p->best.cache == TRI_CACHE_FP8 || p->best.cache == TRI_CACHE_FP8_DS_MLA;
}

/* A precision other than published: fp8 and int8 can be made while loading, 4 bits cannot. */
static void add_precision(struct flags *f, const char *option)
{
    const struct tri_candidate *c = &f->plan->best;
    int n = c->dense_number >= 0 ? c->dense_number : c->experts_number;
    if (n == TRI_NUM_FP8)
        add(f, "weights to 8-bit floats while loading", "%s fp8", option);
    else if (n >= 0)
        add(f, "not a flag: this precision needs a checkpoint published in it", "# weights in %s",
            tri_number_name((enum tri_number)n));
}

static void vllm_flags(struct flags *f)
{
    const struct tri_plan *p = f->plan;
    const struct tri_layout *l = &p->best.layout;
    int nodes = nodes_of_replica(p);
    if (is_k3(p))
        add(f, "the model's own code files are needed", "--trust-remote-code");
    add(f, "heads, dense layers and vocabulary over these ranks", "--tensor-parallel-size %d",
        l->tp);
    if (l->pp > 1)
        add(f, "layers in stages, across the slower links", "--pipeline-parallel-size %d", l->pp);
    if (l->dp > 1)
        add(f, "attention groups that share one set of experts", "--data-parallel-size %d", l->dp);
    if (l->ep)
        add(f, "whole experts on each rank instead of slices", "--enable-expert-parallel");
    if (l->cp > 1)
        add(f, "the latent cache divided among the ranks: the only lever that does",
            "--decode-context-parallel-size %d --dcp-comm-backend a2a", l->cp);
    if (nodes > 1)
        add(f, "one command on every node, RANK from 0", "--nnodes %d --node-rank $RANK", nodes);
    if (nodes > 1)
        add(f, "address of the first node", "--master-addr $HEAD");
    add(f, "share of memory: what is left after weights and workspace becomes cache",
        "--gpu-memory-utilization %.2f", util_of(p));
    add(f, "longest sequence accepted", "--max-model-len %lld",
        (long long)p->options.context_tokens);
    add(f, "requests in a step; graphs are captured up to here", "--max-num-seqs %lld",
        (long long)sequences(p));
    add(f, "prefill chunk: larger needs more workspace", "--max-num-batched-tokens %lld",
        (long long)p->options.chunk_tokens);
    if (fp8_cache(p))
        add(f, "half the cache bytes", "--kv-cache-dtype fp8");
    add_precision(f, "--quantization");
    if (p->draft_tokens && is_k3(p))
        add(f, "drafts tokens; pays on short contexts, not on agent traces",
            "--speculative-config '{\"method\":\"dspark\",\"num_speculative_tokens\":%d}'",
            p->draft_tokens);
    if (is_k3(p))
        add(f, "answers split into text, reasoning and tool calls",
            "--tool-call-parser kimi_k3 --reasoning-parser kimi_k3");
}

static void sglang_flags(struct flags *f)
{
    const struct tri_plan *p = f->plan;
    const struct tri_layout *l = &p->best.layout;
    int nodes = nodes_of_replica(p);
    add(f, "the weights", "--model-path %s", weights_of(p));
    if (is_k3(p))
        add(f, "the model's own code files are needed", "--trust-remote-code");
    add(f, "all ranks of a stage (SGLang counts attention groups inside)", "--tp-size %d",
        l->tp * l->dp);
    if (l->pp > 1)
        add(f, "layers in stages, across the slower links", "--pp-size %d", l->pp);
    if (l->dp > 1)
        add(f, "attention in groups that share the experts", "--dp-size %d --enable-dp-attention",
            l->dp);
    if (l->ep)
        add(f, "whole experts on each rank", "--ep-size %d", tri_layout_expert_ranks(l));
    if (l->cp > 1)
        add(f, "the latent cache divided among the ranks", "--dcp-size %d", l->cp);
    if (nodes > 1)
        add(f, "one command on every node, RANK from 0", "--nnodes %d --node-rank $RANK", nodes);
    if (nodes > 1)
        add(f, "address of the first node", "--dist-init-addr $HEAD:5000");
    add(f, "share of memory for weights and cache", "--mem-fraction-static %.2f", util_of(p));
    add(f, "longest sequence accepted", "--context-length %lld",
        (long long)p->options.context_tokens);
    add(f, "requests in a step", "--max-running-requests %lld", (long long)sequences(p));
    add(f, "prefill chunk", "--chunked-prefill-size %lld", (long long)p->options.chunk_tokens);
    if (fp8_cache(p))
        add(f, "half the cache bytes", "--kv-cache-dtype fp8_e4m3");
    add_precision(f, "--quantization");
    if (p->draft_tokens && is_k3(p))
        add(f, "drafts tokens; pays on short contexts", "--speculative-algorithm DSPARK");
    if (is_k3(p))
        add(f, "answers split into text, reasoning and tool calls",
            "--tool-call-parser kimi_k3 --reasoning-parser kimi_k3");
}

static void trireme_flags(struct flags *f)
{
    const struct tri_plan *p = f->plan;
    const struct tri_candidate *c = &p->best;
    const char *name = strrchr(weights_of(p), '/');
    bool trunk_streams = c->speed.step.disk > 0 && strstr(c->reason, "100 % of the trunk") == NULL;
    add(f, "folder with config.json, shards and tokenizer", "--model ./%.80s",
        name && name[1] ? name + 1 : weights_of(p));
    add(f, "hard ceiling of memory, floored", "--ram %.0fG",
        floor(p->fleet.device.mem_gib * p->fleet.device.usable));
    add(f, "tokens of each request", "--context %lld", (long long)p->options.context_tokens);
    add(f, "requests computed together", "--parallel %lld",
        (long long)(c->held > 0 && c->held < sequences(p) ? c->held : sequences(p)));
    add(f, "tokens a prefill step", "--chunk %lld", (long long)p->options.chunk_tokens);
    add(f, "MLA cache: half of the default's bytes", "--cache %s",
        fp8_cache(p)                ? "fp8"
        : c->cache == TRI_CACHE_F32 ? "f32"
                                    : "bf16");
    if (p->options.kda_state && !strcmp(p->options.kda_state, "bf16"))
        add(f, "KDA states: half of the default's bytes", "--kda-state bf16");
    add(f, "everything but the experts", "--trunk %s",
        trunk_streams          ? "stream"
        : c->dense_number >= 0 ? tri_number_name((enum tri_number)c->dense_number)
                               : "disk");
}

static void fill(struct flags *f, const struct tri_plan *p, const char *engine)
{
    memset(f, 0, sizeof *f);
    f->plan = p;
    if (!strcmp(engine, "vllm"))
        vllm_flags(f);
    else if (!strcmp(engine, "trireme"))
        trireme_flags(f);
    else
        sglang_flags(f);
}

static void head_of(const struct tri_plan *p, const char *engine, struct tri_buf *out)
{
    if (!strcmp(engine, "vllm"))
        tri_buf_printf(out, "vllm serve %s", weights_of(p));
    else if (!strcmp(engine, "trireme"))
        tri_buf_puts(out, "trireme serve");
    else
        tri_buf_puts(out, "python3 -m sglang.launch_server");
}

/* Why Trireme cannot be started as planned; NULL when it can. */
static const char *trireme_lacks(const struct tri_plan *p)
{
    if (!is_k3(p))
        return "Trireme runs kimi_k3 and kimi_linear; for other families the figures are those of "
               "an engine like it";
    if (p->best.cards > p->best.layout.replicas)
        return "Trireme runs on one machine so far: a layout over several is a plan for later "
               "releases";
    return NULL;
}

void tri__launch_line(const struct tri_plan *p, const char *engine, struct tri_buf *out)
{
    struct flags f;
    const char *lacks = strcmp(engine, "trireme") ? NULL : trireme_lacks(p);
    if (lacks) {
        tri_buf_printf(out, "# %s", lacks);
        return;
    }
    fill(&f, p, engine);
    head_of(p, engine, out);
    for (int i = 0; i < f.count; i++)
        if (f.flag[i][0] != '#')
            tri_buf_printf(out, " %s", f.flag[i]);
}

/* What holds a launch back, told before the command. */
static void environment(const struct tri_plan *p, const char *engine, struct tri_buf *out)
{
    bool amd = !strcmp(p->fleet.device.vendor, "AMD");
    if (amd && !strcmp(engine, "vllm"))
        tri_buf_puts(out, "  # environment: VLLM_ROCM_USE_AITER=1 (AMD's kernels)\n");
    if (amd && !strcmp(engine, "sglang"))
        tri_buf_puts(out, "  # environment: SGLANG_USE_AITER=1 (AMD's kernels)\n");
    if (p->best.layout.replicas > 1)
        tri_buf_printf(out,
                       "  # %d times, each on its own cards (CUDA_VISIBLE_DEVICES), behind a "
                       "balancer\n",
                       p->best.layout.replicas);
    if (!strcmp(engine, "vllm") && p->draft_tokens && p->best.layout.pp > 1)
        tri_buf_puts(out, "  # vLLM has no DSpark with pipeline stages: leave speculation out\n");
}

enum tri_status tri_plan_launch(const struct tri_plan *p, struct tri_buf *out)
{
    static const char *const engines[] = { "vllm", "sglang", "trireme" };
    char name[96];
    tri_layout_name(&p->best.layout, name, sizeof name);
    tri_buf_printf(out, "Launching %s on %s as %s (%s)\n", p->arch->name, p->fleet.text, name,
                   tri_grade_name(p->best.grade));
    for (size_t e = 0; e < 3; e++) {
        struct flags f;
        bool gpu = p->fleet.device.kind == TRI_DEVICE_GPU;
        if (gpu == (e == 2))
            continue; /* Trireme serves from processors and drives, the others from cards */
        if (e == 2 && trireme_lacks(p)) {
            tri_buf_printf(out, "\n  # %s\n", trireme_lacks(p));
            continue;
        }
        fill(&f, p, engines[e]);
        tri_buf_puts(out, "\n");
        environment(p, engines[e], out);
        head_of(p, engines[e], out);
        for (int i = 0; i < f.count; i++)
            if (f.flag[i][0] != '#')
                tri_buf_printf(out, " \\\n    %s", f.flag[i]);
        tri_buf_puts(out, "\n\n");
        for (int i = 0; i < f.count; i++)
            tri_buf_printf(out, "  %-46s %s\n", f.flag[i], f.why[i]);
    }
    return out->failed;
}

enum tri_status tri_plan_checklist(const struct tri_plan *p, struct tri_buf *out)
{
    const struct tri_device *d = &p->fleet.device;
    const struct tri_candidate *c = &p->best;
    const struct tri_stage_memory *m = &c->stage[c->full_stage];
    struct tri__group group;
    char name[96];
    tri_layout_name(&c->layout, name, sizeof name);
    tri__group_cost(&group, &p->fleet, ((const struct tri__plan *)p)->profiles, c->layout.tp);
    tri_buf_printf(out, "For the vendor: %s for %s, planned as %s\n\n", p->fleet.text,
                   p->arch->name, name);
    tri_buf_printf(out,
                   "[ ] %d boxes of %d %s. Memory software can see: at least %.1f GiB a card "
                   "(nvidia-smi or rocm-smi, not the brochure's decimal GB)\n",
                   p->fleet.nodes, p->fleet.per_node, d->name, d->mem_gib);
    tri_buf_printf(out,
                   "[ ] Memory bandwidth %.0f GB/s a card, shown by a copy test (80 %% or "
                   "more of it)\n",
                   d->bw_gbs);
    if (c->layout.tp > 1)
        tri_buf_printf(out,
                       "[ ] Between the cards of a box: %s. nccl-tests all_reduce over %d cards: "
                       "%.0f GB/s bus bandwidth at 1 GiB; ask for the log\n",
                       d->link, c->layout.tp, group.bus_gbs);
    if (d->kind == TRI_DEVICE_GPU)
        tri_buf_printf(out, "[ ] Peer to peer granted between all cards (topo -p2p r: OK); ACS off "
                            "on the bridges above them\n");
    if (p->fleet.nodes > 1)
        tri_buf_printf(out,
                       "[ ] Between boxes: %.0f GB/s a card (%.0f Gb/s), one adapter a card or "
                       "two, near it (PIX or PXB), GPUDirect RDMA on\n",
                       d->nic_gbs, d->nic_gbs * 8);
    if (d->disk_gbs > 0)
        tri_buf_printf(out,
                       "[ ] Drives: %.1f GB/s together in direct reads of 16 MiB, %.0f GB "
                       "free\n",
                       d->disk_gbs, d->disk_gb);
    tri_buf_printf(out,
                   "[ ] Disk for the checkpoint: %.0f GB on every node, or a shared store of "
                   "2 GB/s or more (else loading takes an hour)\n",
                   (double)p->arch->bytes / 1e9);
    tri_buf_printf(out, "[ ] Power and cooling: %.1f kW a box with everything round it\n",
                   (d->kw > 0 ? d->kw : d->tdp_w * 1.5e-3) * p->fleet.per_node);
    tri_buf_printf(out,
                   "[ ] Acceptance: the weights load (%.1f GiB a card), then TTFT %.0f ms and TPOT "
                   "%.1f ms at %lld at once, %lld in, %lld out; within %.0f %%\n",
                   (double)m->weights_bytes / TRI__GIB, c->speed.ttft_ms, c->speed.tpot_ms,
                   (long long)p->options.concurrency, (long long)p->options.input_tokens,
                   (long long)p->options.output_tokens, c->speed.band * 100);
    tri_buf_puts(out, "[ ] Returned in writing: driver, firmware and fabric-manager versions; "
                      "who replaces a card, in how many days\n");
    return out->failed;
}
