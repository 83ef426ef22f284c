/*
 * What `run` has open to talk with a model: model, vocabulary, engine and one sequence, all within
 * one memory budget.
 */
#ifndef TRI_CLI_TALK_H
#define TRI_CLI_TALK_H

#include "cli/model_flags.h"
#include "cli/route_trace.h"
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
    struct tri_routes routes; /* with a trace file only */
    struct tri_taps taps;
    struct tri_profile profile; /* of every step */
    double layer_drawn_s;       /* when the line of a long step was drawn; 0: none is there */
    double layer_began_s;
};

/*
 * Opens all of it. `context_tokens` 0 takes the model's own context, or as much of it as the
 * budget holds; a number that does not fit is TRI_BUDGET and tells what would. On failure nothing
 * stays open. With `trace_path` every step's routes go to that file.
 */
TRI_MUST_CHECK enum tri_status tri_talk_open(struct tri_talk *out,
                                             const struct tri_model_flags *flags,
                                             int64_t context_tokens, const char *trace_path,
                                             struct tri_error *err);
/* TRI_IO if the trace could not be written to its end; everything is closed in any case. */
enum tri_status tri_talk_close(struct tri_talk *talk, struct tri_error *err);

#endif
