/* Shared inside ledger: which stage holds an item, in how many parts, at how many bits. */
#ifndef TRI_LEDGER_LEDGER_PRIV_H
#define TRI_LEDGER_LEDGER_PRIV_H

#include "ledger/ledger.h"

int64_t tri__ledger_ways(const struct tri_ledger_ask *ask, const struct tri_arch_item *item);
int tri__ledger_stage_of(const struct tri_layout *l, int layer);
bool tri__ledger_on_stage(const struct tri_ledger_ask *ask, const struct tri_arch_item *item,
                          int stage);
uint32_t tri__ledger_bits64(const struct tri_ledger_ask *ask, const struct tri_arch_item *item);

#endif
