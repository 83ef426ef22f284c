/*
 * A small driver around llama.cpp's public API, so that the peer stays loaded while it is measured
 * in alternation with Trireme. Commands on stdin, one line each; one line of JSON answers each:
 *   decode N         N single-token steps on an empty context, random ids; tokens per second
 *   prefill N        one prompt of N random ids
 *   logits IN OUT    ids from IN (decimal, apart by blanks), float32 logits [n][vocab] to OUT
 * usage: llama_driver MODEL.gguf THREADS CONTEXT [plain]
 * `plain` keeps weights in llama.cpp's ordinary buffers: neither repacked nor for AMX.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "llama.h"

struct peer {
    struct llama_model *model;
    struct llama_context *context;
    int32_t vocab, chunk;
    uint64_t random;
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Only errors: the loader is talkative, and its dots come as their own level. */
static void log_errors(enum ggml_log_level level, const char *text, void *arg)
{
    (void)arg;
    if (level == GGML_LOG_LEVEL_ERROR)
        fputs(text, stderr);
}

static llama_token random_token(struct peer *p)
{
    p->random = p->random * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (llama_token)((p->random >> 33) % (uint64_t)p->vocab);
}

static void forget(struct peer *p)
{
    llama_memory_clear(llama_get_memory(p->context), true);
}

/* Feeds `n` ids at positions from `at`; logits of the last, or of all. */
static int feed(struct peer *p, const llama_token *ids, int32_t n, int32_t at, int all)
{
    struct llama_batch batch = llama_batch_init(n, 0, 1);
    batch.n_tokens = n;
    for (int32_t i = 0; i < n; i++) {
        batch.token[i] = ids[i];
        batch.pos[i] = at + i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = (int8_t)(all || i == n - 1);
    }
    int code = llama_decode(p->context, batch);
    llama_synchronize(p->context);
    llama_batch_free(batch);
    return code;
}

static void answer_rate(const char *what, int32_t n, double seconds, int code)
{
    printf("{\"what\":\"%s\",\"tokens\":%d,\"seconds\":%.6f,\"tokens_per_s\":%.4f,\"code\":%d}\n",
           what, n, seconds, n / seconds, code);
}

static void decode(struct peer *p, int32_t n)
{
    int code = 0;
    forget(p);
    double begin = now_s();
    for (int32_t i = 0; i < n && !code; i++) {
        llama_token id = random_token(p);
        code = feed(p, &id, 1, i, 0);
    }
    answer_rate("decode", n, now_s() - begin, code);
}

static void prefill(struct peer *p, int32_t n)
{
    llama_token *ids = malloc((size_t)n * sizeof *ids);
    int code = 0;
    for (int32_t i = 0; i < n; i++)
        ids[i] = random_token(p);
    forget(p);
    double begin = now_s();
    for (int32_t at = 0; at < n && !code; at += p->chunk)
        code = feed(p, ids + at, n - at < p->chunk ? n - at : p->chunk, at, 0);
    answer_rate("prefill", n, now_s() - begin, code);
    free(ids);
}

static void logits(struct peer *p, const char *in, const char *out)
{
    FILE *f = fopen(in, "r"), *g = fopen(out, "wb");
    int32_t n = 0, id = 0, cap = 1 << 22;
    llama_token *ids = malloc((size_t)cap * sizeof *ids);
    int code = f && g ? 0 : -1;
    while (f && n < cap && fscanf(f, "%" SCNd32, &id) == 1)
        ids[n++] = id;
    forget(p);
    for (int32_t at = 0; at < n && !code; at += p->chunk) {
        int32_t k = n - at < p->chunk ? n - at : p->chunk;
        code = feed(p, ids + at, k, at, 1);
        for (int32_t i = 0; i < k && !code; i++)
            if (fwrite(llama_get_logits_ith(p->context, i), sizeof(float), (size_t)p->vocab, g) !=
                (size_t)p->vocab)
                code = -2;
    }
    if (f)
        fclose(f);
    if (g && fclose(g))
        code = -2;
    free(ids);
    printf("{\"what\":\"logits\",\"tokens\":%d,\"vocab\":%d,\"code\":%d}\n", n, p->vocab, code);
}

int main(int argc, char **argv)
{
    if (argc != 4 && argc != 5) {
        fprintf(stderr, "usage: llama_driver MODEL.gguf THREADS CONTEXT [plain]\n");
        return 2;
    }
    struct peer p = { .chunk = 512 };
    llama_log_set(log_errors, NULL);
    llama_backend_init();
    struct llama_model_params m = llama_model_default_params();
    m.use_extra_bufts = argc == 4;
    p.model = llama_model_load_from_file(argv[1], m);
    if (!p.model)
        return 1;
    struct llama_context_params c = llama_context_default_params();
    c.n_ctx = (uint32_t)strtoul(argv[3], NULL, 10);
    c.n_batch = c.n_ubatch = (uint32_t)p.chunk;
    c.n_threads = c.n_threads_batch = (int32_t)strtol(argv[2], NULL, 10);
    p.context = llama_init_from_model(p.model, c);
    if (!p.context)
        return 1;
    p.vocab = llama_vocab_n_tokens(llama_model_get_vocab(p.model));
    printf("{\"what\":\"loaded\",\"vocab\":%d,\"system\":\"%s\"}\n", p.vocab,
           llama_print_system_info());
    fflush(stdout);
    char word[16], a[4096], b[4096];
    while (scanf("%15s", word) == 1) {
        if (!strcmp(word, "decode") && scanf("%4095s", a) == 1)
            decode(&p, (int32_t)strtol(a, NULL, 10));
        else if (!strcmp(word, "prefill") && scanf("%4095s", a) == 1)
            prefill(&p, (int32_t)strtol(a, NULL, 10));
        else if (!strcmp(word, "logits") && scanf("%4095s %4095s", a, b) == 2)
            logits(&p, a, b);
        else
            break;
        fflush(stdout);
    }
    llama_free(p.context);
    llama_model_free(p.model);
    return 0;
}
