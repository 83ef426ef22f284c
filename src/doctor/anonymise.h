/*
 * Takes what names people and machines out of text that is sent to strangers: host and user names,
 * addresses, serial numbers, UUIDs, GUIDs. Bus ids, versions and rates stay. Inside doctor.
 */
#ifndef TRI_DOCTOR_ANONYMISE_H
#define TRI_DOCTOR_ANONYMISE_H

#include "base/buf.h"

struct tri__names {
    char host[65], user[65]; /* "" none */
};

/* The names of this machine and of whoever runs us. */
void tri__doctor_own_names(struct tri__names *names);

/* Appends the cleaned text. */
void tri__doctor_anonymise(const struct tri__names *names, const char *text, size_t bytes,
                           struct tri_buf *out);

#endif
