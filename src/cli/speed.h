/*
 * Inside of `trireme speed`: what a step costs (speed_cost.c), measuring rows (speed_run.c) and
 * telling them (speed_report.c).
 */
#ifndef TRI_CLI_SPEED_H
#define TRI_CLI_SPEED_H

#include "cli/model_flags.h"
#include "ledger/ledger.h"
#include "limits/limits.h"

enum {
    SPEED_MAX_LIST = 16,
    SPEED_MAX_ROWS = 512,
    SPEED_MAX_REPS = 1000,
    SPEED_LEAST_READS = 5,
    SPEED_MAX_PASSES = 256
};

struct speed_list {
    int64_t v[SPEED_MAX_LIST];
    int n;
};

struct speed_args {
    struct tri_model_flags flags;
    struct speed_list prefill, batch, depth;
    int64_t decode_tokens; /* steps of one repetition; 0: no decode rows */
    int64_t reps;
    uint64_t read_bytes;
    bool fill; /* depths are random numbers, not prefilled */
    bool no_limits, json;
};

/* What this engine must move and compute; bytes as it holds the weights in RAM. */
struct speed_cost {
    double trunk_bytes;        /* every step, whatever the batch; without the embedding table */
    double expert_bytes;       /* one routed expert */
    double state_bytes;        /* KDA state and convolution tails: read once, written once */
    double mla_bytes;          /* of one cached token, all MLA layers */
    struct tri_rank_work work; /* operations, from the ledger */
    double experts, topk, moe_layers;
};

TRI_MUST_CHECK enum tri_status speed_cost_of(struct speed_cost *out, const struct tri_opened *o,
                                             struct tri_error *err);

/* One step of `tokens` rows in `sequences` sequences that hold `depth` tokens each. */
struct speed_step {
    double tokens, sequences, depth, logits, distinct; /* distinct: experts, summed over layers */
};
double speed_step_bytes(const struct speed_cost *c, const struct speed_step *s);
double speed_step_ops(const struct speed_cost *c, const struct speed_step *s);

/* One line of the result: a repetition is `steps` forward calls. */
struct speed_row {
    bool decode;
    int64_t tokens; /* prefill length, or steps of decode */
    int64_t batch, depth, reps;
    double median_s, least_s, most_s; /* of one repetition */
    double bytes, ops, distinct;      /* of one repetition; distinct experts a step, all layers */
    double expected_distinct;         /* the ledger's guess at it */
    double read_bytes_per_s;          /* best pass between these repetitions; 0: not measured */
    struct tri_profile profile;       /* over all repetitions */
    double drive_bytes_per_s; /* random reads of an expert's size: the median pass; 0: none made */
    struct tri_experts_stats store; /* counters over all repetitions, where experts are read */
};

/* speed_drive.c: experts that come from drives. Without any, or with --no-limits, it does nothing
 * but count. */
struct speed_drive {
    struct tri_model *model;
    struct tri_drive_test *test;
    struct tri_budget *budget;
    struct tri_experts_stats before;
    double pass[SPEED_MAX_PASSES];
    int passes;
};

TRI_MUST_CHECK enum tri_status speed_drive_open(struct speed_drive *d, const struct tri_opened *o,
                                                const struct speed_args *a, struct tri_error *err);
void speed_drive_close(struct speed_drive *d);
TRI_MUST_CHECK enum tri_status speed_drive_pass(struct speed_drive *d, struct speed_row *row,
                                                struct tri_error *err);
void speed_drive_begin(struct speed_drive *d);
void speed_drive_end(struct speed_drive *d, struct speed_row *row);

struct speed_report {
    struct speed_row row[SPEED_MAX_ROWS];
    int rows;
    struct speed_cost cost;
    struct tri_peak peak[TRI_PEAKS_MAX];
    int peaks;
    double read_bytes_per_s; /* the best of all passes */
    int reads, threads;
    bool bound; /* the threads of the read test to NUMA nodes, as those of the model */
};

static inline double speed_row_tokens(const struct speed_row *r)
{
    return (double)r->tokens * (double)(r->decode ? r->batch : 1);
}

/* Seconds that reading and computing would take at least; *by_reading tells which is longer. */
double speed_limit_s(const struct speed_report *report, const struct speed_row *row,
                     bool *by_reading);

/* Sequences held at once beside the base one, and tokens each must have room for. */
int64_t speed_most_batch(const struct speed_args *a);
int64_t speed_capacity(const struct speed_args *a);

TRI_MUST_CHECK enum tri_status speed_run(struct speed_report *report, const struct speed_args *a,
                                         struct tri_opened *o, struct tri_error *err);

void speed_print(const struct speed_report *report, const struct speed_args *a,
                 const struct tri_opened *o);
void speed_print_json(const struct speed_report *report, const struct speed_args *a,
                      const struct tri_opened *o);

#endif
