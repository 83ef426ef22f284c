/*
 * A doctor from the outside: opening, reading inputs of any kind, and judging. An input is a tar,
 * or bytes in which XML documents and text outputs may follow one another; every line is offered to
 * the readers in turn, and what none of them knows is left alone.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include "base/json.h"
#include "base/mem.h"
#include "doctor/doctor_priv.h"
#include "doctor/tarfile.h"

enum { MAX_TARS = 8 }; /* inside one another */

struct tri_doctor_options tri_doctor_options_default(void)
{
    return (struct tri_doctor_options){ .root = "/", .tools_ms = 1500 };
}

static void fill_sieve(struct tri_sieve *sieve)
{
    tri__doctor_words_nccl(sieve);
    tri__doctor_words_kernel(sieve);
    tri__doctor_words_coll(sieve);
    tri__doctor_words_bench(sieve);
    tri__doctor_words_band(sieve);
    tri__doctor_words_ports(sieve);
    tri__doctor_words_engine(sieve);
    tri__doctor_words_limits(sieve);
    tri__doctor_words_json(sieve);
    tri_topo_words(sieve, TRI__HIT_TOPO);
}

enum tri_status tri_doctor_open(struct tri_doctor **out, struct tri_error *err)
{
    struct tri_doctor *d = tri_calloc(1, sizeof *d);
    if (!d)
        return tri_fail(err, TRI_NOMEM, "no memory for a doctor");
    static const struct tri__spot none = { -1, 0 };
    d->nccl.cut = none;
    struct tri__engine *e = &d->engine;
    e->kv_spot = e->concurrency_spot = e->load_spot = none;
    e->no_allreduce = e->no_memory = e->too_long = e->preempted = none;
    d->kernel.full = none;
    d->experts.first = d->no_json = none;
    d->uring = -1;
    fill_sieve(&d->sieve);
    *out = d;
    return TRI_OK;
}

void tri_doctor_close(struct tri_doctor *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < d->texts; i++) {
        tri_free(d->text[i].name);
        tri_lines_fini(&d->text[i].lines);
    }
    for (size_t i = 0; i < d->bands; i++) {
        for (size_t t = 0; t < d->band[i].tables; t++) {
            tri_free(d->band[i].table[t].cell);
            tri_free(d->band[i].table[t].row_spot);
        }
        tri_free(d->band[i].table);
    }
    tri_free(d->text);
    tri_free(d->band);
    tri_free(d->coll);
    tri_free(d->experts.count);
    tri_free(d->nccl.process);
    tri_free(d->nccl.slot);
    for (size_t i = 0; i < d->findings; i++)
        tri_free(d->finding[i]);
    tri_free(d->grouping);
    tri_machines_fini(&d->machines);
    tri_tree_close(d->root);
    tri_free(d);
}

bool tri__doctor_hit(const struct tri_doctor *d, enum tri__hit group)
{
    return d->hits >> group & 1;
}

/* Lines that a reader of topo takes. */
static size_t offer_topo(struct tri_doctor *d, struct tri__spot at)
{
    const struct tri__text *t = &d->text[at.text];
    enum tri_topo_kind kind = TRI_TOPO_NONE;
    struct tri_topo_place place = { t->name, &t->lines, at.line, d->hits >> TRI__HIT_TOPO };
    size_t taken = tri_topo_read_at(&d->machines, &place, &kind);
    if (kind == TRI_TOPO_LSPCI || kind == TRI_TOPO_ACS || kind == TRI_TOPO_SMI_QUERY ||
        kind == TRI_TOPO_FILES)
        d->kind_seen |= TRI__KIND_LANES;
    if (kind == TRI_TOPO_SMI_P2P)
        d->kind_seen |= TRI__KIND_P2P;
    if (kind == TRI_TOPO_SMI_TOPO || kind == TRI_TOPO_ROCM || kind == TRI_TOPO_AMD_SMI)
        d->kind_seen |= TRI__KIND_TOPOLOGY;
    return taken;
}

