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

struct tri_doctor_options tri_doctor_options_default(void)
{
    return (struct tri_doctor_options){ .root = "/", .tools_ms = 1500 };
}

enum tri_status tri_doctor_open(struct tri_doctor **out, struct tri_error *err)
{
    struct tri_doctor *d = tri_calloc(1, sizeof *d);
    if (d)
        d->finding = tri_calloc(TRI_DOCTOR_MAX_FINDINGS + 1, sizeof *d->finding);
    if (!d || !d->finding) {
        tri_free(d);
        return tri_fail(err, TRI_NOMEM, "no memory for a doctor");
    }
    static const struct tri__spot none = { -1, 0 };
    d->nccl.cut = none;
    struct tri__engine *e = &d->engine;
    e->kv_spot = e->concurrency_spot = e->load_spot = none;
    e->no_allreduce = e->no_memory = e->too_long = e->preempted = none;
    d->kernel.full = none;
    d->experts.first = none;
    d->uring = -1;
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
    tri_free(d->finding);
    tri_free(d->grouping);
    tri_machines_fini(&d->machines);
    tri_tree_close(d->root);
    tri_free(d);
}

/* Comment lines are never evidence; only nccl-tests writes its own headers that way. */
static size_t offer(struct tri_doctor *d, struct tri__spot at)
{
    static size_t (*const readers[])(struct tri_doctor * d, struct tri__spot at) = {
        tri__doctor_read_nccl,   tri__doctor_read_kernel, tri__doctor_read_coll,
        tri__doctor_read_bench,  tri__doctor_read_band,   tri__doctor_read_ports,
        tri__doctor_read_engine, tri__doctor_read_limits, tri__doctor_read_routes,
        tri__doctor_read_json,
    };
    const char *text = tri__doctor_line(d, at);
    text += strspn(text, " \t");
    if (!*text)
        return 0;
    if (*text == '#')
        return tri_text_begins(text, "# source:") ? 0 : tri__doctor_read_coll(d, at);
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++) {
        size_t taken = readers[i](d, at);
        if (taken)
            return taken;
    }
    const struct tri__text *t = &d->text[at.text];
    enum tri_topo_kind kind = TRI_TOPO_NONE;
    size_t taken = tri_topo_read_at(&d->machines, t->name, &t->lines, at.line, &kind);
    if (kind == TRI_TOPO_LSPCI || kind == TRI_TOPO_ACS || kind == TRI_TOPO_SMI_QUERY ||
        kind == TRI_TOPO_FILES)
        d->kind_seen |= TRI__KIND_LANES;
    if (kind == TRI_TOPO_SMI_P2P)
        d->kind_seen |= TRI__KIND_P2P;
    if (kind == TRI_TOPO_SMI_TOPO || kind == TRI_TOPO_ROCM || kind == TRI_TOPO_AMD_SMI)
        d->kind_seen |= TRI__KIND_TOPOLOGY;
    return taken;
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
    return TRI_OK;
}

/* The XML document that begins at or after `from`: its root's start, and the end after its close.
 */
