/* Inside of the synth room. */
#ifndef TRI_SYNTH_PRIV_H
#define TRI_SYNTH_PRIV_H

#include "spec/spec.h"
#include "synth/synth.h"

/* How the values of one tensor are made. */
enum tri__synth_kind {
    TRI__SYNTH_NORMAL,  /* mean + spread * n, n standard normal; BF16 or F32 */
    TRI__SYNTH_UNIFORM, /* spread * u, u in [-1, 1), F32; zeros from value `live` on */
    TRI__SYNTH_BYTES,   /* any byte: two e2m1 codes */
    TRI__SYNTH_SCALES   /* e8m0: base with a chance of 1/2, base - 1 and base + 1 of 1/4 each */
};

enum { TRI__SYNTH_QUANTILES = 4096 };

struct tri__synth_rule {
    enum tri__synth_kind kind;
    bool bf16; /* else F32; of no meaning for bytes */
    uint64_t key;
    float mean, spread;
    int64_t live;           /* UNIFORM */
    uint8_t base;           /* SCALES */
    const float *quantiles; /* NORMAL: [TRI__SYNTH_QUANTILES], see tri__synth_quantiles */
};

/* synth_values.c */
void tri__synth_quantiles(float out[TRI__SYNTH_QUANTILES]);
void tri__synth_rule(struct tri__synth_rule *rule, const struct tri_spec *spec,
                     const struct tri_tensor_spec *tensor, uint64_t seed, const float *quantiles);
/* Bytes [from, from + bytes) of the tensor; `from` a multiple of 8. Any thread. */
void tri__synth_fill(const struct tri__synth_rule *rule, uint64_t from, void *dst, uint64_t bytes);

/* synth_config.c: the config with the asked changes, as text to be freed with tri_free. */
TRI_MUST_CHECK enum tri_status tri__synth_config(char **text, struct tri_spec *spec,
                                                 const struct tri_synth_options *options,
                                                 struct tri_error *err);

#endif
