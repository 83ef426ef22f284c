/* trireme plan: the question from the command line, one of the reports on stdout. */
#include "cli/cli.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cli/usage.h"
#include "plan/plan.h"

enum {
    KEY_MACHINE = 256,
    KEY_MACHINES,
    KEY_CONTEXT,
    KEY_INPUT,
    KEY_OUTPUT,
    KEY_ENGINE,
    KEY_LAYOUT,
    KEY_STAGES,
    KEY_EXPERTS,
    KEY_DENSE,
    KEY_KV,
    KEY_KDA_STATE,
    KEY_SPEC,
    KEY_ACCEPTANCE,
    KEY_SPREAD,
    KEY_CHUNK,
    KEY_MAX_SEQS,
    KEY_UTIL,
    KEY_CACHE,
    KEY_ROLE,
    KEY_RENT,
    KEY_OWN,
    KEY_POWER,
    KEY_VISION,
    KEY_SHARD_ALL,
    KEY_LENIENT,
    KEY_JSON,
    KEY_ALL,
    KEY_VALIDATE,
    KEY_LIST,
    KEY_PRECISION,
    KEY_LAUNCH,
    KEY_CHECKLIST,
    KEY_GUIDE,
    KEY_HTML,
    KEY_CHECK,
    KEY_BUY
};

struct request {
    struct tri_plan_options plan;
    struct tri_error err;
    const char *list, *html, *check;
    bool json, all, validate, launch, checklist, guide, buy;
};

static const struct argp_option options[] = {
    { 0, 0, 0, 0, "What to run:", 1 },
    { "model", 'm', "MODEL", 0, "a preset (--list models), a config.json, or a folder", 0 },
    { "experts", KEY_EXPERTS, "FORMAT", 0, "bf16 fp8 int8 int4 mxfp4 nvfp4 for routed experts", 0 },
    { "dense", KEY_DENSE, "FORMAT", 0, "the same for every other matrix", 0 },
    { "precision", KEY_PRECISION, "FORMAT", 0, "--experts and --dense in one", 0 },
    { "kv", KEY_KV, "FORMAT", 0, "cache: bf16, fp8, fp8_ds_mla, f32", 0 },
    { "kda-state", KEY_KDA_STATE, "FORMAT", 0, "Trireme's KDA states: f32 (default), bf16", 0 },
    { "spec", KEY_SPEC, "METHOD", 0, "speculative decoding: dspark7, mtp1, none", 0 },
    { "acceptance", KEY_ACCEPTANCE, "N", 0, "tokens a speculative step yields (else by table)", 0 },
    { "vision", KEY_VISION, 0, 0, "hold the vision tower too (text only is the default)", 0 },
    { 0, 0, 0, 0, "On what:", 2 },
    { "hw", 'w', "NxMxDEVICE", 0, "4x8xH20-96GB, 8xB300, 16xGB200 (--list devices)", 0 },
    { "machine", KEY_MACHINE, "FILE", 0, "hwloc or NCCL XML, nvidia-smi topo -m, doctor --json",
      0 },
    { "machines", KEY_MACHINES, "N", 0, "how many such machines (default 1)", 0 },
    { "engine", KEY_ENGINE, "NAME", 0, "vllm, sglang, sglang-day0, trtllm, trireme, any", 0 },
    { "layout", KEY_LAYOUT, "TPnPPn...", 0, "pin it: tp8pp4, tp4dp4ep16, tp8dcp8, tp2r2", 0 },
    { "stages", KEY_STAGES, "N,N,...", 0, "layers of each pipeline stage of --layout", 0 },
    { "shard-all", KEY_SHARD_ALL, 0, 0, "an engine that divides what others replicate", 0 },
    { "util", KEY_UTIL, "SHARE", 0, "of a card's memory the engine may take", 0 },
    { "cache-gib", KEY_CACHE, "GIB", 0, "cache a card, when an engine's log tells it", 0 },
    { "chunk", KEY_CHUNK, "TOKENS", 0, "prefill chunk (max-num-batched-tokens)", 0 },
    { "max-seqs", KEY_MAX_SEQS, "N", 0, "most sequences in a step", 0 },
    { 0, 0, 0, 0, "For what load:", 3 },
    { "context", KEY_CONTEXT, "TOKENS", 0, "longest sequence (default input + output)", 0 },
    { "input", KEY_INPUT, "TOKENS", 0, "of a prompt (default 2k)", 0 },
    { "output", KEY_OUTPUT, "TOKENS", 0, "of an answer (default 512)", 0 },
    { "spread", KEY_SPREAD, "SHARE", 0, "lengths vary evenly by this share (default: all alike)",
      0 },
    { "concurrency", 'c', "N", 0, "requests at once (default 8)", 0 },
    { "goal", 'g', "GOALS", 0, "\"ttft<5s,tpot<80ms,users>=32,tps>500,cost<4\"", 0 },
    { "role", KEY_ROLE, "ROLE", 0, "both, prefill or decode when they run apart", 0 },
    { "rent", KEY_RENT, "$", 0, "rent of a card and hour", 0 },
    { "own", KEY_OWN, "$", 0, "cost of owning a card, an hour", 0 },
    { "power", KEY_POWER, "$", 0, "a kWh (default 0.12)", 0 },
    { 0, 0, 0, 0, "Output:", 4 },
    { "json", KEY_JSON, 0, 0, "everything, for scripts", 0 },
    { "all", KEY_ALL, 0, 0, "ledger line by line, every alternative and rejection", 0 },
    { "html", KEY_HTML, "FILE", 0, "write a report with charts: one file, also for paper", 0 },
    { "launch", KEY_LAUNCH, 0, 0, "launch commands, each flag explained", 0 },
    { "guide", KEY_GUIDE, 0, 0, "bring it up stage by stage: what each must show", 0 },
    { "checklist", KEY_CHECKLIST, 0, 0, "what to ask of a vendor", 0 },
    { "check", KEY_CHECK, "RESULT", 0,
      "a result (vLLM's, AIPerf's, trireme speed --json) beside it", 0 },
    { "buy", KEY_BUY, 0, 0, "no --hw: what would do it, cheapest first", 0 },
    { "validate", KEY_VALIDATE, 0, 0, "the time model against published measurements", 0 },
    { "list", KEY_LIST, "WHAT", 0, "devices, models or engines", 0 },
    { "lenient", KEY_LENIENT, 0, 0, "go on when a config has fields not known here", 0 },
    { 0 },
};

