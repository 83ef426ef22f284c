/*
 * Rows of values: sizes, decoding to float32 and encoding from it, for the plain and the grouped
 * formats. These are the plain loops that loading and tests use; fast kernels are in kernels/.
 */
#include "fmt/fmt.h"

#include <math.h>
#include <string.h>
#include "base/status.h"

const char *tri_dtype_name(enum tri_dtype dtype)
{
    static const char *const name[] = {
#define TRI_DTYPE_TEXT(id, text) text,
        TRI_DTYPE_MAP(TRI_DTYPE_TEXT)
#undef TRI_DTYPE_TEXT
    };
    TRI_ASSERT((unsigned)dtype < TRI_DTYPES);
    return name[dtype];
}

static int64_t groups(int64_t cols, int64_t group)
{
    return (cols + group - 1) / group;
}

size_t tri_row_data_bytes(enum tri_dtype dtype, int64_t cols)
{
    switch (dtype) {
    case TRI_DT_F64:
        return (size_t)cols * 8;
    case TRI_DT_F32:
        return (size_t)cols * 4;
    case TRI_DT_BF16:
    case TRI_DT_F16:
        return (size_t)cols * 2;
    case TRI_DT_E4M3:
    case TRI_DT_U8:
    case TRI_DT_I8G64:
        return (size_t)cols;
    case TRI_DT_I4G32:
    case TRI_DT_MXFP4:
        return (size_t)(cols + 1) / 2;
    default:
        TRI_ASSERT(!"dtype");
        return 0;
    }
}

size_t tri_row_scale_bytes(enum tri_dtype dtype, int64_t cols)
{
    switch (dtype) {
    case TRI_DT_I8G64:
        return (size_t)groups(cols, TRI_I8_GROUP) * 2;
    case TRI_DT_I4G32:
        return (size_t)groups(cols, TRI_I4_GROUP) * 2;
    case TRI_DT_MXFP4:
        return (size_t)groups(cols, TRI_MX_GROUP);
    default:
        return 0;
    }
}

/* Rows may start at any byte of a file buffer: values are fetched and put without alignment. */
static uint16_t get16(const void *base, int64_t i)
{
    uint16_t v;
    memcpy(&v, (const char *)base + i * 2, sizeof v);
    return v;
}

static void put16(void *base, int64_t i, uint16_t v)
{
    memcpy((char *)base + i * 2, &v, sizeof v);
}

static void decode_f64(float *out, const void *data, int64_t cols)
{
    for (int64_t i = 0; i < cols; i++) {
        double v;
        memcpy(&v, (const char *)data + i * 8, sizeof v);
        out[i] = (float)v;
    }
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void decode_i8(float *out, const int8_t *q, const void *scales, int64_t cols)
{
    for (int64_t c = 0, g = 0; c < cols; c += TRI_I8_GROUP, g++) {
        float scale = tri_bf16_decode(get16(scales, g));
        int64_t end = least(c + TRI_I8_GROUP, cols);
        for (int64_t i = c; i < end; i++)
            out[i] = (float)q[i] * scale;
    }
}

static void decode_i4(float *out, const uint8_t *q, const void *scales, int64_t cols)
{
    for (int64_t c = 0, g = 0; c < cols; c += TRI_I4_GROUP, g++) {
        float scale = tri_bf16_decode(get16(scales, g));
        int64_t end = least(c + TRI_I4_GROUP, cols);
        for (int64_t i = c; i < end; i++)
            out[i] = (float)((q[i / 2] >> (i % 2 * 4) & 15) - 8) * scale;
    }
}

/* Sixteen products a group, then look-ups. */
static void decode_mxfp4(float *out, const uint8_t *q, const uint8_t *scales, int64_t cols)
{
    TRI_ASSERT(cols % TRI_MX_GROUP == 0);
    for (int64_t c = 0, g = 0; c < cols; c += TRI_MX_GROUP, g++) {
        float scale = tri_e8m0_decode(scales[g]), value[16];
        for (int n = 0; n < 16; n++)
            value[n] = tri_e2m1_decode((uint8_t)n) * scale;
        for (int64_t i = c; i < c + TRI_MX_GROUP; i += 2) {
            out[i] = value[q[i / 2] & 15];
            out[i + 1] = value[q[i / 2] >> 4];
        }
    }
}

void tri_row_decode(float *out, enum tri_dtype dtype, const void *data, const void *scales,
                    int64_t cols)
{
    const uint8_t *bytes = data;
    switch (dtype) {
    case TRI_DT_F64:
        decode_f64(out, data, cols);
        return;
    case TRI_DT_F32:
        memcpy(out, data, (size_t)cols * 4);
        return;
    case TRI_DT_BF16:
        for (int64_t i = 0; i < cols; i++)
            out[i] = tri_bf16_decode(get16(data, i));
        return;
    case TRI_DT_F16:
        for (int64_t i = 0; i < cols; i++)
            out[i] = tri_f16_decode(get16(data, i));
        return;
    case TRI_DT_E4M3:
        for (int64_t i = 0; i < cols; i++)
            out[i] = tri_e4m3_decode(bytes[i]);
        return;
    case TRI_DT_U8:
        for (int64_t i = 0; i < cols; i++)
            out[i] = (float)bytes[i];
        return;
    case TRI_DT_I8G64:
        decode_i8(out, data, scales, cols);
        return;
    case TRI_DT_I4G32:
        decode_i4(out, data, scales, cols);
        return;
    case TRI_DT_MXFP4:
        decode_mxfp4(out, data, scales, cols);
        return;
    default:
        TRI_ASSERT(!"dtype");
    }
}

/* Largest magnitude; NaN when any value is NaN or Inf, so that the group's scale becomes NaN.
 * Magnitudes are ordered as their bits are, and integers have no early way out: this vectorises. */
static float group_amax(const float *in, int64_t n)
{
    uint32_t most = 0;
    float amax;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, in + i, sizeof bits);
        bits &= 0x7fffffff;
        most = (int32_t)bits > (int32_t)most ? bits : most;
    }
    memcpy(&amax, &most, sizeof amax);
    return amax < INFINITY ? amax : NAN;
}

