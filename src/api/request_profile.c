/* ?profile=1: where the time of a request went, which experts it chose, what was already there. */
#include "api/api_priv.h"

#include <string.h>

enum { TOP_EXPERTS = 16 }; /* told for each layer, the most chosen first */

/* `profile` as a member of the query with the value 1. */
bool tri__profile_asked(const struct tri_http_head *h)
{
    static const char want[] = "profile=1";
    const char *at = h->query.at, *end = at ? at + h->query.bytes : NULL;
    while (at && at < end) {
        const char *amp = memchr(at, '&', (size_t)(end - at));
        size_t n = (size_t)((amp ? amp : end) - at);
        if (n == sizeof want - 1 && !memcmp(at, want, n))
            return true;
        at = amp ? amp + 1 : NULL;
    }
    return false;
}

static void put_times(struct tri_buf *out, const struct tri_job_profile *p,
                      const struct tri_job_facts *f)
{
    double first = f->first_token_s > 0 ? f->first_token_s : f->ended_s;
    tri_buf_printf(out, "\"queue_ms\":%.3f,\"prefill_ms\":%.3f,\"decode_ms\":%.3f,",
                   1e3 * (f->admitted_s - f->submitted_s), 1e3 * (first - f->admitted_s),
                   1e3 * (f->ended_s > 0 ? f->ended_s - first : 0));
    tri_buf_printf(out, "\"steps\":%llu,\"rows\":%llu,\"rows_of_steps\":%llu,\"parts_ms\":{",
                   (unsigned long long)p->time.steps, (unsigned long long)p->rows,
                   (unsigned long long)p->rows_of_steps);
    for (int i = 0; i < TRI_TIMES; i++)
        tri_buf_printf(out, "%s\"%s\":%.3f", i ? "," : "", tri_time_name((enum tri_time)i),
                       (double)p->time.ns[i] * 1e-6);
    tri_buf_puts(out, "}");
}

/* The most chosen experts of a layer: [[expert, times], ...]. */
static void put_layer(struct tri_buf *out, const uint32_t *chosen, int64_t experts, int64_t layer)
{
    int64_t distinct = 0, top[TOP_EXPERTS], n = 0;
    for (int64_t e = 0; e < experts; e++) {
        int64_t at = n;
        distinct += chosen[e] > 0;
        while (at > 0 && chosen[e] > chosen[top[at - 1]])
            at--;
        if (!chosen[e] || at == TOP_EXPERTS)
            continue;
        n += n < TOP_EXPERTS;
        for (int64_t k = n - 1; k > at; k--)
            top[k] = top[k - 1];
        top[at] = e;
    }
    tri_buf_printf(out, "{\"layer\":%lld,\"distinct\":%lld,\"chosen\":[", (long long)layer,
                   (long long)distinct);
    for (int64_t i = 0; i < n; i++)
        tri_buf_printf(out, "%s[%lld,%u]", i ? "," : "", (long long)top[i], chosen[top[i]]);
    tri_buf_puts(out, "]}");
}

static void put_experts(struct tri_buf *out, const struct tri_job_profile *p)
{
    const char *comma = "";
    tri_buf_printf(out,
                   "\"experts\":{\"hits\":%llu,\"misses\":%llu,\"read_bytes\":%llu,"
                   "\"wait_ms\":%.3f,\"layers\":[",
                   (unsigned long long)p->expert_hits, (unsigned long long)p->expert_misses,
                   (unsigned long long)p->read_bytes, (double)p->wait_ns * 1e-6);
    for (int64_t layer = 0; p->chosen && layer < p->layers; layer++) {
        const uint32_t *chosen = p->chosen + layer * p->experts;
        bool any = false;
        for (int64_t e = 0; e < p->experts && !any; e++)
            any = chosen[e] > 0;
        if (!any)
            continue;
        tri_buf_puts(out, comma);
        put_layer(out, chosen, p->experts, layer);
        comma = ",";
    }
    tri_buf_puts(out, "]}");
}

void tri__profile_put(struct tri_buf *out, const struct tri__choice *c)
{
    struct tri_job_profile p;
    struct tri_job_facts f;
    if (!c->x->profile || c->index > 0 || !c->job)
        return;
    tri_job_profile(c->job, &p);
    tri_job_facts(c->job, &f);
    tri_buf_puts(out, ",\"profile\":{");
    put_times(out, &p, &f);
    tri_buf_printf(out,
                   ",\"cache\":{\"prompt_tokens\":%lld,\"cached_tokens\":%lld,"
                   "\"computed_tokens\":%lld},",
                   (long long)f.prompt_tokens, (long long)f.cached_tokens,
                   (long long)f.computed_tokens);
    put_experts(out, &p);
    tri_buf_puts(out, "}");
}
