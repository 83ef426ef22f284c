/* Shared model options and opening. See model_flags.h. */
#include "cli/model_flags.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "cli/human.h"
#include "cli/model_path.h"
#include "os/memory.h"
#include "os/pool.h"

enum { MOST_TIMEOUT_S = 3600 };

enum {
    KEY_RAM = 0x100,
    KEY_TRUNK,
    KEY_THREADS,
    KEY_CHUNK,
    KEY_TIMEOUT,
    KEY_LAYERS,
    KEY_ACT,
    KEY_CACHE,
    KEY_KDA_STATE,
    KEY_EXPERTS,
    KEY_POLICY,
    KEY_IO,
    KEY_PAGE_CACHE,
    KEY_DEPTH,
    KEY_NOTHING,
    KEY_SHARD_DIR,
    KEY_LOOKAHEAD,
    KEY_PER_TOKEN,
    KEY_REGRET,
    KEY_NUMA
};

static const struct argp_option flag_options[] = {
    { "model", 'm', "DIR", 0, "Model folder (config.json, shards, tokenizer)", 10 },
    { "shard-dir", KEY_SHARD_DIR, "DIR", 0,
      "A further folder with shards of the model, e.g. on another drive; repeatable", 10 },
    { "ram", KEY_RAM, "SIZE", 0, "Memory ceiling, e.g. 20G (default: what is free, less a reserve)",
      10 },
    { "trunk", KEY_TRUNK, "FORMAT", 0,
      "Trunk weights in RAM: f32, bf16, int8, int4, disk (as stored) or stream (from disk, every "
      "step); default auto: the first of disk, int8, int4, stream that fits",
      10 },
    { "act", KEY_ACT, "KIND", 0,
      "Activations in products with grouped weights: int8 (default; exact for logits) or exact",
      10 },
    { "cache", KEY_CACHE, "FORMAT", 0, "MLA cache: f32, bf16 or fp8 (default f32)", 10 },
    { "kda-state", KEY_KDA_STATE, "FORMAT", 0,
      "KDA state: f32 (default) or bf16, half the bytes; results then depend on --chunk", 10 },
    { "threads", KEY_THREADS, "N", 0, "Worker threads (default: all CPUs allowed)", 10 },
    { "numa", KEY_NUMA, "MODE", 0,
      "Memory interleaved over the machine's nodes and threads bound to them: auto (default: where "
      "several nodes may be used), interleave or off",
      10 },
    { "chunk", KEY_CHUNK, "N", 0, "Tokens per prefill step (default 512)", 10 },
    { "layers", KEY_LAYERS, "N", 0, "Run only the first N layers", 10 },
    { 0, 0, 0, 0, "Experts that do not all fit in memory:", 11 },
    { "expert-ram", KEY_EXPERTS, "SIZE", 0,
      "Most memory for resident experts (default: what --ram leaves)", 11 },
    { "expert-policy", KEY_POLICY, "P", 0, "Who makes room: cycle (default), lru or lfu", 11 },
    { "io", KEY_IO, "ENGINE", 0, "How drives are read: auto, uring or threads", 11 },
    { "page-cache", KEY_PAGE_CACHE, "YES|NO", 0,
      "Read experts through the page cache (default: only when they all fit)", 11 },
    { "io-depth", KEY_DEPTH, "N", 0, "Reads in flight (default 16)", 11 },
    { "io-timeout", KEY_TIMEOUT, "SECONDS", 0,
      "A drive that is silent for so long ends the request (default 30)", 11 },
    { "lookahead", KEY_LOOKAHEAD, "N", 0,
      "Read the next layer's N likeliest experts while a drive would idle (default 0: off)", 11 },
    { "keep-nothing", KEY_NOTHING, 0, 0,
      "Keep no statistics of experts in MODEL/.trireme for later runs", 11 },
    { 0, 0, 0, 0, "Faster, but other answers (docs/run.md tells how much is lost):", 12 },
    { "experts-per-token", KEY_PER_TOKEN, "N", 0, "Fewer experts than the model's own", 12 },
    { "prefer-cached", KEY_REGRET, "PERCENT", 0,
      "Take experts in RAM instead, up to two a layer, if their gate is at most so much smaller",
      12 },
    { 0 }
};

