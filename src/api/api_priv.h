/* Inside the api: exchanges (one request being answered), choices, formats, faults. */
#ifndef TRI_API_PRIV_H
#define TRI_API_PRIV_H

#include "api/api.h"

#include <jansson.h>
#include <stdatomic.h>
#include "base/buf.h"
#include "grammar/grammar.h"
#include "metrics/metrics.h"

/* Before reasoning in a response item's encrypted_content. It is no secret: the text follows. */
#define TRI__API_SEALED "trireme-reasoning:"

enum { TRI__API_MAX_OUT_BYTES = 256 << 20, TRI__API_MESSAGE_BYTES = 400 };

/* --- faults: why a request is refused -------------------------------------------------------- */

struct tri__fault {
    int status; /* 0: none */
    const char *type, *code;
    char param[96], message[TRI__API_MESSAGE_BYTES];
    int64_t n_prompt_tokens, n_ctx; /* with context_length_exceeded */
};

/* Fills *fault with a 400 if it is empty yet; returns false. `param` may be NULL. */
bool tri__fault_bad(struct tri__fault *fault, const char *param, const char *format, ...)
    TRI_PRINTF(3, 4);
bool tri__fault_is(struct tri__fault *fault, int status, const char *code, const char *format, ...)
    TRI_PRINTF(4, 5);
/* From a tri_error of rendering or submitting. */
bool tri__fault_from(struct tri__fault *fault, const struct tri_error *err);
void tri__fault_json(struct tri_buf *out, const struct tri__fault *fault, bool anthropic,
                     const struct tri_http_request *request);
void tri__request_id(char out[40], const struct tri_http_request *request);
void tri__fault_reply(struct tri_http_request *request, const struct tri__fault *fault,
                      bool anthropic);

/* --- parameters ------------------------------------------------------------------------------ */

struct tri__params {
    struct tri_sampling sampling;
    int64_t max_tokens, min_tokens, n, top_logprobs, prompt_logprobs, priority;
    bool max_tokens_given, stream, include_usage, continuous_usage, logprobs, ignore_eos, echo;
    bool prompt_only;  /* max_tokens 0 with echo */
    bool score_prompt; /* prompt_logprobs were asked for */
    bool return_token_ids, return_progress, timings_per_token;
    const char *stop[TRI_STOP_MAX_STRINGS]; /* point into the parsed body */
    size_t n_stop;
    int32_t stop_ids[TRI_ENGINE_MAX_STOP_IDS];
    int64_t n_stop_ids;
    struct tri_logit_bias *bias; /* freed with the params */
    int64_t n_bias;
    struct tri_chat_settings chat;
    bool tools, one_call;
    const char *only_tool; /* of tool_choice; points into the parsed body */
    int32_t end_ids[4];    /* ids that end a message, also with ignore_eos */
    size_t n_end_ids;
    struct tri_salt salt;
    char model[TRI_API_MAX_MODEL_NAME_BYTES];
};

enum tri__dialect { TRI__CHAT, TRI__COMPLETIONS, TRI__MESSAGES, TRI__RESPONSES };

/* Reads all fields of a request but its prompt. */
bool tri__params_read(struct tri__params *p, const struct tri_api *api, enum tri__dialect dialect,
                      const json_t *body, struct tri__fault *fault);
void tri__params_fini(struct tri__params *p);
/* Kinds of the fields without effect, and what this dialect cannot give. */
bool tri__fields_check(const json_t *body, enum tri__dialect dialect, struct tri__fault *fault);

/* --- exchanges ------------------------------------------------------------------------------- */

struct tri__exchange;

struct tri__choice {
    struct tri__exchange *x;
    int64_t index;
    struct tri_job *job;
    struct tri_parser *parser; /* NULL: plain text */
    struct tri_detok detok;
    struct tri_stop *stop;
    int64_t found;                           /* stop string, or -1 */
    struct tri_buf content, logprobs, piece; /* logprobs: of tokens not yet told */
    struct tri_turn turn;
    struct tri_ids sampled;
    size_t told_ids; /* of `sampled`, with return_token_ids in a stream */
    bool done;
    const char *finish; /* "stop", "length", "tool_calls" */
    int64_t completion_tokens, reasoning_tokens;
    double last_token_s;
    uint64_t call_salt;    /* makes this choice's call ids unique */
    int64_t block, blocks; /* messages, responses: open block or item, and how many there were */
    int block_kind;
    size_t block_call;
    struct tri_buf item;    /* responses: text of the open item */
    struct tri_buf items;   /* responses: finished items, as JSON list elements */
    struct tri_buf offsets; /* completions */
    int64_t text_offset;    /* completions */
    bool scored;            /* completions: the prompt's log probabilities were written */
    bool prompt_told;       /* completions, in a stream: with return_token_ids, its ids */
};

