/*
 * The machine we run on as an input: its tree of /sys and /proc through topo, the outputs of the
 * vendors' tools as texts like any captured ones, the environment's NCCL settings, and on request
 * the measurements. Nothing needs root; more is said with it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "doctor/doctor_priv.h"
#include "doctor/measure.h"
#include "doctor/tools.h"

enum { ENVIRON_BYTES = 1 << 20 };

static enum tri_status run_tools(struct tri_doctor *d, unsigned limit_ms, struct tri_error *err)
{
    struct tri__tool_output tool[TRI__TOOLS];
    enum tri_status status = TRI_OK;
    tri__doctor_run_tools(tool, limit_ms);
    for (size_t i = 0; i < TRI__TOOLS; i++) {
        if (tool[i].timed_out)
            tri__doctor_cut(d, "%s did not end in time", tool[i].name);
        if (tool[i].useful && status == TRI_OK)
            status = tri_doctor_read_bytes(d, tool[i].name, tool[i].out.data, tool[i].out.len_bytes,
                                           err);
        tri_buf_fini(&tool[i].out);
    }
    return status;
}

/* NCCL_* and *_VISIBLE_DEVICES of our own environment, one a line, as if pasted. */
static enum tri_status read_environment(struct tri_doctor *d, struct tri_error *err)
{
    char *text = tri_malloc(ENVIRON_BYTES);
    size_t n = text ? tri_tree_bytes(d->root, "/proc/self/environ", text, ENVIRON_BYTES) : 0;
    struct tri_buf lines;
    enum tri_status status = TRI_OK;
    tri_buf_init(&lines, ENVIRON_BYTES);
    for (size_t at = 0; at < n;) {
        size_t len = strnlen(text + at, n - at);
        if (!strncmp(text + at, "NCCL_", 5) || !strncmp(text + at, "RCCL_", 5)) {
            tri_buf_add(&lines, text + at, len);
            tri_buf_putc(&lines, '\n');
        }
        at += len + 1;
    }
    if (lines.len_bytes)
        status = tri_doctor_read_bytes(d, "environment", lines.data, lines.len_bytes, err);
    tri_buf_fini(&lines);
    tri_free(text);
    return status;
}

static void measure(struct tri_doctor *d, const struct tri_doctor_options *options)
{
    struct tri_machine *m = d->machines.list[d->live_machine - 1];
    struct tri_error why = { 0 };
    char load[64];
    d->measured = true;
    if (tri_tree_read(d->root, "/proc/loadavg", load, sizeof load))
        d->load = strtod(load, NULL);
    if (tri__doctor_measure_memory(m->memory.available_bytes, &d->memory_gbs, &d->memory_threads,
                                   &why))
        tri__doctor_note(d, "memory was not measured: %s", why.text);
    why = (struct tri_error){ 0 };
    if (tri__doctor_measure_drive(options->measure_dir, &d->drive_gbs, &d->drive_4k_iops, &why))
        tri__doctor_note(d, "the drive was not measured: %s", why.text);
}

enum tri_status tri_doctor_read_live(struct tri_doctor *d, const struct tri_doctor_options *options,
                                     struct tri_error *err)
{
    TRI_ASSERT(!d->judged && !d->root);
    enum tri_status status = tri_tree_open_folder(&d->root, options->root, err);
    if (status)
        return status;
    d->live = tri_tree_is_live(d->root);
    d->kind_seen |= TRI__KIND_HOST;
    d->kinds++;
    if (d->machines.count == TRI_MAX_MACHINES)
        return tri_fail(err, TRI_LIMIT, "more than %d machines", TRI_MAX_MACHINES);
    struct tri_machine *m = NULL;
    status = tri_topo_live(&m, d->root, options->root, err);
    if (status)
        return status;
    d->machines.list[d->machines.count++] = m;
    d->live_machine = d->machines.count;
    if (!d->live)
        return TRI_OK;
    status = run_tools(d, options->tools_ms ? options->tools_ms : 1500, err);
    if (status == TRI_OK)
        status = read_environment(d, err);
    d->uring = tri__doctor_uring_allowed();
    if (status == TRI_OK && options->measure)
        measure(d, options);
    return status;
}
