/* Shared model options and opening. See model_flags.h. */
#include "cli/model_flags.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "cli/model_path.h"
#include "os/memory.h"
#include "os/pool.h"

enum { KEY_RAM = 0x100, KEY_TRUNK, KEY_THREADS, KEY_CHUNK, KEY_LAYERS, KEY_ACT };

static const struct argp_option flag_options[] = {
    { "model", 'm', "DIR", 0, "Model folder (config.json, shards, tokenizer)", 10 },
    { "ram", KEY_RAM, "SIZE", 0, "Memory ceiling, e.g. 20G (default: what is free, less a reserve)",
      10 },
    { "trunk", KEY_TRUNK, "FORMAT", 0,
      "Trunk weights in RAM: f32, bf16, int8 or int4 (default: as on disk)", 10 },
    { "act", KEY_ACT, "KIND", 0, "Activations in the matrix products: exact or int8", 10 },
    { "threads", KEY_THREADS, "N", 0, "Worker threads (default: all CPUs allowed)", 10 },
    { "chunk", KEY_CHUNK, "N", 0, "Tokens per prefill step (default 512)", 10 },
    { "layers", KEY_LAYERS, "N", 0, "Run only the first N layers", 10 },
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

const char *tri_size_text(char *out, uint64_t bytes)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    double v = (double)bytes;
    int unit = 0;
    for (; v >= 1024 && unit < 4; unit++)
        v /= 1024;
    snprintf(out, 32, unit ? "%.1f %s" : "%.0f %s", v, units[unit]);
    return out;
}

double tri_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool parse_trunk(const char *text, enum tri_trunk *out)
{
    static const struct {
        const char *name;
        enum tri_trunk trunk;
    } names[] = { { "disk", TRI_TRUNK_DISK },
                  { "f32", TRI_TRUNK_F32 },
                  { "bf16", TRI_TRUNK_BF16 },
                  { "int8", TRI_TRUNK_INT8 },
                  { "int4", TRI_TRUNK_INT4 } };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (!strcmp(text, names[i].name)) {
            *out = names[i].trunk;
            return true;
        }
    }
    return false;
}

static error_t parse_flag(int key, char *arg, struct argp_state *state)
{
    struct tri_model_flags *f = state->input;
    int64_t n = 0;
    switch (key) {
    case 'm':
        f->model = arg;
        return 0;
    case KEY_RAM:
        if (!tri_parse_size(arg, &f->ram_bytes))
            argp_error(state, "--ram %s: write a size such as 20G or 512M", arg);
        return 0;
    case KEY_TRUNK:
        if (!parse_trunk(arg, &f->options.trunk))
            argp_error(state, "--trunk %s: one of f32, bf16, int8, int4", arg);
        return 0;
    case KEY_ACT:
        if (strcmp(arg, "exact") && strcmp(arg, "int8"))
            argp_error(state, "--act %s: exact or int8", arg);
        return 0;
    case KEY_THREADS:
        if (!tri_parse_int(arg, 1, TRI_POOL_MAX_THREADS, &n))
            argp_error(state, "--threads %s: 1 to %d", arg, TRI_POOL_MAX_THREADS);
        f->options.threads = (int)n;
        return 0;
    case KEY_CHUNK:
        if (!tri_parse_int(arg, 1, TRI_MODEL_MAX_CHUNK_TOKENS, &f->options.chunk_tokens))
            argp_error(state, "--chunk %s: 1 to %d", arg, TRI_MODEL_MAX_CHUNK_TOKENS);
        return 0;
    case KEY_LAYERS:
        if (!tri_parse_int(arg, 1, TRI_SPEC_MAX_LAYERS, &f->options.layers))
            argp_error(state, "--layers %s: 1 to %d", arg, TRI_SPEC_MAX_LAYERS);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
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
    double now = tri_now_s(), spent = now - l->begin_s;
    if (now - l->drawn_s < 0.1 || spent < 0.3)
        return 0;
    char a[32], b[32], c[32];
    double rate = (double)done / spent;
    l->drawn_s = now;
    l->drawn = true;
    fprintf(stderr, "\r\033[Kloading %s: %s of %s, %s/s", what, tri_size_text(a, done),
            tri_size_text(b, total), tri_size_text(c, (uint64_t)rate));
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

enum tri_status tri_flags_open(struct tri_opened *out, const struct tri_model_flags *flags,
                               struct tri_error *err)
{
    struct tri_model_options options = flags->options;
    struct line line = { .begin_s = tri_now_s() };
    uint64_t ram = flags->ram_bytes;
    *out = (struct tri_opened){ 0 };
    enum tri_status st = tri_model_path(out->folder, flags->model, err);
    if (st)
        return st;
    if (ram == 0) {
        struct tri_memory_facts facts;
        tri_memory_read(&facts, "");
        ram = tri_memory_budget_bytes(&facts);
    }
    if (!flags->quiet && isatty(STDERR_FILENO)) {
        options.progress = (struct tri_progress){ draw_progress, &line };
        options.notes = (struct tri_notes){ print_note, NULL };
    }
    st = tri_budget_open(&out->budget, ram, err);
    if (!st)
        st = tri_model_open(&out->model, out->folder, &options, out->budget, err);
    if (line.drawn)
        fprintf(stderr, "\r\033[K");
    out->load_s = tri_now_s() - line.begin_s;
    if (st)
        tri_flags_close(out);
    return st;
}

void tri_flags_close(struct tri_opened *opened)
{
    tri_model_close(opened->model);
    tri_budget_close(opened->budget);
    opened->model = NULL;
    opened->budget = NULL;
}
