/*
 * Budget accounts and plain allocation. A budget is counted, not reserved: the ceiling is checked
 * before each allocation, under a lock, so that used <= ceiling always holds.
 */
#include "base/mem.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* From here on memory comes from mmap: zero without being touched, so that a cache sized for a
 * long context costs physical pages only as it fills. */
enum { MMAP_FROM_BYTES = 1 << 20, HUGE_FROM_BYTES = 4 << 20 };

struct tri_budget {
    pthread_mutex_t lock; /* guards `now` */
    struct tri_budget_report now;
};

/* Fault injection for tests: -1 is off; the decrement is the only writer outside the setter. */
static atomic_long fail_after = -1;

void tri_mem_fail_after(long count)
{
    atomic_store(&fail_after, count);
}

static int must_fail(void)
{
    if (atomic_load_explicit(&fail_after, memory_order_relaxed) < 0)
        return 0;
    return atomic_fetch_sub(&fail_after, 1) == 0;
}

const char *tri_account_name(enum tri_account account)
{
    static const char *const names[] = {
#define TRI_ACCOUNT_NAME(name, text) text,
        TRI_ACCOUNT_MAP(TRI_ACCOUNT_NAME)
#undef TRI_ACCOUNT_NAME
    };
    TRI_ASSERT(account < TRI_MEM_ACCOUNTS);
    return names[account];
}

enum tri_status tri_budget_open(struct tri_budget **out, uint64_t ceiling_bytes,
                                struct tri_error *err)
{
    if (ceiling_bytes == 0)
        return tri_fail(err, TRI_ARG, "memory budget of 0 bytes");
    struct tri_budget *b = tri_calloc(1, sizeof *b);
    if (!b)
        return tri_fail(err, TRI_NOMEM, "no memory for the budget itself");
    pthread_mutex_init(&b->lock, NULL);
    b->now.ceiling_bytes = ceiling_bytes;
    *out = b;
    return TRI_OK;
}

void tri_budget_close(struct tri_budget *budget)
{
    if (!budget)
        return;
    TRI_ASSERT(budget->now.used_bytes == 0);
    pthread_mutex_destroy(&budget->lock);
    tri_free(budget);
}

void tri_budget_read(const struct tri_budget *budget, struct tri_budget_report *out)
{
    struct tri_budget *b = (struct tri_budget *)(uintptr_t)budget;
    pthread_mutex_lock(&b->lock);
    *out = b->now;
    pthread_mutex_unlock(&b->lock);
}

/* "trunk 1.2 GiB, experts 3.4 GiB": the non-empty accounts, for the refusal text. */
static void accounts_text(const struct tri_budget_report *now, char *out, size_t out_bytes)
{
    size_t at = 0;
    out[0] = 0;
    for (int i = 0; i < TRI_MEM_ACCOUNTS && at < out_bytes; i++)
        if (now->account_used_bytes[i])
            at += (size_t)snprintf(out + at, out_bytes - at, "%s%s %.1f MiB", at ? ", " : "",
                                   tri_account_name((enum tri_account)i),
                                   (double)now->account_used_bytes[i] / 1048576);
}

static enum tri_status take(struct tri_budget *b, enum tri_account account, uint64_t bytes,
                            struct tri_error *err)
{
    struct tri_budget_report *now = &b->now;
    enum tri_status st = TRI_OK;
    pthread_mutex_lock(&b->lock);
    if (bytes > now->ceiling_bytes - now->used_bytes) {
        char table[256];
        accounts_text(now, table, sizeof table);
        st = tri_fail(err, TRI_BUDGET,
                      "account %s needs %.1f MiB more, but the budget of %.1f MiB has %.1f MiB "
                      "left (in use: %s)",
                      tri_account_name(account), (double)bytes / 1048576,
                      (double)now->ceiling_bytes / 1048576,
                      (double)(now->ceiling_bytes - now->used_bytes) / 1048576,
                      table[0] ? table : "nothing");
    } else {
        now->used_bytes += bytes;
        now->account_used_bytes[account] += bytes;
        if (now->used_bytes > now->peak_bytes)
            now->peak_bytes = now->used_bytes;
        if (now->account_used_bytes[account] > now->account_peak_bytes[account])
            now->account_peak_bytes[account] = now->account_used_bytes[account];
    }
    pthread_mutex_unlock(&b->lock);
    return st;
}

static void give(struct tri_budget *b, enum tri_account account, uint64_t bytes)
{
    pthread_mutex_lock(&b->lock);
    TRI_ASSERT(b->now.account_used_bytes[account] >= bytes);
    b->now.used_bytes -= bytes;
    b->now.account_used_bytes[account] -= bytes;
    pthread_mutex_unlock(&b->lock);
}

