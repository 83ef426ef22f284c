/* The kernels of lanes/ for aarch64, whose baseline has NEON. */
#if defined(__aarch64__)
#define TRI_LANES(op) tri__base_##op
#include "kernels/lanes/lanes.h"
#endif