/* How one dialect writes. Streams call all but `whole`. */
struct tri__format {
    void (*begin)(struct tri__exchange *x);
    void (*text)(struct tri__choice *c, enum tri_event_kind kind, const char *text, size_t bytes);
    void (*call)(struct tri__choice *c, const struct tri_event *event);
    void (*logprob)(struct tri__choice *c, const struct tri_job_event *event);
    void (*choice_end)(struct tri__choice *c);
    void (*end)(struct tri__exchange *x);
    void (*error)(struct tri__exchange *x, const struct tri__fault *fault);
    void (*keepalive)(struct tri__exchange *x);
    void (*progress)(struct tri__exchange *x, const struct tri_job_facts *facts); /* or NULL */
    void (*whole)(struct tri__exchange *x, struct tri_buf *out);
    bool anthropic;
};

/* A path that takes a body. */
struct tri__endpoint {
    const char *id_prefix;
    const struct tri__format *format;
    enum tri__dialect dialect;
    /*
     * From x->body (and x->text, as it was sent) to x->p, x->prompt and x->ids; or, if it
     * `answers`, to the whole answer in x->out. Runs on any thread: it may touch x, and of the api
     * only what never changes or has its own lock.
     */
    bool (*prepare)(struct tri__exchange *x, struct tri__fault *fault);
    /* Another dialect's body as the chat request that the renderer reads; NULL where it is one. */
    bool (*turn)(struct tri_buf *out, const json_t *body, struct tri__fault *fault);
    bool answers;
};

struct tri__exchange {
    struct tri_api *api;
    const struct tri__endpoint *endpoint;
    struct tri__exchange *work_next; /* in the preparer's lists */
    struct tri_buf text;             /* the body as sent, until it is prepared */
    struct tri__fault fault;         /* of preparing */
    struct tri__exchange *next, *prev;
    struct tri_http_request *request; /* NULL: the client is gone, or it is answered */
    const struct tri__format *format;
    json_t *body; /* without what the prompt was made of, once it is prepared */
    struct tri__params p;
    struct tri_prompt *prompt;
    struct tri_ids ids;                     /* of all prompts, one after the other */
    size_t prompt_end[TRI_API_MAX_PROMPTS]; /* where each ends */
    size_t n_prompts;                       /* 0: all of it is one */
    struct tri_grammar *grammar;            /* what was promised, or NULL */
    struct tri_buf out;                     /* what is being written */
    struct tri__choice *choice;
    int64_t n_choices, left; /* left: not done yet */
    char id[40];
    int64_t created, sequence_number, progress_tokens;
    double begin_s, last_write_s;
    bool profile;       /* ?profile=1 */
    bool prepared;      /* all but its grammar */
    bool began, silent; /* silent: a keepalive was sent in this silence */
    atomic_int posts;   /* wake-ups on their way to this thread */
    int64_t prompt_tokens, cached_tokens;
};

/* Starts the jobs of an exchange whose params, ids and prompt are filled; takes it over. */
void tri__exchange_start(struct tri__exchange *x);
/* A new one for `request`, whose body it takes, not yet listed. NULL: answered with a fault. */
struct tri__exchange *tri__exchange_new(struct tri_api *api, struct tri_http_request *request,
                                        const struct tri__endpoint *endpoint);
void tri__exchange_free(struct tri__exchange *x);
void tri__exchange_refuse(struct tri__exchange *x, const struct tri__fault *fault);
/* A 400 if the prompt leaves no room in the context. */
bool tri__exchange_has_room(const struct tri__exchange *x, struct tri__fault *fault);
/* Prompt k of a request, or the only one. */
const int32_t *tri__exchange_prompt(const struct tri__exchange *x, size_t k, size_t *n_tokens);
/* The prompt that a choice goes on from: each has n choices in turn. */
const int32_t *tri__choice_prompt(const struct tri__choice *c, size_t *n_tokens);
/* Sends x->out and empties it. */
void tri__exchange_flush(struct tri__exchange *x);
void tri__exchange_tick(struct tri_api *api);
void tri__exchange_total(const struct tri__exchange *x, int64_t *completion, int64_t *reasoning);
int64_t tri__exchange_cached(const struct tri__exchange *x); /* prompt tokens that were kept */
/* Preparing where the endpoint turns: reads the fields, and renders the body as a chat. */
bool tri__exchange_turn(struct tri__exchange *x, struct tri__fault *fault);
/* Renders `json` as a chat into x->prompt and x->ids. */
bool tri__exchange_render(struct tri__exchange *x, const char *json, size_t bytes,
                          struct tri__fault *fault);
