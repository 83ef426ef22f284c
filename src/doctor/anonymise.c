/*
 * One pass over the text: at each word start the patterns are tried, longest first. A pattern that
 * is in doubt is taken out: a lost version number costs less than a leaked address. See
 * anonymise.h.
 */
#include "doctor/anonymise.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include "base/lines.h"
#include "os/env.h"

void tri__doctor_own_names(struct tri__names *n)
{
    *n = (struct tri__names){ 0 };
    if (gethostname(n->host, sizeof n->host - 1))
        n->host[0] = 0;
    const char *user = tri_env("USER");
    if (user)
        snprintf(n->user, sizeof n->user, "%s", user);
    if (!strcmp(n->user, "root")) /* names nobody, and is a word of its own */
        n->user[0] = 0;
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Length of `groups` runs of hex digits apart by `sep`, each of min..max digits; 0 when not. */
static size_t hex_groups(const char *p, const char *end, const int *digits, int groups, char sep)
{
    const char *q = p;
    for (int g = 0; g < groups; g++) {
        int n = 0;
        while (q < end && isxdigit((unsigned char)*q)) {
            q++;
            n++;
        }
        if (n != digits[g] || (g + 1 < groups && (q >= end || *q++ != sep)))
            return 0;
    }
    return q < end && is_word(*q) ? 0 : (size_t)(q - p);
}

static size_t uuid(const char *p, const char *end)
{
    static const int digits[] = { 8, 4, 4, 4, 12 };
    return hex_groups(p, end, digits, 5, '-');
}

/* MAC addresses; InfiniBand GUIDs and serial numbers as eight pairs; GUIDs as four times four. */
static size_t mac(const char *p, const char *end)
{
    static const int pairs[] = { 2, 2, 2, 2, 2, 2, 2, 2 }, quads[] = { 4, 4, 4, 4 };
    static const char seps[] = { ':', '-' };
    for (size_t s = 0; s < 2; s++)
        for (int n = 8; n >= 6; n -= 2) {
            size_t len = hex_groups(p, end, pairs, n, seps[s]);
            if (len)
                return len;
        }
    return hex_groups(p, end, quads, 4, ':');
}

static size_t ipv4(const char *p, const char *end)
{
    const char *q = p;
    for (int g = 0; g < 4; g++) {
        int n = 0, v = 0;
        while (q < end && isdigit((unsigned char)*q) && n < 4) {
            v = v * 10 + *q++ - '0';
            n++;
        }
        if (!n || n > 3 || v > 255 || (g < 3 && (q >= end || *q++ != '.')))
            return 0;
    }
    bool more =
        q < end && (is_word(*q) || (*q == '.' && q + 1 < end && isdigit((unsigned char)q[1])));
    return more ? 0 : (size_t)(q - p);
}

/* At least three colons among hex digits and one "::" or eight groups; bus ids have a dot after. */
static size_t ipv6(const char *p, const char *end)
{
    const char *q = p;
    int colons = 0, doubled = 0, run = 0;
    while (q < end && (isxdigit((unsigned char)*q) || *q == ':')) {
        if (*q == ':') {
            colons++;
            doubled += q + 1 < end && q[1] == ':';
            run = 0;
        } else if (++run > 4) {
            return 0;
        }
        q++;
    }
    bool address = (doubled == 1 && colons >= 3) || colons == 7;
    return address && !(q < end && (is_word(*q) || *q == '.')) ? (size_t)(q - p) : 0;
}

static size_t name_at(const char *p, const char *end, const char *name)
{
    size_t len = strlen(name);
    if (len < 2 || (size_t)(end - p) < len || strncasecmp(p, name, len))
        return 0;
    return p + len < end && is_word(p[len]) ? 0 : len;
}

/* "/home/NAME" and its like: the name's length, which follows `skip` bytes. */
static size_t home(const char *p, const char *end, size_t *skip)
{
    static const char *const roots[] = { "/home/", "/Users/", "/data/users/" };
    for (size_t i = 0; i < sizeof roots / sizeof roots[0]; i++) {
        size_t len = strlen(roots[i]), n = 0;
        if ((size_t)(end - p) < len || memcmp(p, roots[i], len))
            continue;
        while (p + len + n < end && !strchr("/ \t\n\"':", p[len + n]))
            n++;
        *skip = len;
        return n;
    }
    return 0;
}

/* Keys whose value names a thing: the rest of the line (or the next attribute value) goes. */
static bool secret_key(const char *line, const char *end, const char **value)
{
    static const char *const keys[] = { "Serial Number",   "serial number", "SerialNumber",
                                        "Board Serial",    "GPU UUID",      "Board ID",
                                        "GPU Part Number", "node_guid",     "sys_image_guid",
                                        "guid=\"",         "Asset" };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *at = memmem(line, (size_t)(end - line), keys[i], strlen(keys[i]));
        if (!at)
            continue;
        *value = at + strlen(keys[i]);
        return true;
    }
    return false;
}

