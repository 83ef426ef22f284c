/*
 * What `run` has open to talk with a model: model, vocabulary, engine and one sequence, all within
 * one memory budget.
 */
#ifndef TRI_CLI_TALK_H
#define TRI_CLI_TALK_H

#include "cli/model_flags.h"
#include "engine/engine.h"
#include "text/text.h"

struct tri_talk {
    struct tri_opened opened;
    struct tri_tokenizer *tok;
    struct tri_engine *engine;
    struct tri_sequence *sequence;
    int64_t context_tokens;
    bool speaks_chat; /* the vocabulary has K3's chat markers */
    struct tri_chat_ids chat;
    int32_t stop_ids[2];
    int64_t n_stop_ids;
};

/*
 * Opens all of it. `context_tokens` 0 takes the model's own context, or as much of it as the
 * budget holds; a number that does not fit is TRI_BUDGET and tells what would. On failure nothing
 * stays open.
 */
TRI_MUST_CHECK enum tri_status tri_talk_open(struct tri_talk *out,
                                             const struct tri_model_flags *flags,
                                             int64_t context_tokens, struct tri_error *err);
void tri_talk_close(struct tri_talk *talk);

#endif
