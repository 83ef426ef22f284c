/*
 * How many descriptors this process may have open (RLIMIT_NOFILE, getrlimit(2)). The soft limit is
 * often 1024 for the sake of select(2), which nothing here uses, while the hard one is far higher.
 */
#ifndef TRI_OS_DESCRIPTORS_H
#define TRI_OS_DESCRIPTORS_H

#include <stdint.h>

/* Raises the soft limit to `want` as far as the hard one lets it; never lowers it. The limit now.
 */
int64_t tri_descriptors_raise(int64_t want);

/* Descriptors open now (an upper estimate where /proc is not there: the highest one that is). */
int64_t tri_descriptors_open(void);

#endif