/* Comment lines are never evidence; only nccl-tests writes its own headers that way. */
static size_t offer(struct tri_doctor *d, struct tri__spot at)
{
#define BIT(group) (1ull << TRI__HIT_##group)
    static const struct {
        size_t (*read)(struct tri_doctor *d, struct tri__spot at);
        uint64_t groups;
    } readers[] = {
        { tri__doctor_read_nccl, BIT(NCCL) },
        { tri__doctor_read_kernel, BIT(KERNEL) },
        { tri__doctor_read_coll, BIT(COLL) },
        { tri__doctor_read_bench, BIT(BENCH) },
        { tri__doctor_read_band, BIT(BAND) },
        { tri__doctor_read_ports, BIT(PORTS) },
        { tri__doctor_read_engine,
          BIT(CACHE) | BIT(LOAD) | BIT(REFUSAL) | BIT(SIZES) | BIT(SCALING) },
        { tri__doctor_read_limits, BIT(LIMITS) },
        { tri__doctor_read_routes, BIT(JSON) },
        { tri__doctor_read_json, BIT(JSON) },
    };
#undef BIT
    const char *text = tri__doctor_line(d, at);
    d->hits = d->unsieved ? ~0ull : tri_sieve_line(&d->sieve, text);
    if (!d->hits)
        return 0;
    text += strspn(text, " \t");
    if (!*text)
        return 0;
    if (*text == '#')
        return tri_text_begins(text, "# source:") || !tri__doctor_hit(d, TRI__HIT_COLL)
                   ? 0
                   : tri__doctor_read_coll(d, at);
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++) {
        if (!(d->hits & readers[i].groups))
            continue;
        d->reader_calls++;
        size_t taken = readers[i].read(d, at);
        if (taken)
            return taken;
    }
    uint64_t topo = d->hits >> TRI__HIT_TOPO;
    d->reader_calls += (size_t)__builtin_popcountll(topo);
    return topo ? offer_topo(d, at) : 0;
}

/* Lines left of the XML document that holds line `number` of a text; 0 when none does. */
static size_t in_xml(const struct tri_doctor *d, int text, uint32_t number)
{
    for (size_t i = 0; i < d->xmls; i++)
        if (d->xml[i].text == text && number >= d->xml[i].first && number <= d->xml[i].last)
            return d->xml[i].last - number + 1;
    return 0;
}

static enum tri_status read_text(struct tri_doctor *d, const char *name, const char *data,
                                 size_t bytes, struct tri_error *err)
{
    if (d->texts == TRI_DOCTOR_MAX_FILES)
        return tri_fail(err, TRI_LIMIT, "more than %d files at once", TRI_DOCTOR_MAX_FILES);
    if (!d->text)
        d->text = tri_calloc(TRI_DOCTOR_MAX_FILES, sizeof *d->text);
    struct tri__text t = { .name = tri_strdup(name) };
    if (!d->text || !t.name) {
        tri_free(t.name);
        return tri_fail(err, TRI_NOMEM, "%s: no memory", name);
    }
    enum tri_status status = tri_lines_init(&t.lines, data, bytes, err);
    if (status) {
        tri_free(t.name);
        return status;
    }
    int index = (int)d->texts;
    d->text[d->texts++] = t;
    if (t.lines.cut_lines)
        tri__doctor_cut(d, "%s: %u overlong lines were cut", name, t.lines.cut_lines);
    for (size_t at = 0; at < t.lines.count;) {
        size_t xml = in_xml(d, index, t.lines.line[at].number);
        if (xml) {
            at += xml;
            continue;
        }
        size_t taken = offer(d, (struct tri__spot){ index, (uint32_t)at });
        d->kinds += taken > 0;
        at += taken ? taken : 1;
    }
    tri_topo_read_end(&d->machines);
    return TRI_OK;
}

/* The XML document that begins at or after `from`: its root's start, and the end after its close.
 */
static bool find_xml(const char *data, size_t bytes, size_t *start, size_t *end, bool *hwloc)
{
    static const char *const roots[] = { "<system", "<topology" };
    const char *p = data + *start, *stop = bytes > 9 ? data + bytes - 9 : data;
    for (; p < stop && (p = memchr(p, '<', (size_t)(stop - p))) != NULL; p++) {
        size_t at = (size_t)(p - data);
        bool line = at == 0 || strchr("\n \t>", data[at - 1]);
        for (int k = 0; k < 2 && line; k++) {
            size_t len = strlen(roots[k]);
            char after = p[len];
            if (memcmp(p, roots[k], len) || (!isspace((unsigned char)after) && after != '>'))
                continue;
            const char *close = k ? "</topology>" : "</system>";
            const char *end_at = memmem(p, bytes - at, close, strlen(close));
            *start = at;
            *end = end_at ? (size_t)(end_at - data) + strlen(close) : bytes;
            *hwloc = k;
            return true;
        }
    }
    return false;
}

