/* Engine profiles and wire costs, from data/engines.json. */
#include "plan/plan_priv.h"

#include <string.h>
#include "base/mem.h"

struct tri__profiles {
    json_t *json;
    struct tri_profile *row;
    int count;
    struct tri_wire_cost wire[TRI_WIRES];
};

static const char *const wire_names[TRI_WIRES] = { "self",     "nvlink",    "xgmi", "ub",
                                                   "pcie-p2p", "pcie-host", "ib",   "ethernet" };

const char *tri_wire_name(enum tri_wire wire)
{
    return wire_names[wire];
}

static void read_profile(struct tri_profile *p, const json_t *j)
{
    *p = (struct tri_profile){
        .id = tri__str(j, "id", "?"),
        .engine = tri__str(j, "engine", "*"),
        .basis = tri__str(j, "basis", "assumed"),
        .bw_eff = tri__num(j, "bw_eff", 0.75),
        .expert_eff = tri__num(j, "expert_eff", 0.65),
        .layer_us = tri__num(j, "layer_us", 60),
        .compute_eff = tri__num(j, "compute_eff", 0.5),
        .step_us = tri__num(j, "step_us", 0),
        .attn_eff = tri__num(j, "attn_eff", 0.875),
        .int4_eff = tri__num(j, "int4_eff", 0.5),
        .int4_layer_us = tri__num(j, "int4_layer_us", 45),
        .mx_eff = tri__num(j, "mx_eff", 0.83),
        .moe_layer_us = tri__num(j, "moe_layer_us", 0),
        .nvfp4_layer_us = tri__num(j, "nvfp4_layer_us", 0),
        .util = tri__num(j, "util", 0.9),
        .runtime_gib = tri__num(j, "runtime_gib", 1),
        .graph_gib = tri__num(j, "graph_gib", 1),
        .collective_gib = tri__num(j, "collective_gib", 0.4),
        .paging = tri__num(j, "paging", 1),
        .frag = tri__num(j, "frag", 0.1),
        .band = tri__num(j, "band", 0.5),
        .chunk_tokens = (int64_t)tri__num(j, "chunk_tokens", 8192),
        .prefill_first = json_is_true(json_object_get(j, "prefill_first")),
    };
}

enum tri_status tri__profiles_open(struct tri__profiles **out, struct tri_error *err)
{
    struct tri__profiles *p = tri_calloc(1, sizeof *p);
    enum tri_status status = p ? tri__plan_data(&p->json, "engines", err)
                               : tri_fail(err, TRI_NOMEM, "no memory for the engine table");
    if (status)
        goto fail;
    const json_t *rows = json_object_get(p->json, "profiles");
    p->count = (int)json_array_size(rows);
    p->row = tri_calloc((size_t)p->count, sizeof *p->row);
    if (!p->row) {
        status = tri_fail(err, TRI_NOMEM, "no memory for the engine table");
        goto fail;
    }
    for (int i = 0; i < p->count; i++)
        read_profile(&p->row[i], json_array_get(rows, (size_t)i));
    size_t k;
    json_t *path;
    json_array_foreach(json_object_get(p->json, "paths"), k,
                       path) for (int w = 0; w < TRI_WIRES;
                                  w++) if (!strcmp(wire_names[w], tri__str(path, "path", "")))
        p->wire[w] =
        (struct tri_wire_cost){ tri__num(path, "base_us", 0), tri__num(path, "per_rank_us", 0),
                                tri__num(path, "share", 1) };
    *out = p;
    return TRI_OK;
fail:
    tri__profiles_close(p);
    return status;
}

void tri__profiles_close(struct tri__profiles *profiles)
{
    if (!profiles)
        return;
    json_decref(profiles->json);
    tri_free(profiles->row);
    tri_free(profiles);
}

const struct tri_wire_cost *tri__wire_cost(const struct tri__profiles *profiles, enum tri_wire wire)
{
    return &profiles->wire[wire];
}

static bool arch_fits(const struct tri__profiles *p, int i, const struct tri_device *device)
{
    const json_t *row = json_array_get(json_object_get(p->json, "profiles"), (size_t)i);
    size_t k;
    json_t *arch;
    json_array_foreach(json_object_get(row, "arch"), k, arch)
    {
        const char *text = json_string_value(arch);
        if (!strcmp(text, "*") || !strncmp(device->arch, text, strlen(text)))
            return true;
    }
    return false;
}

enum tri_status tri__profiles_find(const struct tri_profile **out,
                                   const struct tri__profiles *profiles, const char *engine,
                                   const struct tri_device *device, struct tri_error *err)
{
    bool named = !strcmp(engine, "trtllm") || !strcmp(engine, "any");
    for (int i = 0; i < profiles->count; i++)
        named |= !strcmp(profiles->row[i].engine, engine);
    if (!named) {
        char safe[40];
        return tri_fail(err, TRI_ARG,
                        "%s is no engine known here: vllm, sglang, sglang-day0, trireme, trtllm, "
                        "any",
                        tri_printable(safe, sizeof safe, engine, strnlen(engine, 100)));
    }
    for (int i = 0; i < profiles->count; i++) {
        const char *of = profiles->row[i].engine;
        if ((!strcmp(of, engine) || !strcmp(of, "*")) && arch_fits(profiles, i, device)) {
            *out = &profiles->row[i];
            return TRI_OK;
        }
    }
    return tri_fail(err, TRI_ARG, "engine %s has no profile for %s", engine, device->name);
}