/* Alignment of 64: one cache line, and the widest vector load. NULL when there is none. */
static void *zeroed(uint64_t bytes)
{
    void *p = NULL;
    if (bytes > SIZE_MAX - 64)
        return NULL;
    if (bytes >= MMAP_FROM_BYTES) {
        p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED)
            return NULL;
        /* Weights are read in many streams at once: with small pages the walks would show. A wish:
         * where the system does not allow it, small pages serve. */
        if (bytes >= HUGE_FROM_BYTES)
            (void)madvise(p, (size_t)bytes, MADV_HUGEPAGE);
        return p;
    }
    size_t rounded = bytes ? ((size_t)bytes + 63) & ~(size_t)63 : 64;
    if (posix_memalign(&p, 64, rounded))
        return NULL;
    return memset(p, 0, rounded);
}

enum tri_status tri_budget_alloc(struct tri_budget *budget, enum tri_account account,
                                 uint64_t bytes, void **out, struct tri_error *err)
{
    enum tri_status st = take(budget, account, bytes, err);
    if (st)
        return st;
    void *p = must_fail() ? NULL : zeroed(bytes);
    if (!p) {
        give(budget, account, bytes);
        return tri_fail(err, TRI_NOMEM, "the system has no %.1f MiB left for account %s",
                        (double)bytes / 1048576, tri_account_name(account));
    }
    *out = p;
    return TRI_OK;
}

enum tri_status tri_budget_count(struct tri_budget *budget, enum tri_account account,
                                 uint64_t bytes, struct tri_error *err)
{
    return take(budget, account, bytes, err);
}

void tri_budget_uncount(struct tri_budget *budget, enum tri_account account, uint64_t bytes)
{
    give(budget, account, bytes);
}

void tri_mem_trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

void tri_budget_free(struct tri_budget *budget, enum tri_account account, void *ptr, uint64_t bytes)
{
    if (!ptr)
        return;
    if (bytes >= MMAP_FROM_BYTES)
        munmap(ptr, (size_t)bytes);
    else
        free(ptr);
    give(budget, account, bytes);
}

enum tri_status tri_budget_take(struct tri_budget *budget, enum tri_account account, uint64_t bytes,
                                struct tri_error *err)
{
    return take(budget, account, bytes, err);
}

void tri_budget_give(struct tri_budget *budget, enum tri_account account, uint64_t bytes)
{
    give(budget, account, bytes);
}

void *tri_map(uint64_t bytes)
{
    void *p = MAP_FAILED;
    if (!must_fail() && bytes <= SIZE_MAX)
        p = mmap(NULL, (size_t)bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                 0);
    return p == MAP_FAILED ? NULL : p;
}

void tri_unmap(void *ptr, uint64_t bytes)
{
    if (ptr)
        munmap(ptr, (size_t)bytes);
}

enum tri_status tri_map_commit(void *ptr, uint64_t from_bytes, uint64_t to_bytes,
                               struct tri_error *err)
{
    size_t bytes = (size_t)(to_bytes - from_bytes);
    if (bytes && (must_fail() || mprotect((char *)ptr + from_bytes, bytes, PROT_READ | PROT_WRITE)))
        return tri_fail(err, TRI_NOMEM, "the system has no %.1f MiB left", (double)bytes / 1048576);
    if (bytes >= HUGE_FROM_BYTES)
        (void)madvise((char *)ptr + from_bytes, bytes, MADV_HUGEPAGE);
    return TRI_OK;
}

void tri_map_drop(void *ptr, uint64_t from_bytes, uint64_t to_bytes)
{
    size_t bytes = (size_t)(to_bytes - from_bytes);
    if (bytes == 0)
        return;
    (void)madvise((char *)ptr + from_bytes, bytes, MADV_DONTNEED);
    (void)mprotect((char *)ptr + from_bytes, bytes, PROT_NONE);
}

void *tri_malloc(size_t bytes)
{
    return must_fail() ? NULL : malloc(bytes ? bytes : 1);
}

void *tri_calloc(size_t count, size_t bytes)
{
    return must_fail() ? NULL : calloc(count ? count : 1, bytes ? bytes : 1);
}

void *tri_realloc(void *ptr, size_t bytes)
{
    return must_fail() ? NULL : realloc(ptr, bytes ? bytes : 1);
}

char *tri_strdup(const char *text)
{
    return tri_strndup(text, strlen(text));
}

char *tri_strndup(const char *text, size_t bytes)
{
    char *copy = tri_malloc(bytes + 1);
    if (copy) {
        memcpy(copy, text, bytes);
        copy[bytes] = 0;
    }
    return copy;
}

void tri_free(void *ptr)
{
    free(ptr);
}
