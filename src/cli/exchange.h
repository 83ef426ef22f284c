/*
 * One exchange of a conversation: the prompt of what was said so far, an answer, and the answer
 * taken into the conversation with its ids.
 */
#ifndef TRI_CLI_EXCHANGE_H
#define TRI_CLI_EXCHANGE_H

#include "cli/conversation.h"
#include "cli/reply.h"

/*
 * Answers the conversation's last message. What was made is in *reply (tri_reply_fini it in any
 * case), and is added to the conversation unless nothing was made or the exchange failed.
 */
TRI_MUST_CHECK enum tri_status tri_exchange(struct tri_conversation *c, struct tri_talk *talk,
                                            const struct tri_run_options *options,
                                            struct tri_screen *screen, struct tri_reply *reply,
                                            struct tri_error *err);

#endif
