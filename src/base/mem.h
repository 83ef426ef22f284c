/*
 * Memory: one budget in bytes with named accounts and a hard ceiling, and plain allocation for
 * small bounded things (names, parsed headers). The only file that may call the malloc family.
 */
#ifndef TRI_BASE_MEM_H
#define TRI_BASE_MEM_H

#include <stddef.h>
#include "base/status.h"

#define TRI_ACCOUNT_MAP(X)                                                                         \
    X(TRUNK, "trunk")     /* every weight that is not a routed expert */                           \
    X(EXPERTS, "experts") /* routed experts in RAM */                                              \
    X(MLA, "mla")         /* compressed MLA caches */                                              \
    X(KDA, "kda")         /* KDA states and convolution tails */                                   \
    X(SCRATCH, "scratch") /* activations of one chunk */                                           \
    X(NET, "net")         /* connections and requests */                                           \
    X(GRAMMAR, "grammar") /* structured output: compiled grammars, their masks, matchers */        \
    X(OTHER, "other")

enum tri_account {
#define TRI_ACCOUNT_ENUM(name, text) TRI_MEM_##name,
    TRI_ACCOUNT_MAP(TRI_ACCOUNT_ENUM)
#undef TRI_ACCOUNT_ENUM
        TRI_MEM_ACCOUNTS
};

const char *tri_account_name(enum tri_account account);

struct tri_budget; /* threads: every call is safe from any thread */

struct tri_budget_report {
    uint64_t ceiling_bytes, used_bytes, peak_bytes;
    uint64_t account_used_bytes[TRI_MEM_ACCOUNTS];
    uint64_t account_peak_bytes[TRI_MEM_ACCOUNTS];
};

/* Opens a budget of `ceiling_bytes` (> 0). Nothing is reserved yet. close(NULL) is fine. */
TRI_MUST_CHECK enum tri_status tri_budget_open(struct tri_budget **out, uint64_t ceiling_bytes,
                                               struct tri_error *err);
void tri_budget_close(struct tri_budget *budget); /* every allocation must have been freed */
void tri_budget_read(const struct tri_budget *budget, struct tri_budget_report *out);

/*
 * Takes zeroed memory, 64-byte aligned, on an account. Over the ceiling: TRI_BUDGET, with the
 * account table in the text. `bytes` 0 gives a valid pointer that must be freed too.
 */
TRI_MUST_CHECK enum tri_status tri_budget_alloc(struct tri_budget *budget, enum tri_account account,
                                                uint64_t bytes, void **out, struct tri_error *err);
/* Gives it back; `bytes` as taken. NULL is fine. */
void tri_budget_free(struct tri_budget *budget, enum tri_account account, void *ptr,
                     uint64_t bytes);

/* Counts plain memory (below) whose size grows with a model, without taking any. */
TRI_MUST_CHECK enum tri_status tri_budget_count(struct tri_budget *budget, enum tri_account account,
                                                uint64_t bytes, struct tri_error *err);
void tri_budget_uncount(struct tri_budget *budget, enum tri_account account, uint64_t bytes);

/*
 * Address space that may be filled later: no memory and no budget until parts of it are committed.
 * NULL when the system has none. `bytes` as mapped when it is unmapped; what is committed must be
 * given back to the budget by the caller.
 */
void *tri_map(uint64_t bytes);
void tri_unmap(void *ptr, uint64_t bytes);
/* Makes [from, to) of a mapping usable and zero, or takes its memory away again; both are multiples
 * of the system's page. The budget is not touched. */
TRI_MUST_CHECK enum tri_status tri_map_commit(void *ptr, uint64_t from_bytes, uint64_t to_bytes,
                                              struct tri_error *err);
void tri_map_drop(void *ptr, uint64_t from_bytes, uint64_t to_bytes);

/* Counts on an account what was committed elsewhere; TRI_BUDGET as for an allocation. */
TRI_MUST_CHECK enum tri_status tri_budget_take(struct tri_budget *budget, enum tri_account account,
                                               uint64_t bytes, struct tri_error *err);
void tri_budget_give(struct tri_budget *budget, enum tri_account account, uint64_t bytes);

/*
 * Plain memory, for metadata whose size a named limit bounds. NULL when there is none left: the
 * caller turns that into TRI_NOMEM. tri_calloc zeroes and refuses count * bytes that overflow.
 */
void *tri_malloc(size_t bytes);
void *tri_calloc(size_t count, size_t bytes);
void *tri_realloc(void *ptr, size_t bytes);
char *tri_strdup(const char *text);
char *tri_strndup(const char *text, size_t bytes);
void tri_free(void *ptr);

/* Hands memory that was freed back to the system: after something large was parsed. */
void tri_mem_trim(void);

/* Tests only: the allocation after `count` successful ones fails, once; negative turns it off. */
void tri_mem_fail_after(long count);

#endif
