/*
 * Any bytes as a captured file: all text, XML, JSON and tar readers and all rules; of the reports
 * one, chosen by the input, since together they cost more than everything else. Every fourth input
 * is also read with the sieve off, and both reports must be the same.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "doctor/doctor_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static struct tri_doctor *judged(const uint8_t *data, size_t bytes, bool unsieved)
{
    struct tri_doctor *d = NULL;
    if (tri_doctor_open(&d, NULL))
        return NULL;
    d->unsieved = unsieved;
    if (tri_doctor_read_bytes(d, "fuzz", (const char *)data, bytes, NULL) ||
        tri_doctor_judge(d, NULL)) {
        tri_doctor_close(d);
        return NULL;
    }
    return d;
}

static void check_limits(const struct tri_doctor *d, const struct tri_buf *out)
{
    if (out->failed || tri_doctor_findings(d) > TRI_DOCTOR_MAX_FINDINGS ||
        tri_doctor_machines(d) > TRI_MAX_MACHINES)
        abort();
    for (size_t i = 0; i < tri_doctor_machines(d); i++)
        if (tri_doctor_machine(d, i)->gpus > TRI_MAX_GPUS ||
            tri_doctor_machine(d, i)->pcis > TRI_MAX_PCI)
            abort();
}

/* The same report without the sieve: it has held nothing back. */
static void compare(const uint8_t *data, size_t bytes, const struct tri_buf *sieved)
{
    struct tri_doctor *d = judged(data, bytes, true);
    struct tri_buf out;
    if (!d)
        abort();
    tri_buf_init(&out, TRI_DOCTOR_MAX_REPORT_BYTES);
    tri_doctor_write_json(d, &out);
    if (out.len_bytes != sieved->len_bytes || memcmp(out.data, sieved->data, out.len_bytes))
        abort();
    tri_buf_fini(&out);
    tri_doctor_close(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct tri_doctor *d = judged(data, bytes, false);
    struct tri_buf out;
    unsigned sum = 0;
    if (!d)
        return 0;
    for (size_t i = 0; i < bytes; i++)
        sum += data[i];
    tri_buf_init(&out, TRI_DOCTOR_MAX_REPORT_BYTES);
    if (sum % 4 == 0)
        tri_doctor_write_json(d, &out);
    else if (sum % 4 == 1)
        tri_doctor_write_text(d, true, &out);
    else if (sum % 4 == 2)
        tri_doctor_write_html(d, &out);
    else
        tri_doctor_write_steps(d, &out);
    check_limits(d, &out);
    if (sum % 4 == 0)
        compare(data, bytes, &out);
    tri_buf_fini(&out);
    tri_doctor_close(d);
    return 0;
}
