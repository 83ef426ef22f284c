/*
 * Reads the tables of collective benchmarks that need only PyTorch: all_reduce_bench and
 * torch-dist-bench (rows "| 4GiB | 470.25GBps | 268.71GBps |") and the communication benchmark of
 * DeepSpeed and the EleutherAI cookbook (rows "1.0 GB 268435456x4 3.1 ms 2744 4802"). They print no
 * error column and name the device, if at all, in the properties of torch.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "doctor/doctor_priv.h"

/* "4GiB", "4GB", "512MB": payloads are powers of two under either name. 0: no size. */
static double bytes_of(const char *text)
{
    static const struct {
        const char *unit;
        double bytes;
    } units[] = {
        { "KiB", 1024 }, { "MiB", 1048576 }, { "GiB", 1073741824 }, { "TiB", 1024 * 1073741824.0 },
        { "KB", 1024 },  { "MB", 1048576 },  { "GB", 1073741824 },  { "TB", 1024 * 1073741824.0 },
        { "B", 1 }
    };
    char *end = NULL;
    double v = strtod(text, &end);
    if (end == text || v <= 0)
        return 0;
    end += strspn(end, " ");
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (!strncmp(end, units[i].unit, strlen(units[i].unit)))
            return v * units[i].bytes;
    return 0;
}

/* "_CudaDeviceProperties(name='NVIDIA H200', major=9, ...)" */
static bool read_properties(struct tri_doctor *d, const char *text)
{
    const char *name = strstr(text, "DeviceProperties(name='");
    if (!name)
        return false;
    name += 23;
    snprintf(d->bench.device, sizeof d->bench.device, "%.*s", (int)strcspn(name, "'"), name);
    return true;
}

static struct tri__coll *open_table(struct tri_doctor *d, struct tri__spot at, const char *op)
{
    struct tri__coll *c = tri__doctor_open_coll(d, at);
    d->bench.open = c != NULL;
    if (!c)
        return NULL;
    c->closed = c->header = true;
    snprintf(c->op, sizeof c->op, "%.*s", (int)strcspn(op, " "), op);
    snprintf(c->device, sizeof c->device, "%s", d->bench.device);
    return c;
}

static void set_ranks(struct tri__coll *c, const char *number)
{
    unsigned long n = number ? strtoul(number + strspn(number, " "), NULL, 10) : 0;
    c->ranks = n < 65536 ? n : 0;
    c->ranks_told = c->ranks > 0;
}

/* The table that is being read; NULL when there is none. */
static struct tri__coll *table(struct tri_doctor *d)
{
    struct tri__coll *c = d->bench.open && d->colls ? &d->coll[d->colls - 1] : NULL;
    return c && c->closed ? c : NULL; /* nccl-tests may have begun one since */
}

/* The lines that announce a table. */
static bool read_title(struct tri_doctor *d, struct tri__spot at, const char *text)
{
    const char *of = tri_text_begins(text, "The average bandwidth") ? strstr(text, " of ") : NULL;
    const char *on = tri_text_begins(text, "---- Performance of ") ? strstr(text, " on ") : NULL;
    if (on) {
        struct tri__coll *c = open_table(d, at, text + 20);
        if (c)
            set_ranks(c, on + 4);
        d->bench.gbit = true; /* its default; the header says when not */
        return true;
    }
    if (!of)
        return false;
    struct tri__coll *c = open_table(d, at, of + 4);
    const char *over = strstr(text, " over "), *ranks = strstr(text, " ranks)");
    const char *payload = strstr(text, " with a ");
    while (ranks && ranks > text && isdigit((unsigned char)ranks[-1]))
        ranks--;
    if (c && over)
        set_ranks(c, over + 6);
    else if (c && ranks)
        set_ranks(c, ranks);
    if (c && payload)
        c->size_bytes = bytes_of(payload + 8);
    d->bench.gbit = false;
    return true;
}

static void use_row(struct tri__coll *c, struct tri__spot at, double size, double busbw)
{
    c->rows++;
    if (size < c->size_bytes)
        return;
    c->before_busbw = c->busbw;
    c->size_bytes = size;
    c->busbw = busbw;
    c->best = at;
}

