/* mat_avx2_tile.h: a GEMM tile: 256 values of eight rows, dwords of the eight rows side by side, so
 * that lane r of every vector belongs to row r. */
#ifndef KERNELS_X86_MAT_AVX2_TILE_H
#define KERNELS_X86_MAT_AVX2_TILE_H

#include "kernels/x86/mat_avx2.h"

#define TILE_BLOCKS32 8 /* blocks of 32 per tile */

struct tile {
    __m256i w[64];     /* dword i of the eight rows, unsigned unless its type says signed */
    __m256i scale[16]; /* per scale: int16 twice per row */
    __m256i pair[8];   /* K: minima or scales of groups 2i, 2i + 1 as int16 pairs; groups have 16
                          values, those of Q4_K and Q5_K 32 */
    __m256 d[TILE_BLOCKS32];   /* per block */
    __m256 min[TILE_BLOCKS32]; /* dmin, or m of Q4_1 and Q5_1; NVFP4: of the second 16 values */
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

/* Dword i of row r, z[r], to lane r of out[i]. */
ALWAYS_INLINE void transpose8(const __m256i z[8], __m256i out[8])
{
    __m256i a[8], b[8];

    for (int i = 0; i < 4; i++) { /* rows i and i + 4 share vectors */
        a[i] = _mm256_permute2x128_si256(z[i], z[i + 4], 0x20);
        a[i + 4] = _mm256_permute2x128_si256(z[i], z[i + 4], 0x31);
    }
    for (int i = 0; i < 8; i += 4) {
        b[i] = _mm256_unpacklo_epi32(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_epi32(a[i], a[i + 1]);
        b[i + 2] = _mm256_unpacklo_epi32(a[i + 2], a[i + 3]);
        b[i + 3] = _mm256_unpackhi_epi32(a[i + 2], a[i + 3]);
        out[i] = _mm256_unpacklo_epi64(b[i], b[i + 2]);
        out[i + 1] = _mm256_unpackhi_epi64(b[i], b[i + 2]);
        out[i + 2] = _mm256_unpacklo_epi64(b[i + 1], b[i + 3]);
        out[i + 3] = _mm256_unpackhi_epi64(b[i + 1], b[i + 3]);
    }
}

/* 32 bytes of eight rows, transposed: out[i] has dword i of each row. */
ALWAYS_INLINE void load_transposed8(const uint8_t *w, size_t stride, __m256i out[8])
{
    __m256i z[8];

    for (int r = 0; r < 8; r++)
        z[r] = load256(w + (size_t)r * stride);
    transpose8(z, out);
}

#endif
