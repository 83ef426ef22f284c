/*
 * fmt: every code of every small format, ties against a slow reference (the two neighbours and the
 * midpoint between them, in double), and hand-derived rows of the grouped formats.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "fmt/fmt.h"

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

/* IEEE-like decode by the definition, in double. */
static double by_definition(unsigned code, int exp_bits, int man_bits, int bias)
{
    unsigned man = code & ((1u << man_bits) - 1), exp = (code >> man_bits) & ((1u << exp_bits) - 1);
    double m = ldexp(man, -man_bits);
    double v = exp ? ldexp(1 + m, (int)exp - bias) : ldexp(m, 1 - bias);
    return (code >> (man_bits + exp_bits)) & 1 ? -v : v;
}

typedef unsigned (*encode_fn)(float);
static unsigned enc_bf16(float v)
{
    return tri_bf16_encode(v);
}
static unsigned enc_f16(float v)
{
    return tri_f16_encode(v);
}
static unsigned enc_e4m3(float v)
{
    return tri_e4m3_encode(v);
}
static unsigned enc_e2m1(float v)
{
    return tri_e2m1_encode(v);
}

struct format {
    const char *name;
    encode_fn encode;
    int exp_bits, man_bits, bias;
    unsigned largest; /* code of the largest finite magnitude */
};

static const struct format formats[] = {
    { "bf16", enc_bf16, 8, 7, 127, 0x7f7f },
    { "f16", enc_f16, 5, 10, 15, 0x7bff },
    { "e4m3", enc_e4m3, 4, 3, 7, 0x7e },
    { "e2m1", enc_e2m1, 2, 1, 1, 7 },
};

/* Each code comes back; between neighbours the nearer wins, and half way the even one. */
static void every_code_and_every_tie(void **state)
{
    (void)state;
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++) {
        const struct format *fm = &formats[f];
        unsigned sign = 1u << (fm->exp_bits + fm->man_bits);
        for (unsigned code = 0; code <= fm->largest; code++) {
            double here = by_definition(code, fm->exp_bits, fm->man_bits, fm->bias);
            assert_int_equal(fm->encode((float)here), code);
            assert_int_equal(fm->encode((float)-here), code | sign);
            if (code == fm->largest)
                break;
            double next = by_definition(code + 1, fm->exp_bits, fm->man_bits, fm->bias);
            float mid = (float)((here + next) / 2);
            if ((double)mid != (here + next) / 2)
                fail_msg("%s: midpoint is not exact", fm->name);
            assert_int_equal(fm->encode(mid), code + (code & 1));
            assert_int_equal(fm->encode(nextafterf(mid, 0)), code);
            assert_int_equal(fm->encode(nextafterf(mid, INFINITY)), code + 1);
            assert_int_equal(fm->encode(-mid), (code + (code & 1)) | sign);
        }
    }
}

static void decoding_follows_the_definition(void **state)
{
    (void)state;
    for (unsigned c = 0; c < 65536; c++) {
        if ((c & 0x7f80) != 0x7f80)
            assert_true((double)tri_bf16_decode((uint16_t)c) == by_definition(c, 8, 7, 127));
        if ((c & 0x7c00) != 0x7c00)
            assert_true((double)tri_f16_decode((uint16_t)c) == by_definition(c, 5, 10, 15));
    }
    for (unsigned c = 0; c < 256; c++) {
        if ((c & 0x7f) != 0x7f)
            assert_true((double)tri_e4m3_decode((uint8_t)c) == by_definition(c, 4, 3, 7));
        if (c != 255)
            assert_true((double)tri_e8m0_decode((uint8_t)c) == ldexp(1, (int)c - 127));
    }
    for (unsigned c = 0; c < 16; c++)
        assert_true((double)tri_e2m1_decode((uint8_t)c) == by_definition(c, 2, 1, 1));
    assert_true(signbit(tri_e2m1_decode(8)) && signbit(tri_f16_decode(0x8000)));
}

