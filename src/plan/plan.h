/*
 * The planner: model + machines + workload -> does it load, generate, serve; who holds what; how
 * fast, with what error band; what binds; what it costs; what to change when the answer is no.
 * Links no engine. Floor 4: spec, arch, topo, layout, ledger.
 *
 * tri_plan_make fills a tri_plan that the reports below render; nothing here prints. Times are
 * milliseconds, sizes bytes, rates per second unless the name says otherwise. Pure but for reading
 * the named files; any thread.
 *
 * Sources: planner notes 1 (K3 figures), 2.1 (other planners' constants), 4.1 (definitions of
 * TTFT and TPOT: vLLM's), docs/planner.md (the time model).
 */
#ifndef TRI_PLAN_PLAN_H
#define TRI_PLAN_PLAN_H

#include "arch/arch.h"
#include "base/buf.h"
#include "layout/layout.h"
#include "ledger/ledger.h"
#include "topo/topo.h"

enum {
    TRI_PLAN_MAX_CARDS = 65536,
    TRI_PLAN_MAX_TOKENS = 1 << 30,
    TRI_PLAN_MAX_CONCURRENCY = 65536,
    TRI_PLAN_MAX_GOALS = 8,
    TRI_PLAN_MAX_KEPT = 24,      /* alternatives kept for the report */
    TRI_PLAN_MAX_REJECTED = 256, /* reasons kept; more are counted */
    TRI_PLAN_MAX_REPORT_BYTES = 8 << 20
};

/* ---- devices and machines ------------------------------------------------------------------- */

enum tri_device_kind { TRI_DEVICE_GPU, TRI_DEVICE_CPU, TRI_DEVICE_NVME, TRI_DEVICE_APPLE };

/* One row of data/devices.json; 0 where a source says nothing. Text points into the table. */
struct tri_device {
    const char *name, *vendor, *arch, *sold_as, *link, *notes, *sources;
    enum tri_device_kind kind;
    double mem_gib, usable, bw_gbs, bf16_tflops, fp8_tflops, fp4_tflops, int8_tops;
    double link_gbs, pair_gbs, bus_gbs, pcie_gbs, nic_gbs, disk_gbs, disk_gb, tdp_w, kw;
    double price_low, price_high, rent_low, rent_high, own_usd_h;
    int domain, box, drives;
    bool p2p, native_fp8, native_fp4;
    const void *doubt; /* json array of field names */
};

struct tri_devices; /* the compiled-in table, parsed */
TRI_MUST_CHECK enum tri_status tri_devices_open(struct tri_devices **out, struct tri_error *err);
void tri_devices_close(struct tri_devices *devices);
int tri_devices_count(const struct tri_devices *devices);
const struct tri_device *tri_devices_at(const struct tri_devices *devices, int i);
bool tri_device_doubts(const struct tri_device *device, const char *field);
/* By name or alias, letters and digits only, else a unique beginning. TRI_ARG with suggestions. */
TRI_MUST_CHECK enum tri_status tri_devices_find(const struct tri_device **out,
                                                const struct tri_devices *devices, const char *name,
                                                struct tri_error *err);

enum tri_wire {
    TRI_WIRE_SELF,
    TRI_WIRE_NVLINK,
    TRI_WIRE_XGMI,
    TRI_WIRE_UB,
    TRI_WIRE_PCIE_P2P,
    TRI_WIRE_PCIE_HOST,
    TRI_WIRE_IB,
    TRI_WIRE_ETHERNET,
    TRI_WIRES
};
const char *tri_wire_name(enum tri_wire wire);

/* Machines of one kind: `nodes` boxes of `per_node` cards, `domain` of them on one fast fabric. */
struct tri_fleet {
    struct tri_device device; /* a copy: --machine may know its memory better than the table */
    char text[128];           /* as asked */
    int nodes, per_node, domain;
    enum tri_wire inside, across; /* between cards of a domain; between domains */
    /* From --machine: pair[a * per_node + b], else NULL: all pairs of a domain are alike. */
    struct tri_fleet_pair {
        enum tri_wire wire;
        double gbs;
        const char *path; /* NV18, PIX, ... */
    } * pair;
    bool measured_memory;
};

