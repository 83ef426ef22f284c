/* What `--stats` and `--json` tell of steps and of the expert store: where the time went, what was
 * in RAM, what the drives delivered. */
#ifndef TRI_CLI_STORE_STATS_H
#define TRI_CLI_STORE_STATS_H

#include <stdio.h>
#include "base/json.h"
#include "model/model.h"

/* `tokens`: computed since opening, prompts included; bytes per token are of these. */
void tri_store_print(FILE *out, const struct tri_experts_stats *stats, uint64_t tokens);
json_t *tri_store_json(const struct tri_experts_stats *stats, uint64_t tokens);

void tri_profile_print(FILE *out, const struct tri_profile *profile);
json_t *tri_profile_json(const struct tri_profile *profile);

#endif
