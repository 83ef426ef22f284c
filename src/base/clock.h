/* Time that only goes forward, whatever is done to the clock on the wall. */
#ifndef TRI_BASE_CLOCK_H
#define TRI_BASE_CLOCK_H

#include <stdint.h>

/* Since some moment before the process began. */
uint64_t tri_clock_ns(void);
double tri_clock_s(void);

#endif