bool tri_parse_size(const char *text, uint64_t *bytes)
{
    static const char units[] = "KMGT";
    char *end = NULL;
    errno = 0;
    double v = strtod(text, &end);
    if (end == text || errno || !(v >= 0) || text[0] == '+' || text[0] == '-' ||
        strpbrk(text, "xXnN"))
        return false;
    const char *unit = *end ? strchr(units, *end & ~0x20) : NULL;
    double scale = 1;
    if (unit) {
        scale = ldexp(1, 10 * (int)(unit - units + 1));
        end++;
        if (!strcasecmp(end, "iB") || !strcasecmp(end, "B"))
            end += strlen(end);
    }
    v *= scale;
    if (*end || v > 1e18 || v < 1)
        return false;
    *bytes = (uint64_t)v;
    return true;
}

bool tri_parse_int(const char *text, int64_t least, int64_t most, int64_t *out)
{
    char *end = NULL;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end || errno || v < least || v > most)
        return false;
    *out = v;
    return true;
}

struct choice {
    const char *name;
    int value;
};

static const struct choice trunks[] = { { "auto", TRI_TRUNK_AUTO },     { "disk", TRI_TRUNK_DISK },
                                        { "f32", TRI_TRUNK_F32 },       { "bf16", TRI_TRUNK_BF16 },
                                        { "int8", TRI_TRUNK_INT8 },     { "int4", TRI_TRUNK_INT4 },
                                        { "stream", TRI_TRUNK_STREAM }, { 0 } };
static const struct choice acts[] = { { "exact", TRI_ACT_EXACT }, { "int8", TRI_ACT_INT8 }, { 0 } };
static const struct choice caches[] = {
    { "f32", TRI_DT_F32 }, { "bf16", TRI_DT_BF16 }, { "fp8", TRI_DT_E4M3 }, { 0 }
};
static const struct choice kda_states[] = { { "f32", TRI_DT_F32 }, { "bf16", TRI_DT_BF16 }, { 0 } };
static const struct choice policies[] = {
    { "cycle", TRI_EXPERTS_CYCLE }, { "lru", TRI_EXPERTS_LRU }, { "lfu", TRI_EXPERTS_LFU }, { 0 }
};
static const struct choice numas[] = {
    { "auto", TRI_NUMA_AUTO }, { "interleave", TRI_NUMA_INTERLEAVE }, { "off", TRI_NUMA_OFF }, { 0 }
};
static const struct choice engines[] = {
    { "auto", TRI_AIO_AUTO }, { "uring", TRI_AIO_URING }, { "threads", TRI_AIO_THREADS }, { 0 }
};
static const struct choice page_cache[] = { { "yes", TRI_EXPERTS_IO_BUFFERED },
                                            { "no", TRI_EXPERTS_IO_DIRECT },
                                            { 0 } };

/* The value of `arg` among the choices; a usage error that lists them when it is none. */
static int choose(const struct argp_state *state, const char *option, const char *arg,
                  const struct choice *c)
{
    char names[128] = "";
    for (; c->name; c++) {
        if (!strcmp(arg, c->name))
            return c->value;
        size_t at = strlen(names);
        snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "", c->name);
    }
    argp_error(state, "--%s %s: one of %s", option, arg, names);
    return 0;
}

static void parse_size_flag(const struct argp_state *state, const char *option, const char *arg,
                            uint64_t *out)
{
    if (!tri_parse_size(arg, out))
        argp_error(state, "--%s %s: write a size such as 20G or 512M", option, arg);
}

static void parse_int_flag(const struct argp_state *state, const char *option, const char *arg,
                           int64_t most, int64_t *out)
{
    if (!tri_parse_int(arg, 1, most, out))
        argp_error(state, "--%s %s: 1 to %lld", option, arg, (long long)most);
}

