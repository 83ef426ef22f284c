/*
 * Reads start-up logs of engines (vLLM, SGLang and their kin) and kernel logs: only the lines whose
 * wording states a fact about memory, paths or speed.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "doctor/doctor_priv.h"

enum { MAX_PREEMPTIONS = 1000000000 }; /* a log that tells of more is not believed */

/* The number after `key` (commas inside are thousands); 0 when the key is absent. */
static double number_after(const char *text, const char *key)
{
    const char *p = tri_text_find(text, key);
    if (!p)
        return 0;
    p += strlen(key);
    p += strspn(p, " :=\t~");
    char digits[48];
    size_t n = 0;
    for (; (isdigit((unsigned char)*p) || *p == ',' || *p == '.') && n + 1 < sizeof digits; p++)
        if (*p != ',')
            digits[n++] = *p;
    digits[n] = 0;
    return n ? strtod(digits, NULL) : 0;
}

static void once(struct tri__spot *to, struct tri__spot at)
{
    if (to->text < 0)
        *to = at;
}

/* "tensor_parallel_size=8", "--tensor-parallel-size 8", "tp_size=8" */
static long parallel(const char *text, const char *const *keys, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double v = number_after(text, keys[i]);
        if (v >= 1 && v < 4096)
            return (long)v;
    }
    return 0;
}

static bool read_sizes(struct tri__engine *e, const char *text)
{
    static const char *const tp[] = { "tensor_parallel_size=", "tensor-parallel-size", "tp_size=" };
    static const char *const pp[] = { "pipeline_parallel_size=", "pipeline-parallel-size",
                                      "pp_size=" };
    static const char *const dp[] = { "data_parallel_size=", "data-parallel-size", "dp_size=" };
    long t = parallel(text, tp, 3), p = parallel(text, pp, 3), q = parallel(text, dp, 3);
    e->tp = t ? t : e->tp;
    e->pp = p ? p : e->pp;
    e->dp = q ? q : e->dp;
    return t || p || q;
}

static bool read_cache(struct tri__engine *e, const char *text, struct tri__spot at)
{
    double gib = number_after(text, "Available KV cache memory");
    if (gib <= 0 && tri_text_find(text, "KV Cache is allocated")) /* SGLang: GB as 2^30 */
        gib = number_after(text, "KV size");
    double tokens = number_after(text, "GPU KV cache size");
    double sg = number_after(text, "max_total_num_tokens");
    if (sg <= 0 && tri_text_find(text, "KV Cache is allocated"))
        sg = number_after(text, "#tokens");
    double x = number_after(text, "Maximum concurrency for");
    if (gib > 0)
        e->kv_gib = gib;
    if (tokens > 0 || sg > 0)
        e->kv_tokens = tokens > 0 ? tokens : sg;
    if (gib > 0 || tokens > 0 || sg > 0)
        once(&e->kv_spot, at);
    if (x > 0) { /* "Maximum concurrency for 1,048,576 tokens per request: 3.10x" */
        e->concurrency_tokens = x;
        e->concurrency = number_after(text, "tokens per request");
        e->concurrency_spot = at;
    }
    return gib > 0 || tokens > 0 || sg > 0 || x > 0;
}

static bool read_load(struct tri__engine *e, const char *text, struct tri__spot at)
{
    double seconds = number_after(text, "Loading weights took");
    double gib = number_after(text, "Model loading took");
    if (seconds > 0)
        e->load_seconds = seconds;
    if (gib > 0) { /* "Model loading took 15.52 GiB and 100.1 seconds" */
        double both = number_after(text, "GiB and");
        e->load_gib = gib;
        e->load_seconds = both > 0 ? both : e->load_seconds;
    }
    if (seconds > 0 || gib > 0)
        once(&e->load_spot, at);
    return seconds > 0 || gib > 0;
}