static inline int64_t tri_fleet_cards(const struct tri_fleet *f)
{
    return (int64_t)f->nodes * f->per_node;
}

/* "4x8xH20-96GB" (nodes x cards), "32xH20-96GB" (boxes filled), "H20-96GB" (one). */
TRI_MUST_CHECK enum tri_status tri_fleet_parse(struct tri_fleet *out,
                                               const struct tri_devices *devices, const char *text,
                                               struct tri_error *err);
/* From a captured machine, `nodes` of it. `device` NULL: by the names in the capture. */
TRI_MUST_CHECK enum tri_status tri_fleet_from_machine(struct tri_fleet *out,
                                                      const struct tri_devices *devices,
                                                      const struct tri_machine *machine,
                                                      const struct tri_device *device, int nodes,
                                                      struct tri_error *err);
void tri_fleet_fini(struct tri_fleet *fleet);

/* ---- the question --------------------------------------------------------------------------- */

enum tri_goal_what {
    TRI_GOAL_TTFT,
    TRI_GOAL_TPOT,
    TRI_GOAL_USERS,
    TRI_GOAL_TOKENS_PER_S,
    TRI_GOAL_COST /* $ per million output tokens */
};
struct tri_goal {
    enum tri_goal_what what;
    double value; /* ms, users, tokens/s, $: at most for times and cost, at least for the others */
};

/* A replica may do one half of the work when prefill and decode run on separate machines. */
enum tri_role { TRI_ROLE_BOTH, TRI_ROLE_PREFILL, TRI_ROLE_DECODE };

struct tri_plan_options {
    const char *model, *hw, *machine, *engine, *layout, *stages, *experts, *dense, *kv, *goal;
    const char *precision;              /* experts and dense in one */
    const struct tri_machine *captured; /* a machine already read, instead of `machine` */
    const char *spec;                   /* speculation: "dspark7", "mtp1", "7" */
    const char *kda_state;              /* Trireme's KDA states: "f32" (as NULL), "bf16" */
    int64_t context_tokens, input_tokens, output_tokens, concurrency, chunk_tokens, max_sequences;
    enum tri_role role;
    int machines;       /* --machine: how many of them */
    double utilisation; /* 0: the engine's default */
    double cache_gib;   /* 0: what is left; else given (--cache-gib) */
    double acceptance;  /* tokens a speculative step yields, 0: by the table */
    double spread;      /* of lengths round their mean, 0 to 1 */
    double rent_usd_h, own_usd_h, power_usd_kwh; /* 0: table */
    bool vision, lenient, shard_all;
    bool concurrency_given; /* by the person, not a default */
};
void tri_plan_options_init(struct tri_plan_options *out); /* defaults as in the help */

/* "8k" 8192, "1M", "100". TRI_ARG when it is not a count from 1 to max. */
TRI_MUST_CHECK enum tri_status tri_parse_tokens(int64_t *out, const char *what, const char *text,
                                                int64_t max, struct tri_error *err);
TRI_MUST_CHECK enum tri_status tri_parse_goals(struct tri_goal *out, int *count, const char *text,
                                               struct tri_error *err);
const char *tri_goal_name(enum tri_goal_what what);

/* ---- the answer ----------------------------------------------------------------------------- */

enum tri_grade { TRI_GRADE_NO, TRI_GRADE_LOADS, TRI_GRADE_GENERATES, TRI_GRADE_SERVES };
const char *tri_grade_name(enum tri_grade grade);

enum tri_binding {
    TRI_BIND_NONE,
    TRI_BIND_MEMORY,  /* capacity: weights or cache */
    TRI_BIND_DENSE,   /* reading shared weights */
    TRI_BIND_EXPERTS, /* reading distinct experts */
    TRI_BIND_CACHE,   /* reading latents and KV */
    TRI_BIND_COMPUTE,
    TRI_BIND_LAYERS,  /* launch and sync of each layer */
    TRI_BIND_LINK,    /* collectives */
    TRI_BIND_PREFILL, /* prompts of others interrupt decode */
    TRI_BIND_DISK,
    TRI_BINDINGS
};
const char *tri_binding_name(enum tri_binding binding);

