/* What a slow path costs in tokens/s: the planner, asked for the doctor. */
#ifndef TRI_CLI_DOCTOR_PRICE_H
#define TRI_CLI_DOCTOR_PRICE_H

#include "doctor/doctor.h"

/* One per report. Zeroed to begin with; nothing to release. */
struct tri_pricing {
    char device[64]; /* of which `model` is the largest that fits */
    size_t gpus;
    const char *model; /* NULL: none fits, or not asked yet */
    struct {
        struct tri_doctor_question question;
        struct tri_doctor_price price;
    } known[16]; /* questions repeat; the device is the same */
    size_t knowns;
};

/* A tri_doctor_pricer; `arg` is a struct tri_pricing. */
bool tri_doctor_price(void *arg, const struct tri_doctor_question *question,
                      struct tri_doctor_price *out);

#endif
