/* The model's half of `trireme info`: totals and parts from the config, and the differences of an
 * index or of a folder's files from them. */
#include "cli/info.h"

#include <stdio.h>
#include <string.h>
#include "cli/cli.h"
#include "cli/human.h"
#include "weights/weights.h"

/* What a comparison found; names of each kind up to TRI_INFO_MAX_NAMES. */
struct compared {
    bool done, from_index;
    uint64_t tensors, bytes;
    struct tri_check_report report;
    json_t *missing, *extra, *mismatched;
};

void tri_info_note(void *arg, const char *text)
{
    (void)arg;
    fprintf(stderr, "trireme: note: %s\n", text);
}

int tri_info_print_json(json_t *object)
{
    int failed = !object || json_dumpf(object, stdout, JSON_INDENT(2)) || putchar('\n') == EOF ||
                 fflush(stdout);
    json_decref(object);
    if (!failed)
        return TRI_EXIT_OK;
    const struct tri_error err = { TRI_IO, 0, "cannot write the JSON" };
    return tri_cli_fail(&err);
}

static void keep_name(void *arg, const char *kind, const char *tensor, const char *why)
{
    struct compared *c = arg;
    char line[400];
    json_t *list = strcmp(kind, "missing") == 0 ? c->missing
                   : strcmp(kind, "extra") == 0 ? c->extra
                                                : c->mismatched;
    if (json_array_size(list) >= TRI_INFO_MAX_NAMES)
        return;
    snprintf(line, sizeof line, list == c->mismatched ? "%s: %s" : "%s", tensor, why);
    json_array_append_new(list, json_string(line));
}

static enum tri_status compare(struct compared *c, const struct tri_info_request *request,
                               const struct tri_spec *spec, struct tri_error *err)
{
    c->report.line = keep_name;
    c->report.arg = c;
    c->done = request->folder || request->index;
    c->from_index = request->index != NULL;
    if (request->folder)
        return tri_check_folder(request->folder, spec, &c->report, &c->tensors, &c->bytes, err);
    if (request->index)
        return tri_check_index(request->index, spec, &c->report, &c->tensors, &c->bytes, err);
    return TRI_OK;
}

static json_t *shape_json(const struct tri_spec *s)
{
    return json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "model_type",
        s->model_type, "layers", (json_int_t)s->layers, "kda_layers", (json_int_t)s->kda_layers,
        "mla_layers", (json_int_t)s->mla_layers, "moe_layers", (json_int_t)s->moe_layers, "hidden",
        (json_int_t)s->hidden, "vocabulary", (json_int_t)s->vocab, "experts",
        (json_int_t)s->experts, "experts_per_token", (json_int_t)s->topk, "shared_experts",
        (json_int_t)s->shared_experts, "expert_width", (json_int_t)tri_spec_expert_width(s),
        "context_tokens", (json_int_t)s->context_tokens, "vision", s->has_vision);
}

static json_t *parts_json(const struct tri_spec_totals *t)
{
    json_t *parts = json_array();
    for (int i = 0; i < TRI_PARTS; i++)
        if (t->part[i].bytes)
            json_array_append_new(parts, json_pack("{s:s, s:I, s:I}", "name",
                                                   tri_part_name((enum tri_part)i), "parameters",
                                                   (json_int_t)t->part[i].parameters, "bytes",
                                                   (json_int_t)t->part[i].bytes));
    return parts;
}

/* Counts are null when nothing was compared. */
static int tell_json(const struct tri_spec *spec, const struct tri_spec_totals *t,
                     const struct compared *c)
{
    json_t *o = json_pack("{s:I, s:I, s:I, s:I, s:o, s:o}", "tensors", (json_int_t)t->tensors,
                          "bytes", (json_int_t)t->bytes, "parameters", (json_int_t)t->parameters,
                          "active_parameters", (json_int_t)t->active_parameters, "parts",
                          parts_json(t), "model", shape_json(spec));
    const struct {
        const char *count, *names;
        uint64_t n;
        json_t *list;
    } kinds[] = { { "missing", "missing_names", c->report.missing, c->missing },
                  { "extra", "extra_names", c->report.extra, c->extra },
                  { "mismatched", "mismatched_names", c->report.mismatched, c->mismatched } };
    for (int i = 0; i < 3; i++) {
        json_object_set_new(o, kinds[i].count,
                            c->done ? json_integer((json_int_t)kinds[i].n) : json_null());
        json_object_set(o, kinds[i].names, kinds[i].list);
    }
    json_object_set_new(o, "found",
                        c->done ? json_pack("{s:I, s:I}", "tensors", (json_int_t)c->tensors,
                                            "bytes", (json_int_t)c->bytes)
                                : json_null());
    return tri_info_print_json(o);
}

