/* The options of `trireme run`; see run_options.h. */
#include "cli/run_options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cli/cli.h"
#include "cli/usage.h"

enum {
    KEY_RAW = 0x200,
    KEY_SYSTEM,
    KEY_EFFORT,
    KEY_NO_THINK,
    KEY_SHOW,
    KEY_HIDE,
    KEY_TEMPERATURE,
    KEY_TOP_P,
    KEY_TOP_K,
    KEY_MIN_P,
    KEY_REPETITION,
    KEY_PRESENCE,
    KEY_FREQUENCY,
    KEY_BIAS,
    KEY_GREEDY,
    KEY_SEED,
    KEY_MAX_TOKENS,
    KEY_STOP,
    KEY_CONTEXT,
    KEY_STATS,
    KEY_TRACE,
    KEY_JSON,
    KEY_TOOLS,
    KEY_PROMPT_FILE,
    KEY_REQUEST
};

static const struct argp_option options[] = {
    { 0, 0, 0, 0, "What is asked:", 1 },
    { "prompt-file", KEY_PROMPT_FILE, "FILE", 0, "Read the prompt from a file (- is stdin)", 1 },
    { "request", KEY_REQUEST, "FILE", 0,
      "Answer a whole conversation: JSON with messages, and tools or response_format if any", 1 },
    { "system", KEY_SYSTEM, "TEXT", 0, "System message", 1 },
    { "tools", KEY_TOOLS, "FILE", 0, "Declare tools: a JSON list, as in the OpenAI API", 1 },
    { "effort", KEY_EFFORT, "LEVEL", 0, "How much to think: low, high or max (default)", 1 },
    { "no-think", KEY_NO_THINK, 0, 0, "Answer without thinking", 1 },
    { "raw", KEY_RAW, 0, 0, "Continue the text as it is: no chat format", 1 },
    { 0, 0, 0, 0, "Sampling:", 2 },
    { "temperature", KEY_TEMPERATURE, "T", 0, "0 is greedy (default 1)", 2 },
    { "top-p", KEY_TOP_P, "P", 0, "Likeliest tokens up to this mass (default 0.95)", 2 },
    { "top-k", KEY_TOP_K, "K", 0, "Only the K likeliest (default off)", 2 },
    { "min-p", KEY_MIN_P, "P", 0, "At least P times the likeliest (default off)", 2 },
    { "repetition-penalty", KEY_REPETITION, "R", 0, "Over prompt and answer (default 1: off)", 2 },
    { "presence-penalty", KEY_PRESENCE, "X", 0, "For tokens that the answer has (default 0)", 2 },
    { "frequency-penalty", KEY_FREQUENCY, "X", 0, "For each time it has them (default 0)", 2 },
    { "logit-bias", KEY_BIAS, "ID=B", 0, "Add B (-100..100, or -inf) to a token; repeatable", 2 },
    { "greedy", KEY_GREEDY, 0, 0, "Always the likeliest token", 2 },
    { "seed", KEY_SEED, "N", 0, "Same seed, same answer (default: random)", 2 },
    { 0, 0, 0, 0, "Length:", 3 },
    { "max-tokens", KEY_MAX_TOKENS, "N", 0, "Most tokens of an answer (default: the context)", 3 },
    { "stop", KEY_STOP, "STRING", 0, "End the answer before this text; repeatable", 3 },
    { "context", KEY_CONTEXT, "N", 0, "Tokens to hold, e.g. 32k (default: what fits)", 3 },
    { 0, 0, 0, 0, "Output:", 4 },
    { "show-thinking", KEY_SHOW, 0, 0, "Print the thinking, also into a pipe", 4 },
    { "hide-thinking", KEY_HIDE, 0, 0, "Print only the answer, also on a terminal", 4 },
    { "json", KEY_JSON, 0, 0, "One JSON object instead of streaming text", 4 },
    { "stats", KEY_STATS, 0, 0, "Tell times and memory at the end", 4 },
    { "trace", KEY_TRACE, "FILE", 0,
      "Write every token's routed experts (for trireme replay and doctor)", 4 },
    { "quiet", 'q', 0, 0, "No progress, no last line", 4 },
    { 0 }
};

static double real(struct argp_state *state, const char *option, const char *text, double min,
                   double max)
{
    char *end = NULL;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= min && value <= max))
        argp_error(state, "%s %s: a number from %g to %g", option, text, min, max);
    return value;
}

static int64_t whole(struct argp_state *state, const char *option, const char *text, int64_t min)
{
    int64_t value = 0;
    if (!tri_parse_int(text, min, INT64_C(1) << 40, &value))
        argp_error(state, "%s %s: a whole number from %d", option, text, (int)min);
    return value;
}

