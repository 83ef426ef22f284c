/*
 * What --machine takes: hwloc and NCCL topology XML, whatever text the doctor's readers know
 * (nvidia-smi topo -m, -p2p and -q, rocm-smi, amd-smi, lspci, lstopo, several in one file), and
 * `trireme doctor --json`, which is how a gathered tar or a live machine gets here. All of them end
 * as one tri_machine.
 */
#include "plan/plan_priv.h"

#include <stdio.h>
#include <string.h>
#include "base/lines.h"
#include "base/mem.h"

/* The first character that says what a file is: lines of '#' before it are comments. */
static char first_sign(const char *text)
{
    const char *p = text + strspn(text, " \t\r\n\xef\xbb\xbf");
    while (*p == '#') {
        p += strcspn(p, "\n");
        p += strspn(p, " \t\r\n");
    }
    return *p;
}

/* ---- trireme doctor --json ------------------------------------------------------------------ */

static enum tri_path path_named(const char *name)
{
    for (int i = TRI_PATH_UNKNOWN; i <= TRI_PATH_PCIE; i++)
        if (!strcmp(tri_path_name((enum tri_path)i), name))
            return (enum tri_path)i;
    return TRI_PATH_UNKNOWN;
}

static enum tri_p2p p2p_named(const char *name)
{
    for (int i = TRI_P2P_UNKNOWN; i <= TRI_P2P_DISABLED; i++)
        if (!strcmp(tri_p2p_name((enum tri_p2p)i), name))
            return (enum tri_p2p)i;
    return TRI_P2P_UNKNOWN;
}

static void copy_text(char *out, size_t out_bytes, const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    snprintf(out, out_bytes, "%s", text ? text : "");
}

static uint64_t bytes_of(const json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));
    return value > 0 ? (uint64_t)value : 0;
}

static void read_paths(struct tri_machine *m, size_t a, const json_t *gpu)
{
    size_t i;
    json_t *path;
    json_array_foreach(json_object_get(gpu, "paths"), i, path)
    {
        json_int_t to = json_integer_value(json_object_get(path, "to"));
        if (to < 0 || (size_t)to >= m->gpus || (size_t)to == a)
            continue;
        struct tri_pair *p = tri_machine_pair(m, a, (size_t)to);
        double links = json_number_value(json_object_get(path, "links"));
        p->path = path_named(tri__str(path, "path", "?"));
        p->p2p = p2p_named(tri__str(path, "p2p", "?"));
        p->links = links > 0 && links < 1000 ? (int)links : 0;
        double gbs = json_number_value(json_object_get(path, "gbs"));
        p->link_gbs = gbs > 0 && gbs < 1e6 ? gbs : 0;
    }
}

static enum tri_status read_doctor_machine(struct tri_machine **out, const json_t *j,
                                           struct tri_error *err)
{
    size_t i;
    json_t *gpu;
    struct tri_machine *m = NULL;
    enum tri_status status = tri_machine_open(&m, err);
    json_array_foreach(json_object_get(j, "gpus"), i, gpu)
    {
        struct tri_gpu *g = status ? NULL : tri_machine_add_gpu(m);
        if (!status && !g)
            status = tri_fail(err, TRI_LIMIT, "more than %d GPUs in one machine", TRI_MAX_GPUS);
        if (status)
            break;
        copy_text(g->name, sizeof g->name, gpu, "name");
        copy_text(g->bdf, sizeof g->bdf, gpu, "bus_id");
        g->memory_bytes = bytes_of(gpu, "memory_bytes");
    }
    if (status) {
        tri_machine_close(m);
        return status;
    }
    json_array_foreach(json_object_get(j, "gpus"), i, gpu) read_paths(m, i, gpu);
    m->memory.total_bytes = bytes_of(j, "memory_bytes");
    *out = m;
    return TRI_OK;
}

/* Of several machines the one with most GPUs. */
static enum tri_status read_doctor(struct tri_machine **out, const char *path, const char *text,
                                   size_t bytes, struct tri_error *err)
{
    json_t *root = NULL;
    enum tri_status status = tri_json_parse(&root, path, text, bytes, TRI_LINES_MAX_BYTES, err);
    if (status)
        return status;
    const json_t *machines = json_object_get(root, "machines"), *best = NULL;
    for (size_t i = 0; i < json_array_size(machines); i++) {
        const json_t *m = json_array_get(machines, i);
        size_t have = best ? json_array_size(json_object_get(best, "gpus")) : 0;
        if (!best || json_array_size(json_object_get(m, "gpus")) > have)
            best = m;
    }
    if (!best)
        status = tri_fail(err, TRI_FORMAT,
                          "%s: JSON without 'machines': --machine takes what trireme doctor --json "
                          "prints",
                          path);
    else
        status = read_doctor_machine(out, best, err);
    json_decref(root);
    return status;
}

/* ---- text of the vendors' tools ------------------------------------------------------------- */

static enum tri_status read_text(struct tri_machine **out, const char *path, const char *text,
                                 size_t bytes, struct tri_error *err)
{
    struct tri_lines lines;
    struct tri_machines set = { .count = 0 };
    enum tri_status status = tri_lines_init(&lines, text, bytes, err);
    if (status)
        return status;
    tri_topo_read_lines(&set, path, &lines);
    tri_lines_fini(&lines);
    size_t best = 0;
    for (size_t i = 0; i < set.count; i++) {
        tri_machine_join(set.list[i]);
        best = set.list[i]->gpus > set.list[best]->gpus ? i : best;
    }
    if (set.count && (set.list[best]->gpus || set.list[best]->memory.total_bytes)) {
        *out = set.list[best];
        set.list[best] = set.list[--set.count];
    } else {
        status =
            tri_fail(err, TRI_FORMAT,
                     "%s: no machine in it: --machine takes hwloc or NCCL XML, nvidia-smi topo "
                     "-m and its like, or what trireme doctor --json prints",
                     path);
    }
    tri_machines_fini(&set);
    return status;
}

enum tri_status tri__capture_open(struct tri_machine **out, const char *path, struct tri_error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    enum tri_status status = tri_read_file(&text, &bytes, path, TRI_LINES_MAX_BYTES, err);
    if (status)
        return status;
    char sign = first_sign(text);
    if (bytes > 262 && !memcmp(text + 257, "ustar", 5))
        status = tri_fail(err, TRI_FORMAT,
                          "%s: a gathered tar: run trireme doctor on it with --json and give that "
                          "to --machine",
                          path);
    else if (sign == '<')
        status = tri_topo_load_xml(out, path, err);
    else if (sign == '{')
        status = read_doctor(out, path, text, bytes, err);
    else
        status = read_text(out, path, text, bytes, err);
    tri_free(text);
    return status;
}
