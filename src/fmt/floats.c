/*
 * Single values: f16, e4m3, e2m1, e8m0 to float32 and back. Encoding works on the bits of the
 * float32, so that the result does not depend on the rounding mode. Sources: fmt.h.
 */
#include "fmt/fmt.h"

#include <string.h>

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

enum { F32_INF = 0x7f800000, F32_MANTISSA = 0x007fffff };

/* bits >> shift, rounded to nearest, ties to even; shift 1..31. */
static uint32_t shift_round(uint32_t bits, int shift)
{
    uint32_t half = (UINT32_C(1) << (shift - 1)) - 1;
    return (bits + half + ((bits >> shift) & 1)) >> shift;
}

float tri_f16_decode(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    uint32_t exponent = (bits >> 10) & 31, mantissa = bits & 0x3ff;
    if (exponent == 31)
        return float_of(sign | F32_INF | mantissa << 13);
    if (exponent == 0) { /* subnormal: mantissa * 2^-24, exact in float32 */
        float magnitude = (float)mantissa * 0x1p-24f;
        return float_of(sign | bits_of(magnitude));
    }
    return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
}

/*
 * Magnitude bits of a float32 below `least_normal` as a count of 2^step_exponent, rounded to
 * nearest even: the mantissa with its hidden bit, shifted right to the format's step.
 */
static uint32_t subnormal_count(uint32_t magnitude, int step_exponent)
{
    int exponent = (int)(magnitude >> 23);
    uint32_t mantissa = (magnitude & F32_MANTISSA) | (exponent ? 0x00800000 : 0);
    /* value = mantissa * 2^(exponent - 150); float32 subnormals count as exponent 1 */
    int shift = step_exponent + 150 - (exponent ? exponent : 1);
    return shift > 25 ? 0 : shift_round(mantissa, shift);
}

uint16_t tri_f16_encode(float value)
{
    uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffff;
    uint16_t sign = (uint16_t)((bits >> 16) & 0x8000);
    if (magnitude > F32_INF)
        return (uint16_t)(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
    if (magnitude >= 0x477ff000) /* 65520: half way past the largest finite value */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000) /* 2^-14 */
        return (uint16_t)(sign | subnormal_count(magnitude, -24));
    return (uint16_t)(sign | (shift_round(magnitude, 13) - (112 << 10)));
}

float tri_e4m3_decode(uint8_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x80) << 24;
    uint32_t exponent = (bits >> 3) & 15, mantissa = bits & 7;
    if (exponent == 15 && mantissa == 7)
        return float_of(sign | 0x7fc00000);
    if (exponent == 0)
        return float_of(sign | bits_of((float)mantissa * 0x1p-9f));
    return float_of(sign | (exponent + 120) << 23 | mantissa << 20);
}

uint8_t tri_e4m3_encode(float value)
{
    uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffff;
    uint8_t sign = (uint8_t)((bits >> 24) & 0x80);
    if (magnitude > F32_INF)
        return sign | 0x7f;
    if (magnitude >= 0x43e00000) /* 448 */
        return sign | 0x7e;
    if (magnitude < 0x3c800000) /* 2^-6 */
        return (uint8_t)(sign | subnormal_count(magnitude, -9));
    return (uint8_t)(sign | (shift_round(magnitude, 20) - (120 << 3)));
}

float tri_e2m1_decode(uint8_t nibble)
{
    static const float magnitude[8] = { 0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f };
    float value = magnitude[nibble & 7];
    return nibble & 8 ? -value : value;
}

uint8_t tri_e2m1_encode(float value)
{
    /* Half-way points; those that end in an even code upward are reached only when passed. */
    float m = value < 0 ? -value : value;
    uint8_t sign = (uint8_t)((bits_of(value) >> 28) & 8);
    uint8_t code = 7;
    if (m <= 0.25f)
        code = 0;
    else if (m < 0.75f)
        code = 1;
    else if (m <= 1.25f)
        code = 2;
    else if (m < 1.75f)
        code = 3;
    else if (m <= 2.5f)
        code = 4;
    else if (m < 3.5f)
        code = 5;
    else if (m <= 5.0f)
        code = 6;
    return sign | code;
}

float tri_e8m0_decode(uint8_t bits)
{
    if (bits == 255)
        return float_of(0x7fc00000);
    return float_of(bits ? (uint32_t)bits << 23 : 0x00400000);
}
