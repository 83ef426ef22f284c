/*
 * What is wrong with this machine. Readings (files captured anywhere, a gathered tar, the live
 * machine) are put into a doctor; judging them gives findings, each with the lines that prove it,
 * what it costs and what to type. The words of the verdict: OK, INFO (worth knowing), WARN (costs
 * speed or must be checked), FAIL (broken).
 *
 * Readings that were cut or repaired make the report incomplete; they never make a finding.
 * Threads: a doctor is used by one thread. Nothing here prints.
 */
#ifndef TRI_DOCTOR_DOCTOR_H
#define TRI_DOCTOR_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include "base/buf.h"
#include "base/status.h"
#include "topo/topo.h"

enum {
    TRI_DOCTOR_MAX_FILES = 1024,
    TRI_DOCTOR_MAX_FINDINGS = 512,
    TRI_DOCTOR_MAX_EVIDENCE = 8, /* of one finding; more lines are counted */
    TRI_DOCTOR_MAX_CURES = 8,
    TRI_DOCTOR_MAX_NOTES = 64,
    TRI_DOCTOR_MAX_REPORT_BYTES = 64 << 20
};

enum tri_severity { TRI_SEVERITY_OK, TRI_SEVERITY_INFO, TRI_SEVERITY_WARN, TRI_SEVERITY_FAIL };

const char *tri_severity_word(enum tri_severity severity);

struct tri_evidence {
    char file[256];
    uint32_t line; /* 0: the whole file, or a path of /proc and /sys */
    char text[200];
};

/* What a fault costs: a rate that is reached against the one that should be. */
struct tri_cost {
    double have_gbs, should_gbs; /* 0 unknown */
    char text[360];              /* the same in words; "" when nothing can be said */
    /* what serving loses by it, when somebody could tell (tri_doctor_price_with); 0 unknown */
    double have_tokens_per_s, should_tokens_per_s;
    char model[64]; /* of which model, in which layout */
};

/* A slow path between GPUs, as a question to a planner. */
struct tri_doctor_question {
    const char *device; /* the product name of the GPUs */
    size_t gpus;
    double have_gbs, should_gbs; /* between any two of them, one way */
    bool staged;                 /* what is had goes through host memory: no peer access */
};

struct tri_doctor_price {
    char model[64];                                /* "kimi-k3, TP8" */
    double have_tokens_per_s, should_tokens_per_s; /* decode of one request */
    double have_ttft_ms, should_ttft_ms;           /* of a prompt of `prompt_tokens` */
    long prompt_tokens;
};

/* False when it cannot tell. Asked while judging, for the worst findings. */
typedef bool tri_doctor_pricer(void *arg, const struct tri_doctor_question *question,
                               struct tri_doctor_price *out);

struct tri_finding {
    const char *rule; /* a name of rules.def */
    enum tri_severity severity;
    char title[240]; /* one line: what is wrong, where */
    char why[400];   /* how it was judged; "" none */
    struct tri_cost cost;
    struct tri_evidence evidence[TRI_DOCTOR_MAX_EVIDENCE];
    size_t evidences, evidence_total;
    char cure[TRI_DOCTOR_MAX_CURES][320]; /* commands, or "# words" */
    size_t cures;
};

/* One way to divide the GPUs of a machine into groups of k. */
enum { TRI_GROUP_MAX = TRI_MAX_GPUS };

struct tri_grouping {
    size_t machine, k, groups;
    uint8_t member[TRI_GROUP_MAX]; /* GPU indices, k a group, groups after one another */
    enum tri_path worst;           /* the weakest path inside any group */
    double worst_gbs;              /* its nominal rate one way, 0 unknown */
    char reason[240];
    char env[320]; /* settings for the first group */
};

struct tri_doctor;

struct tri_doctor_options {
    bool live;        /* read this machine (or `root`) */
    const char *root; /* "/" or a captured copy */
    bool measure;     /* with live: run the memory, drive and link tests */
    const char
        *measure_dir;  /* where the drive test puts its file; NULL: TMPDIR or the current folder */
    unsigned tools_ms; /* how long vendors' tools may take together; 0: 1500 */
};

struct tri_doctor_options tri_doctor_options_default(void);

TRI_MUST_CHECK enum tri_status tri_doctor_open(struct tri_doctor **out, struct tri_error *err);
void tri_doctor_close(struct tri_doctor *doctor); /* NULL is fine */

/* Reads one file (text, XML or a gathered tar), recognised by content. TRI_IO when unreadable. */
TRI_MUST_CHECK enum tri_status tri_doctor_read_file(struct tri_doctor *doctor, const char *path,
                                                    struct tri_error *err);
/* The same from memory. Any bytes are accepted. */
TRI_MUST_CHECK enum tri_status tri_doctor_read_bytes(struct tri_doctor *doctor, const char *name,
                                                     const char *data, size_t bytes,
                                                     struct tri_error *err);
TRI_MUST_CHECK enum tri_status tri_doctor_read_live(struct tri_doctor *doctor,
                                                    const struct tri_doctor_options *options,
                                                    struct tri_error *err);

/* Whom to ask what a slow path costs in tokens/s. Before judging; NULL: nobody. */
void tri_doctor_price_with(struct tri_doctor *doctor, tri_doctor_pricer *pricer, void *arg);

/* Runs every rule over what was read. Once, after reading. */
TRI_MUST_CHECK enum tri_status tri_doctor_judge(struct tri_doctor *doctor, struct tri_error *err);

enum tri_severity tri_doctor_verdict(const struct tri_doctor *doctor);
bool tri_doctor_is_complete(const struct tri_doctor *doctor);
size_t tri_doctor_findings(const struct tri_doctor *doctor);
size_t tri_doctor_machines(const struct tri_doctor *doctor);
const struct tri_machine *tri_doctor_machine(const struct tri_doctor *doctor, size_t index);

/* Reports, appended to `out` (bounded by it). Call after judging. */
void tri_doctor_write_text(const struct tri_doctor *doctor, bool verbose, struct tri_buf *out);
void tri_doctor_write_json(const struct tri_doctor *doctor, struct tri_buf *out);
void tri_doctor_write_html(const struct tri_doctor *doctor, struct tri_buf *out);
void tri_doctor_write_steps(const struct tri_doctor *doctor, struct tri_buf *out);

/*
 * Captures everything that would be read here (or below `root`) as a tar into `out`, without host
 * and user names, addresses, serial numbers. Runs the vendors' tools when root is "/".
 */
TRI_MUST_CHECK enum tri_status tri_doctor_gather(const char *root, struct tri_buf *out,
                                                 struct tri_error *err);

/* What may change while a job runs: links, throttling, swapping, page faults, stolen time. */
struct tri_snapshot;

/* Takes a snapshot below `root`, with nvidia-smi's word on clocks when root is "/". */
TRI_MUST_CHECK enum tri_status tri_doctor_snapshot(struct tri_snapshot **out, const char *root,
                                                   struct tri_error *err);
void tri_doctor_snapshot_close(struct tri_snapshot *snapshot); /* NULL is fine */
/*
 * Appends one line for each thing that changed from `before` to `now`, `seconds` later. Returns the
 * severity of the worst change (OK: nothing, or only links that woke up). A link of which `now`
 * says nothing keeps what `before` said, so that the next comparison has it.
 */
enum tri_severity tri_doctor_write_changes(const struct tri_snapshot *before,
                                           struct tri_snapshot *now, double seconds,
                                           struct tri_buf *out);

#endif
