/*
 * `trireme info MODEL --check`: everything a run would check before it reads weights, and the
 * memory it would take, so that hours of download or load are not spent on what cannot work.
 */
#include "cli/info.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "cli/cli.h"
#include "cli/human.h"
#include "os/host.h"
#include "state/state.h"
#include "text/text.h"
#include "weights/weights.h"

enum { PRECISIONS = 5 };
static const char *const precision_name[PRECISIONS] = { "disk", "f32", "bf16", "int8", "int4" };

/* What a run takes: the trunk at each --trunk precision; experts; each sequence. */
struct needs {
    const struct tri_checkpoint *ckpt;
    uint64_t trunk_bytes[PRECISIONS];
    uint64_t experts_bytes;
    struct tri_state_bytes state;
};

struct verdict {
    struct tri_spec spec;
    struct needs needs;
    int32_t tokenizer_tokens; /* 0: no tokenizer here */
    bool chat;
};

static bool ends_with(const char *name, const char *tail)
{
    size_t a = strlen(name), b = strlen(tail);
    return a >= b && strcmp(name + a - b, tail) == 0;
}

/* Matrices that stay as stored at every precision: small, or too sensitive to quantise. */
static bool kept_as_stored(const char *name)
{
    static const char *const tail[] = { ".f_a_proj.weight",    ".f_b_proj.weight", ".b_proj.weight",
                                        ".g_a_proj.weight",    ".g_b_proj.weight", ".gate.weight",
                                        ".embed_tokens.weight" };
    for (size_t i = 0; i < sizeof tail / sizeof tail[0]; i++)
        if (ends_with(name, tail[i]))
            return true;
    return false;
}

static int add_tensor(void *arg, const struct tri_tensor_spec *want)
{
    struct needs *n = arg;
    const struct tri_tensor *t = tri_checkpoint_find(n->ckpt, want->name);
    if (!t || want->part == TRI_PART_VISION || want->part == TRI_PART_PROJECTOR)
        return 0;
    if (want->part == TRI_PART_EXPERTS) {
        n->experts_bytes += t->bytes;
        return 0;
    }
    bool matrix = want->rank == 2 && want->shape[0] > 1;
    enum tri_dtype disk = t->dtype == TRI_DT_BF16 && matrix ? TRI_DT_BF16 : TRI_DT_F32;
    const enum tri_dtype as[PRECISIONS] = { disk, TRI_DT_F32, TRI_DT_BF16, TRI_DT_I8G64,
                                            TRI_DT_I4G32 };
    int64_t cols = matrix ? want->shape[1] : 1;
    int64_t rows = (int64_t)want->parameters / cols;
    for (int i = 0; i < PRECISIONS; i++) {
        bool stored = !matrix || (i > 1 && kept_as_stored(want->name));
        n->trunk_bytes[i] += tri_matrix_bytes(stored ? disk : as[i], rows, cols);
    }
    return 0;
}

static void weigh(struct needs *n, const struct tri_spec *spec)
{
    struct tri_spec form = *spec;
    struct tri_slice whole;
    form.experts_packed =
        tri_checkpoint_packed(n->ckpt); /* what is on disk, not the config's word */
    tri_spec_tensors(&form, add_tensor, n);
    tri_slice_whole(&whole, spec);
    tri_state_cost(spec, &whole, &n->state);
}

/* A folder without a vocabulary runs on token ids alone; one with a damaged vocabulary does not. */
static enum tri_status check_tokenizer(struct verdict *v, const char *folder, struct tri_error *err)
{
    char path[4096];
    struct tri_tokenizer *tok = NULL;
    snprintf(path, sizeof path, "%s/tiktoken.model", folder);
    if (access(path, F_OK))
        return TRI_OK;
    enum tri_status st = tri_tokenizer_open(&tok, folder, err);
    if (st)
        return st;
    v->tokenizer_tokens = tri_tokenizer_tokens(tok);
    v->chat = tri_token_named(tok, "<|open|>") >= 0 && tri_token_named(tok, "<|close|>") >= 0 &&
              tri_token_named(tok, "<|sep|>") >= 0 && tri_token_named(tok, "<|end_of_msg|>") >= 0;
    tri_tokenizer_close(tok);
    if (v->tokenizer_tokens > v->spec.vocab)
        return tri_fail(err, TRI_FORMAT, "%s: has %d tokens, but vocab_size in config.json is %lld",
                        path, (int)v->tokenizer_tokens, (long long)v->spec.vocab);
    return TRI_OK;
}