/* How experts are kept and read, and the lossy options. */
static error_t parse_expert_flag(int key, char *arg, struct argp_state *state)
{
    struct tri_model_flags *f = state->input;
    struct tri_model_options *o = &f->options;
    int64_t n = 0;
    switch (key) {
    case KEY_EXPERTS:
        parse_size_flag(state, "expert-ram", arg, &o->expert_bytes);
        return 0;
    case KEY_POLICY:
        o->expert_policy = (enum tri_expert_policy)choose(state, "expert-policy", arg, policies);
        return 0;
    case KEY_IO:
        o->engine = (enum tri_aio_engine)choose(state, "io", arg, engines);
        return 0;
    case KEY_PAGE_CACHE:
        o->expert_io = (enum tri_expert_io)choose(state, "page-cache", arg, page_cache);
        return 0;
    case KEY_DEPTH:
        parse_int_flag(state, "io-depth", arg, TRI_AIO_MAX_DEPTH, &n);
        o->queue_depth = (int)n;
        return 0;
    case KEY_TIMEOUT:
        parse_int_flag(state, "io-timeout", arg, MOST_TIMEOUT_S, &n);
        o->io_timeout_ms = (int)n * 1000;
        return 0;
    case KEY_LOOKAHEAD:
        if (!tri_parse_int(arg, 0, TRI_EXPERTS_MAX_AHEAD, &o->lookahead))
            argp_error(state, "--lookahead %s: 0 to %d", arg, TRI_EXPERTS_MAX_AHEAD);
        return 0;
    case KEY_PER_TOKEN:
        parse_int_flag(state, "experts-per-token", arg, 1 << 16, &o->experts_per_token);
        return 0;
    case KEY_REGRET:
        parse_int_flag(state, "prefer-cached", arg, 99, &n);
        o->cache_regret = (float)n / 100;
        return 0;
    case KEY_NOTHING:
        o->keep_nothing = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* The options that name a number format. */
static error_t parse_format(int key, const char *arg, const struct argp_state *state,
                            struct tri_model_options *o)
{
    switch (key) {
    case KEY_TRUNK:
        o->trunk = (enum tri_trunk)choose(state, "trunk", arg, trunks);
        return 0;
    case KEY_ACT:
        o->act = (enum tri_act)choose(state, "act", arg, acts);
        return 0;
    case KEY_CACHE:
        o->cache = (enum tri_dtype)choose(state, "cache", arg, caches);
        return 0;
    case KEY_KDA_STATE:
        o->kda_state = (enum tri_dtype)choose(state, "kda-state", arg, kda_states);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

void tri_take_shard_dir(struct argp_state *state, const char *arg, struct tri_folders *to)
{
    if (!*arg)
        argp_error(state, "--shard-dir: an empty name is no folder");
    if (to->n == TRI_WEIGHTS_MAX_FOLDERS)
        argp_error(state, "--shard-dir: at most %d", TRI_WEIGHTS_MAX_FOLDERS);
    to->name[to->n++] = arg;
}

static error_t parse_flag(int key, char *arg, struct argp_state *state)
{
    struct tri_model_flags *f = state->input;
    struct tri_model_options *o = &f->options;
    int64_t n = 0;
    error_t st;
    switch (key) {
    case 'm':
        f->model = arg;
        return 0;
    case KEY_RAM:
        parse_size_flag(state, "ram", arg, &f->ram_bytes);
        return 0;
    case KEY_THREADS:
        parse_int_flag(state, "threads", arg, TRI_POOL_MAX_THREADS, &n);
        o->threads = (int)n;
        return 0;
    case KEY_NUMA:
        f->numa = (enum tri_numa)choose(state, "numa", arg, numas);
        return 0;
    case KEY_CHUNK:
        parse_int_flag(state, "chunk", arg, TRI_MODEL_MAX_CHUNK_TOKENS, &o->chunk_tokens);
        return 0;
    case KEY_LAYERS:
        parse_int_flag(state, "layers", arg, TRI_SPEC_MAX_LAYERS, &o->layers);
        return 0;
    case KEY_SHARD_DIR:
        tri_take_shard_dir(state, arg, &o->shard_dirs);
        return 0;
    default:
        st = parse_format(key, arg, state, o);
        return st == ARGP_ERR_UNKNOWN ? parse_expert_flag(key, arg, state) : st;
    }
}

const struct argp tri_model_flags_argp = { .options = flag_options, .parser = parse_flag };

/* Drawn at most ten times a second; erased when the load is over. */
struct line {
    double begin_s, drawn_s;
    bool drawn;
};

static int draw_progress(void *arg, const char *what, uint64_t done, uint64_t total)
{
    struct line *l = arg;
    double now = tri_clock_s(), spent = now - l->begin_s;
    if (now - l->drawn_s < 0.1 || spent < 0.3)
        return 0;
    char a[32], b[32], c[32];
    double rate = (double)done / spent;
    l->drawn_s = now;
    l->drawn = true;
    fprintf(stderr, "\r\033[Kloading %s: %s of %s, %s/s", what, tri_human_bytes(a, done),
            tri_human_bytes(b, total), tri_human_bytes(c, (uint64_t)rate));
    if (rate > 0 && total >= done)
        fprintf(stderr, ", %.0f s left", (double)(total - done) / rate);
    fflush(stderr);
    return 0;
}

static void print_note(void *arg, const char *text)
{
    (void)arg;
    fprintf(stderr, "note: %s\n", text);
}

/* --ram, if it can be had; without it what is free, less a reserve. */
static enum tri_status find_ceiling(uint64_t *ram_bytes, struct tri_error *err)
{
    struct tri_memory_facts facts;
    char asked[32], room[32], limit[32];
    tri_memory_read(&facts, "");
    if (*ram_bytes == 0)
        *ram_bytes = tri_memory_budget_bytes(&facts);
    else if (facts.total_bytes && *ram_bytes > tri_memory_room_bytes(&facts))
        return tri_fail(
            err, TRI_BUDGET,
            "--ram asks for %s, but only %s can be had now (limit of the memory "
            "cgroup: %s)",
            tri_human_bytes(asked, *ram_bytes),
            tri_human_bytes(room, tri_memory_room_bytes(&facts)),
            facts.limit_bytes == UINT64_MAX ? "none" : tri_human_bytes(limit, facts.limit_bytes));
    return TRI_OK;
}

/* Progress only where a person watches; notes everywhere: a coarser trunk is never silent. */
static struct tri_model_options watched(const struct tri_model_flags *flags, struct line *line)
{
    struct tri_model_options options = flags->options;
    *line = (struct line){ .begin_s = tri_clock_s() };
    if (!flags->quiet)
        options.notes = (struct tri_notes){ print_note, NULL };
    if (!flags->quiet && isatty(STDERR_FILENO))
        options.progress = (struct tri_progress){ draw_progress, line };
    return options;
}

/* Before anything large is allocated. What cannot be had costs speed alone: a note. */
static void place_memory(struct tri_opened *out, const struct tri_model_flags *flags)
{
    struct tri_error refused = { 0 };
    tri_numa_here(&out->numa, flags->numa);
    enum tri_status st = tri_numa_apply(&out->numa, &out->numa_before, &refused);
    if (st)
        snprintf(out->numa.why, sizeof out->numa.why, "%.190s", refused.text);
    out->numa.interleave = out->numa_before.changed;
    if (flags->quiet)
        return;
    if (st)
        print_note(NULL, refused.text);
    else if (flags->numa == TRI_NUMA_INTERLEAVE && !out->numa.interleave)
        fprintf(stderr, "note: --numa interleave: %s\n", out->numa.why);
}

enum tri_status tri_flags_open(struct tri_opened *out, const struct tri_model_flags *flags,
                               struct tri_error *err)
{
    struct line line;
    struct tri_model_options options = watched(flags, &line);
    uint64_t ram = flags->ram_bytes;
    *out = (struct tri_opened){ .shard_dirs = options.shard_dirs };
    enum tri_status st = tri_model_path(out->folder, flags->model, err);
    if (!st)
        st = find_ceiling(&ram, err);
    if (!st)
        st = tri_budget_open(&out->budget, ram, err);
    place_memory(out, flags);
    options.numa = &out->numa;
    if (!st)
        st = tri_model_open(&out->model, out->folder, &options, out->budget, err);
    if (line.drawn)
        fprintf(stderr, "\r\033[K");
    out->load_s = tri_clock_s() - line.begin_s;
    if (st)
        tri_flags_close(out);
    return st;
}

enum tri_status tri_flags_pack(const struct tri_model_flags *flags, struct tri_pack_report *report,
                               struct tri_error *err)
{
    struct line line;
    struct tri_model_options options = watched(flags, &line);
    struct tri_budget *budget = NULL;
    char folder[TRI_MODEL_PATH_MAX_BYTES];
    uint64_t ram = flags->ram_bytes;
    enum tri_status st = tri_model_path(folder, flags->model, err);
    if (!st)
        st = find_ceiling(&ram, err);
    if (!st)
        st = tri_budget_open(&budget, ram, err);
    if (!st)
        st = tri_model_pack(folder, &options, budget, report, err);
    if (line.drawn)
        fprintf(stderr, "\r\033[K");
    tri_budget_close(budget);
    return st;
}

void tri_flags_close(struct tri_opened *opened)
{
    tri_model_close(opened->model);
    tri_budget_close(opened->budget);
    tri_numa_restore(&opened->numa_before);
    opened->model = NULL;
    opened->budget = NULL;
}
