/*
 * Result codes, the error record, and the two ways a room talks upward without printing: notes
 * and progress. Floor 0; everything may include this.
 *
 * A fallible function returns enum tri_status and takes `struct tri_error *err` last (may be NULL).
 * The record keeps the first failure: later calls to tri_fail() on the same record change nothing,
 * so the cause is never overwritten by its consequences. Out-parameters are untouched on failure.
 */
#ifndef TRI_BASE_STATUS_H
#define TRI_BASE_STATUS_H

#include <stdint.h>

#define TRI_STATUS_MAP(X)                                                                          \
    X(OK, 0, "ok")                                                                                 \
    X(ARG, -1, "bad argument")                                                                     \
    X(NOMEM, -2, "out of memory")                                                                  \
    X(BUDGET, -3, "over the memory budget")                                                        \
    X(IO, -4, "input/output error")                                                                \
    X(FORMAT, -5, "damaged or invalid input")                                                      \
    X(UNSUPPORTED, -6, "not supported")                                                            \
    X(CANCELLED, -7, "cancelled")                                                                  \
    X(BUSY, -8, "busy")                                                                            \
    X(TIMEOUT, -9, "timed out")                                                                    \
    X(PEER, -10, "another rank failed")                                                            \
    X(LIMIT, -11, "over a limit")                                                                  \
    X(NUMERIC, -12, "NaN or Inf")

enum tri_status {
#define TRI_STATUS_ENUM(name, value, text) TRI_##name = (value),
    TRI_STATUS_MAP(TRI_STATUS_ENUM)
#undef TRI_STATUS_ENUM
};

#define TRI_MUST_CHECK   __attribute__((warn_unused_result))
#define TRI_PRINTF(f, a) __attribute__((format(printf, f, a)))

/* The first failure and its story: which file, tensor, layer, expert, rank; where; how to mend it.
 */
struct tri_error {
    enum tri_status status;
    int sys_errno;  /* errno of the failed system call, 0 if none */
    char text[512]; /* one line, no newline; control bytes of foreign names are escaped */
};

const char *tri_status_text(enum tri_status status);

/* Records status and text if *err holds no failure yet (err may be NULL). Returns `status`. */
enum tri_status tri_fail(struct tri_error *err, enum tri_status status, const char *format, ...)
    TRI_PRINTF(3, 4);

/* The same for a failed system call: appends the text of errno and keeps its number. */
enum tri_status tri_fail_errno(struct tri_error *err, enum tri_status status, int sys_errno,
                               const char *format, ...) TRI_PRINTF(4, 5);

#ifdef __clang_analyzer__ /* it does not look into other files, where these return `status` */
#define tri_fail(err, status, ...) (tri_fail(err, status, __VA_ARGS__), (status))
#define tri_fail_errno(err, status, num, ...)                                                      \
    (tri_fail_errno(err, status, num, __VA_ARGS__), (status))
#endif

/*
 * Copies `text` (bytes from a file, a socket or a person) into `out` so that it is safe in one
 * line of output: control bytes become \xNN, and what does not fit ends in "...". Returns out.
 */
const char *tri_printable(char *out, uint64_t out_bytes, const char *text, uint64_t text_bytes);

/* A line worth telling that is no failure ("lm_head is F32 on disk"). On the caller's thread. */
struct tri_notes {
    void (*line)(void *arg, const char *text);
    void *arg;
};

void tri_note(const struct tri_notes *notes, const char *format, ...) TRI_PRINTF(2, 3);

/*
 * Progress of long work, in bytes or items; total 0 when unknown. May come from any thread, never
 * from two at once. Returning non-zero asks the work to stop: it then fails with TRI_CANCELLED.
 */
struct tri_progress {
    int (*tick)(void *arg, const char *what, uint64_t done, uint64_t total);
    void *arg;
};

int tri_tick(const struct tri_progress *progress, const char *what, uint64_t done, uint64_t total);

/* Our own mistakes, never bad input: prints the failed condition and aborts. Always on. */
#define TRI_ASSERT(cond)                                                                           \
    do {                                                                                           \
        if (!(cond))                                                                               \
            tri_assert_failed(#cond, __FILE__, __LINE__);                                          \
    } while (0)
_Noreturn void tri_assert_failed(const char *cond, const char *file, int line);

#endif
