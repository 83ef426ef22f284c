/*
 * Any body at any path that takes one: the first byte chooses the path, the rest is the body. It is
 * read, checked, turned, rendered, encoded and its grammar compiled, as for a client, against the
 * nano model; nothing is generated. A refusal is a 4xx with a short, clean text; a prompt fits the
 * context; an answer is JSON.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/api_priv.h"
#include "base/json.h"
#include "cli/serve_open.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static struct tri_served served;

static void close_server(void)
{
    tri_serve_close(&served);
}

static void open_server(void)
{
    struct tri_serve_options o = { .parallel = 1,
                                   .context_tokens = 2048,
                                   .queue = 4,
                                   .limits = tri_http_limits_default(),
                                   .api_limits = tri_api_limits_default() };
    struct tri_error err = { 0 };
    o.flags.model = TRI_TEST_SOURCE "/models/nano";
    o.flags.quiet = true;
    o.flags.options.threads = 1;
    o.flags.ram_bytes = 1u << 30;
    if (tri_serve_open(&served, &o, &err) != TRI_OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    atexit(close_server);
}

static void check_fault(const struct tri__fault *f)
{
    struct tri_buf out;
    size_t n = strlen(f->message), p = strlen(f->param);
    TRI_ASSERT((f->status >= 400 && f->status < 500) || f->status == 503);
    TRI_ASSERT(n > 0 && n < sizeof f->message && tri_utf8_valid(f->message, n) == n);
    TRI_ASSERT(tri_utf8_valid(f->param, p) == p);
    tri_buf_init(&out, 4096);
    tri__fault_json(&out, f, false, NULL);
    TRI_ASSERT(out.failed == TRI_OK && out.len_bytes < 2048);
    tri_buf_fini(&out);
}

static void check_answer(const struct tri_buf *out)
{
    json_t *json = NULL;
    struct tri_error err = { 0 };
    if (tri_json_parse(&json, "answer", out->data, out->len_bytes, out->len_bytes, &err) !=
        TRI_OK) {
        fprintf(stderr, "%s in %s\n", err.text, out->data);
        TRI_ASSERT(!"an answer that is no JSON");
    }
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const struct tri__endpoint *const paths[] = { &tri__chat,      &tri__completions,
                                                         &tri__messages,  &tri__count_tokens,
                                                         &tri__responses, &tri__tokenize,
                                                         &tri__detokenize };
    if (!served.api)
        open_server();
    if (bytes < 1)
        return 0;
    struct tri__exchange *x = tri_calloc(1, sizeof *x);
    if (!x)
        return 0;
    x->api = served.api;
    x->endpoint = paths[data[0] % (sizeof paths / sizeof paths[0])];
    x->format = x->endpoint->format;
    tri_buf_init(&x->out, TRI__API_MAX_OUT_BYTES);
    tri_buf_init(&x->text, 1 << 20);
    tri_buf_add(&x->text, data + 1, bytes - 1);
    TRI_ASSERT(tri__prepare_here(x, 1000) || tri__prepare_here(x, 0));
    if (x->fault.status) {
        check_fault(&x->fault);
    } else if (x->endpoint->answers) {
        check_answer(&x->out);
    } else {
        TRI_ASSERT(x->ids.count_tokens > 0 && x->ids.count_tokens < 2048);
        TRI_ASSERT(x->p.n >= 1 && x->p.n <= TRI_API_MAX_CHOICES);
    }
    tri__exchange_free(x);
    return 0;
}