/* A number of tokens; k is 1024, m is 1024 * 1024. */
static int64_t tokens(struct argp_state *state, const char *option, const char *text)
{
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    bool number = end != text && !errno && value >= 1 && value <= INT64_C(1) << 30;
    int shift = *end == 'k' ? 10 : *end == 'm' ? 20 : 0;
    if (!number || end[shift > 0])
        argp_error(state, "%s %s: a number of tokens such as 4096 or 32k", option, text);
    return (int64_t)value << shift;
}

static void add_bias(struct tri_run_options *o, struct argp_state *state, const char *text)
{
    char *end = NULL;
    errno = 0;
    long id = strtol(text, &end, 10);
    if (end == text || *end != '=' || errno || id < 0 || id > INT32_MAX)
        argp_error(state, "--logit-bias %s: write ID=B, a token id and a number", text);
    bool ban = !strcmp(end + 1, "-inf");
    double bias = ban ? 0 : real(state, "--logit-bias", end + 1, -100, 100);
    if (o->n_bias == TRI_ENGINE_MAX_BIAS)
        argp_error(state, "--logit-bias: at most %d", TRI_ENGINE_MAX_BIAS);
    o->bias[o->n_bias++] =
        (struct tri_logit_bias){ .id = (int32_t)id, .bias = ban ? -INFINITY : (float)bias };
}

static void add_stop(struct tri_run_options *o, struct argp_state *state, const char *text)
{
    size_t bytes = strlen(text);
    if (bytes == 0 || bytes > TRI_STOP_MAX_BYTES || o->n_stop == TRI_STOP_MAX_STRINGS)
        argp_error(state, "--stop: at most %d strings, each of 1 to %d bytes", TRI_STOP_MAX_STRINGS,
                   TRI_STOP_MAX_BYTES);
    if (tri_utf8_valid(text, bytes) != bytes)
        argp_error(state, "--stop: the text is no valid UTF-8");
    o->stop[o->n_stop++] = text;
}

static void set_seed(struct tri_run_options *o, struct argp_state *state, const char *text)
{
    int64_t seed = 0;
    if (!tri_parse_int(text, 0, INT64_MAX, &seed))
        argp_error(state, "--seed %s: a whole number from 0 to 2^63 - 1", text);
    o->sampling.seed = (uint64_t)seed;
    o->seed_given = true;
}

/* 53 bits: every JSON reader can hold it. */
static uint64_t random_seed(void)
{
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) < 0)
        seed = (uint64_t)getpid();
    return seed >> 11;
}

static void set_effort(struct tri_run_options *o, struct argp_state *state, const char *text)
{
    struct tri_error err = { 0 };
    if (tri_effort_parse(&o->effort, text, &err) != TRI_OK)
        argp_error(state, "--effort: %s", err.text);
}

