/*
 * Int8 rows turned into tiles and nothing else: products that want the same columns of sixteen rows
 * side by side would else turn them for every token (docs/findings/055).
 */
#include "fmt/fmt.h"

enum { WORD = 4 }; /* columns that stay together */

bool tri_tile_fits(enum tri_dtype dtype, int64_t rows, int64_t cols)
{
    return dtype == TRI_DT_I8G64 && rows > 0 && rows % TRI_TILE_ROWS == 0 &&
           cols % TRI_I8_GROUP == 0;
}

size_t tri_tile_room_bytes(int64_t cols)
{
    return (size_t)cols * TRI_TILE_ROWS;
}

/* Sixteen rows of `n` units become n times sixteen, by way of `room`. */
static void turn(unsigned char *rows, size_t n, size_t unit, unsigned char *room)
{
    for (size_t i = 0; i < n; i++)
        for (size_t r = 0; r < TRI_TILE_ROWS; r++)
            memcpy(room + (i * TRI_TILE_ROWS + r) * unit, rows + (r * n + i) * unit, unit);
    memcpy(rows, room, n * TRI_TILE_ROWS * unit);
}

void tri_tile_rows(void *data, void *scales, int64_t cols, void *room)
{
    turn(data, (size_t)(cols / WORD), WORD, room);
    turn(scales, (size_t)(cols / TRI_I8_GROUP), sizeof(uint16_t), room);
}
