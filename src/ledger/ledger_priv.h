/* Shared inside ledger: which stage holds an item, in how many parts, at how many bits. */
#ifndef TRI_LEDGER_LEDGER_PRIV_H
#define TRI_LEDGER_LEDGER_PRIV_H

#include "ledger/ledger.h"

int64_t tri__ledger_ways(const struct tri_ledger_ask *ask, const struct tri_arch_item *item);
int tri__ledger_stage_of(const struct tri_layout *l, int layer);
bool tri__ledger_on_stage(const struct tri_ledger_ask *ask, const struct tri_arch_item *item,
                          int stage);
/* Bytes of `params` values of an item as asked, scales and all; 0 when the item is gone. */
uint64_t tri__ledger_bytes(const struct tri_ledger_ask *ask, const struct tri_arch_item *item,
                           uint64_t params);
/* The head's bytes when it is the embedding table again: another copy, in the head's format. */
uint64_t tri__ledger_tied_bytes(const struct tri_ledger_ask *ask, const struct tri_arch_item *item);
/* Bytes of one value of a KDA state. */
uint64_t tri__ledger_kda_bytes(const struct tri_ledger_ask *ask);

#endif
