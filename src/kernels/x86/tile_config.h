/* The shapes of the eight AMX tile registers, as LDTILECFG reads them. */
#ifndef TRI_KERNELS_TILE_CONFIG_H
#define TRI_KERNELS_TILE_CONFIG_H

#include <stdint.h>

/* Palette 1 (Intel SDM, LDTILECFG); there is room for sixteen tiles. */
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
_Static_assert(sizeof(struct tile_config) == 64, "tile configuration");

#endif