static const char doc[] =
    "Does a model load, generate, serve on these machines; in which layout, how fast, bound by "
    "what, at which cost, and what to change if not.\v"
    "  trireme plan --model kimi-k3 --hw 4x8xH20-96GB --context 32k --concurrency 16\n"
    "  trireme plan --model ./config.json --machine captured.xml --goal \"ttft<5s,tpot<80ms\"\n"
    "  trireme plan --model qwen3-32b --hw 4xRTX-4090 --json\n"
    "Exit: 0 the question was answered (also with no), 1 it could not be, 2 usage.";

static enum tri_status tokens(struct request *r, int64_t *out, const char *what, const char *arg,
                              int64_t max)
{
    return r->err.status ? r->err.status : tri_parse_tokens(out, what, arg, max, &r->err);
}

/* A positive number; refusals keep the first. */
static double number(struct request *r, const char *what, const char *arg)
{
    char *end = NULL;
    bool decimal = *arg && !arg[strspn(arg, "0123456789.eE+-")];
    double value = decimal ? strtod(arg, &end) : 0;
    if (decimal && !*end && value > 0 && value < 1e12)
        return value;
    char safe[40];
    tri_fail(&r->err, TRI_ARG, "%s %s: expected a number above 0", what,
             tri_printable(safe, sizeof safe, arg, strnlen(arg, 100)));
    return 0;
}

