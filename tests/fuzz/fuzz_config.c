/*
 * A config: what is accepted keeps its limits, its layer counts add up, and the list of tensors
 * agrees with its sums where it is short enough to walk.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "spec/spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct sum {
    uint64_t tensors, bytes;
};

static int add(void *arg, const struct tri_tensor_spec *t)
{
    struct sum *sum = arg;
    uint64_t values = 1;
    for (int i = 0; i < t->rank; i++) {
        TRI_ASSERT(t->shape[i] > 0);
        values *= (uint64_t)t->shape[i];
    }
    TRI_ASSERT(t->bytes >= values && t->name[0] && strlen(t->name) < sizeof t->name - 1);
    sum->tensors++;
    sum->bytes += t->bytes;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct tri_spec s;
    struct tri_error err = { 0 };
    struct tri_spec_totals totals;
    struct sum sum = { 0 };
    if (tri_spec_parse(&s, "c", (const char *)data, bytes, NULL, &err)) {
        TRI_ASSERT(err.status && err.text[0] && !strchr(err.text, '\n'));
        return 0;
    }
    TRI_ASSERT(s.layers >= 1 && s.layers <= TRI_SPEC_MAX_LAYERS);
    TRI_ASSERT(s.kda_layers + s.mla_layers == s.layers);
    TRI_ASSERT(s.dense_layers + s.moe_layers == s.layers);
    TRI_ASSERT(!s.moe_layers || (s.topk >= 1 && s.topk <= s.experts));
    TRI_ASSERT(s.hidden <= TRI_SPEC_MAX_WIDTH && s.vocab <= TRI_SPEC_MAX_VOCAB);
    tri_spec_sum(&s, &totals);
    TRI_ASSERT(totals.parameters >> TRI_SPEC_MAX_PARAMETER_BITS == 0);
    TRI_ASSERT(totals.active_parameters <= totals.parameters);
    if (totals.tensors > 100000)
        return 0;
    TRI_ASSERT(tri_spec_tensors(&s, add, &sum) == 0);
    TRI_ASSERT(sum.tensors == totals.tensors && sum.bytes == totals.bytes);
    return 0;
}