static bool read_refusal(struct tri__engine *e, const char *text, struct tri__spot at)
{
    static const char *const memory[] = { "No available memory for the cache blocks",
                                          "CUDA out of memory", "HIP out of memory",
                                          "torch.OutOfMemoryError", "Not enough memory" };
    static const char *const length[] = {
        "is larger than the maximum number of tokens that can be stored in KV cache",
        "To serve at least one request with the models's max seq len",
        "larger than the available KV cache memory"
    };
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
        if (tri_text_find(text, memory[i])) {
            once(&e->no_memory, at);
            return true;
        }
    for (size_t i = 0; i < sizeof length / sizeof length[0]; i++)
        if (tri_text_find(text, length[i])) {
            once(&e->too_long, at);
            return true;
        }
    if (tri_text_find(text, "is preempted by") || tri_text_find(text, "Retract requests") ||
        tri_text_find(text, "KV cache pool is full")) {
        /* older vLLM tells every 50th only, with their number so far */
        double told = number_after(text, "total_num_cumulative_preemption");
        e->preemptions++;
        if (told > (double)e->preemptions && told <= MAX_PREEMPTIONS)
            e->preemptions = (size_t)told;
        once(&e->preempted, at);
        return true;
    }
    bool all = tri_text_find(text, "Custom allreduce is disabled") ||
               tri_text_find(text, "custom all-reduce is disabled");
    if (all) {
        once(&e->no_allreduce, at);
        e->allreduce_no_p2p |= tri_text_find(text, "P2P") != NULL;
    }
    return all;
}

/* "TP=4 ... 812.3 tokens/s": a person's own comparison, or an engine's throughput line. */
static bool read_scaling(struct tri__engine *e, const char *text, struct tri__spot at)
{
    static const char *const keys[] = { "TP=", "TP ", "tp=", "tp " };
    const char *unit = tri_text_find(text, "tok/s");
    if (!unit)
        unit = tri_text_find(text, "tokens/s");
    long tp = 0;
    for (size_t i = 0; i < 4 && !tp; i++)
        tp = (long)number_after(text, keys[i]);
    if (!unit || tp < 1 || tp > 8 || (tp & (tp - 1)))
        return false;
    const char *p = unit;
    while (p > text && p[-1] == ' ')
        p--;
    const char *end = p;
    while (p > text && (isdigit((unsigned char)p[-1]) || p[-1] == '.' || p[-1] == ','))
        p--;
    double rate = end > p ? strtod(p, NULL) : 0;
    int slot = tp == 1 ? 0 : tp == 2 ? 1 : tp == 4 ? 2 : 3;
    if (rate <= 0)
        return false;
    e->tp_rate[slot] = rate;
    e->tp_spot[slot] = at;
    return true;
}

void tri__doctor_words_engine(struct tri_sieve *sieve)
{
    tri_sieve_words(sieve, TRI__HIT_CACHE,
                    "Available KV cache memory|KV Cache is allocated|GPU KV cache size|"
                    "max_total_num_tokens|Maximum concurrency for");
    tri_sieve_words(sieve, TRI__HIT_LOAD, "Loading weights took|Model loading took");
    tri_sieve_words(sieve, TRI__HIT_REFUSAL,
                    "No available memory for|out of memory|OutOfMemoryError|Not enough memory|"
                    "larger than the maximum number of tokens|To serve at least one request|"
                    "larger than the available KV|is preempted by|Retract requests|"
                    "KV cache pool is full|allreduce is disabled|all-reduce is disabled");
    tri_sieve_words(sieve, TRI__HIT_SIZES,
                    "tensor_parallel_size=|tensor-parallel-size|tp_size=|pipeline_parallel_size=|"
                    "pipeline-parallel-size|pp_size=|data_parallel_size=|data-parallel-size|"
                    "dp_size=");
    tri_sieve_words(sieve, TRI__HIT_SCALING, "tok/s|tokens/s");
}

size_t tri__doctor_read_engine(struct tri_doctor *d, struct tri__spot at)
{
    struct tri__engine *e = &d->engine;
    const char *text = tri__doctor_line(d, at);
    bool taken = tri__doctor_hit(d, TRI__HIT_CACHE) && read_cache(e, text, at);
    taken |= tri__doctor_hit(d, TRI__HIT_LOAD) && read_load(e, text, at);
    taken |= tri__doctor_hit(d, TRI__HIT_REFUSAL) && read_refusal(e, text, at);
    taken |= tri__doctor_hit(d, TRI__HIT_SIZES) && read_sizes(e, text);
    taken |= tri__doctor_hit(d, TRI__HIT_SCALING) && read_scaling(e, text, at);
    e->lines += taken;
    d->kind_seen |= taken ? TRI__KIND_ENGINE : 0;
    return taken;
}

