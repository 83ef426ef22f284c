/* Any bytes as a captured file: all text, XML and tar readers, all rules, all reports. */
#include <stdint.h>
#include <stdlib.h>

#include "doctor/doctor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct tri_doctor *d = NULL;
    struct tri_buf out;
    struct tri_error err = { 0 };
    if (tri_doctor_open(&d, &err))
        return 0;
    tri_buf_init(&out, TRI_DOCTOR_MAX_REPORT_BYTES);
    if (tri_doctor_read_bytes(d, "fuzz", (const char *)data, bytes, &err) == TRI_OK &&
        tri_doctor_judge(d, &err) == TRI_OK) {
        tri_doctor_write_text(d, true, &out);
        tri_doctor_write_json(d, &out);
        tri_doctor_write_html(d, &out);
        tri_doctor_write_steps(d, &out);
        if (out.failed || tri_doctor_findings(d) > TRI_DOCTOR_MAX_FINDINGS ||
            tri_doctor_machines(d) > TRI_MAX_MACHINES)
            abort();
        for (size_t i = 0; i < tri_doctor_machines(d); i++)
            if (tri_doctor_machine(d, i)->gpus > TRI_MAX_GPUS ||
                tri_doctor_machine(d, i)->pcis > TRI_MAX_PCI)
                abort();
    }
    tri_buf_fini(&out);
    tri_doctor_close(d);
    return 0;
}
