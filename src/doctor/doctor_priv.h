/*
 * Shared inside doctor: the readings that are no machine facts (measured tables, collective tests,
 * NCCL and engine logs, kernel lines, host limits), how findings are made, and the rules' entry
 * points. Readers take lines as in topo: they return how many, 0 when not theirs.
 */
#ifndef TRI_DOCTOR_DOCTOR_PRIV_H
#define TRI_DOCTOR_DOCTOR_PRIV_H

#include "doctor/doctor.h"
#include "base/sieve.h"
#include "os/tree.h"

enum {
    TRI__BAND_MAX = 64, /* devices of one bandwidth test */
    TRI__BANDS = 64,    /* tests of one input */
    TRI__TABLES = 96,   /* tables of one test */
    TRI__COLLS = 256,
    TRI__EVENTS = 256 /* kept lines of one kind of log */
};

/* A line of an input: index of the text and index of the line in it. */
struct tri__spot {
    int text; /* -1: none */
    uint32_t line;
};

struct tri__text {
    char *name;
    struct tri_lines lines;
};

/* ---- p2pBandwidthLatencyTest and nvbandwidth ---- */
enum tri__table_kind {
    TRI__UNI_OFF,
    TRI__UNI_ON,
    TRI__READ_ON,
    TRI__BI_OFF,
    TRI__BI_ON,
    TRI__LATENCY_OFF,
    TRI__LATENCY_ON,
    TRI__CONNECTIVITY,
    TRI__NVBANDWIDTH
};

struct tri__table {
    enum tri__table_kind kind;
    char name[64]; /* nvbandwidth: the test's name */
    size_t rows, columns;
    double *cell; /* [rows][columns]; NaN where nothing stands */
    bool cut;
    struct tri__spot title, *row_spot;
};

struct tri__band {
    char name[TRI__BAND_MAX][64]; /* of devices, "" unknown */
    size_t devices;
    signed char can[TRI__BAND_MAX][TRI__BAND_MAX]; /* 1 CAN, -1 CANNOT, 0 not said */
    struct tri__spot cannot, banner;
    struct tri__table *table;
    size_t tables;
    bool nvbandwidth;
    bool waived_peers; /* nvbandwidth did not run its device to device tests */
    bool answers_only; /* simpleP2P: who can access whom, no tables */
    struct tri__spot waived;
};

/* ---- nccl-tests ---- */
struct tri__coll {
    char op[32];     /* "all_reduce"; "" unknown */
    char device[64]; /* the first rank's device */
    size_t ranks;    /* 0 unknown */
    bool ranks_told; /* by the header, else worked out from the numbers */
    size_t hosts;    /* distinct, 0 unknown */
    size_t copies;   /* further tests that ran at the same time, each by itself */
    size_t rows;
    double size_bytes, algbw, busbw;   /* of the largest size, better of both placements */
    double before_busbw;               /* of the size before it, 0 none */
    double max_bytes;                  /* the header's, 0 unknown */
    bool header, half, damaged, wrong; /* half: in-place columns missing; wrong: data errors */
    bool old_errors;                   /* the error column of nccl-tests before 2.13 ("0e+00") */
    bool closed; /* a table of another program: no row of nccl-tests belongs to it */
    struct tri__spot first, best, wrong_spot, header_spot;
};

/* Benchmarks that print their device before their table. */
struct tri__bench {
    char device[64];
    bool open, gbit; /* a table follows; its rates are Gb/s */
};

/* ---- adapter ports (ibstat and its kin) ---- */
struct tri__port {
    char name[32];
    double gbit;   /* 0 unknown */
    int active;    /* 1 yes, 0 no, -1 not said */
    bool ethernet; /* link layer; an unused second port is usual there */
    char state[24];
    struct tri__spot spot;
};

enum { TRI__PORTS = 64 };

/* ---- NCCL logs ---- */
enum tri__transport {
    TRI__VIA_P2P,
    TRI__VIA_INDIRECT,
    TRI__VIA_SHM,
    TRI__VIA_NET_GDR,
    TRI__VIA_NET,
    TRI__VIA_SOCKET,
    TRI__VIA_NVLS,
    TRI__VIA_COUNT
};

