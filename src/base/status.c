/* The error record: first failure wins. See status.h. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef tri_fail
#undef tri_fail_errno

const char *tri_status_text(enum tri_status status)
{
    switch (status) {
#define TRI_STATUS_CASE(name, value, text)                                                         \
    case TRI_##name:                                                                               \
        return text;
        TRI_STATUS_MAP(TRI_STATUS_CASE)
#undef TRI_STATUS_CASE
    }
    return "unknown status";
}

/* Names of files come from anywhere: whatever they hold, the text stays one line. */
static void one_line(struct tri_error *err)
{
    char raw[sizeof err->text];
    memcpy(raw, err->text, sizeof raw);
    tri_printable(err->text, sizeof err->text, raw, strlen(raw));
}

enum tri_status tri_fail(struct tri_error *err, enum tri_status status, const char *format, ...)
{
    if (err && err->status == TRI_OK) {
        va_list args;
        va_start(args, format);
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
        one_line(err);
        err->status = status;
    }
    return status;
}

enum tri_status tri_fail_errno(struct tri_error *err, enum tri_status status, int sys_errno,
                               const char *format, ...)
{
    if (err && err->status == TRI_OK) {
        va_list args;
        va_start(args, format);
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
        size_t used = strlen(err->text);
        snprintf(err->text + used, sizeof err->text - used, ": %s", strerror(sys_errno));
        one_line(err);
        err->status = status;
        err->sys_errno = sys_errno;
    }
    return status;
}

const char *tri_printable(char *out, uint64_t out_bytes, const char *text, uint64_t text_bytes)
{
    static const char hex[] = "0123456789abcdef";
    uint64_t at = 0;
    TRI_ASSERT(out_bytes >= 8);
    for (uint64_t i = 0; i < text_bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (at + 8 > out_bytes) {
            memcpy(out + at, "...", 3);
            at += 3;
            break;
        }
        if (c < 0x20 || c == 0x7f) {
            out[at++] = '\\';
            out[at++] = 'x';
            out[at++] = hex[c >> 4];
            out[at++] = hex[c & 15];
        } else {
            out[at++] = (char)c;
        }
    }
    out[at] = 0;
    return out;
}

void tri_note(const struct tri_notes *notes, const char *format, ...)
{
    if (!notes || !notes->line)
        return;
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    notes->line(notes->arg, text);
}

int tri_tick(const struct tri_progress *progress, const char *what, uint64_t done, uint64_t total)
{
    if (!progress || !progress->tick)
        return 0;
    return progress->tick(progress->arg, what, done, total);
}

_Noreturn void tri_assert_failed(const char *cond, const char *file, int line)
{
    fprintf(stderr, "trireme: internal error: %s (%s:%d)\n", cond, file, line);
    abort();
}
