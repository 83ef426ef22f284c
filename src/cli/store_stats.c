/* Counters of the expert store and times of steps, for people and for scripts. See store_stats.h.
 */
#include "cli/store_stats.h"

#include <inttypes.h>
#include "cli/human.h"

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

static double seconds(uint64_t ns)
{
    return (double)ns * 1e-9;
}

static double per_second(uint64_t bytes, uint64_t ns)
{
    return ns ? (double)bytes / seconds(ns) : 0;
}

static void print_drives(FILE *out, const struct tri_experts_stats *s)
{
    char bytes[32], rate[32];
    for (int i = 0; i < s->drives; i++) {
        const struct tri_drive_stats *d = &s->drive[i];
        fprintf(out, "  drive %-16d %12s in %" PRIu64 " reads, %s/s while busy (%s)\n", i + 1,
                tri_human_bytes(bytes, d->read_bytes), d->reads,
                tri_human_bytes(rate, (uint64_t)per_second(d->read_bytes, d->busy_ns)), d->file);
    }
}

void tri_store_print(FILE *out, const struct tri_experts_stats *s, uint64_t tokens)
{
    char bytes[32];
    if (s->records == 0)
        return;
    fprintf(out, "%-22s %12" PRIu64 " of %" PRIu64 " in RAM%s, read by %s%s\n", "experts",
            s->slots < s->records ? s->slots : s->records, s->records,
            s->all_resident ? ", all" : "", s->engine, s->direct ? " past the page cache" : "");
    if (s->all_resident)
        return;
    fprintf(out, "  %-20s %12" PRIu64 "\n", "wanted", s->wanted);
    fprintf(out, "  %-20s %12" PRIu64 " (%.1f %%) kept from earlier use\n", "reuse hits",
            s->reuse_hits, percent(s->reuse_hits, s->wanted));
    fprintf(out, "  %-20s %12" PRIu64 " (%.1f %%) read ahead; %" PRIu64 " of %" PRIu64 " wasted\n",
            "prefetch hits", s->prefetch_hits, percent(s->prefetch_hits, s->wanted),
            s->wasted_prefetches, s->prefetches);
    fprintf(out, "  %-20s %12" PRIu64 " (%.1f %%)\n", "misses", s->misses,
            percent(s->misses, s->wanted));
    fprintf(out, "  %-20s %12s a token\n", "read",
            tri_human_bytes(bytes, tokens ? s->read_bytes / tokens : 0));
    fprintf(out, "  %-20s %12.3f s of %.3f s that a drive was reading\n", "waited",
            seconds(s->wait_ns), seconds(s->reading_ns));
    print_drives(out, s);
}

static json_t *drives_json(const struct tri_experts_stats *s)
{
    json_t *list = json_array();
    for (int i = 0; i < s->drives; i++) {
        const struct tri_drive_stats *d = &s->drive[i];
        json_array_append_new(
            list, json_pack("{s:s,s:I,s:I,s:f,s:f}", "file", d->file, "reads", (json_int_t)d->reads,
                            "read_bytes", (json_int_t)d->read_bytes, "busy_s", seconds(d->busy_ns),
                            "bytes_per_s", per_second(d->read_bytes, d->busy_ns)));
    }
    return list;
}

json_t *tri_store_json(const struct tri_experts_stats *s, uint64_t tokens)
{
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = { { "slots", s->slots },
                   { "slot_bytes", s->slot_bytes },
                   { "experts", s->records },
                   { "expert_bytes", s->record_bytes },
                   { "steps", s->steps },
                   { "wanted", s->wanted },
                   { "reuse_hits", s->reuse_hits },
                   { "prefetch_hits", s->prefetch_hits },
                   { "misses", s->misses },
                   { "prefetches", s->prefetches },
                   { "wasted_prefetches", s->wasted_prefetches },
                   { "evictions", s->evictions },
                   { "read_bytes", s->read_bytes },
                   { "read_bytes_per_token", tokens ? s->read_bytes / tokens : 0 } };
    json_t *all = json_object();
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        json_object_set_new(all, counts[i].name, json_integer((json_int_t)counts[i].value));
    json_object_set_new(all, "wait_s", json_real(seconds(s->wait_ns)));
    json_object_set_new(all, "reading_s", json_real(seconds(s->reading_ns)));
    json_object_set_new(all, "engine", json_string(s->engine));
    json_object_set_new(all, "direct", json_boolean(s->direct));
    json_object_set_new(all, "all_resident", json_boolean(s->all_resident));
    json_object_set_new(all, "statistics_found", json_boolean(s->heats_found));
    json_object_set_new(all, "drives", drives_json(s));
    return all;
}

void tri_profile_print(FILE *out, const struct tri_profile *p)
{
    uint64_t all = 0;
    for (int i = 0; i < TRI_TIMES; i++)
        all += p->ns[i];
    if (all == 0)
        return;
    fprintf(out, "%-22s %12.3f s in %" PRIu64 " forward passes\n", "time", seconds(all), p->steps);
    for (int i = 0; i < TRI_TIMES; i++)
        if (p->ns[i])
            fprintf(out, "  %-20s %12.3f s %5.1f %%\n", tri_time_name((enum tri_time)i),
                    seconds(p->ns[i]), percent(p->ns[i], all));
}

json_t *tri_profile_json(const struct tri_profile *p)
{
    json_t *all = json_object();
    for (int i = 0; i < TRI_TIMES; i++)
        if (p->ns[i])
            json_object_set_new(all, tri_time_name((enum tri_time)i), json_real(seconds(p->ns[i])));
    return all;
}