/* Where one decode step goes, ms; sums to the step. */
struct tri_step_time {
    double dense, experts, cache, compute, layers, link, draft, disk, total;
};

struct tri_speed {
    double ttft_ms, tpot_ms, tokens_per_s, total_tokens_per_s; /* the whole fleet, all replicas */
    double band;                                               /* share: low = x (1 - band) */
    double step_ms, prefill_ms; /* one decode step at the reached batch; one prompt alone */
    double running, waiting;    /* mean sequences in decode, in queue (all replicas) */
    double little;              /* lambda x latency / concurrency: 1 when it closes */
    double prefill_share;       /* of engine time */
    struct tri_step_time step;
    enum tri_binding binding;
};

struct tri_stage_memory {
    struct tri_rank_weights weights;
    struct tri_rank_state state;
    uint64_t weights_bytes, workspace_bytes, cache_bytes, budget_bytes; /* cache: what is left */
    uint64_t state_bytes_per_sequence;                                  /* of the asked context */
    int64_t capacity_tokens, capacity_sequences; /* of one attention group; context each */
};

struct tri_candidate {
    struct tri_layout layout;
    int experts_number, dense_number; /* -1 published */
    enum tri_cache_number cache;
    enum tri_grade grade;
    bool goals_met;
    char reason[240]; /* why this grade, the deciding number first */
    int full_stage;   /* the stage with the least room */
    struct tri_stage_memory stage[TRI_LAYOUT_MAX_STAGES];
    struct tri_rank_workspace workspace;
    struct tri_speed speed;
    int64_t cards, served_concurrency;                /* requests the cache holds at once */
    int64_t held;                                     /* of those asked */
    double usd_per_million_own, usd_per_million_rent; /* output tokens; 0 unknown */
};

struct tri_rejected { /* nearest to working first */
    struct tri_layout layout;
    int experts_number, dense_number;
    enum tri_grade grade;
    uint64_t weights_bytes; /* 0: the layout cannot be cut at all */
    char reason[240];
};

struct tri_advice {
    char change[120], effect[240]; /* "32 cards instead of 16" -> "serves: TP8 x PP4 ..." */
    double usd_h;                  /* extra, 0 none or unknown */
    bool works;
};

struct tri_curve_point {
    double concurrency, ttft_ms, tpot_ms, tokens_per_s, usd_per_million;
    bool fits;
};

enum { TRI_PLAN_CURVE = 12, TRI_PLAN_ADVICE = 10 };

/* One row of data/engines.json: how well an engine uses a kind of device. */
struct tri_profile {
    const char *id, *engine, *basis; /* basis: "measured" or "assumed" */
    double bw_eff, expert_eff, layer_us, compute_eff, step_us, nvfp4_layer_us;
    double attn_eff, int4_eff, int4_layer_us, mx_eff, moe_layer_us;
    double util, runtime_gib, graph_gib, collective_gib, paging, frag, band;
    int64_t chunk_tokens;
    bool prefill_first;
};

struct tri_plan {
    struct tri_plan_options options; /* resolved; text pointers are the caller's */
    struct tri_devices *devices;
    struct tri_arch *arch;
    struct tri_fleet fleet;
    const struct tri_profile *profile;
    struct tri_goal goals[TRI_PLAN_MAX_GOALS];
    int goal_count;
    int draft_tokens;
    double acceptance;
    struct tri_candidate best;    /* also when the verdict is no: the nearest */
    struct tri_candidate fastest; /* most tokens/s of those that serve, whatever it takes; 0 cards:
                                     none */
    struct tri_candidate other[TRI_PLAN_MAX_KEPT];
    int others;
    struct tri_rejected rejected[TRI_PLAN_MAX_REJECTED];
    int rejected_count, rejected_more;
    struct tri_advice advice[TRI_PLAN_ADVICE];
    int advices;
    struct tri_curve_point curve[TRI_PLAN_CURVE];
    int curve_points;
};

/*
 * Errors: TRI_ARG for a question that makes no sense (unknown device, layout that cannot be,
 * goals that contradict), what the arch reader says for the model. "Does not fit" is an answer.
 */