static void keep(struct tri__spot *list, size_t *count, struct tri__spot at)
{
    if (*count < TRI__EVENTS)
        list[(*count)++] = at;
}

const struct tri__complaint *tri__doctor_complaint(const char *line)
{
    static const struct tri__complaint complaints[] = {
        { "Error 802", "gpu_fabric", "CUDA finds the NVLink fabric not ready",
          "sudo systemctl restart nvidia-fabricmanager; nvidia-smi -q | grep -A3 Fabric" },
        { "CUDA_ERROR_SYSTEM_NOT_READY", "gpu_fabric", "CUDA finds the NVLink fabric not ready",
          "sudo systemctl restart nvidia-fabricmanager; nvidia-smi -q | grep -A3 Fabric" },
        { "Unable to determine the device handle for", "gpu_driver", "a GPU does not answer",
          "dmesg | grep -i -E 'xid|fallen off'   # power, riser, heat; then a cold restart" },
        { "GPU is lost", "gpu_driver", "a GPU does not answer",
          "dmesg | grep -i -E 'xid|fallen off'   # power, riser, heat; then a cold restart" },
        { "couldn't communicate with the NVIDIA driver", "gpu_driver",
          "the NVIDIA driver is not loaded", "dkms status; sudo modprobe nvidia; dmesg | tail" },
        { "Driver/library version mismatch", "gpu_driver",
          "the driver in the kernel is older than its libraries", "sudo reboot" },
        { "No devices were found", "gpu_driver", "the driver finds no GPU",
          "lspci -nn | grep -i nvidia; dmesg | grep -i nvrm" },
    };
    for (size_t i = 0; i < sizeof complaints / sizeof complaints[0]; i++)
        if (tri_text_find(line, complaints[i].words))
            return &complaints[i];
    return NULL;
}

void tri__doctor_words_kernel(struct tri_sieve *sieve)
{
    tri_sieve_words(
        sieve, TRI__HIT_KERNEL,
        "IO_PAGE_FAULT|DMAR:|available PCIe bandwidth|NVRM: Xid|SXid (PCI|NVRM: fallen off|"
        "PCIe Bus Error|AER: |Out of memory: Killed|cgroup out of memory");
    tri_sieve_words(sieve, TRI__HIT_KERNEL, /* tri__doctor_complaint */
                    "Error 802|SYSTEM_NOT_READY|Unable to determine the device handle|GPU is lost|"
                    "communicate with the NVIDIA driver|library version mismatch|"
                    "No devices were found");
}

size_t tri__doctor_read_kernel(struct tri_doctor *d, struct tri__spot at)
{
    struct tri__kernel *k = &d->kernel;
    const char *text = tri__doctor_line(d, at);
    size_t before = k->limiteds + k->xids + k->aers + k->ooms + k->iommus + k->drivers;
    if (tri_text_find(text, "IO_PAGE_FAULT") ||
        (tri_text_find(text, "DMAR:") && tri_text_find(text, "fault addr")))
        keep(k->iommu, &k->iommus, at);
    else if (tri_text_find(text, "Gb/s available PCIe bandwidth (")) {
        if (k->full.text < 0)
            k->full = at;
        d->kind_seen |= TRI__KIND_KERNEL;
        return 1;
    } else if (tri_text_find(text, "available PCIe bandwidth, limited by"))
        keep(k->limited, &k->limiteds, at);
    else if (tri_text_find(text, "NVRM: Xid") || tri_text_find(text, "SXid (PCI") ||
             tri_text_find(text, "NVRM: fallen off the bus")) /* without a number, at probing */
        keep(k->xid, &k->xids, at);
    else if (tri_text_find(text, "PCIe Bus Error: severity=") ||
             tri_text_find(text, "AER: Corrected error") || tri_text_find(text, "AER: Uncorrect"))
        keep(k->aer, &k->aers, at);
    else if (tri_text_find(text, "Out of memory: Killed process") ||
             tri_text_find(text, "Memory cgroup out of memory"))
        keep(k->oom, &k->ooms, at);
    else if (tri__doctor_complaint(text))
        keep(k->driver, &k->drivers, at);
    bool taken = k->limiteds + k->xids + k->aers + k->ooms + k->iommus + k->drivers > before;
    d->kind_seen |= taken ? TRI__KIND_KERNEL : 0;
    return taken;
}
