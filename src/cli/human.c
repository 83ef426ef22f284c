/* Thousands separators and binary units. See human.h. */
#include "cli/human.h"

#include <stdio.h>
#include <string.h>

const char *tri_human_count(char out[TRI_HUMAN_BYTES], uint64_t n)
{
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n), at = 0;
    for (int i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0)
            out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = 0;
    return out;
}

const char *tri_human_bytes(char out[TRI_HUMAN_BYTES], uint64_t bytes)
{
    static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    double value = (double)bytes;
    int u = 0;
    for (; value >= 1024 && u < 6; u++)
        value /= 1024;
    int decimals = u == 0 ? 0 : value < 10 ? 2 : value < 100 ? 1 : 0;
    snprintf(out, TRI_HUMAN_BYTES, "%.*f %s", decimals, value, unit[u]);
    return out;
}
