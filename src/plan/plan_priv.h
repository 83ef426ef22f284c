/* Shared inside plan: engine profiles, link costs, the time model and its closed loop. */
#ifndef TRI_PLAN_PLAN_PRIV_H
#define TRI_PLAN_PLAN_PRIV_H

#include "base/json.h"
#include "plan/plan.h"

#define TRI__GIB 1073741824.0

struct tri_wire_cost {
    double base_us, per_rank_us, share;
};

struct tri__profiles; /* engines.json, parsed; closed last, profiles point into it */
enum tri_status tri__profiles_open(struct tri__profiles **out, struct tri_error *err);
void tri__profiles_close(struct tri__profiles *profiles);
/* The first row whose engine and arch fit; TRI_ARG with the list when no engine has that name. */
enum tri_status tri__profiles_find(const struct tri_profile **out,
                                   const struct tri__profiles *profiles, const char *engine,
                                   const struct tri_device *device, struct tri_error *err);
const struct tri_wire_cost *tri__wire_cost(const struct tri__profiles *profiles,
                                           enum tri_wire wire);

/* data/devices.json etc. are compiled in. */
enum tri_status tri__plan_data(json_t **out, const char *name, struct tri_error *err);

/* Fields of our own data files: a wrong type is our mistake and shows in the tests. */
double tri__num(const json_t *object, const char *key, double fallback);
const char *tri__str(const json_t *object, const char *key, const char *fallback);
/* Letters and digits in lower case, for comparing names as people type them. */
void tri__plain(char *out, size_t out_bytes, const char *text);

/* ---- links ---------------------------------------------------------------------------------- */

/* How `ranks` neighbouring ranks reach each other: the slowest wire on the way decides. */
struct tri__group {
    enum tri_wire wire;
    double reduce_us; /* a small all-reduce */
    double bus_gbs;   /* of a large all-reduce, bus bandwidth */
    double pair_gbs;  /* one card to one other */
    char path[24];
};
void tri__group_cost(struct tri__group *out, const struct tri_fleet *fleet,
                     const struct tri__profiles *profiles, int64_t ranks);
/* Cards of each TP group on one captured machine, by real distance: order[] lists card indices. */
void tri__group_cards(const struct tri_fleet *fleet, int ranks, int *order);

/* Reads what --machine names, recognised by content (capture.c). */
enum tri_status tri__capture_open(struct tri_machine **out, const char *path,
                                  struct tri_error *err);

/* ---- time ----------------------------------------------------------------------------------- */

/* Everything the time of one candidate depends on, worked out once. */
struct tri__clock {
    const struct tri_arch *arch;
    const struct tri_fleet *fleet;
    const struct tri_profile *profile;
    const struct tri__profiles *profiles;
    const struct tri_layout *layout;
    struct tri_ledger_ask ask;
    struct tri_rank_work work[TRI_LAYOUT_MAX_STAGES];
    struct tri_rank_state state[TRI_LAYOUT_MAX_STAGES];
    struct tri_rank_traffic one[TRI_LAYOUT_MAX_STAGES]; /* traffic of one token */
    struct tri__group tp, ep, next;                     /* all-reduce, exchange, to next stage */
    double dense_peak, expert_peak, attn_peak;          /* flop/s */
    double expert_eff;                                  /* of both, by format */
    double bw;                                          /* bytes/s */
    double layer_s, moe_layer_s;                        /* of each layer; more, of each MoE layer */
    int draft_tokens;
    double acceptance, draft_bytes;
    int64_t chunk_tokens;
    enum tri_role role;
    double resident_share; /* of the routed experts in memory; 1 unless streaming */
    double hit;            /* share of expert reads that memory serves */
    double trunk_share;    /* of everything else in memory */
};
void tri__clock_set(struct tri__clock *clock);

/* One decode step for `sequences` of a replica at a mean context; fills the parts when asked. */
double tri__decode_s(const struct tri__clock *clock, double sequences, double context,
                     struct tri_step_time *parts);