static void ends_of_the_ranges(void **state)
{
    (void)state;
    assert_int_equal(tri_bf16_encode(INFINITY), 0x7f80);
    assert_int_equal(tri_bf16_encode(-INFINITY), 0xff80);
    assert_int_equal(tri_bf16_encode(3.4e38f), 0x7f80);
    assert_true(isnan(tri_bf16_decode(tri_bf16_encode(NAN))));
    float thin = 0; /* a NaN whose payload lies only in the bits that are cut */
    uint32_t payload = 0x7f800001;
    memcpy(&thin, &payload, 4);
    assert_true(isnan(tri_bf16_decode(tri_bf16_encode(thin))));
    assert_true(isnan(tri_f16_decode(tri_f16_encode(thin))));
    assert_int_equal(tri_f16_encode(65519.996f), 0x7bff);
    assert_int_equal(tri_f16_encode(65520), 0x7c00);
    assert_int_equal(tri_f16_encode(-1e9f), 0xfc00);
    assert_true(isinf(tri_f16_decode(0x7c00)) && isinf(tri_bf16_decode(0xff80)));
    assert_int_equal(tri_f16_encode(0x1p-149f), 0);
    assert_int_equal(tri_e4m3_encode(449), 0x7e);
    assert_int_equal(tri_e4m3_encode(-INFINITY), 0xfe);
    assert_true(isnan(tri_e4m3_decode(0x7f)) && isnan(tri_e4m3_decode(0xff)));
    assert_true(isnan(tri_e4m3_decode(tri_e4m3_encode(NAN))));
    assert_int_equal(tri_e2m1_encode(1e9f), 7);
    assert_int_equal(tri_e2m1_encode(-1e9f), 15);
    assert_true(isnan(tri_e8m0_decode(255)));
    assert_true(bits_of(tri_e8m0_decode(0)) == 0x00400000);
}

static void bytes_of_a_row(void **state)
{
    (void)state;
    static const struct {
        enum tri_dtype dtype;
        int64_t cols;
        size_t data, scales;
    } row[] = {
        { TRI_DT_F32, 3, 12, 0 },    { TRI_DT_BF16, 3, 6, 0 },    { TRI_DT_F16, 3, 6, 0 },
        { TRI_DT_F64, 3, 24, 0 },    { TRI_DT_U8, 3, 3, 0 },      { TRI_DT_E4M3, 3, 3, 0 },
        { TRI_DT_I8G64, 64, 64, 2 }, { TRI_DT_I8G64, 65, 65, 4 }, { TRI_DT_I4G32, 33, 17, 4 },
        { TRI_DT_MXFP4, 64, 32, 2 }, { TRI_DT_MXFP4, 0, 0, 0 },   { TRI_DT_I4G32, 32, 16, 2 },
        { TRI_DT_MXFP4, 32, 16, 1 }, { TRI_DT_I8G64, 1, 1, 2 },   { TRI_DT_F32, 0, 0, 0 },
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        assert_int_equal(tri_row_data_bytes(row[i].dtype, row[i].cols), row[i].data);
        assert_int_equal(tri_row_scale_bytes(row[i].dtype, row[i].cols), row[i].scales);
    }
    assert_string_equal(tri_dtype_name(TRI_DT_E4M3), "F8_E4M3");
    assert_string_equal(tri_dtype_name(TRI_DT_MXFP4), "mxfp4");
}

/* K3 spec, appendix A: layer 2, expert 0, w1 of the vendor's tiny model. */
static void mxfp4_of_the_vendor_fixture(void **state)
{
    (void)state;
    uint8_t data[16] = { 209, 159, 241, 50, 247, 189, 237, 185 }, scale[1] = { 124 };
    float out[32];
    tri_row_decode(out, TRI_DT_MXFP4, data, scale, 32);
    /* 209 = 0xd1, 159 = 0x9f, 241 = 0xf1, 50 = 0x32: low nibble first, times 2^-3 */
    const float want[8] = { 0.0625f, -0.375f, -0.75f, -0.0625f, 0.0625f, -0.75f, 0.125f, 0.1875f };
    for (int i = 0; i < 8; i++)
        assert_true(out[i] == want[i]);
}