/* Where later prompts may branch off: positions for tri_job_request. */
void tri__exchange_borders(const struct tri__exchange *x, struct tri_job_request *r);
/* A token's text as a JSON string; bytes that are no UTF-8 by themselves become U+FFFD. */
void tri__put_token_text(struct tri_buf *out, const struct tri_api *api, int32_t id);

/* prompt_scores.c: log probabilities of prompts, for echo and for prompt_logprobs */
/* Must this choice's job score its prompt, and with how many beside each token? */
bool tri__scores_wanted(const struct tri__choice *c, int64_t *top);
/* A 400 if that is more than the limit of tokens. */
bool tri__scores_check(const struct tri__exchange *x, struct tri__fault *fault);
/* `,"prompt_logprobs":[...]` of the choice's prompt, if they were asked for. */
void tri__scores_put(struct tri_buf *out, const struct tri__choice *c);

/* choice.c. Opened before its job; to be finished with in any case. */
bool tri__choice_open(struct tri__exchange *x, struct tri__choice *c, struct tri_error *err);
void tri__choice_fini(struct tri__choice *c);
/* One token to text and on to the dialect. False: what the model wrote cannot be read. */
bool tri__choice_take(struct tri__choice *c, int32_t id, struct tri_error *err);
/* No further token comes: what was held back, and why it ended (c->finish). */
void tri__choice_finish_text(struct tri__choice *c, enum tri_job_end end);
/* False: something of it found no room. */
bool tri__choice_is_whole(const struct tri__choice *c);

/* Appends a token's log probability in chat's form to c->logprobs. */
void tri__chat_logprob(struct tri__choice *c, const struct tri_job_event *event);
void tri__call_id(char out[40], const struct tri__choice *c, size_t call);

/* openai_frames.c */
void tri__openai_usage(struct tri_buf *out, const struct tri__exchange *x);
void tri__openai_usage_chunk(struct tri__exchange *x);
void tri__openai_error(struct tri__exchange *x, const struct tri__fault *fault);
void tri__openai_keepalive(struct tri__exchange *x);
/* `,"token_ids":[...]` of what was not told yet, if they were asked for. */
void tri__openai_token_ids(struct tri_buf *out, struct tri__choice *c);
void tri__openai_prompt_ids(struct tri_buf *out, const struct tri__choice *c);
/* `,"timings":{...}` as llama.cpp writes them: several pages and test rigs read these. */
void tri__openai_timings(struct tri_buf *out, const struct tri__choice *c);

/* --- small writers --------------------------------------------------------------------------- */

void tri__put_quoted(struct tri_buf *out, const char *text);
void tri__put_json(struct tri_buf *out, const json_t *value); /* numbers as Python writes them */
void tri__random_hex(char *out, size_t digits);
/* salt.c: whom a request may share states with. */
struct tri_salt tri__salt_of_key(const struct tri_api *api, const struct tri_http_request *request);
void tri__salt_add(struct tri_salt *salt, const char *text, size_t bytes);

/* --- endpoints ------------------------------------------------------------------------------- */

extern const struct tri__endpoint tri__chat, tri__completions, tri__messages, tri__count_tokens,
    tri__responses, tri__tokenize, tri__detokenize;
/* Paths as /metrics names them, a fixed list: a client's own path never becomes a label. */
enum { TRI__API_HANDLERS = 16 };
const char *tri__handler_name(size_t handler, const char **method);
/* Reads the request and begins to answer it. */
void tri__serve(struct tri_api *api, struct tri_http_request *q,
                const struct tri__endpoint *endpoint);
/* A file of the web page; false: the path is none. */
bool tri__page_has(const struct tri_http_head *head);
bool tri__serve_page(struct tri_http_request *q);
/* Anthropic's and Responses' requests as the chat request that the renderer reads. */
bool tri__messages_to_chat(struct tri_buf *out, const json_t *body, struct tri__fault *fault);
bool tri__responses_to_chat(struct tri_buf *out, const json_t *body, struct tri__fault *fault);

/* --- profiles -------------------------------------------------------------------------------- */

bool tri__profile_asked(const struct tri_http_head *head);
/* `,"profile":{...}` of the first choice, if it was asked for. */
void tri__profile_put(struct tri_buf *out, const struct tri__choice *c);

/* --- limits ---------------------------------------------------------------------------------- */

