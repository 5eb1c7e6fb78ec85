/* mat_avx2_tile.h: a GEMM tile: 256 values of eight rows, dwords of the eight rows side by side, so
 * that lane r of every vector belongs to row r. */
#ifndef KERNELS_X86_MAT_AVX2_TILE_H
#define KERNELS_X86_MAT_AVX2_TILE_H

#include "kernels/x86/mat_avx2.h"

#define TILE_BLOCKS32 8 /* blocks of 32 per tile */

struct tile {
    __m256i w[64];     /* dword i of the eight rows, unsigned but for Q8_0 */
    __m256i scale[16]; /* per scale: int16 twice per row */
    __m256i pair[8];   /* K: minima or scales of groups 2i, 2i + 1 of 16 values, int16 pairs */
    __m256 d[TILE_BLOCKS32];   /* per block */
    __m256 min[TILE_BLOCKS32]; /* dmin, or m of Q4_1 */
};

/* Eight rows at w, stride bytes apart, n_blocks blocks of them (256-value types: always one). */
typedef void unpack_fn(const uint8_t *w, size_t stride, int n_blocks, struct tile *t);
unpack_fn kernels_unpack_q4k;
unpack_fn kernels_unpack_q5k;
unpack_fn kernels_unpack_q6k;
unpack_fn kernels_unpack_q8_0;
unpack_fn kernels_unpack_q4_0;
unpack_fn kernels_unpack_q4_1;
unpack_fn kernels_unpack_mxfp4;

#endif
