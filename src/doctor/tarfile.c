/*
 * ustar blocks of 512 bytes: a header, then the data padded. Header layout (POSIX pax, ustar):
 * name 0+100, mode 100+8, uid 108+8, gid 116+8, size 124+12, mtime 136+12, checksum 148+8,
 * type 156, link 157+100, magic 257+6 "ustar", version 263+2, prefix 345+155.
 */
#include "doctor/tarfile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 512 };

static unsigned long octal(const char *p, size_t n)
{
    char text[16];
    memcpy(text, p, n);
    text[n] = 0;
    return strtoul(text, NULL, 8);
}

static unsigned long checksum(const char *h)
{
    unsigned long sum = 0;
    for (int i = 0; i < BLOCK; i++)
        sum += i >= 148 && i < 156 ? ' ' : (unsigned char)h[i];
    return sum;
}

static bool is_header(const char *h)
{
    return !memcmp(h + 257, "ustar", 5) && checksum(h) == octal(h + 148, 8);
}

bool tri_tar_is(const char *data, size_t bytes)
{
    return bytes >= BLOCK && is_header(data);
}

/* prefix/name, without a leading "./". */
static void full_name(char out[TRI_TAR_MAX_NAME], const char *h)
{
    char prefix[156], name[101];
    memcpy(prefix, h + 345, 155);
    memcpy(name, h, 100);
    prefix[155] = name[100] = 0;
    snprintf(out, TRI_TAR_MAX_NAME, "%s%s%s", prefix, *prefix ? "/" : "", name);
    if (!strncmp(out, "./", 2))
        memmove(out, out + 2, strlen(out + 2) + 1);
}

enum tri_status tri_tar_read(const char *name, const char *data, size_t bytes,
                             enum tri_status (*member)(void *arg,
                                                       const struct tri_tar_member *member,
                                                       struct tri_error *err),
                             void *arg, bool *cut, struct tri_error *err)
{
    struct tri_tar_member m;
    enum tri_status status = TRI_OK;
    *cut = true; /* until the end block is seen */
    for (size_t at = 0, count = 0; at + BLOCK <= bytes && status == TRI_OK;) {
        const char *h = data + at;
        if (!h[0]) {
            *cut = false;
            break;
        }
        size_t size = octal(h + 124, 12);
        if (!is_header(h) || size > bytes - at - BLOCK)
            break;
        if (++count > TRI_TAR_MAX_MEMBERS)
            return tri_fail(err, TRI_LIMIT, "%s: more than %d files in the tar", name,
                            TRI_TAR_MAX_MEMBERS);
        full_name(m.name, h);
        m.link[0] = 0;
        m.data = h + BLOCK;
        m.bytes = size;
        if (h[156] == '2') {
            memcpy(m.link, h + 157, 100);
            m.link[100] = 0;
        }
        if (h[156] == '0' || h[156] == 0 || h[156] == '2')
            status = member(arg, &m, err);
        at += BLOCK + (size + BLOCK - 1) / BLOCK * BLOCK;
    }
    return status;
}

static const char magic[8] = { 'u', 's', 't', 'a', 'r', 0, '0', '0' }; /* POSIX.1-1988 ustar */

enum tri_status tri_tar_add(struct tri_buf *out, const struct tri_tar_member *m,
                            struct tri_error *err)
{
    char h[BLOCK + 1] = { 0 };
    size_t len = strlen(m->name), cut = 0;
    if (len > 100) { /* split at a slash: at most 155 before and 100 after it */
        for (cut = len - 101; cut < len && m->name[cut] != '/'; cut++)
            ;
        if (cut >= len || cut > 155)
            return tri_fail(err, TRI_LIMIT, "%s: too long a name for a tar", m->name);
        memcpy(h + 345, m->name, cut);
        cut++;
    }
    memcpy(h, m->name + cut, len - cut);
    size_t link = strlen(m->link);
    if (link > 100)
        return tri_fail(err, TRI_LIMIT, "%s: too long a link for a tar", m->name);
    memcpy(h + 157, m->link, link);
    snprintf(h + 100, 8, "%07o", 0644);
    snprintf(h + 108, 8, "%07o", 0);
    snprintf(h + 116, 8, "%07o", 0);
    snprintf(h + 124, 12, "%011zo", link ? (size_t)0 : m->bytes);
    snprintf(h + 136, 12, "%011o", 0);
    h[156] = link ? '2' : '0';
    memcpy(h + 257, magic, sizeof magic);
    snprintf(h + 148, 8, "%06lo", checksum(h));
    h[155] = ' ';
    static const char zero[BLOCK];
    tri_buf_add(out, h, BLOCK);
    if (!link && m->bytes) {
        tri_buf_add(out, m->data, m->bytes);
        tri_buf_add(out, zero, (BLOCK - m->bytes % BLOCK) % BLOCK);
    }
    return out->failed ? tri_fail(err, out->failed, "the tar grows too large") : TRI_OK;
}

enum tri_status tri_tar_end(struct tri_buf *out, struct tri_error *err)
{
    static const char zero[2 * BLOCK];
    tri_buf_add(out, zero, sizeof zero);
    return out->failed ? tri_fail(err, out->failed, "the tar grows too large") : TRI_OK;
}