static json_t *needs_json(const struct needs *n)
{
    json_t *trunk = json_object();
    for (int i = 0; i < PRECISIONS; i++)
        json_object_set_new(trunk, precision_name[i], json_integer((json_int_t)n->trunk_bytes[i]));
    return json_pack("{s:o, s:I, s:I, s:I}", "trunk_bytes", trunk, "experts_bytes",
                     (json_int_t)n->experts_bytes, "kda_bytes_per_sequence",
                     (json_int_t)n->state.kda_bytes, "mla_bytes_per_token",
                     (json_int_t)n->state.mla_bytes_per_token);
}

static int tell_json(const struct verdict *v, const struct tri_host *host)
{
    return tri_info_print_json(json_pack("{s:b, s:I, s:o, s:I, s:i, s:b}", "ok", 1, "bytes",
                                         (json_int_t)tri_checkpoint_bytes(v->needs.ckpt), "memory",
                                         needs_json(&v->needs), "room_bytes",
                                         (json_int_t)tri_host_room_bytes(host), "tokenizer_tokens",
                                         (int)v->tokenizer_tokens, "chat", (int)v->chat));
}

static void line(const char *what, uint64_t bytes)
{
    char a[TRI_HUMAN_BYTES], b[TRI_HUMAN_BYTES];
    printf("  %-30s %21s  %s\n", what, tri_human_count(a, bytes), tri_human_bytes(b, bytes));
}

static int tell_people(const struct verdict *v, const struct tri_host *host)
{
    const struct needs *n = &v->needs;
    char what[64], a[TRI_HUMAN_BYTES];
    printf("checkpoint  every tensor is there: %s bytes\n",
           tri_human_count(a, tri_checkpoint_bytes(n->ckpt)));
    if (v->tokenizer_tokens)
        printf("tokenizer   %d tokens; chat format %s\n", (int)v->tokenizer_tokens,
               v->chat ? "recognised" : "unknown: text completion only");
    else
        printf("tokenizer   none here (no tiktoken.model): token ids only\n");
    printf("memory      what a run takes, in bytes\n");
    for (int i = 0; i < PRECISIONS; i++) {
        snprintf(what, sizeof what, "trunk, --trunk %s", precision_name[i]);
        line(what, n->trunk_bytes[i]);
    }
    line("experts, all in RAM", n->experts_bytes);
    line("kda, each sequence", n->state.kda_bytes);
    line("mla, each 1,024 tokens", n->state.mla_bytes_per_token * 1024);
    snprintf(what, sizeof what, "mla, whole context of %lldk",
             (long long)v->spec.context_tokens / 1024);
    line(what, n->state.mla_bytes_per_token * (uint64_t)v->spec.context_tokens);
    line("free on this machine", tri_host_room_bytes(host));
    return TRI_EXIT_OK;
}

int tri_info_check(const struct tri_info_request *request)
{
    struct verdict v = { 0 };
    struct tri_checkpoint *ckpt = NULL;
    struct tri_error err = { 0 };
    struct tri_host host;
    const struct tri_notes notes = { request->json ? NULL : tri_info_note, NULL };
    enum tri_status st = tri_spec_load(&v.spec, request->folder, &notes, &err);
    if (!st)
        st = tri_checkpoint_open(&ckpt, request->folder, &v.spec, 0, &notes, &err);
    if (!st) {
        v.needs.ckpt = ckpt;
        weigh(&v.needs, &v.spec);
    }
    if (!st)
        st = check_tokenizer(&v, request->folder, &err);
    int code = TRI_EXIT_FAILED;
    tri_host_read(&host);
    if (st)
        code = tri_cli_fail(&err);
    else
        code = request->json ? tell_json(&v, &host) : tell_people(&v, &host);
    tri_checkpoint_close(ckpt);
    return code;
}
