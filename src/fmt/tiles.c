/*
 * Rows turned into tiles and nothing else: products that want the same columns of sixteen rows side
 * by side would else turn them for every token (docs/findings/055, 056).
 */
#include "fmt/fmt.h"

enum { WORD = 4 }; /* bytes of a row that stay together */

bool tri_tile_fits(enum tri_dtype dtype, int64_t rows, int64_t cols)
{
    int64_t group = dtype == TRI_DT_I8G64 ? TRI_I8_GROUP : TRI_MX_GROUP;
    return (dtype == TRI_DT_I8G64 || dtype == TRI_DT_MXFP4) && rows > 0 &&
           rows % TRI_TILE_ROWS == 0 && cols % group == 0;
}

size_t tri_tile_room_bytes(enum tri_dtype dtype, int64_t cols)
{
    return tri_row_data_bytes(dtype, cols) * TRI_TILE_ROWS;
}

/* Sixteen rows of `n` units become n times sixteen, by way of `room`. `unit` is a constant. */
static inline __attribute__((always_inline)) void turn(unsigned char *rows, size_t n, size_t unit,
                                                       unsigned char *room)
{
    for (size_t i = 0; i < n; i++)
        for (size_t r = 0; r < TRI_TILE_ROWS; r++)
            memcpy(room + (i * TRI_TILE_ROWS + r) * unit, rows + (r * n + i) * unit, unit);
    memcpy(rows, room, n * TRI_TILE_ROWS * unit);
}

void tri_tile_rows(enum tri_dtype dtype, void *data, void *scales, int64_t cols, void *room)
{
    turn(data, tri_row_data_bytes(dtype, cols) / WORD, WORD, room);
    if (dtype == TRI_DT_I8G64)
        turn(scales, (size_t)(cols / TRI_I8_GROUP), sizeof(uint16_t), room);
    else
        turn(scales, (size_t)(cols / TRI_MX_GROUP), sizeof(uint8_t), room);
}