struct tri__nccl { /* what one process says, or all processes of a job together */
    size_t lines, hosts;
    size_t via[TRI__VIA_COUNT];
    struct tri__spot via_spot[TRI__VIA_COUNT][3];
    long nranks, nnodes, local_ranks; /* -1 unknown */
    double max_bw;                    /* "=== System : maxBw", 0 unknown */
    struct tri__spot max_bw_spot, network_socket, no_ib, network_ib;
    struct tri__spot p2p_off;         /* "P2P is disabled between connected GPUs" */
    struct tri__spot gdr_on, gdr_off; /* GPUDirect said to be on or off */
    struct tri__spot tcp_plugin;      /* a network plugin that chose TCP */
};

enum { TRI__PROCESSES = 1024, TRI__COMMS = 16, TRI__RANK_WORDS = 16 };

struct tri__process { /* host:pid of a log; several jobs may stand in one input */
    char host[64];
    long pid;                  /* -1: its lines name none */
    uint64_t comm[TRI__COMMS]; /* hashes of the communicators it joined */
    size_t comms;
    uint64_t rank[TRI__RANK_WORDS]; /* bits: the ranks it spoke for */
    struct tri__spot first, last;
    int job;
    struct tri__nccl said;
};

struct tri__nccl_log {
    struct tri__process *process; /* [TRI__PROCESSES]; more are counted with the last */
    size_t processes, lines;
    uint16_t *slot; /* [TRI__PROCESSES * 2]: process index + 1 by hash of host and pid */
    struct tri__spot env[TRI__EVENTS], warn[TRI__EVENTS];
    size_t envs, warns;
    struct tri__spot cut;
};

/* ---- engines (vLLM, SGLang, ...) ---- */
struct tri__engine {
    size_t lines;
    double kv_gib, kv_tokens, concurrency, concurrency_tokens; /* 0 unknown */
    double load_gib, load_seconds;
    long tp, pp, dp;   /* 0 unknown */
    double tp_rate[4]; /* tokens/s seen with TP 1, 2, 4, 8; 0 none */
    struct tri__spot tp_spot[4];
    struct tri__spot kv_spot, concurrency_spot, load_spot, no_allreduce, no_memory, too_long,
        preempted;
    size_t preemptions;
    bool allreduce_no_p2p;
};

/* ---- kernel log ---- */
struct tri__kernel {
    struct tri__spot limited[TRI__EVENTS], xid[TRI__EVENTS], aer[TRI__EVENTS], oom[TRI__EVENTS],
        iommu[TRI__EVENTS], driver[TRI__EVENTS];
    struct tri__spot full; /* a device that found its full bandwidth */
    size_t limiteds, xids, aers, ooms, iommus, drivers;
};

/* What CUDA and nvidia-smi say when a GPU cannot be used at all. */
struct tri__complaint {
    const char *words, *rule, *text, *cure;
};
const struct tri__complaint *tri__doctor_complaint(const char *line); /* NULL: none */

/* ---- expert routing ---- */
struct tri__experts {
    uint64_t *count; /* [experts] times chosen, all layers together */
    size_t experts, tokens;
    struct tri__spot first;
};

struct tri__xml { /* lines of a text that an XML document stands on */
    int text;
    uint32_t first, last;
};

struct tri_doctor {
    struct tri_sieve sieve;
    uint64_t hits; /* of the line that is being read */
    size_t reader_calls;
    bool unsieved;            /* every line to every reader: what tests compare with */
    struct tri__spot no_json; /* lines of this text below this one begin no JSON document */
    struct tri__text *text;
    size_t texts;
    struct tri__xml xml[TRI_MAX_MACHINES];
    size_t xmls;
    struct tri_machines machines;
    struct tri__band *band;
    size_t bands;
    struct tri__coll *coll;
    size_t colls;
    struct tri__bench bench;
    struct tri__port port[TRI__PORTS];
    size_t ports;
    struct tri__nccl_log nccl;
    struct tri__engine engine;
    struct tri__kernel kernel;
    struct tri__experts experts;
    double free_total_kib; /* the Mem: line of free, for the Swap: line below it */
    struct tri_tree *root; /* live or captured root; NULL */
    bool live, measured;
    double memory_gbs, drive_gbs, drive_4k_iops; /* measured, 0 not */
    double load;                                 /* tasks ready to run when measuring began */
    unsigned memory_threads;
    int uring;           /* 1 allowed, 0 refused, -1 not tried */
    size_t live_machine; /* index + 1 of the machine the root describes, 0 none */