static uint32_t count_lines(const char *data, size_t bytes)
{
    uint32_t n = 0;
    for (size_t i = 0; i < bytes; i++)
        n += data[i] == '\n';
    return n;
}

/* One document; `above` lines stand before it. Line ends instead of them keep the line numbers. */
static enum tri_status read_document(struct tri_doctor *d, const char *name, const char *data,
                                     size_t bytes, uint32_t above, bool hwloc,
                                     struct tri_error *err)
{
    struct tri_machine *m = NULL;
    if (d->machines.count == TRI_MAX_MACHINES)
        return tri_fail(err, TRI_LIMIT, "%s: more than %d machines; give fewer files at once", name,
                        TRI_MAX_MACHINES);
    char *copy = tri_malloc(above + bytes + 1);
    if (!copy || tri_machine_open(&m, err)) {
        tri_free(copy);
        return tri_fail(err, TRI_NOMEM, "%s: no memory", name);
    }
    memset(copy, '\n', above);
    memcpy(copy + above, data, bytes);
    copy[above + bytes] = 0;
    struct tri_error why = { 0 };
    enum tri_status status = hwloc ? tri_topo_read_hwloc_xml(m, name, copy, above + bytes, &why)
                                   : tri_topo_read_nccl_xml(m, name, copy, above + bytes, &why);
    tri_free(copy);
    if (status) {
        tri_machine_close(m);
        tri__doctor_cut(d, "%s", why.text);
    } else {
        d->machines.list[d->machines.count++] = m;
        d->kind_seen |= TRI__KIND_TOPOLOGY | TRI__KIND_LANES;
    }
    d->kinds++;
    return TRI_OK;
}

/* Reads every XML document of the bytes, and keeps the text readers off the lines it stands on. */
static enum tri_status read_xml(struct tri_doctor *d, const char *name, const char *data,
                                size_t bytes, struct tri_error *err)
{
    size_t start = 0, end = 0, last = 0;
    uint32_t above = 0;
    bool hwloc = false;
    enum tri_status status = TRI_OK;
    while (status == TRI_OK && find_xml(data, bytes, &start, &end, &hwloc)) {
        above += count_lines(data + last, start - last);
        status = read_document(d, name, data + start, end - start, above, hwloc, err);
        uint32_t lines = count_lines(data + start, end - start);
        if (d->xmls < TRI_MAX_MACHINES)
            d->xml[d->xmls++] = (struct tri__xml){ (int)d->texts, above + 1, above + 1 + lines };
        above += lines;
        start = last = end;
    }
    return status;
}

/* One member of a gathered tar: files of the root, outputs of commands, the hwloc export. */
static enum tri_status on_member(void *arg, const struct tri_tar_member *member,
                                 struct tri_error *err)
{
    struct tri_doctor *d = arg;
    const char *part = member->link[0] ? "links/" : "root/";
    const char *root = strstr(member->name, part);
    bool below = root && (root == member->name || root[-1] == '/');
    if (!below) {
        size_t before = d->machines.count;
        enum tri_status status = TRI_OK;
        if (!member->link[0])
            status = tri_doctor_read_bytes(d, member->name, member->data, member->bytes, err);
        if (status == TRI_OK && d->machines.count > before && strstr(member->name, "hwloc.xml"))
            d->machines.list[before]->described = false; /* our own export: live, not a sketch */
        return status;
    }
    if (!d->machines.files) {
        enum tri_status status = tri_tree_open_memory(&d->machines.files, err);
        if (status)
            return status;
    }
    struct tri_tree_file file = { .path = root + strlen(part) - 1,
                                  .data = member->link[0] ? member->link : member->data,
                                  .bytes = member->link[0] ? strlen(member->link) : member->bytes,
                                  .link = member->link[0] != 0,
                                  .origin = member->name };
    d->kind_seen |= TRI__KIND_HOST;
    d->kinds++;
    return tri_tree_put(d->machines.files, &file, err);
}

