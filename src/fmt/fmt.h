/*
 * Number formats: what a value is on disk and in RAM, and one place that knows how many bytes a
 * row takes. Floor 1. Nothing here allocates; all functions are pure and safe from any thread.
 *
 * Sources: bf16/f16/f32 IEEE 754 and its truncation; e4m3, e2m1, e8m0: OCP Microscaling Formats
 * v1.0; the mxfp4-pack-quantized byte layout: K3 spec 2.3.
 */
#ifndef TRI_FMT_FMT_H
#define TRI_FMT_FMT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * Storage formats of a matrix row of `cols` values.
 *   code       safetensors name or NULL     data bytes per row          scale bytes per row
 * I8G64: value = q * s, q int8 in [-127,127], one bf16 scale per 64 columns (last group may be
 * short). I4G32: value = (n - 8) * s, two per byte, low nibble first, one bf16 scale per 32
 * columns. MXFP4: e2m1 nibbles, low first; one e8m0 byte per 32 columns (cols must divide).
 */
#define TRI_DTYPE_MAP(X)                                                                           \
    X(F32, "F32")                                                                                  \
    X(BF16, "BF16")                                                                                \
    X(F16, "F16")                                                                                  \
    X(F64, "F64")                                                                                  \
    X(E4M3, "F8_E4M3")                                                                             \
    X(U8, "U8")                                                                                    \
    X(I8G64, "int8g64")                                                                            \
    X(I4G32, "int4g32")                                                                            \
    X(MXFP4, "mxfp4")

enum tri_dtype {
#define TRI_DTYPE_ENUM(name, text) TRI_DT_##name,
    TRI_DTYPE_MAP(TRI_DTYPE_ENUM)
#undef TRI_DTYPE_ENUM
        TRI_DTYPES
};

enum { TRI_MX_GROUP = 32, TRI_I8_GROUP = 64, TRI_I4_GROUP = 32 };

const char *tri_dtype_name(enum tri_dtype dtype);

/* Bytes of one row: packed values, and its scales kept apart (0 for plain formats). */
size_t tri_row_data_bytes(enum tri_dtype dtype, int64_t cols);
size_t tri_row_scale_bytes(enum tri_dtype dtype, int64_t cols);

/*
 * A matrix [rows][cols] borrowed from somewhere (a trunk arena, an expert slot): row r starts at
 * data + r * tri_row_data_bytes(), its scales at scales + r * tri_row_scale_bytes().
 */
struct tri_matrix {
    enum tri_dtype dtype;
    int64_t rows, cols;
    const void *data;
    const void *scales; /* NULL for plain formats */
    bool tiled;         /* turned by tri_tile_rows: no row has an address of its own */
};

/*
 * I8G64 and MXFP4 in tiles, for products that take four bytes of sixteen rows at a time: of rows
 * 16t to 16t + 15, data [bytes of a row / 4][16 rows][4 bytes] from where row 16t began, scales
 * [groups][16 rows] from where its scales did. Same bytes in all. Rows must divide by 16, columns
 * by the group. tri_tile_rows turns sixteen rows in place; `room` holds tri_tile_room_bytes().
 */
enum { TRI_TILE_ROWS = 16 };
bool tri_tile_fits(enum tri_dtype dtype, int64_t rows, int64_t cols);
size_t tri_tile_room_bytes(enum tri_dtype dtype, int64_t cols);
void tri_tile_rows(enum tri_dtype dtype, void *data, void *scales, int64_t cols, void *room);

/* Scalars. Encoding rounds to nearest, ties to even; NaN stays NaN. bf16 is inline: loops over it
 * are memory-bound only if nothing is called. */
static inline float tri_bf16_decode(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static inline uint16_t tri_bf16_encode(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    uint32_t quiet = bits >> 16 | 0x40; /* cutting a NaN's low bits must not make it Inf */
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

float tri_f16_decode(uint16_t bits);
uint16_t tri_f16_encode(float value);
float tri_e4m3_decode(uint8_t bits);  /* OCP e4m3: no Inf, 0x7f/0xff NaN, max 448 */
uint8_t tri_e4m3_encode(float value); /* saturates at +-448 */
float tri_e2m1_decode(uint8_t nibble);
uint8_t tri_e2m1_encode(float value); /* saturates at +-6; a tie goes to the even code */
float tri_e8m0_decode(uint8_t bits);  /* 2^(bits-127); 255 is NaN; 0 is 2^-127 */

/* Rows of `cols` values: any plain or grouped format to float32 and back. */
void tri_row_decode(float *out, enum tri_dtype dtype, const void *data, const void *scales,
                    int64_t cols);
/* Encodes to BF16, F16, F32, E4M3, I8G64, I4G32 or MXFP4. Scale rule of the group formats: largest
 * magnitude / 127 (int8), / 7 (int4), rounded to bf16; MXFP4: 2^(floor(log2 amax) - 2). */
void tri_row_encode(void *data, void *scales, enum tri_dtype dtype, const float *in, int64_t cols);

#endif