    tri_doctor_pricer *pricer;
    void *pricer_arg;
    unsigned priced;         /* questions asked so far */
    const char *cost_device; /* whose wiring the rules judge now; NULL or "" unknown */
    size_t cost_gpus;
    size_t kinds;
    unsigned kind_seen; /* bits of enum tri__kind */
    unsigned open_json; /* JSON documents that never end */
    unsigned tars;      /* that are open, one inside the other */
    bool cut, judged;
    char cut_why[200];
    struct tri_finding *finding[TRI_DOCTOR_MAX_FINDINGS]; /* rules hold on to them: they stay */
    struct tri_finding spare;                     /* over the limit: written and not reported */
    uint32_t title_hash[TRI_DOCTOR_MAX_FINDINGS]; /* while rules run; later they are sorted */
    size_t findings, findings_lost;
    char note[TRI_DOCTOR_MAX_NOTES][240];
    size_t notes;
    struct tri_grouping *grouping;
    size_t groupings;
};

enum tri__kind { /* for the step list: which readings are there */
                 TRI__KIND_TOPOLOGY = 1,
                 TRI__KIND_LANES = 2,
                 TRI__KIND_P2P = 4,
                 TRI__KIND_COLLECTIVE = 8,
                 TRI__KIND_NCCL = 16,
                 TRI__KIND_ENGINE = 32,
                 TRI__KIND_HOST = 64,
                 TRI__KIND_KERNEL = 128,
                 TRI__KIND_BANDWIDTH = 256
};

/* ---- findings ---- */
/* Adds a finding; the same rule with the same title is returned again instead of doubled. Never
 * NULL: over the limit a spare one that is not reported. */
struct tri_finding *tri__doctor_find(struct tri_doctor *d, const char *rule,
                                     enum tri_severity severity, const char *format, ...)
    TRI_PRINTF(4, 5);
void tri__doctor_why(struct tri_finding *f, const char *format, ...) TRI_PRINTF(2, 3);
void tri__doctor_cure(struct tri_finding *f, const char *format, ...) TRI_PRINTF(2, 3);
/* Whose GPUs the following costs are of. */
void tri__doctor_cost_of(struct tri_doctor *d, const char *device, size_t gpus);
/* The cost of reaching `have` where `should` was possible; see cost.c. */
void tri__doctor_cost(struct tri_doctor *d, struct tri_finding *f, double have_gbs,
                      double should_gbs);
/* The same in words, for a finding to which no rates apply. */
void tri__doctor_cost_words(struct tri_finding *f);
void tri__doctor_cite(struct tri_doctor *d, struct tri_finding *f, struct tri__spot spot);
void tri__doctor_cite_fact(struct tri_doctor *d, struct tri_finding *f, const struct tri_machine *m,
                           struct tri_source source);
void tri__doctor_cite_path(struct tri_finding *f, const char *path, const char *text);
void tri__doctor_note(struct tri_doctor *d, const char *format, ...) TRI_PRINTF(2, 3);
/* The input was cut or repaired; the first reason is kept. */
void tri__doctor_cut(struct tri_doctor *d, const char *format, ...) TRI_PRINTF(2, 3);
const char *tri__doctor_line(const struct tri_doctor *d, struct tri__spot spot);

/* ---- readers ---- */
/* What the sieve tells of a line: one bit for each group of words that is looked for together. */
enum tri__hit {
    TRI__HIT_NCCL,
    TRI__HIT_NCCL_CHANNEL,
    TRI__HIT_NCCL_COUNTS,
    TRI__HIT_NCCL_OTHER,
    TRI__HIT_KERNEL,
    TRI__HIT_COLL,
    TRI__HIT_BENCH,
    TRI__HIT_BAND,
    TRI__HIT_PORTS,
    TRI__HIT_CACHE,
    TRI__HIT_LOAD,
    TRI__HIT_REFUSAL,
    TRI__HIT_SIZES,
    TRI__HIT_SCALING,
    TRI__HIT_LIMITS,
    TRI__HIT_JSON,
    TRI__HIT_TOPO /* the first of TRI_TOPO_READERS */
};

/* Each puts the words of its reader into the sieve. */
void tri__doctor_words_nccl(struct tri_sieve *sieve);
void tri__doctor_words_kernel(struct tri_sieve *sieve);
void tri__doctor_words_coll(struct tri_sieve *sieve);
void tri__doctor_words_bench(struct tri_sieve *sieve);
void tri__doctor_words_band(struct tri_sieve *sieve);
void tri__doctor_words_ports(struct tri_sieve *sieve);
void tri__doctor_words_engine(struct tri_sieve *sieve);
void tri__doctor_words_limits(struct tri_sieve *sieve);
void tri__doctor_words_json(struct tri_sieve *sieve);
/* Whether the line being read may hold words of that group. */
bool tri__doctor_hit(const struct tri_doctor *d, enum tri__hit group);

