/*
 * trireme doctor: what is wrong with this machine, or with the one whose outputs were sent. Exit
 * code 0 OK or INFO, 1 WARN, 2 FAIL, 3 usage or an input that cannot be read.
 */
#include "cli/cli.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/json.h"
#include "base/mem.h"
#include "cli/usage.h"
#include "cli/doctor_price.h"
#include "cli/out_file.h"
#include "cli/streams.h"
#include "doctor/doctor.h"

enum { EXIT_WARN = 1, EXIT_FAIL = 2, EXIT_DOCTOR_USAGE = 3 };
enum {
    KEY_ROOT = 0x100,
    KEY_JSON,
    KEY_HTML,
    KEY_STEPS,
    KEY_MEASURE,
    KEY_MEASURE_DIR,
    KEY_GATHER,
    KEY_WATCH,
    KEY_COUNT
};
enum { MAX_INPUTS = TRI_DOCTOR_MAX_FILES, MAX_READINGS = 1000000000 };

struct doctor_args {
    const char *file[MAX_INPUTS];
    size_t files;
    struct tri_doctor_options options;
    const char *html, *gather;
    double watch_seconds; /* 0: not watching */
    long watch_count;     /* 0: until interrupted */
    bool json, verbose, steps, live;
};

static const struct argp_option options[] = {
    { "verbose", 'v', 0, 0, "Show evidence, reasons and everything that is fine", 0 },
    { "json", KEY_JSON, 0, 0, "Print the report as JSON", 0 },
    { "html", KEY_HTML, "FILE", 0, "Also write the report as one HTML file", 0 },
    { "steps", KEY_STEPS, 0, 0, "Walk through six steps: what is known, what to run next", 0 },
    { "live", 'l', 0, 0, "Read this machine too (the default without FILE)", 0 },
    { "root", KEY_ROOT, "DIR", 0,
      "Read a copy of / with its /proc and /sys instead of this machine", 0 },
    { "measure", KEY_MEASURE, 0, 0, "Also measure memory and the drive (loads the machine ~3 s)",
      0 },
    { "measure-dir", KEY_MEASURE_DIR, "DIR", 0,
      "Folder on the drive to measure (default: TMPDIR or .)", 0 },
    { "gather", KEY_GATHER, "OUT.tar", 0,
      "Capture this machine (or --root) for somebody else: no names, "
      "serials or addresses",
      1 },
    { "watch", KEY_WATCH, "SECONDS", OPTION_ARG_OPTIONAL,
      "Repeat while a job runs and tell what changes (default: every 5 s)", 2 },
    { "count", KEY_COUNT, "N", 0, "With --watch: stop after N readings (default: when interrupted)",
      2 },
    { 0 }
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct doctor_args *a = state->input;
    switch (key) {
    case 'v':
        a->verbose = true;
        return 0;
    case 'l':
        a->live = true;
        return 0;
    case KEY_JSON:
        a->json = true;
        return 0;
    case KEY_HTML:
        a->html = arg;
        return 0;
    case KEY_STEPS:
        a->steps = true;
        return 0;
    case KEY_ROOT:
        a->options.root = arg;
        a->live = true;
        return 0;
    case KEY_MEASURE:
        a->options.measure = true;
        a->live = true;
        return 0;
    case KEY_MEASURE_DIR:
        a->options.measure_dir = arg;
        return 0;
    case KEY_GATHER:
        a->gather = arg;
        return 0;
    case KEY_WATCH: {
        char *end = NULL;
        a->watch_seconds = arg ? strtod(arg, &end) : 5;
        if ((arg && *end) || !(a->watch_seconds >= 0.1 && a->watch_seconds <= 86400))
            argp_error(state, "--watch takes 0.1 to 86400 seconds");
        return 0;
    }
    case KEY_COUNT: {
        char *end = NULL;
        a->watch_count = strtol(arg, &end, 10);
        if (*end || a->watch_count < 1 || a->watch_count > MAX_READINGS)
            argp_error(state, "--count takes a number from 1 to %d", MAX_READINGS);
        return 0;
    }
    case ARGP_KEY_ARG:
        if (a->files == MAX_INPUTS)
            argp_error(state, "at most %d files", MAX_INPUTS);
        a->file[a->files++] = arg;
        return 0;
    case ARGP_KEY_END:
        if ((a->watch_seconds > 0 || a->gather) && a->files)
            argp_error(state, "'%s': --watch and --gather take no file (write --watch=SECONDS)",
                       a->file[0]);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp doctor_argp = {
    options,
    parse,
    "[FILE...]",
    "Finds what is wrong with this machine, or with the one whose outputs are in FILE ('-': "
    "standard "
    "input).\vReads nvidia-smi, lspci, NCCL logs, nccl-tests, rocm-smi, hwloc and NCCL XML, kernel "
    "and "
    "engine logs and more, recognised by content; several may follow one another in a file.\n"
    "Exit code: 0 OK or INFO, 1 WARN, 2 FAIL, 3 usage or unreadable input.\n\n"
    "Examples:\n"
    "  trireme doctor\n"
    "  trireme doctor --measure --verbose\n"
    "  nvidia-smi topo -m | trireme doctor -\n"
    "  trireme doctor topo.txt lspci.txt nccl.log --json\n"
    "  trireme doctor --gather box.tar       # then anywhere: trireme doctor box.tar\n"
    "  trireme doctor --watch=5 --count 60   # while a job runs",
    NULL,
    NULL,
    NULL
};

/* Standard input, up to the limit of one file. */
static enum tri_status read_stdin(struct tri_doctor *d, struct tri_error *err)
{
    struct tri_buf buf;
    char block[65536];
    size_t n;
    tri_buf_init(&buf, TRI_LINES_MAX_BYTES);
    while ((n = fread(block, 1, sizeof block, stdin)) > 0 && !tri_buf_add(&buf, block, n))
        ;
    enum tri_status status =
        buf.failed
            ? tri_fail(err, buf.failed, "standard input is too long")
            : tri_doctor_read_bytes(d, "stdin", buf.data ? buf.data : "", buf.len_bytes, err);
    tri_buf_fini(&buf);
    return status;
}

static enum tri_status read_inputs(struct tri_doctor *d, const struct doctor_args *a,
                                   struct tri_error *err)
{
    enum tri_status status = TRI_OK;
    for (size_t i = 0; i < a->files && status == TRI_OK; i++)
        status =
            strcmp(a->file[i], "-") ? tri_doctor_read_file(d, a->file[i], err) : read_stdin(d, err);
    if (status == TRI_OK && (a->live || !a->files))
        status = tri_doctor_read_live(d, &a->options, err);
    return status ? status : tri_doctor_judge(d, err);
}

static enum tri_status write_file(const char *path, const struct tri_buf *buf,
                                  struct tri_error *err)
{
    struct tri_out_file out;
    enum tri_status status = tri_out_file_open(&out, path, 0666, err);
    if (status)
        return status;
    fwrite(buf->data, 1, buf->len_bytes, out.f); /* the commit tells what failed */
    return tri_out_file_commit(&out, err);
}

static enum tri_status report(const struct tri_doctor *d, const struct doctor_args *a,
                              struct tri_error *err)
{
    struct tri_buf out;
    enum tri_status status = TRI_OK;
    tri_buf_init(&out, TRI_DOCTOR_MAX_REPORT_BYTES);
    if (a->html) {
        tri_doctor_write_html(d, &out);
        status = out.failed ? tri_fail(err, out.failed, "the report is too long")
                            : write_file(a->html, &out, err);
        tri_buf_clear(&out);
    }
    if (a->json)
        tri_doctor_write_json(d, &out);
    else if (a->steps)
        tri_doctor_write_steps(d, &out);
    else
        tri_doctor_write_text(d, a->verbose, &out);
    if (status == TRI_OK && out.failed)
        status = tri_fail(err, out.failed, "the report is too long");
    bool lost = status == TRI_OK && (fwrite(out.data, 1, out.len_bytes, stdout) != out.len_bytes ||
                                     fflush(stdout) != 0);
    tri_buf_fini(&out);
    return lost ? tri_fail_errno(err, TRI_IO, errno, "standard output cannot be written") : status;
}

static enum tri_status gather(const struct doctor_args *a, struct tri_error *err)
{
    struct tri_buf out;
    tri_buf_init(&out, TRI_DOCTOR_MAX_REPORT_BYTES);
    enum tri_status status = tri_doctor_gather(a->options.root, &out, err);
    if (status == TRI_OK)
        status = write_file(a->gather, &out, err);
    if (status == TRI_OK)
        printf("%s: %zu bytes; read it anywhere with: trireme doctor %s\n", a->gather,
               out.len_bytes, a->gather);
    tri_buf_fini(&out);
    return status;
}

/* Differences between readings until the count is reached; the worst decides the exit code. */
static enum tri_status watch(const struct doctor_args *a, enum tri_severity *worst,
                             struct tri_error *err)
{
    struct tri_snapshot *before = NULL, *now = NULL;
    struct tri_buf out;
    struct timespec pause = { (time_t)a->watch_seconds,
                              (long)((a->watch_seconds - (double)(time_t)a->watch_seconds) * 1e9) };
    enum tri_status status = tri_doctor_snapshot(&before, a->options.root, err);
    tri_buf_init(&out, TRI_DOCTOR_MAX_REPORT_BYTES);
    if (status == TRI_OK)
        printf("watching every %g s\n", a->watch_seconds);
    for (long i = 0; status == TRI_OK && (!a->watch_count || i < a->watch_count); i++) {
        status = tri_streams_written(err);
        if (status)
            break; /* nobody hears the rest */
        nanosleep(&pause, NULL);
        status = tri_doctor_snapshot(&now, a->options.root, err);
        if (status)
            break;
        tri_buf_clear(&out);
        enum tri_severity v = tri_doctor_write_changes(before, now, a->watch_seconds, &out);
        *worst = v > *worst ? v : *worst;
        if (out.len_bytes)
            printf("%.0f s\n%s", (double)(i + 1) * a->watch_seconds, out.data);
        tri_doctor_snapshot_close(before);
        before = now;
    }
    tri_doctor_snapshot_close(before);
    tri_buf_fini(&out);
    return status;
}

static int code_of(enum tri_severity v)
{
    return v == TRI_SEVERITY_FAIL ? EXIT_FAIL : v == TRI_SEVERITY_WARN ? EXIT_WARN : TRI_EXIT_OK;
}

static enum tri_status examine(const struct doctor_args *a, enum tri_severity *verdict,
                               struct tri_error *err)
{
    struct tri_doctor *d = NULL;
    struct tri_pricing pricing = { .model = NULL };
    enum tri_status status = tri_doctor_open(&d, err);
    if (status == TRI_OK)
        tri_doctor_price_with(d, tri_doctor_price, &pricing);
    if (status == TRI_OK)
        status = read_inputs(d, a, err);
    if (status == TRI_OK)
        status = report(d, a, err);
    if (status == TRI_OK)
        *verdict = tri_doctor_verdict(d);
    tri_doctor_close(d);
    return status;
}

int tri_cmd_doctor(int argc, char **argv)
{
    struct doctor_args *a = tri_calloc(1, sizeof *a);
    struct tri_error err = { 0 };
    enum tri_severity verdict = TRI_SEVERITY_OK;
    if (!a)
        return EXIT_DOCTOR_USAGE;
    a->options = tri_doctor_options_default();
    tri_cli_parse(&doctor_argp, argc, argv, EXIT_DOCTOR_USAGE, a);
    enum tri_status status = a->gather              ? gather(a, &err)
                             : a->watch_seconds > 0 ? watch(a, &verdict, &err)
                                                    : examine(a, &verdict, &err);
    tri_free(a);
    if (status == TRI_OK)
        status = tri_streams_written(&err);
    if (status)
        tri_cli_fail(&err);
    return status ? EXIT_DOCTOR_USAGE : code_of(verdict);
}