static error_t parse_sampling(struct tri_run_options *o, int key, char *arg,
                              struct argp_state *state)
{
    struct tri_sampling *s = &o->sampling;
    switch (key) {
    case KEY_TEMPERATURE:
        s->temperature = real(state, "--temperature", arg, 0, 100);
        return 0;
    case KEY_TOP_P:
        s->top_p = real(state, "--top-p", arg, 0, 1);
        return 0;
    case KEY_TOP_K:
        s->top_k = whole(state, "--top-k", arg, 0);
        return 0;
    case KEY_MIN_P:
        s->min_p = real(state, "--min-p", arg, 0, 1);
        return 0;
    case KEY_REPETITION:
        s->repetition_penalty = real(state, "--repetition-penalty", arg, 0.01, 100);
        return 0;
    case KEY_PRESENCE:
        s->presence_penalty = real(state, "--presence-penalty", arg, -100, 100);
        return 0;
    case KEY_FREQUENCY:
        s->frequency_penalty = real(state, "--frequency-penalty", arg, -100, 100);
        return 0;
    case KEY_BIAS:
        add_bias(o, state, arg);
        return 0;
    case KEY_GREEDY:
        o->greedy = true;
        return 0;
    case KEY_SEED:
        set_seed(o, state, arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_rest(struct tri_run_options *o, int key, char *arg, struct argp_state *state)
{
    switch (key) {
    case KEY_RAW:
        o->raw = true;
        return 0;
    case KEY_SYSTEM:
        o->system = arg;
        return 0;
    case KEY_EFFORT:
        set_effort(o, state, arg);
        return 0;
    case KEY_NO_THINK:
        o->thinking = false;
        return 0;
    case KEY_SHOW:
    case KEY_HIDE:
        o->show_thinking = key == KEY_SHOW ? TRI_SHOW_YES : TRI_SHOW_NO;
        return 0;
    case KEY_MAX_TOKENS:
        o->max_tokens = whole(state, "--max-tokens", arg, 1);
        return 0;
    case KEY_STOP:
        add_stop(o, state, arg);
        return 0;
    case KEY_CONTEXT:
        o->context_tokens = tokens(state, "--context", arg);
        return 0;
    case KEY_JSON:
        o->json = true;
        return 0;
    case KEY_STATS:
        o->stats = true;
        return 0;
    case KEY_TRACE:
        o->trace = arg;
        return 0;
    case KEY_TOOLS:
        o->tools_file = arg;
        return 0;
    case KEY_PROMPT_FILE:
        o->prompt_file = arg;
        return 0;
    case KEY_REQUEST:
        o->request_file = arg;
        return 0;
    case 'q':
        o->flags.quiet = true;
        return 0;
    default:
        return parse_sampling(o, key, arg, state);
    }
}

static bool exists(const char *folder, const char *file)
{
    char path[4096];
    snprintf(path, sizeof path, "%s%s%s", folder, *file ? "/" : "", file);
    return access(path, F_OK) == 0;
}

/* The first word is a model if it is a folder with config.json; with -m it never is. */
static void sort_words(struct tri_run_options *o, struct argp_state *state)
{
    struct stat seen;
    const char *first = o->words ? o->word[0] : NULL;
    int next = 0;
    if (first && !o->flags.model && exists(first, "config.json")) {
        o->flags.model = first;
        next = 1;
    } else if (first && !o->flags.model && stat(first, &seen) == 0 && S_ISDIR(seen.st_mode)) {
        argp_error(state, "%s is a folder without config.json, so it is no model", first);
    } else if (o->words == 2) {
        argp_error(state,
                   o->flags.model ? "one prompt, please: '%s' is too many; quote it"
                                  : "'%s' is no model (a folder with config.json)",
                   o->flags.model ? o->word[1] : first);
    }
    o->prompt = next < o->words ? o->word[next] : NULL;
    if (o->prompt && (o->prompt_file || o->request_file))
        argp_error(state, "a prompt and a file with one: which shall it be?");
    if (o->prompt && !strcmp(o->prompt, "-")) {
        o->prompt_file = "-";
        o->prompt = NULL;
    }
}

static void check_together(struct tri_run_options *o, struct argp_state *state)
{
    if (o->raw && (o->system || o->tools_file || o->request_file))
        argp_error(state, "--raw knows no chat format: no --system, --tools, --request");
    if (o->request_file && (o->system || o->tools_file || o->prompt_file))
        argp_error(state, "--request brings its own messages and tools");
    if (o->greedy)
        o->sampling.temperature = 0;
    if (!o->seed_given)
        o->sampling.seed = random_seed();
    sort_words(o, state);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct tri_run_options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->flags;
        return 0;
    case ARGP_KEY_ARG:
        if (o->words == 2)
            argp_error(state, "a model and one prompt, please: '%s' is too many; quote the prompt",
                       arg);
        o->word[o->words++] = arg;
        return 0;
    case ARGP_KEY_END:
        check_together(o, state);
        return 0;
    default:
        return parse_rest(o, key, arg, state);
    }
}

void tri_run_options_parse(struct tri_run_options *o, int argc, char **argv)
{
    static const struct argp_child children[] = { { &tri_model_flags_argp, 0, "Model:", 10 },
                                                  { 0 } };
    static const struct argp argp = {
        options,
        parse,
        "[MODEL] [PROMPT]",
        "Generates an answer, or chats when there is no prompt. The first word is a model if it "
        "is a folder with config.json; without one the shipped nano model runs.\v"
        "Examples:\n"
        "  trireme run \"Tell me a story about a fox.\"\n"
        "  trireme run kimi-k3/ --effort low --max-tokens 500 \"What is a trireme?\"\n"
        "  trireme run                                  (chat; /help tells its commands)\n"
        "  git diff | trireme run --system \"Review this.\"\n"
        "  trireme run --raw --greedy \"Once upon a time\"\n",
        children,
        NULL,
        NULL
    };
    *o = (struct tri_run_options){ .thinking = true,
                                   .effort = TRI_EFFORT_MAX,
                                   .sampling = tri_sampling_default() };
    o->sampling.top_p = 0.95;
    tri_cli_parse(&argp, argc, argv, TRI_EXIT_USAGE, o);
}