/* False: beyond it, and counted. */
bool tri__limits_check(const struct tri_api *api, enum tri_api_limit limit, int64_t value);
/* The same, with a 400 that names `param`. */
bool tri__limits_field(const struct tri_api *api, enum tri_api_limit limit, int64_t value,
                       const char *param, struct tri__fault *fault);
bool tri__limits_check_json(const struct tri_api *api, const char *text, size_t bytes,
                            struct tri__fault *fault);
bool tri__limits_check_body(const struct tri_api *api, const json_t *body,
                            struct tri__fault *fault);

/* --- preparing -------------------------------------------------------------------------------- */

/*
 * Reading a body, rendering and encoding it may take seconds for a long prompt. Small bodies are
 * prepared at once, large ones, and those whose grammar takes long to compile, on a thread of their
 * own, one at a time, so that other connections do not wait. The exchange is started, answered or
 * refused on the loop's thread in any case.
 */
struct tri__preparer;
enum tri_status tri__preparer_open(struct tri__preparer **out, struct tri_api *api,
                                   struct tri_error *err);
void tri__preparer_close(struct tri__preparer *p); /* what waits is freed, unanswered */
void tri__prepare(struct tri__exchange *x);
/*
 * From x->text to what can be started, answered, or refused with x->fault. Any thread. False:
 * compiling its grammar takes more than `most_work` steps (0: as many as there may be); it can be
 * gone on with by another call.
 */
bool tri__prepare_here(struct tri__exchange *x, uint64_t most_work);
void tri__preparer_tick(struct tri__preparer *p); /* makes up for a lost wake-up */
int64_t tri__preparer_waiting(struct tri__preparer *p);
uint64_t tri__preparer_done(struct tri__preparer *p); /* on the thread, since it was opened */

/* --- replies as they were sampled ------------------------------------------------------------- */

struct tri__turns;                        /* any thread */
struct tri__turns *tri__turns_open(void); /* NULL: no memory */
void tri__turns_close(struct tri__turns *turns);
/* Appends the ids of x->prompt, remembered replies as they were sampled. */
enum tri_status tri__turns_encode(struct tri__turns *turns, const struct tri__exchange *x,
                                  struct tri_ids *ids, struct tri_error *err);
/* Remembers a finished reply if its ids are not those of its text. */
void tri__turns_keep(struct tri__turns *turns, const struct tri__choice *c);

/* --- structured output ------------------------------------------------------------------------ */

/*
 * From x->body to x->grammar, if the answer's form is bounded. After rendering; any thread. A fault
 * whose status is 0: it takes more than most_work steps.
 */
bool tri__structured_prepare(struct tri__exchange *x, uint64_t most_work, struct tri__fault *fault);
/* A grammar at its start, for one job; dropped by the job (arg of the constraint). */
const struct tri_constraint *tri__constraint_open(struct tri_grammar *grammar,
                                                  struct tri_error *err);
void tri__constraint_drop(void *arg);

/* --- keys, metrics --------------------------------------------------------------------------- */

struct tri__keys;
/* `again`: while requests wait, so that only a regular file is read. */
enum tri_status tri__keys_load(struct tri__keys **out, const char *path, bool again,
                               struct tri_error *err);
void tri__keys_free(struct tri__keys *keys);
bool tri__keys_have(const struct tri__keys *keys, struct tri_http_text key);

struct tri__gauges;
enum tri_status tri__gauges_open(struct tri__gauges **out, const struct tri_api *api,
                                 struct tri_error *err);
void tri__gauges_close(struct tri__gauges *g);
void tri__gauges_write(struct tri__gauges *g, struct tri_api *api, struct tri_buf *out);
void tri__gauges_first_token(struct tri__gauges *g, double s);
void tri__gauges_token(struct tri__gauges *g, double s); /* time since the one before */
void tri__gauges_request(struct tri__gauges *g, const struct tri__choice *c, const char *reason,
                         double s);
void tri__gauges_rejected(struct tri__gauges *g, const char *reason);
void tri__gauges_http(struct tri__gauges *g, size_t handler, int status, double s);
void tri__gauges_asked(struct tri__gauges *g, const struct tri__params *p);
void tri__gauges_longest(struct tri__gauges *g, int64_t tokens); /* of a request's choices */
void tri__gauges_limit(struct tri__gauges *g, const char *limit);

struct tri_api {
    struct tri_api_options options;
    struct tri_http *http;
    struct tri_chat_ids chat;
    bool speaks_chat, draining;
    struct tri__keys *keys;
    struct tri__preparer *preparer;
    struct tri__turns *turns;
    struct tri_grammar_vocab *vocab;
    struct tri_grammar_cache *grammars;
    struct tri__gauges *gauges;
    struct tri__exchange *first;
    int64_t created;
};

#endif