/* The program that unpacks these bytes, by their first ones; NULL when they are not packed. */
static const char *packed_by(const char *data, size_t bytes)
{
    static const struct {
        const char *magic, *program;
    } kinds[] = { { "\x1f\x8b", "gunzip" },
                  { "\xfd"
                    "7zXZ",
                    "unxz" },
                  { "\x28\xb5\x2f\xfd", "unzstd" },
                  { "BZh", "bunzip2" },
                  { "PK\x03\x04", "unzip" } };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (bytes > 6 && !memcmp(data, kinds[i].magic, strlen(kinds[i].magic)))
            return kinds[i].program;
    return NULL;
}

enum tri_status tri_doctor_read_bytes(struct tri_doctor *d, const char *name, const char *data,
                                      size_t bytes, struct tri_error *err)
{
    TRI_ASSERT(!d->judged);
    if (tri_tar_is(data, bytes) && d->tars == MAX_TARS) {
        tri__doctor_cut(d, "%s: more than %d tars inside one another", name, MAX_TARS);
        return TRI_OK;
    }
    if (tri_tar_is(data, bytes)) {
        bool cut = false;
        d->tars++;
        enum tri_status status = tri_tar_read(name, data, bytes, on_member, d, &cut, err);
        d->tars--;
        if (cut)
            tri__doctor_cut(d, "%s: the tar ends early", name);
        return status;
    }
    const char *packed = packed_by(data, bytes);
    if (packed)
        return tri_fail(err, TRI_FORMAT, "%s: compressed; unpack it first with %s", name, packed);
    if (bytes > TRI_LINES_MAX_BYTES)
        return tri_fail(err, TRI_LIMIT,
                        "%s: %zu bytes, at most %d are read: give a part (head -c 30M, grep)", name,
                        bytes, TRI_LINES_MAX_BYTES);
    char *copy = tri_malloc(bytes + 1);
    if (!copy)
        return tri_fail(err, TRI_NOMEM, "%s: no memory", name);
    if (bytes)
        memcpy(copy, data, bytes);
    copy[bytes] = 0;
    enum tri_status status = read_xml(d, name, copy, bytes, err);
    if (status == TRI_OK)
        status = read_text(d, name, copy, bytes, err);
    tri_free(copy);
    return status;
}

enum tri_status tri_doctor_read_file(struct tri_doctor *d, const char *path, struct tri_error *err)
{
    char *data = NULL;
    size_t bytes = 0;
    enum tri_status status = tri_read_file(&data, &bytes, path, TRI_TAR_MAX_BYTES, err);
    if (status == TRI_OK)
        status = tri_doctor_read_bytes(d, path, data, bytes, err);
    tri_free(data);
    return status;
}

/* Remarks of the readers: cuts make the report incomplete, contradictions are findings. */
static void take_remarks(struct tri_doctor *d, const struct tri_machine *m)
{
    for (size_t i = 0; i < m->remarks; i++) {
        const struct tri_remark *r = &m->remark[i];
        const char *file = r->source.file >= 0 ? m->source[r->source.file] : "";
        if (r->kind == TRI_REMARK_CUT || r->kind == TRI_REMARK_REPAIRED) {
            tri__doctor_cut(d, "%s:%u: %s", file, r->source.line, r->text);
            tri__doctor_note(d, "%s:%u: %s", file, r->source.line, r->text);
        } else if (r->kind == TRI_REMARK_CONTRADICTION) {
            struct tri_finding *f = tri__doctor_find(d, "contradiction", TRI_SEVERITY_WARN,
                                                     "two readings disagree: %s", r->text);
            tri__doctor_cite_fact(d, f, m, r->source);
            tri__doctor_cure(f, "# read both again at the same time, on the same machine");
        } else {
            tri__doctor_note(d, "%s", r->text);
        }
    }
    if (m->remarks_lost)
        tri__doctor_cut(d, "%zu remarks of the readers were lost", m->remarks_lost);
}