size_t tri__doctor_read_band(struct tri_doctor *d, struct tri__spot at);
/* A further test; NULL over the limit. */
struct tri__coll *tri__doctor_open_coll(struct tri_doctor *d, struct tri__spot at);
size_t tri__doctor_read_bench(struct tri_doctor *d, struct tri__spot at);
size_t tri__doctor_read_ports(struct tri_doctor *d, struct tri__spot at);
size_t tri__doctor_read_json(struct tri_doctor *d, struct tri__spot at);
/* A run of nvbandwidth, and one of its tables with every cell unknown; NULL over a limit. */
struct tri__band *tri__doctor_open_band(struct tri_doctor *d, struct tri__spot at,
                                        bool nvbandwidth);
struct tri__table *tri__doctor_add_table(struct tri__band *b, enum tri__table_kind kind,
                                         size_t columns);
size_t tri__doctor_read_coll(struct tri_doctor *d, struct tri__spot at);
size_t tri__doctor_read_nccl(struct tri_doctor *d, struct tri__spot at);
/* Gives every process its job. Returns how many jobs there are. */
int tri__doctor_nccl_jobs(struct tri__nccl_log *log);
/* What the processes of one job say together. */
void tri__doctor_nccl_join(const struct tri__nccl_log *log, int job, struct tri__nccl *out);
size_t tri__doctor_read_engine(struct tri_doctor *d, struct tri__spot at);
size_t tri__doctor_read_kernel(struct tri_doctor *d, struct tri__spot at);
size_t tri__doctor_read_limits(struct tri_doctor *d, struct tri__spot at);
size_t tri__doctor_read_routes(struct tri_doctor *d, struct tri__spot at);

/* ---- rules ---- */
void tri__doctor_rules_paths(struct tri_doctor *d, const struct tri_machine *m);
void tri__doctor_rules_amd(struct tri_doctor *d, const struct tri_machine *m);
void tri__doctor_rules_ports(struct tri_doctor *d);
void tri__doctor_rules_numa(struct tri_doctor *d, const struct tri_machine *m);
void tri__doctor_rules_nic(struct tri_doctor *d, const struct tri_machine *m);
void tri__doctor_rules_pcie(struct tri_doctor *d, const struct tri_machine *m);
void tri__doctor_rules_acs(struct tri_doctor *d, const struct tri_machine *m);
void tri__doctor_rules_gpu(struct tri_doctor *d, const struct tri_machine *m);
void tri__doctor_rules_p2p(struct tri_doctor *d, const struct tri_machine *m);
void tri__doctor_rules_band(struct tri_doctor *d);
void tri__doctor_rules_coll(struct tri_doctor *d);
void tri__doctor_rules_nccl(struct tri_doctor *d);
void tri__doctor_rules_engine(struct tri_doctor *d);
void tri__doctor_rules_kernel(struct tri_doctor *d);
void tri__doctor_rules_host(struct tri_doctor *d, struct tri_tree *tree);
void tri__doctor_rules_own(struct tri_doctor *d, struct tri_tree *tree);

/* Tokens/s of single-stream decode from measured rates; how it was reckoned into `how`. 0 unknown.
 */
double tri__doctor_decode_rate(double memory_gbs, double drive_gbs, double memory_bytes, char *how,
                               size_t how_bytes);

void tri__doctor_group(struct tri_doctor *d, size_t machine);
/*
 * The adapters of one group: for each of its GPUs those it reaches by its best path, when that is
 * no path across sockets. Sets chosen[nic]; returns how many.
 */
size_t tri__doctor_group_nics(const struct tri_doctor *d, const struct tri_grouping *grouping,
                              size_t group, bool chosen[TRI_MAX_NICS]);

/* Class of a part by its name, for what its wiring should give. */
struct tri__part {
    const char *word;  /* found in the product name */
    double nvlink_gbs; /* all links of one GPU, one way; 0: PCIe only */
    double pcie_gbs;   /* x16 of its generation, one way */
    bool sxm;          /* always on NVLink when it is healthy */
};
const struct tri__part *tri__doctor_part(const char *name); /* NULL: unknown */

#endif
