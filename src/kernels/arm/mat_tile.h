/* mat_tile.h: 256 values of eight rows, unpacked for GEMM. */
#ifndef KERNELS_ARM_MAT_TILE_H
#define KERNELS_ARM_MAT_TILE_H

#include "kernels/arm/mat_types.h"

struct tile {
    int8x16_t w[128];       /* as the level wants them */
    int32x4_t scale[16][4]; /* per group, as the level wants them */
    int16_t min[16][8];     /* per group: of the eight rows */
    float32x4_t d[16][2];   /* per step: D of rows 0-3 and 4-7 */
    float32x4_t m[8][2];    /* dmin, or what Q4_1 and Q5_1 add */
};

/* The n minima of row r. */
ALWAYS_INLINE void tile_minima(struct tile *t, int r, const int16x8_t *m, int n)
{
#pragma GCC unroll 16
    for (int g = 0; g < n; g++)
        t->min[g][r] = m[g / 8][g % 8];
}

#endif