TRI_MUST_CHECK enum tri_status tri_plan_make(struct tri_plan **out,
                                             const struct tri_plan_options *options,
                                             const struct tri_notes *notes, struct tri_error *err);
void tri_plan_close(struct tri_plan *plan);

/* ---- how far the time model can be trusted -------------------------------------------------- */

#define TRI_VALIDATION_MISS 0.35 /* a larger miss needs its cause stated */
enum { TRI_VALIDATION_MAX = 512 };

struct tri_measured {
    const char *id, *device, *figure, *cause, *source;
    double measured, predicted, error; /* error: share, predicted / measured - 1 */
    double blind_error;                /* with the device's own points left out; NaN: cannot */
    struct tri_profile profile;
    const void *point; /* json of the question */
};
struct tri_skipped {
    const char *id, *why;
};
struct tri_validation {
    struct tri_measured figure[TRI_VALIDATION_MAX];
    int count, skips, explained, unexplained;
    struct tri_skipped skipped[TRI_VALIDATION_MAX];
    double median, p80, worst, blind_median, blind_p80; /* of |error| */
};
/* Predicts every published point of data/measured.json. Seconds. */
TRI_MUST_CHECK enum tri_status tri_validation_run(struct tri_validation **out,
                                                  struct tri_error *err);
void tri_validation_close(struct tri_validation *validation);
enum tri_status tri_validation_text(const struct tri_validation *validation, struct tri_buf *out);

/* ---- reports; each appends to `out` (born with TRI_PLAN_MAX_REPORT_BYTES) ------------------- */

struct tri_report_style {
    int width;  /* columns */
    bool color; /* ANSI */
    bool all;   /* every rejected candidate, every ledger line */
};
enum tri_status tri_plan_text(const struct tri_plan *plan, struct tri_report_style style,
                              struct tri_buf *out);
enum tri_status tri_plan_json(const struct tri_plan *plan, struct tri_buf *out,
                              struct tri_error *err);
/* One self-contained page (Chart.js inside) that also prints. */
enum tri_status tri_plan_html(const struct tri_plan *plan, struct tri_buf *out,
                              struct tri_error *err);
/* Launch commands with each flag's reason; what to ask a vendor; how to bring it up in stages. */
enum tri_status tri_plan_launch(const struct tri_plan *plan, struct tri_buf *out);
enum tri_status tri_plan_checklist(const struct tri_plan *plan, struct tri_buf *out);
enum tri_status tri_plan_guide(const struct tri_plan *plan, struct tri_buf *out);
/*
 * A result file beside the plan: what share of each figure was reached and the likeliest causes of
 * the gap, as text or JSON. Files: vLLM's and SGLang's bench, AIPerf, trireme speed --json, and a
 * serve bench as docs/planner.md describes it. TRI_FORMAT for other files and absurd figures.
 */
TRI_MUST_CHECK enum tri_status tri_plan_check(const struct tri_plan *plan, const char *path,
                                              bool json, struct tri_buf *out,
                                              struct tri_error *err);

/* ---- what to buy ---------------------------------------------------------------------------- */

enum { TRI_BUY_MAX = 64 };
struct tri_offer {
    const struct tri_device *device;
    struct tri_fleet fleet;
    struct tri_layout layout;
    int experts_number, dense_number;
    struct tri_speed speed;
    double usd_h, price_usd; /* of all of it; 0 unknown */
    int64_t served_concurrency;
    const char *basis; /* of the speed: "measured" or "assumed" profile */
};
struct tri_offers {
    struct tri_plan *plan;
    struct tri_offer offer[TRI_BUY_MAX]; /* cheapest first, unknown prices last */
    int count, unsuited;
    const struct tri_device *not_enough[TRI_BUY_MAX];
};
/* options without hw, machine and layout. */
TRI_MUST_CHECK enum tri_status tri_buy_run(struct tri_offers **out,
                                           const struct tri_plan_options *options,
                                           const struct tri_notes *notes, struct tri_error *err);
void tri_buy_close(struct tri_offers *offers);
enum tri_status tri_buy_text(const struct tri_offers *offers, bool all, struct tri_buf *out);
enum tri_status tri_buy_json(const struct tri_offers *offers, struct tri_buf *out,
                             struct tri_error *err);

#endif
