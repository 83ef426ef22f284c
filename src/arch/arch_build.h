/* Shared inside arch: blocks from which families are put together (arch_build.c). */
#ifndef TRI_ARCH_ARCH_BUILD_H
#define TRI_ARCH_ARCH_BUILD_H

#include "arch/arch_priv.h"

struct tri__arch_builder {
    struct tri_arch *arch;
    struct tri__arch_store store;
    enum tri_number vector_number; /* of norms and biases */
    enum tri_held vector_held;     /* TRI_HELD_MATRIX (0) counts as TRI_HELD_VECTOR */
    int layer;
    enum tri_status status; /* sticky */
    struct tri_error *err;
};

/* `copies` matrices of out x in. stored_quantised: as the store says; may_quantise: on request. */
struct tri__arch_linear {
    enum tri_arch_line line;
    enum tri_cut cut;
    uint32_t units, used;  /* used 0: all */
    uint32_t copies;       /* 0: one */
    int64_t out, in, cols; /* cols: of a row as Trireme holds it, 0: in */
    bool stored_quantised, may_quantise;
    bool kept; /* Trireme keeps it as stored */
};
enum tri_status tri__arch_linear(struct tri__arch_builder *b, struct tri__arch_linear l);
/* Vectors, held as f32; b->held says otherwise. */
void tri__arch_vector(struct tri__arch_builder *b, enum tri_arch_line line, enum tri_cut cut,
                      uint32_t units, int64_t values);
void tri__arch_mlp(struct tri__arch_builder *b, enum tri_arch_line line, int64_t width,
                   int64_t inner, uint32_t copies, uint32_t used);
void tri__arch_ends(struct tri__arch_builder *b, bool tied);
int tri__arch_class(struct tri__arch_builder *b, const struct tri_arch_class *wanted);

#endif
