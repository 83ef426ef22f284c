/*
 * Reads the JSON that tools print: nvbandwidth -j, amd-smi topology --json. A document begins on a
 * line of its own and may stand among other outputs; it ends where its brackets close. Evidence is
 * the line that holds the name of a test or the bus id of a GPU.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "doctor/doctor_priv.h"

enum {
    MAX_BYTES = 8 << 20,
    MAX_OPEN = 16, /* documents without an end, or with known words and another shape */
    MAX_MISSES = 8 /* names of one document that stand on no line, as written with escapes */
};

struct document {
    struct tri_doctor *d;
    struct tri__spot at, cursor; /* where it begins; the last line that was cited */
    size_t lines;
    unsigned misses;
};

/* The line from the cursor on that holds `word`; the document's first line when none does. */
static struct tri__spot line_with(struct document *doc, const char *word)
{
    for (uint32_t i = doc->cursor.line; doc->misses < MAX_MISSES && i < doc->at.line + doc->lines;
         i++) {
        struct tri__spot spot = { doc->at.text, i };
        if (strstr(tri__doctor_line(doc->d, spot), word)) {
            doc->cursor = spot;
            return spot;
        }
    }
    doc->misses++;
    return doc->at;
}

static double number(const json_t *v)
{
    if (json_is_number(v))
        return json_number_value(v);
    const char *text = json_string_value(v);
    char *end = NULL;
    double out = text ? strtod(text, &end) : 0;
    return text && end != text && !*end && isfinite(out) ? out : (double)NAN;
}

/* ---- nvbandwidth ---- */

static void take_matrix(struct document *doc, struct tri__band *b, const json_t *test,
                        const char *name)
{
    const json_t *rows = json_object_get(test, "bandwidth_matrix");
    size_t columns = 0, i;
    const json_t *row;
    json_array_foreach(rows, i, row) if (json_array_size(row) > columns) columns =
        json_array_size(row);
    if (!columns || columns > TRI__BAND_MAX || json_array_size(rows) > TRI__BAND_MAX)
        return;
    struct tri__table *t = tri__doctor_add_table(b, TRI__NVBANDWIDTH, columns);
    if (!t)
        return;
    snprintf(t->name, sizeof t->name, "%s", name);
    t->title = line_with(doc, name);
    json_array_foreach(rows, i, row)
    {
        t->rows = i + 1;
        t->row_spot[i] = t->title;
        for (size_t c = 0; c < json_array_size(row); c++)
            t->cell[i * columns + c] = number(json_array_get(row, c));
    }
}

/* "0: NVIDIA H100 80GB HBM3: 00000000:1b:00" */
static void take_devices(struct tri__band *b, const json_t *list)
{
    size_t i;
    const json_t *v;
    json_array_foreach(list, i, v)
    {
        const char *text = json_string_value(v), *name = text ? strstr(text, ": ") : NULL;
        if (!name || i >= TRI__BAND_MAX)
            continue;
        name += 2;
        const char *bus = strstr(name, ": ");
        snprintf(b->name[i], sizeof b->name[i], "%.*s", bus ? (int)(bus - name) : (int)strlen(name),
                 name);
        b->devices = i + 1;
    }
}

static bool take_nvbandwidth(struct document *doc, const json_t *root)
{
    const json_t *body = json_object_get(root, "nvbandwidth"), *test;
    size_t i;
    if (!json_is_object(body))
        return false;
    struct tri__band *b = tri__doctor_open_band(doc->d, doc->at, true);
    if (!b)
        return true;
    take_devices(b, json_object_get(body, "GPU Device list"));
    json_array_foreach(json_object_get(body, "testcases"), i, test)
    {
        const char *name = json_string_value(json_object_get(test, "name"));
        const char *status = json_string_value(json_object_get(test, "status"));
        if (!name)
            continue;
        if (status && !strcmp(status, "Waived") && !strncmp(name, "device_to_device", 16)) {
            b->waived_peers = true;
            b->waived = line_with(doc, name);
        }
        take_matrix(doc, b, test, name);
    }
    doc->d->kind_seen |= TRI__KIND_BANDWIDTH;
    return true;
}

/* ---- amd-smi topology ---- */

static void take_link(struct tri_machine *m, size_t from, const json_t *link,
                      struct tri_source source)
{
    const json_t *index = json_object_get(link, "gpu");
    const char *type = json_string_value(json_object_get(link, "link_type"));
    const char *status = json_string_value(json_object_get(link, "link_status"));
    double weight = number(json_object_get(link, "weight"));
    double hops = number(json_object_get(link, "num_hops"));
    size_t to = json_is_integer(index) ? (size_t)json_integer_value(index) : m->gpus;
    if (to >= m->gpus || to == from)
        return;
    struct tri_pair *p = tri_machine_pair(m, from, to);
    p->source = p->p2p_source = source;
    if (type && !strcmp(type, "XGMI"))
        p->path = TRI_PATH_XGMI;
    else if (type && !strcmp(type, "PCIE"))
        p->path = TRI_PATH_PCIE;
    if (weight > 0 && weight < 100000)
        p->weight = (int)weight;
    if (hops > 0 && hops < 1000)
        p->hops = (int)hops;
    if (status)
        p->p2p = !strcmp(status, "ENABLED")    ? TRI_P2P_OK
                 : !strcmp(status, "DISABLED") ? TRI_P2P_DISABLED
                                               : TRI_P2P_UNKNOWN;
}