/* Scale 2^(floor(log2 amax) - 2): 5 -> 2^0, 8 -> 2^1, 7.9 -> 2^0 (and 7.9 saturates to 6). */
static void mxfp4_encoding_by_hand(void **state)
{
    (void)state;
    float in[96] = { 5, -1.4f, 0.2f, 0.3f, -3.4f, 2.6f, 0, 4.9f };
    in[32] = 8, in[33] = -7.9f, in[34] = 1, in[35] = 0.4f;
    in[64] = 7.9f;
    uint8_t data[48], scales[3];
    tri_row_encode(data, scales, TRI_DT_MXFP4, in, 96);
    const uint8_t want0[4] = { 6 | 11 << 4, 0 | 1 << 4, 13 | 5 << 4, 0 | 6 << 4 };
    assert_memory_equal(data, want0, 4);
    /* -7.9 / 2 = -3.95 is nearest -4; 0.5 and 0.2 of the scale are codes 1 and 0 */
    assert_int_equal(data[16], 6 | 14 << 4);
    assert_int_equal(data[17], 1 | 0 << 4);
    assert_int_equal(data[32], 7);
    assert_int_equal(scales[0], 127);
    assert_int_equal(scales[1], 128);
    assert_int_equal(scales[2], 127);
}

static void mxfp4_at_the_ends(void **state)
{
    (void)state;
    float in[128] = { 0 }, out[128];
    in[32] = 0x1p-149f;
    in[64] = 0x1.fffffep127f;
    in[96] = NAN;
    uint8_t data[64], scales[4];
    tri_row_encode(data, scales, TRI_DT_MXFP4, in, 128);
    assert_int_equal(scales[1], 0);
    assert_int_equal(scales[2], 252);
    assert_int_equal(scales[3], 255);
    tri_row_decode(out, TRI_DT_MXFP4, data, scales, 128);
    for (int i = 0; i < 64; i++)
        assert_true(out[i] == 0);
    assert_true(out[64] == 0x1.8p127f && out[65] == 0);
    for (int i = 96; i < 128; i++)
        assert_true(isnan(out[i]));
}

/* Every value that MXFP4 can hold with a scale in the middle survives encode after decode. */
static void mxfp4_is_its_own_inverse(void **state)
{
    (void)state;
    for (int s = 3; s < 250; s++) {
        uint8_t data[16], scale = (uint8_t)s, again[16], scale_again = 0;
        float values[32];
        for (int i = 0; i < 16; i++)
            data[i] = (uint8_t)((2 * i) % 16 | ((2 * i + 1) % 16) << 4);
        tri_row_decode(values, TRI_DT_MXFP4, data, &scale, 32);
        tri_row_encode(again, &scale_again, TRI_DT_MXFP4, values, 32);
        assert_int_equal(scale_again, scale);
        assert_memory_equal(again, data, 16);
    }
}

static void int8_and_int4_by_hand(void **state)
{
    (void)state;
    float in[65] = { 127, -127, 1, 0.5f, 1.5f, -63.4f }, out[65];
    in[64] = -254;
    int8_t q[65];
    uint16_t s8[2];
    tri_row_encode(q, s8, TRI_DT_I8G64, in, 65);
    assert_int_equal(s8[0], 0x3f80); /* 1.0 */
    assert_int_equal(s8[1], 0x4000); /* 2.0 */
    const int8_t want[7] = { 127, -127, 1, 0, 2, -63, 0 };
    assert_memory_equal(q, want, 7);
    assert_int_equal(q[64], -127);
    tri_row_decode(out, TRI_DT_I8G64, q, s8, 65);
    assert_true(out[0] == 127 && out[5] == -63 && out[64] == -254);

    float in4[33] = { 7, -7, 2.5f, -3.5f, 0.49f };
    in4[32] = 14;
    uint8_t n[17];
    uint16_t s4[2];
    tri_row_encode(n, s4, TRI_DT_I4G32, in4, 33);
    assert_int_equal(s4[0], 0x3f80);
    assert_int_equal(s4[1], 0x4000);
    assert_int_equal(n[0], 15 | 1 << 4);
    assert_int_equal(n[1], 10 | 4 << 4);
    assert_int_equal(n[2], 8 | 8 << 4);
    assert_int_equal(n[16], 15 | 8 << 4);
    float out4[33];
    tri_row_decode(out4, TRI_DT_I4G32, n, s4, 33);
    assert_true(out4[0] == 7 && out4[1] == -7 && out4[2] == 2 && out4[3] == -4 && out4[32] == 14);
}

