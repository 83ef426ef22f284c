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
#include "os/memory.h"
#include "text/text.h"

struct verdict {
    struct tri_spec spec;
    struct tri_info_needs needs;
    int32_t tokenizer_tokens; /* 0: no tokenizer here */
    bool chat;
};

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

static json_t *needs_json(const struct tri_info_needs *n)
{
    json_t *trunk = json_object();
    for (int i = 0; i < TRI_INFO_PRECISIONS; i++)
        json_object_set_new(trunk, tri_info_precision[i],
                            json_integer((json_int_t)n->trunk_bytes[i]));
    json_t *kda = json_object(), *mla = json_object();
    for (int i = 0; i < TRI_INFO_STATES; i++)
        json_object_set_new(kda, tri_info_state[i], json_integer((json_int_t)n->kda_bytes[i]));
    for (int i = 0; i < TRI_INFO_CACHES; i++)
        json_object_set_new(mla, tri_info_cache[i],
                            json_integer((json_int_t)n->mla_bytes_per_token[i]));
    return json_pack("{s:o, s:I, s:o, s:o}", "trunk_bytes", trunk, "experts_bytes",
                     (json_int_t)n->experts_bytes, "kda_bytes_per_sequence", kda,
                     "mla_bytes_per_token", mla);
}

static int tell_json(const struct verdict *v, uint64_t budget_bytes)
{
    return tri_info_print_json(json_pack(
        "{s:b, s:I, s:o, s:I, s:i, s:b}", "ok", 1, "bytes", (json_int_t)v->needs.checkpoint_bytes,
        "memory", needs_json(&v->needs), "room_bytes", (json_int_t)budget_bytes, "tokenizer_tokens",
        (int)v->tokenizer_tokens, "chat", (int)v->chat));
}

static void line(const char *what, uint64_t bytes)
{
    char a[TRI_HUMAN_BYTES], b[TRI_HUMAN_BYTES];
    printf("  %-30s %21s  %s\n", what, tri_human_count(a, bytes), tri_human_bytes(b, bytes));
}

static int tell_people(const struct verdict *v, uint64_t budget_bytes)
{
    const struct tri_info_needs *n = &v->needs;
    char what[64], a[TRI_HUMAN_BYTES];
    printf("checkpoint  every tensor is there: %s bytes\n",
           tri_human_count(a, n->checkpoint_bytes));
    if (v->tokenizer_tokens)
        printf("tokenizer   %d tokens; chat format %s\n", (int)v->tokenizer_tokens,
               v->chat ? "recognised" : "unknown: text completion only");
    else
        printf("tokenizer   none here (no tiktoken.model): token ids only\n");
    printf("memory      what a run takes, in bytes\n");
    for (int i = 0; i < TRI_INFO_PRECISIONS; i++) {
        snprintf(what, sizeof what, "trunk, --trunk %s", tri_info_precision[i]);
        line(what, n->trunk_bytes[i]);
    }
    line("experts, all in RAM", n->experts_bytes);
    for (int i = 0; i < TRI_INFO_STATES; i++) {
        snprintf(what, sizeof what, "kda, each, --kda-state %s", tri_info_state[i]);
        line(what, n->kda_bytes[i]);
    }
    for (int i = 0; i < TRI_INFO_CACHES; i++) {
        snprintf(what, sizeof what, "mla, all %lldk, --cache %s",
                 (long long)v->spec.context_tokens / 1024, tri_info_cache[i]);
        line(what, n->mla_bytes_per_token[i] * (uint64_t)v->spec.context_tokens);
    }
    line("what this machine has for it", budget_bytes);
    return TRI_EXIT_OK;
}

int tri_info_check(const struct tri_info_request *request)
{
    struct verdict v = { 0 };
    struct tri_checkpoint *ckpt = NULL;
    struct tri_error err = { 0 };
    struct tri_memory_facts memory;
    const struct tri_notes notes = { request->json ? NULL : tri_info_note, NULL };
    enum tri_status st = tri_spec_load(&v.spec, request->folder, &notes, &err);
    if (!st)
        st = tri_checkpoint_open(&ckpt, request->folder, &v.spec, 0, &notes, &err);
    if (!st)
        st = tri_info_weigh(&v.needs, ckpt, &v.spec, &err);
    if (!st)
        st = check_tokenizer(&v, request->folder, &err);
    int code = TRI_EXIT_FAILED;
    tri_memory_read(&memory, "");
    uint64_t budget = tri_memory_budget_bytes(&memory);
    if (st)
        code = tri_cli_fail(&err);
    else
        code = request->json ? tell_json(&v, budget) : tell_people(&v, budget);
    tri_checkpoint_close(ckpt);
    return code;
}