static bool find_xml(const char *data, size_t bytes, size_t *start, size_t *end, bool *hwloc)
{
    static const char *const roots[] = { "<system", "<topology" };
    for (size_t at = *start; at + 9 < bytes; at++) {
        bool line = at == 0 || data[at - 1] == '\n' || data[at - 1] == ' ' ||
                    data[at - 1] == '\t' || data[at - 1] == '>';
        for (int k = 0; k < 2 && line && data[at] == '<'; k++) {
            size_t len = strlen(roots[k]);
            char after = data[at + len];
            if (memcmp(data + at, roots[k], len) ||
                (!isspace((unsigned char)after) && after != '>'))
                continue;
            const char *close = k ? "</topology>" : "</system>";
            const char *stop = memmem(data + at, bytes - at, close, strlen(close));
            *start = at;
            *end = stop ? (size_t)(stop - data) + strlen(close) : bytes;
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

/* Keeps the text readers off lines that XML stands on; they stay to be cited. */
static void mark_xml(struct tri_doctor *d, const char *data, size_t start, size_t end)
{
    if (d->xmls == TRI_MAX_MACHINES)
        return;
    uint32_t first = count_lines(data, start) + 1;
    d->xml[d->xmls++] =
        (struct tri__xml){ (int)d->texts, first, first + count_lines(data + start, end - start) };
}

/* Reads every XML document of the bytes. */
static enum tri_status read_xml(struct tri_doctor *d, const char *name, const char *data,
                                size_t bytes, struct tri_error *err)
{
    size_t start = 0, end = 0;
    bool hwloc = false;
    while (find_xml(data, bytes, &start, &end, &hwloc)) {
        struct tri_machine *m = NULL;
        char *copy = tri_calloc(end + 1, 1);
        if (!copy || d->machines.count == TRI_MAX_MACHINES || tri_machine_open(&m, err)) {
            tri_free(copy);
            return tri_fail(err, TRI_LIMIT, "%s: more than %d machines", name, TRI_MAX_MACHINES);
        }
        for (size_t i = 0; i < end; i++) /* white space before keeps the line numbers */
            copy[i] = i >= start ? data[i] : data[i] == '\n' ? '\n' : ' ';
        struct tri_error why = { 0 };
        enum tri_status status = hwloc ? tri_topo_read_hwloc_xml(m, name, copy, end, &why)
                                       : tri_topo_read_nccl_xml(m, name, copy, end, &why);
        tri_free(copy);
        if (status) {
            tri_machine_close(m);
            tri__doctor_cut(d, "%s", why.text);
        } else {
            d->machines.list[d->machines.count++] = m;
            d->kind_seen |= TRI__KIND_TOPOLOGY | TRI__KIND_LANES;
        }
        d->kinds++;
        mark_xml(d, data, start, end);
        start = end;
    }
    return TRI_OK;
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
    if (tri_tar_is(data, bytes)) {
        bool cut = false;
        enum tri_status status = tri_tar_read(name, data, bytes, on_member, d, &cut, err);
        if (cut)
            tri__doctor_cut(d, "%s: the tar ends early", name);
        return status;
    }
    const char *packed = packed_by(data, bytes);
    if (packed)
        return tri_fail(err, TRI_FORMAT, "%s: compressed; unpack it first with %s", name, packed);
    if (bytes > TRI_LINES_MAX_BYTES)
        return tri_fail(err, TRI_LIMIT, "%s: %zu bytes, at most %d are read", name, bytes,
                        TRI_LINES_MAX_BYTES);
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
        struct tri_finding now = d->finding[i];
        size_t at = i;
        while (at && d->finding[at - 1].severity < now.severity) {
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
        if (d->finding[i].severity >= TRI_SEVERITY_WARN)
            tri__doctor_cost_words(&d->finding[i]);
    sort_findings(d);
    return TRI_OK;
}

enum tri_severity tri_doctor_verdict(const struct tri_doctor *d)
{
    enum tri_severity worst = TRI_SEVERITY_OK;
    for (size_t i = 0; i < d->findings; i++)
        if (d->finding[i].severity > worst)
            worst = d->finding[i].severity;
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

const struct tri_finding *tri_doctor_finding(const struct tri_doctor *d, size_t index)
{
    return index < d->findings ? &d->finding[index] : NULL;
}

size_t tri_doctor_kinds(const struct tri_doctor *d)
{
    return d->kinds;
}

size_t tri_doctor_machines(const struct tri_doctor *d)
{
    return d->machines.count;
}

const struct tri_machine *tri_doctor_machine(const struct tri_doctor *d, size_t index)
{
    return index < d->machines.count ? d->machines.list[index] : NULL;
}

size_t tri_doctor_groupings(const struct tri_doctor *d)
{
    return d->groupings;
}

const struct tri_grouping *tri_doctor_grouping(const struct tri_doctor *d, size_t index)
{
    return index < d->groupings ? &d->grouping[index] : NULL;
}