/* Half a step is the bound; the scale is rounded to bf16, so the largest value may miss by 127
 * (or 7) half-ulps of the scale: 2^-9 relative. */
static void int8_and_int4_error_bound(void **state)
{
    (void)state;
    uint64_t seed = 20260729;
    for (int round = 0; round < 200; round++) {
        float in[130], out[130];
        for (int i = 0; i < 130; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            in[i] = ldexpf((float)(int32_t)(seed >> 32), -31 + (int)(round % 40) - 20);
        }
        for (int which = 0; which < 2; which++) {
            enum tri_dtype dtype = which ? TRI_DT_I4G32 : TRI_DT_I8G64;
            int group = which ? TRI_I4_GROUP : TRI_I8_GROUP, top = which ? 7 : 127;
            uint8_t data[130];
            uint16_t scales[5];
            tri_row_encode(data, scales, dtype, in, 130);
            tri_row_decode(out, dtype, data, scales, 130);
            for (int i = 0; i < 130; i++) {
                float amax = 0;
                for (int j = i / group * group; j < 130 && j < (i / group + 1) * group; j++)
                    amax = fmaxf(amax, fabsf(in[j]));
                float bound = amax / (float)top / 2 * 1.004f + amax / 256;
                assert_true(fabsf(in[i] - out[i]) <= bound);
            }
        }
    }
}

static void zero_and_nan_groups(void **state)
{
    (void)state;
    float in[128] = { 0 }, out[128];
    in[70] = INFINITY;
    int8_t q[128];
    uint8_t n[64];
    uint16_t s[4];
    tri_row_encode(q, s, TRI_DT_I8G64, in, 128);
    tri_row_decode(out, TRI_DT_I8G64, q, s, 128);
    assert_true(out[0] == 0 && isnan(out[64]) && isnan(out[127]));
    tri_row_encode(n, s, TRI_DT_I4G32, in, 128);
    tri_row_decode(out, TRI_DT_I4G32, n, s, 128);
    assert_true(out[63] == 0 && isnan(out[64]) && out[96] == 0);
}

static void plain_rows_need_no_alignment(void **state)
{
    (void)state;
    uint8_t bytes[1 + 5 * 8];
    float in[5] = { 0, -1.5f, 3.25f, 1e-3f, 65504 }, out[5];
    static const enum tri_dtype plain[] = { TRI_DT_F32, TRI_DT_BF16, TRI_DT_F16 };
    for (size_t d = 0; d < 3; d++) {
        tri_row_encode(bytes + 1, NULL, plain[d], in, 5);
        tri_row_decode(out, plain[d], bytes + 1, NULL, 5);
        for (int i = 0; i < 5; i++)
            assert_true(fabsf(out[i] - in[i]) <= fabsf(in[i]) / 256);
        assert_true(out[1] == in[1] && out[2] == in[2]);
    }
    double wide[2] = { 1.0 + 0x1p-40, -2 };
    memcpy(bytes + 1, wide, sizeof wide);
    tri_row_decode(out, TRI_DT_F64, bytes + 1, NULL, 2);
    assert_true(out[0] == 1 && out[1] == -2);
    bytes[0] = 0x38, bytes[1] = 200;
    tri_row_decode(out, TRI_DT_E4M3, bytes, NULL, 1);
    assert_true(out[0] == 1);
    tri_row_decode(out, TRI_DT_U8, bytes, NULL, 2);
    assert_true(out[0] == 0x38 && out[1] == 200);
}

/* Value (row, column) of a tile lies where the door says, and its scale too; what does not divide
 * is no tile. */