static void tell_shape(const struct tri_spec *s)
{
    char a[TRI_HUMAN_BYTES], b[TRI_HUMAN_BYTES];
    printf("%s: %lld layers (%lld KDA, %lld MLA; %lld dense, %lld MoE), hidden %lld\n",
           s->model_type, (long long)s->layers, (long long)s->kda_layers, (long long)s->mla_layers,
           (long long)s->dense_layers, (long long)s->moe_layers, (long long)s->hidden);
    printf("vocabulary %s, context %s tokens", tri_human_count(a, (uint64_t)s->vocab),
           tri_human_count(b, (uint64_t)s->context_tokens));
    if (s->moe_layers)
        printf(", %lld experts of %lld x %lld, %lld run per token, %lld shared",
               (long long)s->experts, (long long)tri_spec_expert_width(s), (long long)s->moe_inter,
               (long long)s->topk, (long long)s->shared_experts);
    printf("\n\n");
}

static void tell_names(const char *kind, const json_t *list, uint64_t total)
{
    size_t i = 0;
    const json_t *name = NULL;
    json_array_foreach((json_t *)(uintptr_t)list, i, name)
    {
        printf("  %s  %s\n", kind, json_string_value(name));
    }
    if (total > json_array_size(list))
        printf("  %s  ... and %llu more\n", kind,
               (unsigned long long)(total - json_array_size(list)));
}

static int tell_table(const struct tri_spec *spec, const struct tri_spec_totals *t,
                      const struct compared *c)
{
    char a[TRI_HUMAN_BYTES], b[TRI_HUMAN_BYTES], u[TRI_HUMAN_BYTES];
    tell_shape(spec);
    printf("%-26s %21s %21s %9s\n", "part", "parameters", "bytes", "share");
    for (int i = 0; i < TRI_PARTS; i++)
        if (t->part[i].bytes)
            printf("%-26s %21s %21s %8.3f%%\n", tri_part_name((enum tri_part)i),
                   tri_human_count(a, t->part[i].parameters), tri_human_count(b, t->part[i].bytes),
                   100 * (double)t->part[i].bytes / (double)t->bytes);
    printf("%-26s %21s %21s  %s\n", "total", tri_human_count(a, t->parameters),
           tri_human_count(b, t->bytes), tri_human_bytes(u, t->bytes));
    printf("%-26s %21s\n", "active per token", tri_human_count(a, t->active_parameters));
    printf("%-26s %21s\n", "tensors", tri_human_count(a, t->tensors));
    if (!c->done)
        return TRI_EXIT_OK;
    printf("\n%s: %s tensors, %s bytes; %llu missing, %llu extra, %llu mismatched\n",
           c->from_index ? "index" : "files", tri_human_count(a, c->tensors),
           tri_human_count(b, c->bytes), (unsigned long long)c->report.missing,
           (unsigned long long)c->report.extra, (unsigned long long)c->report.mismatched);
    tell_names("missing   ", c->missing, c->report.missing);
    tell_names("extra     ", c->extra, c->report.extra);
    tell_names("mismatched", c->mismatched, c->report.mismatched);
    return TRI_EXIT_OK;
}

int tri_info_model(const struct tri_info_request *request)
{
    struct tri_spec spec;
    struct tri_spec_totals totals;
    struct tri_error err = { 0 };
    struct compared c = { .missing = json_array(),
                          .extra = json_array(),
                          .mismatched = json_array() };
    const struct tri_notes notes = { tri_info_note, NULL };
    int code = TRI_EXIT_OK;
    enum tri_status st =
        tri_spec_load(&spec, request->folder ? request->folder : request->config, &notes, &err);
    if (!st)
        st = compare(&c, request, &spec, &err);
    if (!st) {
        if (c.done)
            spec.experts_packed = c.report.experts_packed;
        tri_spec_sum(&spec, &totals);
    }
    if (st)
        code = tri_cli_fail(&err);
    else if (request->json)
        code = tell_json(&spec, &totals, &c);
    else
        code = tell_table(&spec, &totals, &c);
    json_decref(c.missing);
    json_decref(c.extra);
    json_decref(c.mismatched);
    return code;
}