/* "| 4GiB | 470.25GBps | 268.71GBps |" with the columns in this order. */
static bool read_bars(struct tri_doctor *d, struct tri__spot at, const char *text)
{
    struct tri__coll *c = table(d);
    const char *second = *text == '|' ? strchr(text + 1, '|') : NULL;
    if (!second)
        return false;
    if (tri_text_find(text, "payload") && tri_text_find(text, "busbw")) {
        if (!c || c->rows) /* pasted without its title */
            open_table(d, at, "");
        d->bench.gbit = false;
        return true;
    }
    if (!c)
        return false;
    if (!text[strspn(text, "| -:")]) /* the line below the names */
        return true;
    double size = bytes_of(text + 1 + strspn(text + 1, " "));
    char *end = NULL;
    double busbw = strtod(second + 1, &end), algbw = 0;
    if (size <= 0 || !tri_text_begins(end, "GBps"))
        return size > 0 && (c->damaged = true);
    const char *third = strchr(end, '|');
    algbw = third ? strtod(third + 1, NULL) : 0;
    use_row(c, at, size, busbw);
    if (!c->ranks && algbw > 0 && busbw / algbw > 1.02 && busbw / algbw < 2) {
        double n = 2 / (2 - busbw / algbw); /* all-reduce is what the program measures first */
        c->ranks = n < 64 ? (size_t)(n + 0.5) : 0;
    }
    return true;
}

/* "1.0 GB  268435456x4  644.245 ms  13.333  23.333" or "1073741824  268435456x4  644245  ..." */
static bool read_columns(struct tri_doctor *d, struct tri__spot at, const char *text)
{
    struct tri__coll *c = table(d);
    struct tri_word w[8];
    size_t n = tri_words(text, w, 8), x = 0;
    double busbw = 0, bytes = 0;
    if (!c || n < 5 || n > 8)
        return false;
    if (tri_text_find(text, "BusBW") && tri_text_find(text, "Duration")) {
        d->bench.gbit = tri_text_find(text, "Gbps") && !strstr(text, "GBps");
        return true;
    }
    for (size_t i = 1; i < n && i < 3 && !x; i++)
        x = isdigit((unsigned char)*w[i].at) && memchr(w[i].at, 'x', w[i].len) ? i : 0;
    if (!x || !isdigit((unsigned char)*w[0].at) || !tri_word_number(w[n - 1], &busbw))
        return false;
    bytes = x == 2 ? bytes_of(w[0].at) : strtod(w[0].at, NULL);
    use_row(c, at, bytes, d->bench.gbit ? busbw / 8 : busbw);
    return true;
}

/* " busbw: 467.4 GBps (3739.4 Gbps)" of the oldest form, below its title. */
static bool read_pair(struct tri_doctor *d, struct tri__spot at, const char *text)
{
    struct tri__coll *c = table(d);
    bool bus = tri_text_begins(text, "busbw:"), alg = tri_text_begins(text, "algbw:");
    if (!c || (!bus && !alg) || !strstr(text, "GBps"))
        return false;
    if (bus)
        use_row(c, at, c->size_bytes, strtod(text + 6, NULL));
    return true;
}

void tri__doctor_words_bench(struct tri_sieve *sieve)
{
    tri_sieve_starts(sieve, TRI__HIT_BENCH, "|0123456789"); /* rows */
    tri_sieve_words(sieve, TRI__HIT_BENCH,
                    "DeviceProperties(name=|The average bandwidth|---- Performance of |Duration|"
                    "busbw:|algbw:");
}

size_t tri__doctor_read_bench(struct tri_doctor *d, struct tri__spot at)
{
    const char *text = tri__doctor_line(d, at);
    text += strspn(text, " \t");
    const struct tri__coll *c = table(d);
    if (c && c->first.text != at.text)
        d->bench.open = false;
    bool taken = read_properties(d, text) || read_title(d, at, text) || read_bars(d, at, text) ||
                 read_columns(d, at, text) || read_pair(d, at, text);
    d->kind_seen |= taken ? TRI__KIND_COLLECTIVE : 0;
    return taken;
}