static void tiles_by_hand(void **state)
{
    (void)state;
    enum { COLS = 192, GROUPS = COLS / 64 };
    static int8_t data[TRI_TILE_ROWS * COLS], room[TRI_TILE_ROWS * COLS];
    static uint16_t scales[TRI_TILE_ROWS * GROUPS];
    for (int r = 0; r < TRI_TILE_ROWS; r++) {
        for (int c = 0; c < COLS; c++)
            data[r * COLS + c] = (int8_t)(r * 31 + c * 7);
        for (int g = 0; g < GROUPS; g++)
            scales[r * GROUPS + g] = (uint16_t)(r * 100 + g);
    }
    assert_int_equal(tri_tile_room_bytes(TRI_DT_I8G64, COLS), sizeof room);
    tri_tile_rows(TRI_DT_I8G64, data, scales, COLS, room);
    for (int r = 0; r < TRI_TILE_ROWS; r++) {
        for (int c = 0; c < COLS; c++)
            assert_int_equal(data[c / 4 * 64 + r * 4 + c % 4], (int8_t)(r * 31 + c * 7));
        for (int g = 0; g < GROUPS; g++)
            assert_int_equal(scales[g * TRI_TILE_ROWS + r], r * 100 + g);
    }
    assert_true(tri_tile_fits(TRI_DT_I8G64, 16, 64));
    assert_true(tri_tile_fits(TRI_DT_I8G64, 32, 192));
    assert_false(tri_tile_fits(TRI_DT_I8G64, 0, 64));
    assert_false(tri_tile_fits(TRI_DT_I8G64, 17, 64));
    assert_false(tri_tile_fits(TRI_DT_I8G64, 16, 96));
    assert_false(tri_tile_fits(TRI_DT_I4G32, 16, 64));
    assert_false(tri_tile_fits(TRI_DT_BF16, 16, 64));
}

/* The same of MXFP4: bytes of two columns, scales of one byte for 32. */
static void tiles_of_nibbles_by_hand(void **state)
{
    (void)state;
    enum { COLS = 96, BYTES = COLS / 2, GROUPS = COLS / 32 };
    static uint8_t data[TRI_TILE_ROWS * BYTES], room[TRI_TILE_ROWS * BYTES];
    static uint8_t scales[TRI_TILE_ROWS * GROUPS];
    for (int r = 0; r < TRI_TILE_ROWS; r++) {
        for (int b = 0; b < BYTES; b++)
            data[r * BYTES + b] = (uint8_t)(r * 31 + b * 7);
        for (int g = 0; g < GROUPS; g++)
            scales[r * GROUPS + g] = (uint8_t)(r * 10 + g);
    }
    assert_int_equal(tri_tile_room_bytes(TRI_DT_MXFP4, COLS), sizeof room);
    tri_tile_rows(TRI_DT_MXFP4, data, scales, COLS, room);
    for (int r = 0; r < TRI_TILE_ROWS; r++) {
        for (int b = 0; b < BYTES; b++)
            assert_int_equal(data[b / 4 * 64 + r * 4 + b % 4], (uint8_t)(r * 31 + b * 7));
        for (int g = 0; g < GROUPS; g++)
            assert_int_equal(scales[g * TRI_TILE_ROWS + r], r * 10 + g);
    }
    assert_true(tri_tile_fits(TRI_DT_MXFP4, 16, 32));
    assert_true(tri_tile_fits(TRI_DT_MXFP4, 384, 512));
    assert_false(tri_tile_fits(TRI_DT_MXFP4, 24, 32));
    assert_false(tri_tile_fits(TRI_DT_MXFP4, 16, 48));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_by_hand),
        cmocka_unit_test(tiles_of_nibbles_by_hand),
        cmocka_unit_test(every_code_and_every_tie),
        cmocka_unit_test(decoding_follows_the_definition),
        cmocka_unit_test(ends_of_the_ranges),
        cmocka_unit_test(bytes_of_a_row),
        cmocka_unit_test(mxfp4_of_the_vendor_fixture),
        cmocka_unit_test(mxfp4_encoding_by_hand),
        cmocka_unit_test(mxfp4_at_the_ends),
        cmocka_unit_test(mxfp4_is_its_own_inverse),
        cmocka_unit_test(int8_and_int4_by_hand),
        cmocka_unit_test(int8_and_int4_error_bound),
        cmocka_unit_test(zero_and_nan_groups),
        cmocka_unit_test(plain_rows_need_no_alignment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