static bool parse_text(struct tri_plan_options *o, int key, char *arg)
{
    const struct {
        int key;
        const char **to;
    } texts[] = {
        { 'm', &o->model },           { 'w', &o->hw },
        { KEY_MACHINE, &o->machine }, { KEY_ENGINE, &o->engine },
        { KEY_LAYOUT, &o->layout },   { KEY_STAGES, &o->stages },
        { KEY_EXPERTS, &o->experts }, { KEY_DENSE, &o->dense },
        { KEY_KV, &o->kv },           { KEY_KDA_STATE, &o->kda_state },
        { KEY_SPEC, &o->spec },       { 'g', &o->goal },
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (texts[i].key == key) {
            *texts[i].to = arg;
            return true;
        }
    return false;
}

static bool parse_number(struct request *r, int key, char *arg)
{
    struct tri_plan_options *o = &r->plan;
    int64_t machines = 1;
    switch (key) {
    case KEY_CONTEXT:
        tokens(r, &o->context_tokens, "--context", arg, TRI_PLAN_MAX_TOKENS);
        return true;
    case KEY_INPUT:
        tokens(r, &o->input_tokens, "--input", arg, TRI_PLAN_MAX_TOKENS);
        return true;
    case KEY_OUTPUT:
        tokens(r, &o->output_tokens, "--output", arg, TRI_PLAN_MAX_TOKENS);
        return true;
    case 'c':
        tokens(r, &o->concurrency, "--concurrency", arg, TRI_PLAN_MAX_CONCURRENCY);
        o->concurrency_given = true;
        return true;
    case KEY_CHUNK:
        tokens(r, &o->chunk_tokens, "--chunk", arg, 1 << 20);
        return true;
    case KEY_MAX_SEQS:
        tokens(r, &o->max_sequences, "--max-seqs", arg, TRI_PLAN_MAX_CONCURRENCY);
        return true;
    case KEY_MACHINES:
        tokens(r, &machines, "--machines", arg, 1024);
        o->machines = (int)machines;
        return true;
    default:
        return false;
    }
}

static bool parse_real(struct request *r, int key, char *arg)
{
    struct tri_plan_options *o = &r->plan;
    const struct {
        int key;
        const char *name;
        double *to;
    } reals[] = {
        { KEY_UTIL, "--util", &o->utilisation },
        { KEY_CACHE, "--cache-gib", &o->cache_gib },
        { KEY_ACCEPTANCE, "--acceptance", &o->acceptance },
        { KEY_SPREAD, "--spread", &o->spread },
        { KEY_RENT, "--rent", &o->rent_usd_h },
        { KEY_OWN, "--own", &o->own_usd_h },
        { KEY_POWER, "--power", &o->power_usd_kwh },
    };
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++)
        if (reals[i].key == key) {
            *reals[i].to = number(r, reals[i].name, arg);
            return true;
        }
    return false;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct request *r = state->input;
    struct tri_plan_options *o = &r->plan;
    if (parse_text(o, key, arg) || parse_number(r, key, arg) || parse_real(r, key, arg))
        return 0;
    switch (key) {
    case KEY_PRECISION:
        o->precision = arg;
        return 0;
    case KEY_ROLE:
        if (strcmp(arg, "both") && strcmp(arg, "prefill") && strcmp(arg, "decode"))
            argp_error(state, "--role %s: expected both, prefill or decode", arg);
        o->role = *arg == 'p' ? TRI_ROLE_PREFILL : *arg == 'd' ? TRI_ROLE_DECODE : TRI_ROLE_BOTH;
        return 0;
    case KEY_VISION:
        o->vision = true;
        return 0;
    case KEY_SHARD_ALL:
        o->shard_all = true;
        return 0;
    case KEY_LENIENT:
        o->lenient = true;
        return 0;
    case KEY_JSON:
        r->json = true;
        return 0;
    case KEY_ALL:
        r->all = true;
        return 0;
    case KEY_VALIDATE:
        r->validate = true;
        return 0;
    case KEY_LIST:
        r->list = arg;
        return 0;
    case KEY_HTML:
        r->html = arg;
        return 0;
    case KEY_CHECK:
        r->check = arg;
        return 0;
    case KEY_LAUNCH:
        r->launch = true;
        return 0;
    case KEY_CHECKLIST:
        r->checklist = true;
        return 0;
    case KEY_GUIDE:
        r->guide = true;
        return 0;
    case KEY_BUY:
        r->buy = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is not an option; models go after --model", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* One question, one answer: what cannot be printed together is refused. */
static enum tri_status check_outputs(struct request *r)
{
    const struct {
        bool asked;
        const char *name;
    } outputs[] = {
        { r->check, "--check" },       { r->launch, "--launch" },
        { r->guide, "--guide" },       { r->checklist, "--checklist" },
        { r->validate, "--validate" }, { r->list, "--list" },
        { r->buy, "--buy" },
    };
    const char *first = NULL;
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++) {
        if (outputs[i].asked && first)
            return tri_fail(&r->err, TRI_ARG, "%s and %s are two answers: ask one at a time", first,
                            outputs[i].name);
        first = outputs[i].asked ? outputs[i].name : first;
    }
    if (r->html && first)
        return tri_fail(&r->err, TRI_ARG, "--html is the plan as a page; %s has none", first);
    if (r->json && (r->launch || r->guide || r->checklist || r->list || r->validate))
        return tri_fail(&r->err, TRI_ARG, "%s is text; the plan's --json holds the launch commands",
                        first);
    return TRI_OK;
}

static void print_note(void *arg, const char *text)
{
    (void)arg;
    fprintf(stderr, "note: %s\n", text);
}

static int list_devices(struct tri_error *err)
{
    struct tri_devices *devices = NULL;
    if (tri_devices_open(&devices, err))
        return tri_cli_fail(err);
    printf("%-24s %9s %9s %9s %7s  %s\n", "device", "GiB", "GB/s", "bf16 TF", "box", "sold as");
    for (int i = 0; i < tri_devices_count(devices); i++) {
        const struct tri_device *d = tri_devices_at(devices, i);
        printf("%-24s %9.1f %9.0f %9.0f %7d  %s%s\n", d->name, d->mem_gib, d->bw_gbs,
               d->bf16_tflops, d->box, d->sold_as, d->doubt ? "  (?)" : "");
    }
    printf("(?) some figures are doubtful; data/devices.json names them and the sources\n");
    tri_devices_close(devices);
    return TRI_EXIT_OK;
}

static int list(struct request *r)
{
    if (!strcmp(r->list, "devices"))
        return list_devices(&r->err);
    if (!strcmp(r->list, "models")) {
        for (int i = 0; tri_arch_preset(i); i++)
            printf("%s\n", tri_arch_preset(i));
        return TRI_EXIT_OK;
    }
    if (!strcmp(r->list, "engines")) {
        printf("vllm\nsglang\nsglang-day0\ntrtllm\ntrireme\nany\n");
        return TRI_EXIT_OK;
    }
    tri_fail(&r->err, TRI_ARG, "--list %.40s: expected devices, models or engines", r->list);
    return tri_cli_fail(&r->err);
}

static int validate(struct request *r)
{
    struct tri_validation *v = NULL;
    struct tri_buf out;
    if (tri_validation_run(&v, &r->err))
        return tri_cli_fail(&r->err);
    tri_buf_init(&out, TRI_PLAN_MAX_REPORT_BYTES);
    tri_validation_text(v, &out);
    fputs(out.data, stdout);
    int code = v->unexplained ? TRI_EXIT_FAILED : TRI_EXIT_OK;
    tri_validation_close(v);
    tri_buf_fini(&out);
    return code;
}

static enum tri_status write_html(struct request *r, const struct tri_plan *plan)
{
    struct tri_buf page;
    tri_buf_init(&page, TRI_PLAN_MAX_REPORT_BYTES);
    enum tri_status status = tri_plan_html(plan, &page, &r->err);
    FILE *file = status ? NULL : fopen(r->html, "w");
    if (!status && !file)
        status = tri_fail_errno(&r->err, TRI_IO, errno, "%s", r->html);
    if (file) {
        bool bad = fwrite(page.data, 1, page.len_bytes, file) != page.len_bytes;
        bad |= fclose(file) != 0;
        if (bad)
            status = tri_fail_errno(&r->err, TRI_IO, errno, "%s", r->html);
    }
    tri_buf_fini(&page);
    return status;
}

static enum tri_status render(struct request *r, const struct tri_plan *plan, struct tri_buf *out)
{
    struct tri_report_style style = { .width = 100, .color = isatty(1), .all = r->all };
    if (r->check)
        return tri_plan_check(plan, r->check, r->json, out, &r->err);
    if (r->json)
        return tri_plan_json(plan, out, &r->err);
    if (r->launch)
        return tri_plan_launch(plan, out);
    if (r->checklist)
        return tri_plan_checklist(plan, out);
    if (r->guide)
        return tri_plan_guide(plan, out);
    return tri_plan_text(plan, style, out);
}

static int report(struct request *r, const struct tri_plan *plan)
{
    struct tri_buf out;
    tri_buf_init(&out, TRI_PLAN_MAX_REPORT_BYTES);
    enum tri_status status = render(r, plan, &out);
    if (!status && r->html)
        status = write_html(r, plan);
    if (status)
        tri_fail(&r->err, status, "the report grew over %d bytes", TRI_PLAN_MAX_REPORT_BYTES);
    else
        fputs(out.data, stdout);
    if (!status && r->html)
        fprintf(stderr, "wrote %s\n", r->html);
    tri_buf_fini(&out);
    return status ? tri_cli_fail(&r->err) : TRI_EXIT_OK;
}

static int buy(struct request *r, const struct tri_notes *notes)
{
    struct tri_offers *offers = NULL;
    struct tri_buf out;
    if (tri_buy_run(&offers, &r->plan, notes, &r->err))
        return tri_cli_fail(&r->err);
    tri_buf_init(&out, TRI_PLAN_MAX_REPORT_BYTES);
    enum tri_status status =
        r->json ? tri_buy_json(offers, &out, &r->err) : tri_buy_text(offers, r->all, &out);
    if (!status)
        fputs(out.data, stdout);
    tri_buf_fini(&out);
    tri_buy_close(offers);
    return status ? tri_cli_fail(&r->err) : TRI_EXIT_OK;
}

int tri_cmd_plan(int argc, char **argv)
{
    static const struct argp argp = { options, parse, 0, doc, 0, 0, 0 };
    struct request r = { 0 };
    struct tri_plan *plan = NULL;
    struct tri_notes notes = { print_note, NULL };
    tri_plan_options_init(&r.plan);
    tri_cli_parse(&argp, argc, argv, TRI_EXIT_USAGE, &r);
    if (r.err.status || check_outputs(&r))
        return tri_cli_fail(&r.err);
    if (r.list)
        return list(&r);
    if (r.validate)
        return validate(&r);
    if (r.buy)
        return buy(&r, &notes);
    if (tri_plan_make(&plan, &r.plan, &notes, &r.err))
        return tri_cli_fail(&r.err);
    int code = report(&r, plan);
    tri_plan_close(plan);
    return code;
}
