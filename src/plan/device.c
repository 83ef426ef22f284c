/* The device table: reading data/devices.json and finding a device as people name it. */
#include "plan/plan_priv.h"

#include <stdio.h>
#include <string.h>
#include "base/mem.h"

struct tri_devices {
    json_t *json;
    struct tri_device *row;
    int count;
};

static void range(const json_t *object, const char *key, double *low, double *high)
{
    const json_t *pair = json_object_get(object, key);
    *low = json_number_value(json_array_get(pair, 0));
    *high = json_number_value(json_array_get(pair, 1));
}

static enum tri_device_kind kind_of(const char *text)
{
    return !strcmp(text, "cpu")     ? TRI_DEVICE_CPU
           : !strcmp(text, "nvme")  ? TRI_DEVICE_NVME
           : !strcmp(text, "apple") ? TRI_DEVICE_APPLE
                                    : TRI_DEVICE_GPU;
}

static void read_row(struct tri_device *d, const json_t *j)
{
    *d = (struct tri_device){
        .name = tri__str(j, "name", "?"),
        .vendor = tri__str(j, "vendor", ""),
        .arch = tri__str(j, "arch", ""),
        .sold_as = tri__str(j, "sold_as", ""),
        .link = tri__str(j, "link", ""),
        .notes = tri__str(j, "notes", ""),
        .sources = tri__str(j, "sources", ""),
        .kind = kind_of(tri__str(j, "kind", "gpu")),
        .mem_gib = tri__num(j, "mem_gib", 0),
        .usable = tri__num(j, "usable", 1),
        .bw_gbs = tri__num(j, "bw_gbs", 0),
        .bf16_tflops = tri__num(j, "bf16_tflops", 0),
        .fp8_tflops = tri__num(j, "fp8_tflops", 0),
        .fp4_tflops = tri__num(j, "fp4_tflops", 0),
        .int8_tops = tri__num(j, "int8_tops", 0),
        .link_gbs = tri__num(j, "link_gbs", 0),
        .pair_gbs = tri__num(j, "pair_gbs", 0),
        .bus_gbs = tri__num(j, "bus_gbs", 0),
        .pcie_gbs = tri__num(j, "pcie_gbs", 0),
        .nic_gbs = tri__num(j, "nic_gbs", 0),
        .disk_gbs = tri__num(j, "disk_gbs", 0),
        .disk_gb = tri__num(j, "disk_gb", 0),
        .tdp_w = tri__num(j, "tdp_w", 0),
        .kw = tri__num(j, "kw", 0),
        .own_usd_h = tri__num(j, "own_usd_h", 0),
        .domain = (int)tri__num(j, "domain", 1),
        .box = (int)tri__num(j, "box", 1),
        .drives = (int)tri__num(j, "drives", 0),
        .p2p = json_is_true(json_object_get(j, "p2p")),
        .native_fp8 = json_is_true(json_object_get(j, "native_fp8")),
        .native_fp4 = json_is_true(json_object_get(j, "native_fp4")),
        .doubt = json_object_get(j, "doubt"),
    };
    range(j, "price_usd", &d->price_low, &d->price_high);
    range(j, "rent_usd_h", &d->rent_low, &d->rent_high);
}

enum tri_status tri_devices_open(struct tri_devices **out, struct tri_error *err)
{
    struct tri_devices *d = tri_calloc(1, sizeof *d);
    enum tri_status status = d ? tri__plan_data(&d->json, "devices", err)
                               : tri_fail(err, TRI_NOMEM, "no memory for the device table");
    if (status)
        goto fail;
    const json_t *rows = json_object_get(d->json, "devices");
    d->count = (int)json_array_size(rows);
    d->row = tri_calloc((size_t)d->count, sizeof *d->row);
    if (!d->row) {
        status = tri_fail(err, TRI_NOMEM, "no memory for the device table");
        goto fail;
    }
    for (int i = 0; i < d->count; i++)
        read_row(&d->row[i], json_array_get(rows, (size_t)i));
    *out = d;
    return TRI_OK;
fail:
    tri_devices_close(d);
    return status;
}

void tri_devices_close(struct tri_devices *devices)
{
    if (!devices)
        return;
    json_decref(devices->json);
    tri_free(devices->row);
    tri_free(devices);
}

int tri_devices_count(const struct tri_devices *devices)
{
    return devices->count;
}

const struct tri_device *tri_devices_at(const struct tri_devices *devices, int i)
{
    return &devices->row[i];
}

bool tri_device_doubts(const struct tri_device *device, const char *field)
{
    size_t i;
    json_t *value;
    json_array_foreach((json_t *)(uintptr_t)device->doubt, i,
                       value) if (!strcmp(json_string_value(value), field)) return true;
    return false;
}

/* 2: the name or an alias; 1: one of them begins so; 0: neither. */
static int matches(const struct tri_devices *devices, int i, const char *wanted)
{
    char plain[80];
    const json_t *row = json_array_get(json_object_get(devices->json, "devices"), (size_t)i);
    tri__plain(plain, sizeof plain, devices->row[i].name);
    int best = !strcmp(plain, wanted) ? 2 : !strncmp(plain, wanted, strlen(wanted)) ? 1 : 0;
    size_t k;
    json_t *alias;
    json_array_foreach(json_object_get(row, "aliases"), k, alias)
    {
        tri__plain(plain, sizeof plain, json_string_value(alias));
        if (!strcmp(plain, wanted))
            best = 2;
    }
    return best;
}

/* The names that share the longest beginning with what was asked. */
static void suggest(const struct tri_devices *devices, const char *wanted, char *out,
                    size_t out_bytes)
{
    size_t best = 1, at = 0;
    char plain[80];
    out[0] = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < devices->count; i++) {
            size_t same = 0;
            tri__plain(plain, sizeof plain, devices->row[i].name);
            while (plain[same] && plain[same] == wanted[same])
                same++;
            if (!pass && same > best)
                best = same;
            if (pass && same == best && at + 40 < out_bytes)
                at += (size_t)snprintf(out + at, out_bytes - at, "%s%s", at ? ", " : "",
                                       devices->row[i].name);
        }
}

enum tri_status tri_devices_find(const struct tri_device **out, const struct tri_devices *devices,
                                 const char *name, struct tri_error *err)
{
    char wanted[80], near[240], safe[64];
    int found = -1, begins = 0, first = -1;
    tri__plain(wanted, sizeof wanted, name);
    for (int i = 0; i < devices->count && found < 0 && *wanted; i++) {
        int match = matches(devices, i, wanted);
        if (match == 2)
            found = i;
        if (match == 1 && begins++ == 0)
            first = i;
    }
    if (found < 0 && begins == 1)
        found = first;
    if (found >= 0) {
        *out = &devices->row[found];
        return TRI_OK;
    }
    suggest(devices, wanted, near, sizeof near);
    tri_printable(safe, sizeof safe, name, strnlen(name, 200));
    if (begins > 1)
        return tri_fail(err, TRI_ARG, "%s may be any of %s: name one of them", safe, near);
    return tri_fail(err, TRI_ARG, "%s is no device known here%s%s; --list devices shows all", safe,
                    *near ? "; near it: " : "", near);
}