/*
 * in / scale rounded to nearest even and kept within [lo, hi]; a zero or NaN scale gives 0. Adding
 * 1.5 * 2^23 leaves no bits below the units, so the sum itself rounds: nearbyintf without a call.
 * A scale is never less than half of amax / hi (a subnormal one), so quotients are small, and
 * integers are clamped: floats would branch.
 */
static void quantise(int8_t *restrict q, const float *restrict in, int64_t n, float scale,
                     const int range[2])
{
    int lo = range[0], hi = range[1];
    if (!(scale > 0)) {
        memset(q, 0, (size_t)n);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        int v = (int)((in[i] / scale + 0x1.8p23f) - 0x1.8p23f);
        v = v > lo ? v : lo;
        v = v < hi ? v : hi;
        q[i] = (int8_t)v;
    }
}

static void encode_i8(int8_t *q, void *scales, const float *in, int64_t cols)
{
    static const int range[2] = { -127, 127 };
    for (int64_t c = 0, g = 0; c < cols; c += TRI_I8_GROUP, g++) {
        int64_t n = least(TRI_I8_GROUP, cols - c);
        uint16_t bits = tri_bf16_encode(group_amax(in + c, n) / 127);
        put16(scales, g, bits);
        quantise(q + c, in + c, n, tri_bf16_decode(bits), range);
    }
}

/* Two to a byte, low nibble first; the unused half of an odd last byte is `fill`. */
static void put_nibble(uint8_t *q, int64_t c, uint8_t n, uint8_t fill)
{
    q[c / 2] = c % 2 ? (uint8_t)((q[c / 2] & 15) | n << 4) : (uint8_t)(n | fill << 4);
}

static void encode_i4(uint8_t *q, void *scales, const float *in, int64_t cols)
{
    static const int range[2] = { -8, 7 };
    for (int64_t c = 0, g = 0; c < cols; c += TRI_I4_GROUP, g++) {
        int64_t n = least(TRI_I4_GROUP, cols - c);
        int8_t whole[TRI_I4_GROUP];
        uint16_t bits = tri_bf16_encode(group_amax(in + c, n) / 7);
        put16(scales, g, bits);
        quantise(whole, in + c, n, tri_bf16_decode(bits), range);
        for (int64_t i = 0; i < n; i++)
            put_nibble(q, c + i, (uint8_t)(whole[i] + 8), 8);
    }
}

/* e8m0 of 2^(floor(log2 amax) - 2): 6 * 2^e is then the largest value >= amax's binade. */
static uint8_t mx_scale(float amax)
{
    if (amax != amax)
        return 255;
    if (amax == 0)
        return 127;
    int e = ilogbf(amax) - 2 + 127;
    return (uint8_t)(e < 0 ? 0 : e);
}

static void encode_mxfp4(uint8_t *q, uint8_t *scales, const float *in, int64_t cols)
{
    TRI_ASSERT(cols % TRI_MX_GROUP == 0);
    for (int64_t c = 0, g = 0; c < cols; c += TRI_MX_GROUP, g++) {
        uint8_t bits = mx_scale(group_amax(in + c, TRI_MX_GROUP));
        scales[g] = bits;
        float factor = tri_e8m0_decode((uint8_t)(254 - bits)); /* 2^(127 - bits): exact */
        for (int64_t i = 0; i < TRI_MX_GROUP; i++)
            put_nibble(q, c + i, bits == 255 ? 0 : tri_e2m1_encode(in[c + i] * factor), 0);
    }
}

void tri_row_encode(void *data, void *scales, enum tri_dtype dtype, const float *in, int64_t cols)
{
    switch (dtype) {
    case TRI_DT_F32:
        memcpy(data, in, (size_t)cols * 4);
        return;
    case TRI_DT_BF16:
        for (int64_t i = 0; i < cols; i++)
            put16(data, i, tri_bf16_encode(in[i]));
        return;
    case TRI_DT_F16:
        for (int64_t i = 0; i < cols; i++)
            put16(data, i, tri_f16_encode(in[i]));
        return;
    case TRI_DT_E4M3:
        for (int64_t i = 0; i < cols; i++)
            ((uint8_t *)data)[i] = tri_e4m3_encode(in[i]);
        return;
    case TRI_DT_I8G64:
        encode_i8(data, scales, in, cols);
        return;
    case TRI_DT_I4G32:
        encode_i4(data, scales, in, cols);
        return;
    case TRI_DT_MXFP4:
        encode_mxfp4(data, scales, in, cols);
        return;
    default:
        TRI_ASSERT(!"encode to this dtype");
    }
}