/* hwloc XML: <info name="DMIProductSerial" value="..."/>, HostName, Address */
static bool secret_info(const char *line, const char *end)
{
    static const char *const names[] = { "\"HostName\"",    "Serial\"",       "UUID\"",
                                         "AssetTag\"",      "\"Address\"",    "GUID\"",
                                         "\"ProcessName\"", "\"LinuxCgroup\"" };
    bool info = memmem(line, (size_t)(end - line), "<info name=", 11) != NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && info; i++)
        if (memmem(line, (size_t)(end - line), names[i], strlen(names[i])))
            return true;
    return false;
}

static void clean_words(const struct tri__names *n, const char *p, const char *end,
                        struct tri_buf *out)
{
    bool start = true;
    while (p < end) {
        size_t skip = 0, len = 0;
        const char *instead = NULL;
        if (*p == '/' && (len = home(p, end, &skip)) > 0)
            instead = "USER"; /* NOLINT(bugprone-branch-clone): the order decides */
        else if (start && (len = uuid(p, end)) > 0)
            instead = "00000000-0000-0000-0000-000000000000";
        else if (start && (len = mac(p, end)) > 0)
            instead = "00:00:00:00:00:00";
        else if (start && (len = ipv4(p, end)) > 0)
            instead = "0.0.0.0";
        else if (start && (len = ipv6(p, end)) > 0)
            instead = "::0";
        else if (start && (len = name_at(p, end, n->host)) > 0)
            instead = "HOST";
        else if (start && (len = name_at(p, end, n->user)) > 0)
            instead = "USER";
        if (instead) {
            tri_buf_add(out, p, skip);
            tri_buf_puts(out, instead);
            p += skip + len;
            start = false;
            continue;
        }
        start = !is_word(*p);
        tri_buf_putc(out, *p++);
    }
}

void tri__doctor_anonymise(const struct tri__names *n, const char *text, size_t bytes,
                           struct tri_buf *out)
{
    const char *p = text, *stop = text + bytes;
    while (p < stop) {
        const char *nl = memchr(p, '\n', (size_t)(stop - p));
        const char *end = nl ? nl : stop, *value = NULL;
        if (secret_info(p, end)) {
            ; /* the whole element */
        } else if (secret_key(p, end, &value)) {
            clean_words(n, p, value, out);
            if (value > p && value[-1] == '"') { /* an attribute: only its value goes */
                const char *quote = memchr(value, '"', (size_t)(end - value));
                if (quote)
                    clean_words(n, quote, end, out);
            } else {
                const char *colon = memchr(value, ':', (size_t)(end - value));
                clean_words(n, value, colon ? colon + 1 : value, out);
                tri_buf_puts(out, " REMOVED");
            }
        } else {
            clean_words(n, p, end, out);
        }
        if (nl)
            tri_buf_putc(out, '\n');
        p = nl ? nl + 1 : stop;
    }
}
