/*
 * A conversation on disk. FILE is JSON:
 *   {"trireme_chat": 1, "thinking": true, "effort": "max", "seed": 7, "tools": "[...]" or null,
 *    "messages": [{"message": "{...}", "system": false, "ids": [..]}], "state": "FILE.state"}
 * Messages and tools are JSON texts inside strings, as the renderer wants them; "ids" are a reply's
 * kept ids. FILE.state is the model's state (tri_state_save) with the tokens it has seen. Both are
 * written beside and renamed, readable by their owner only. When the state is absent, damaged or of
 * another model, the conversation is loaded all the same and computed again.
 */
#ifndef TRI_CLI_CHAT_FILE_H
#define TRI_CLI_CHAT_FILE_H

#include "cli/conversation.h"
#include "cli/talk.h"

TRI_MUST_CHECK enum tri_status tri_chat_save(const char *path, const struct tri_conversation *c,
                                             const struct tri_talk *talk, uint64_t seed,
                                             struct tri_error *err);
/*
 * Replaces *c, *seed and what the sequence holds. A file that is no conversation changes nothing.
 * *note tells why the state could not be used; its status is OK if it was.
 */
TRI_MUST_CHECK enum tri_status tri_chat_load(const char *path, struct tri_conversation *c,
                                             struct tri_talk *talk, uint64_t *seed,
                                             struct tri_error *note, struct tri_error *err);

#endif
