/* What a scheduler needs of a sequence: states copied, lent and filled, room, halts, pauses. */
#include "engine/engine_priv.h"

#include <string.h>

void tri_sequence_clear(struct tri_sequence *sequence)
{
    TRI_ASSERT(!sequence->active);
    tri_state_clear(sequence->state);
    sequence->n_tokens = 0;
}

void tri_sequence_pause(struct tri_sequence *sequence, bool paused)
{
    sequence->paused = paused;
}

void tri_sequence_halt(struct tri_sequence *sequence, int64_t position)
{
    sequence->halt = position;
}

enum tri_status tri_sequence_snapshot(const struct tri_sequence *sequence, struct tri_state *dst,
                                      struct tri_error *err)
{
    return tri_state_copy(dst, sequence->state, err);
}

enum tri_status tri_sequence_restore(struct tri_sequence *sequence, const struct tri_state *src,
                                     const int32_t *tokens, int64_t n_tokens, struct tri_error *err)
{
    struct tri_sequence *s = sequence;
    TRI_ASSERT(!s->active && n_tokens == tri_state_tokens(src));
    s->n_tokens = 0;
    enum tri_status st = tri_state_copy(s->state, src, err);
    if (st != TRI_OK) {
        tri_state_clear(s->state);
        return st;
    }
    memcpy(s->tokens, tokens, (size_t)n_tokens * sizeof *tokens);
    s->n_tokens = n_tokens;
    return TRI_OK;
}

enum tri_status tri_sequence_make_room(struct tri_sequence *sequence, int64_t tokens,
                                       struct tri_error *err)
{
    return tri_state_make_room(sequence->state, tokens, err);
}

uint64_t tri_sequence_room_bytes(const struct tri_sequence *sequence, int64_t tokens)
{
    return tri_state_room_bytes(sequence->state, tokens);
}

struct tri_state *tri_sequence_state(struct tri_sequence *sequence)
{
    return sequence->state;
}

void tri_sequence_adopt(struct tri_sequence *sequence, const int32_t *tokens, int64_t n_tokens)
{
    struct tri_sequence *s = sequence;
    TRI_ASSERT(!s->active && n_tokens == tri_state_tokens(s->state) && n_tokens <= s->max_tokens);
    memcpy(s->tokens, tokens, (size_t)n_tokens * sizeof *tokens);
    s->n_tokens = n_tokens;
}
