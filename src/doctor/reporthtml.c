/* The report as one HTML file. */
#include "doctor/doctor_priv.h"

void tri_doctor_write_html(const struct tri_doctor *d, struct tri_buf *out)
{
    (void)d;
    (void)out;
}
