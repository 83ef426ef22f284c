/*
 * Chat in a terminal: line editing and history (libedit), Ctrl-C, and the /commands.
 */
#ifndef TRI_CLI_CHAT_LOOP_H
#define TRI_CLI_CHAT_LOOP_H

#include "cli/conversation.h"
#include "cli/run_options.h"
#include "cli/talk.h"

/*
 * Talks until Ctrl-D, /exit, or Ctrl-C twice at an empty prompt. Faults of one exchange are told
 * and the chat goes on. Returns an error only if the terminal cannot be used.
 */
TRI_MUST_CHECK enum tri_status tri_chat_loop(struct tri_conversation *c, struct tri_talk *talk,
                                             struct tri_run_options *options,
                                             struct tri_error *err);

#endif