static bool is_topology(const json_t *root)
{
    const json_t *first = json_array_get(root, 0), *links = json_object_get(first, "links");
    return json_is_array(root) && json_is_integer(json_object_get(first, "gpu")) &&
           json_object_get(json_array_get(links, 0), "link_type");
}

static bool take_amd(struct document *doc, const json_t *root)
{
    struct tri_machines *set = &doc->d->machines;
    size_t gpus = json_array_size(root), i, k;
    const json_t *gpu, *link;
    if (!is_topology(root))
        return false;
    if (set->count == TRI_MAX_MACHINES || gpus > TRI_MAX_GPUS ||
        tri_machine_open(&set->list[set->count], NULL)) {
        set->lost = true;
        return true;
    }
    struct tri_machine *m = set->list[set->count++];
    int file = tri_machine_source(m, doc->d->text[doc->at.text].name);
    while (m->gpus < gpus && tri_machine_add_gpu(m))
        m->gpu[m->gpus - 1].vendor = TRI_VENDOR_AMD;
    json_array_foreach(root, i, gpu)
    {
        const char *bdf = json_string_value(json_object_get(gpu, "bdf"));
        const json_t *links = json_object_get(gpu, "links");
        if (i >= m->gpus)
            break;
        struct tri__spot spot = line_with(doc, bdf ? bdf : "\"links\"");
        uint32_t line = doc->d->text[spot.text].lines.line[spot.line].number;
        struct tri_source source = { file, line };
        m->gpu[i].source = source;
        if (bdf && !tri_bdf_normal(bdf, strlen(bdf), m->gpu[i].bdf))
            m->gpu[i].bdf[0] = 0;
        json_array_foreach(links, k, link) take_link(m, i, link, source);
        if (json_array_size(links) + 1 < gpus)
            tri_machine_remark(m, TRI_REMARK_CUT, source, "GPU%zu lacks links to others", i);
    }
    doc->d->kind_seen |= TRI__KIND_TOPOLOGY;
    return true;
}

/* ---- documents ---- */

/* Lines from `at` to the one in which the first bracket closes, joined; 0 when it never does. */
static size_t join_lines(struct tri_doctor *d, struct tri__spot at, struct tri_buf *out)
{
    const struct tri_lines *l = &d->text[at.text].lines;
    long depth = 0;
    bool quoted = false;
    for (size_t i = at.line; i < l->count; i++) {
        const char *text = l->line[i].text;
        for (const char *p = text; *p; p++) {
            if (quoted && *p == '\\' && p[1]) {
                p++;
                continue;
            }
            if (*p == '"')
                quoted = !quoted;
            depth += quoted ? 0 : (*p == '{' || *p == '[') - (*p == '}' || *p == ']');
        }
        if (tri_buf_puts(out, text) || tri_buf_putc(out, '\n'))
            return 0;
        if (depth <= 0)
            return i - at.line + 1;
    }
    return 0;
}

void tri__doctor_words_json(struct tri_sieve *sieve)
{
    tri_sieve_starts(sieve, TRI__HIT_JSON, "{[");
}

size_t tri__doctor_read_json(struct tri_doctor *d, struct tri__spot at)
{
    const char *text = tri__doctor_line(d, at);
    struct document doc = { .d = d, .at = at, .cursor = at };
    struct tri_buf buf;
    json_t *root = NULL;
    bool taken = false;
    text += strspn(text, " \t");
    bool inside = d->no_json.text == at.text && at.line < d->no_json.line;
    if ((*text != '{' && *text != '[') || d->open_json >= MAX_OPEN || inside)
        return 0;
    tri_buf_init(&buf, MAX_BYTES);
    doc.lines = join_lines(d, at, &buf);
    bool known =
        buf.data && (strstr(buf.data, "\"nvbandwidth\"") || strstr(buf.data, "\"link_type\""));
    if (!doc.lines) { /* its end is missing; looking for it costs a pass over the text */
        d->open_json++;
        if (known)
            tri__doctor_cut(d, "a JSON document is cut");
    } else if (known && tri_json_parse(&root, "input", buf.data, buf.len_bytes, MAX_BYTES, NULL)) {
        tri__doctor_cut(d, "a JSON document is damaged");
        taken = true;
    } else if (root) {
        taken = take_nvbandwidth(&doc, root) || take_amd(&doc, root);
    }
    if (doc.lines && !known) /* none of the documents inside it is either */
        d->no_json = (struct tri__spot){ at.text, at.line + (uint32_t)doc.lines };
    d->open_json += doc.lines && known && !taken;
    json_decref(root);
    tri_buf_fini(&buf);
    return taken ? doc.lines : 0;
}
