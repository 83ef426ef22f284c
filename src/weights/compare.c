/*
 * The expected list against what is on disk. One walk serves opening (stop at the first fault) and
 * `trireme info` (tell them all). Which shapes count as the same: weights.h.
 */
#include "weights/weights_priv.h"

#include <stdio.h>
#include <string.h>
#include "base/mem.h"

struct walk {
    const struct tri__weights_table *table;
    const struct tri_spec *spec;
    const struct tri__weights_sink *sink;
    uint8_t *seen;
    enum tri_dtype expert_dtype; /* of plain experts: the first one's; all must have it */
    int stopped;
};

/* Drops dimensions of 1. Returns how many are left. */
static int squeeze(const int64_t *shape, int rank, int64_t *out)
{
    int n = 0;
    for (int i = 0; i < rank && i < 4; i++)
        if (shape[i] != 1)
            out[n++] = shape[i];
    return n;
}

static bool ends_with(const char *name, const char *tail)
{
    size_t a = strlen(name), b = strlen(tail);
    return a >= b && strcmp(name + a - b, tail) == 0;
}

static bool shape_matches(const struct tri_spec *spec, const struct tri_tensor_spec *want,
                          const struct tri_tensor *got)
{
    int64_t a[4], b[4];
    if (got->rank > 4)
        return false;
    int n = squeeze(want->shape, want->rank, a), m = squeeze(got->shape, got->rank, b);
    if (n == m && memcmp(a, b, sizeof a[0] * (size_t)n) == 0)
        return true;
    if (ends_with(want->name, ".A_log"))
        return m <= 1 && (m ? b[0] : 1) >= spec->kda_heads;
    if (ends_with(want->name, ".dt_bias"))
        return m == 2 && b[0] == spec->kda_heads && b[1] == spec->kda_dim;
    return false;
}

/* "[3, 4]", for messages. */
static const char *shape_text(char out[96], const int64_t *shape, int rank)
{
    size_t at = (size_t)snprintf(out, 96, "[");
    for (int i = 0; i < rank && i < 4; i++)
        at += (size_t)snprintf(out + at, 96 - at, "%s%lld", i ? ", " : "", (long long)shape[i]);
    snprintf(out + at, 96 - at, rank > 4 ? ", ...]" : "]");
    return out;
}

static bool readable_as_trunk(enum tri_dtype dtype)
{
    return dtype == TRI_DT_BF16 || dtype == TRI_DT_F32 || dtype == TRI_DT_F16;
}

static const char *dtype_text(enum tri_dtype dtype)
{
    return dtype < TRI_DTYPES ? tri_dtype_name(dtype) : "of a kind that is not computed with";
}

/* NULL when the dtype will do; else why not. */
static const char *dtype_fault(struct walk *w, const struct tri_tensor_spec *want,
                               const struct tri_tensor *got, char *text, size_t text_bytes)
{
    bool packed = strcmp(want->dtype, "U8") == 0;
    bool fits = packed ? got->dtype == TRI_DT_U8 : readable_as_trunk(got->dtype);
    if (!fits) {
        snprintf(text, text_bytes, "its dtype is %s; %s is needed", dtype_text(got->dtype),
                 packed ? "U8" : "BF16, F32 or F16");
        return text;
    }
    if (want->part != TRI_PART_EXPERTS || packed)
        return NULL;
    if (w->expert_dtype == TRI_DTYPES)
        w->expert_dtype = got->dtype;
    if (w->expert_dtype == got->dtype)
        return NULL;
    snprintf(text, text_bytes, "its dtype is %s; the experts before it are %s",
             dtype_text(got->dtype), dtype_text(w->expert_dtype));
    return text;
}

static int look(void *arg, const struct tri_tensor_spec *want)
{
    struct walk *w = arg;
    const struct tri__weights_sink *sink = w->sink;
    const struct tri_tensor *got = tri__weights_table_find(w->table, want->name);
    char why[256], a[96], b[96];
    enum tri__weights_difference kind = TRI__WEIGHTS_MISMATCHED;
    if (!got)
        return w->stopped = sink->differ(sink->arg, TRI__WEIGHTS_MISSING, want, NULL, "missing");
    w->seen[got - w->table->tensors] = 1;
    if (got->rank < 0)
        return 0;
    if (!shape_matches(w->spec, want, got))
        snprintf(why, sizeof why, "its shape is %s; config.json asks for %s",
                 shape_text(a, got->shape, got->rank), shape_text(b, want->shape, want->rank));
    else if (dtype_fault(w, want, got, why, sizeof why))
        ;
    else if (strcmp(dtype_text(got->dtype), want->dtype) != 0)
        kind = TRI__WEIGHTS_DTYPE;
    else
        return 0;
    if (kind == TRI__WEIGHTS_DTYPE)
        snprintf(why, sizeof why, "%s on disk, %s as published", dtype_text(got->dtype),
                 want->dtype);
    return w->stopped = sink->differ(sink->arg, kind, want, got, why);
}

/* The first routed expert decides in which form all of them are expected. */
static bool experts_on_disk_packed(const struct tri__weights_table *table,
                                   const struct tri_spec *spec)
{
    for (int64_t i = 0; i < spec->layers; i++) {
        char name[128];
        if (spec->layer[i].ffn != TRI_FFN_MOE)
            continue;
        for (int packed = 1; packed >= 0; packed--) {
            snprintf(name, sizeof name, "model.layers.%d.block_sparse_moe.experts.0.w1.weight%s",
                     (int)i, packed ? "_packed" : "");
            if (tri__weights_table_find(table, name))
                return packed;
        }
        break;
    }
    return spec->experts_packed;
}

enum tri_status tri__weights_compare(const struct tri__weights_table *table,
                                     const struct tri_spec *spec, bool *packed,
                                     const struct tri__weights_sink *sink, struct tri_error *err)
{
    struct tri_spec form = *spec;
    form.experts_packed = experts_on_disk_packed(table, spec);
    *packed = form.experts_packed;
    if (form.moe_layers && form.experts_packed &&
        (tri_spec_expert_width(&form) % TRI_MX_GROUP || form.moe_inter % TRI_MX_GROUP))
        return tri_fail(err, TRI_FORMAT,
                        "packed MXFP4 experts of %lld x %lld: both must be multiples of 32",
                        (long long)tri_spec_expert_width(&form), (long long)form.moe_inter);
    struct walk w = { table, &form, sink, tri_calloc(table->count, 1), TRI_DTYPES, 0 };
    if (!w.seen)
        return tri_fail(err, TRI_NOMEM, "no memory to compare %zu tensors", table->count);
    tri_spec_tensors(&form, look, &w);
    for (size_t i = 0; i < table->count && !w.stopped; i++)
        if (!w.seen[i])
            w.stopped = sink->differ(sink->arg, TRI__WEIGHTS_EXTRA, NULL, &table->tensors[i],
                                     "not part of the model");
    tri_free(w.seen);
    return TRI_OK;
}
