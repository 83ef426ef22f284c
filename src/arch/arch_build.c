/* Building blocks every family shares: a linear layer with its fp8 scales, an MLP, the ends. */
#include "arch/arch_build.h"

enum tri_status tri__arch_linear(struct tri__arch_builder *b, struct tri__arch_linear l)
{
    if (b->status)
        return b->status;
    uint64_t copies = l.copies ? (uint64_t)l.copies : 1;
    bool expert = l.line == TRI_LINE_EXPERTS;
    struct tri__arch_add add = {
        .line = l.line,
        .cut = l.cut,
        .number = !l.stored_quantised ? TRI_NUM_BF16
                  : expert            ? b->store.experts
                                      : b->store.dense,
        .bits64 = !l.stored_quantised ? 0
                  : expert            ? b->store.expert_bits64
                                      : b->store.dense_bits64,
        .quantised = l.stored_quantised || l.may_quantise,
        .held = l.kept ? TRI_HELD_STORED : TRI_HELD_MATRIX,
        .cols = (uint32_t)(l.cols ? l.cols : l.in),
        .layer = b->layer,
        .units = l.units,
        .used = l.used ? l.used : l.units,
        .params = copies * (uint64_t)l.out * (uint64_t)l.in,
    };
    b->status = tri__arch_item(b->arch, add, b->err);
    int block = b->store.block;
    if (!b->status && block && add.number == TRI_NUM_FP8) {
        uint64_t rows = ((uint64_t)l.out + (uint64_t)block - 1) / (uint64_t)block;
        uint64_t cols = ((uint64_t)l.in + (uint64_t)block - 1) / (uint64_t)block;
        add.number = TRI_NUM_F32;
        add.bits64 = 0;
        add.quantised = false;
        add.scale = true;
        add.params = copies * rows * cols;
        b->status = tri__arch_item(b->arch, add, b->err);
    }
    return b->status;
}

void tri__arch_vector(struct tri__arch_builder *b, enum tri_arch_line line, enum tri_cut cut,
                      uint32_t units, int64_t values)
{
    if (!b->status)
        b->status = tri__arch_item(
            b->arch,
            (struct tri__arch_add){ .line = line,
                                    .cut = cut,
                                    .number = b->vector_number,
                                    .held = b->vector_held ? b->vector_held : TRI_HELD_VECTOR,
                                    .layer = b->layer,
                                    .units = units,
                                    .used = units,
                                    .params = (uint64_t)values },
            b->err);
}

/* gate, up (inner x hidden) and down (hidden x inner); `copies` experts of which `used` are read.
 */
void tri__arch_mlp(struct tri__arch_builder *b, enum tri_arch_line line, int64_t width,
                   int64_t inner, uint32_t copies, uint32_t used)
{
    bool experts = line == TRI_LINE_EXPERTS;
    struct tri__arch_linear l = {
        .line = line,
        .cut = experts ? TRI_CUT_EXPERTS : TRI_CUT_INNER,
        .units = experts ? copies : (uint32_t)inner,
        .used = experts ? used : (uint32_t)inner,
        .copies = copies,
        .out = inner,
        .in = width,
        .stored_quantised = true,
    };
    tri__arch_linear(b, l);
    tri__arch_linear(b, l);
    l.out = width;
    l.in = inner;
    tri__arch_linear(b, l);
}

/* Embedding, head unless tied, final norm. */
void tri__arch_ends(struct tri__arch_builder *b, bool tied)
{
    struct tri_arch *a = b->arch;
    b->layer = -1;
    a->tied = tied;
    struct tri__arch_linear l = { .line = TRI_LINE_EMBED,
                                  .kept = true,
                                  .cut = TRI_CUT_VOCAB,
                                  .units = (uint32_t)a->vocab,
                                  .out = a->vocab,
                                  .in = a->hidden };
    tri__arch_linear(b, l);
    l.line = TRI_LINE_HEAD;
    l.kept = false;
    if (!tied)
        tri__arch_linear(b, l);
    tri__arch_vector(b, TRI_LINE_NORMS, TRI_CUT_NEVER, 1, a->hidden);
}

int tri__arch_class(struct tri__arch_builder *b, const struct tri_arch_class *wanted)
{
    struct tri_arch *a = b->arch;
    for (int i = 0; i < a->class_count; i++) {
        const struct tri_arch_class *c = &a->classes[i];
        if (c->family == wanted->family && c->heads == wanted->heads &&
            c->kv_heads == wanted->kv_heads && c->head_dim == wanted->head_dim &&
            c->kv_rank == wanted->kv_rank && c->window_tokens == wanted->window_tokens)
            return i;
    }
    if (a->class_count == TRI_ARCH_MAX_CLASSES) {
        b->status = tri_fail(b->err, TRI_LIMIT, "%s: more than %d kinds of attention", a->name,
                             TRI_ARCH_MAX_CLASSES);
        return 0;
    }
    a->classes[a->class_count] = *wanted;
    return a->class_count++;
}