struct tri_prefill_time {
    double occupied_s; /* of the slowest stage: what the next prompt waits for */
    double latency_s;  /* until its first token */
    struct tri_step_time parts;
};
/* `tokens` of prompts of `span` each, after `before`, in each of `groups` attention groups. */
struct tri__prompt {
    double tokens, before, span, groups;
};
double tri__prefill_s(const struct tri__clock *clock, struct tri__prompt prompt,
                      struct tri_prefill_time *out);

struct tri__load {
    int64_t input_tokens, output_tokens, concurrency; /* of one replica */
    int64_t max_running;                              /* sequences the cache holds */
    double spread; /* lengths vary evenly over this share of their mean; 0: all alike */
};
/*
 * Closed loop of `concurrency` clients, each asking again at once, all counted: four rounds of
 * requests alike (benchmarks' clients stay in step), ten when lengths vary and they drift apart.
 */
void tri__loop(const struct tri__clock *clock, const struct tri__load *load, struct tri_speed *out);

/* The profile's band where a published point was measured on this device, else that of a device
 * left out of the fit (--validate). */
double tri__band_for(const struct tri_profile *profile, const struct tri_device *device);
const char *tri__default_engine(const struct tri_device *device);

/* ---- candidates ----------------------------------------------------------------------------- */

struct tri__plan {
    struct tri_plan pub; /* first: tri_plan * is a tri__plan * */
    struct tri__profiles *profiles;
    struct tri_layout asked;          /* tp 0: search */
    int experts_number, dense_number; /* asked, -1 published */
    enum tri_cache_number cache;
    bool kda_bf16;
    double band;    /* of the profile, wider for a device no point was measured on */
    bool no_latent; /* no attention whose cache DCP could divide */
};

/* Memory and grade of one layout. false: it cannot be; the reason is in c->reason. */
bool tri__candidate_memory(const struct tri__plan *plan, const struct tri_fleet *fleet,
                           struct tri_candidate *c);
/* Then speed, which decides the rest: too slow to serve, goals missed. */
void tri__candidate_time(const struct tri__plan *plan, const struct tri_fleet *fleet,
                         struct tri_candidate *c);
/* What the time of a candidate depends on; returns the sequences that one attention group holds. */
int64_t tri__candidate_clock(const struct tri__plan *plan, const struct tri_fleet *fleet,
                             const struct tri_candidate *c, struct tri__clock *clock);
void tri__candidate_speed(const struct tri__plan *plan, const struct tri_fleet *fleet,
                          const struct tri_candidate *c, int64_t concurrency,
                          struct tri_speed *out);
/* $ an hour a card: owned or rented, middle of what is known; 0 unknown. */
double tri__usd_h(const struct tri_plan_options *o, const struct tri_device *d, bool own);
double tri__usd_per_million(double usd_h, int64_t cards, double tokens_per_s);
struct tri_ledger_ask tri__candidate_ask(const struct tri__plan *plan,
                                         const struct tri_candidate *c);

/* As tri_plan_make without curve and advice. */
enum tri_status tri__plan_point(struct tri_plan **out, const struct tri_plan_options *options,
                                struct tri_error *err);
/* A point of data/measured.json: its question; one of its figures as predicted; the middle of n. */
void tri__point_options(struct tri_plan_options *out, const json_t *point);
double tri__point_figure(const struct tri_plan *plan, const char *figure);
double tri__middle(double *values, int n);
/* Fills blind_error of every figure. */
enum tri_status tri__leave_out(struct tri_validation *v, struct tri_error *err);
/* The question resolved without machines, for --buy. */
enum tri_status tri__plan_for_any(struct tri__plan **out, const struct tri_plan_options *options,
                                  const struct tri_notes *notes, struct tri_error *err);
/* The best layout on a fleet; with `keep`, alternatives and rejected ones go into the plan. */
enum tri_status tri__search(struct tri__plan *plan, const struct tri_fleet *fleet, bool keep,
                            struct tri_candidate *best, struct tri_error *err);
bool tri__better(const struct tri_candidate *a, const struct tri_candidate *b,
                 const struct tri_fleet *fleet);
void tri__advise(struct tri__plan *plan);
void tri__curve(struct tri__plan *plan);

#endif