static void judge_machine(struct tri_doctor *d, const struct tri_machine *m)
{
    take_remarks(d, m);
    tri__doctor_cost_of(d, m->gpus ? m->gpu[0].name : NULL, m->gpus);
    tri__doctor_rules_paths(d, m);
    tri__doctor_rules_amd(d, m);
    tri__doctor_rules_p2p(d, m);
    tri__doctor_rules_nic(d, m);
    tri__doctor_rules_pcie(d, m);
    tri__doctor_rules_acs(d, m);
    tri__doctor_rules_gpu(d, m);
    tri__doctor_rules_numa(d, m);
}

static void cost_of_largest(struct tri_doctor *d)
{
    const struct tri_machine *largest = NULL;
    for (size_t i = 0; i < d->machines.count; i++)
        if (!largest || d->machines.list[i]->gpus > largest->gpus)
            largest = d->machines.list[i];
    bool named = largest && largest->gpus;
    tri__doctor_cost_of(d, named ? largest->gpu[0].name : NULL, named ? largest->gpus : 0);
}

/* Worst first; equal ones keep the order in which the rules found them. */
static void sort_findings(struct tri_doctor *d)
{
    for (size_t i = 1; i < d->findings; i++) {
        struct tri_finding *now = d->finding[i];
        size_t at = i;
        while (at && d->finding[at - 1]->severity < now->severity) {
            d->finding[at] = d->finding[at - 1];
            at--;
        }
        d->finding[at] = now;
    }
}

enum tri_status tri_doctor_judge(struct tri_doctor *d, struct tri_error *err)
{
    TRI_ASSERT(!d->judged);
    d->judged = true;
    struct tri_tree *tree = d->root ? d->root : d->machines.files;
    if (!d->root && tree) {
        struct tri_machine *m = tri_machines_last(&d->machines);
        if (!m)
            return tri_fail(err, TRI_NOMEM, "no memory for a machine");
        tri_topo_read_tree(m, tree);
        d->live_machine = d->machines.count;
    }
    if (d->machines.lost)
        tri__doctor_cut(d, "more machines or captured files than are kept");
    for (size_t i = 0; i < d->machines.count; i++) {
        tri_machine_join(d->machines.list[i]);
        judge_machine(d, d->machines.list[i]);
    }
    tri__doctor_rules_band(d);
    tri__doctor_rules_coll(d);
    cost_of_largest(d); /* logs name no part: the machine that was read with them is theirs */
    tri__doctor_rules_nccl(d);
    tri__doctor_rules_ports(d);
    tri__doctor_rules_engine(d);
    tri__doctor_rules_kernel(d);
    if (tree) {
        tri__doctor_rules_host(d, tree);
        tri__doctor_rules_own(d, tree);
    }
    for (size_t i = 0; i < d->machines.count; i++)
        tri__doctor_group(d, i);
    if (!d->kinds && !d->root)
        tri__doctor_cut(d, "nothing in the input was recognised");
    if (!d->findings)
        tri__doctor_find(d, "nothing_judged", TRI_SEVERITY_INFO,
                         d->kinds ? "what was read allows no judgement"
                                  : "nothing in the input was recognised");
    if (d->findings_lost)
        tri__doctor_cut(d, "%zu findings did not fit", d->findings_lost);
    for (size_t i = 0; i < d->findings; i++)
        if (d->finding[i]->severity >= TRI_SEVERITY_WARN)
            tri__doctor_cost_words(d->finding[i]);
    sort_findings(d);
    return TRI_OK;
}

enum tri_severity tri_doctor_verdict(const struct tri_doctor *d)
{
    enum tri_severity worst = TRI_SEVERITY_OK;
    for (size_t i = 0; i < d->findings; i++)
        if (d->finding[i]->severity > worst)
            worst = d->finding[i]->severity;
    return worst;
}

bool tri_doctor_is_complete(const struct tri_doctor *d)
{
    return !d->cut;
}

size_t tri_doctor_findings(const struct tri_doctor *d)
{
    return d->findings;
}

size_t tri_doctor_machines(const struct tri_doctor *d)
{
    return d->machines.count;
}

const struct tri_machine *tri_doctor_machine(const struct tri_doctor *d, size_t index)
{
    return index < d->machines.count ? d->machines.list[index] : NULL;
}
