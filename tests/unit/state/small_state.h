/* A small state of both kinds of layers, made-up content that can be checked, and a folder. */
#ifndef TRI_TESTS_SMALL_STATE_H
#define TRI_TESTS_SMALL_STATE_H

#include "state/state.h"

enum { SMALL_HEADS = 2, SMALL_DIM = 8, SMALL_TAPS = 4, SMALL_RANK = 12, SMALL_ROPE = 4 };
enum { SMALL_ROW = SMALL_RANK + SMALL_ROPE, SMALL_CONTEXT = 500, SMALL_MLA = 2 };

struct small {
    struct tri_spec spec;
    struct tri_slice slice;
    struct tri_budget *budget;
    struct tri_state *state;
    char folder[64];
};

static inline uint64_t small_fixed_bytes(void)
{
    int width = SMALL_HEADS * SMALL_DIM;
    return (uint64_t)(width * SMALL_DIM + 3 * (SMALL_TAPS - 1) * width) * 4;
}

static inline void small_shape(struct tri_spec *spec, struct tri_slice *slice)
{
    *spec = (struct tri_spec){ .layers = 3,
                               .context_tokens = SMALL_CONTEXT,
                               .heads = 2,
                               .kv_rank = SMALL_RANK,
                               .rope = SMALL_ROPE,
                               .kda_heads = SMALL_HEADS,
                               .kda_dim = SMALL_DIM,
                               .conv_taps = SMALL_TAPS,
                               .kda_layers = 1,
                               .mla_layers = SMALL_MLA,
                               .vocab = 4,
                               .inter = 4 };
    spec->layer[0].attn = TRI_ATTN_KDA;
    spec->layer[1].attn = spec->layer[2].attn = TRI_ATTN_MLA;
    tri_slice_whole(slice, spec);
}

static inline int small_up(void **state)
{
    static struct small m;
    m = (struct small){ 0 };
    small_shape(&m.spec, &m.slice);
    *state = &m;
    snprintf(m.folder, sizeof m.folder, "/tmp/trireme-folder-%ld", (long)getpid());
    return tri_budget_open(&m.budget, 8 << 20, NULL) ||
           tri_state_open(&m.state, &m.spec, &m.slice, (struct tri_state_form){ 0 }, SMALL_CONTEXT,
                          m.budget, NULL);
}

static inline int small_down(void **state)
{
    struct small *m = *state;
    char command[128];
    tri_state_close(m->state);
    tri_budget_close(m->budget);
    snprintf(command, sizeof command, "rm -rf %s", m->folder);
    return system(command);
}

/* tri_state_fill is random per seed, and the same whatever the room: that is what is compared. */
static inline void small_fill(struct tri_state *s, int64_t tokens, int seed)
{
    assert_int_equal(tri_state_fill(s, tokens, (uint64_t)seed, NULL), TRI_OK);
}

static inline void small_check(struct tri_state *s, int64_t tokens, int seed)
{
    static struct tri_spec spec; /* large */
    struct tri_slice slice;
    struct tri_budget *budget = NULL;
    struct tri_state *want = NULL;
    small_shape(&spec, &slice);
    assert_int_equal(tri_budget_open(&budget, 8 << 20, NULL), TRI_OK);
    assert_int_equal(tri_state_open(&want, &spec, &slice, (struct tri_state_form){ 0 },
                                    SMALL_CONTEXT, budget, NULL),
                     TRI_OK);
    small_fill(want, tokens, seed);
    assert_int_equal(tri_state_tokens(s), tokens);
    assert_memory_equal(tri_state_kda(s, 0), tri_state_kda(want, 0), small_fixed_bytes());
    for (int l = 0; l < SMALL_MLA; l++)
        assert_memory_equal(tri_state_mla(s, l), tri_state_mla(want, l),
                            (size_t)tokens * SMALL_ROW * 4);
    tri_state_close(want);
    tri_budget_close(budget);
}

#endif
