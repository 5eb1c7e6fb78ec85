/* mat.h: shared by the files of the products. */
#ifndef KERNELS_MAT_H
#define KERNELS_MAT_H

#include <string.h>

#include "kernels/kernels.h"
#include "quant/blocks.h"

/* One output: a row of n values at w against packed activations at x. */
typedef float mat_dot_fn(const uint8_t *w, const uint8_t *x, int n);

/* y[t][r] = dot(row r, token t) for all rows and tokens of a. */
void kernels_run_dot(const struct mat_args *a, mat_dot_fn *dot);
/* The parts of kernels_mat_scalar in other files: Q4_K to Q6_K; two and three bits; codebooks;
 * small blocks. */
void kernels_mat_scalar_k(struct kernels *k);
void kernels_mat_scalar_low(struct kernels *k);
void kernels_mat_scalar_iq(struct kernels *k);
void kernels_mat_scalar_small(struct kernels *k);

/* The eight 6-bit scales (byte j of *sc) and minima of a Q4_K or Q5_K block. */
static inline void mat_unpack_scales(const uint8_t scales[12], uint64_t *sc, uint64_t *mins)
{
    uint32_t u[3];

    memcpy(u, scales, sizeof u);
    const uint32_t sc_hi = (u[2] & 0x0f0f0f0f) | ((u[0] >> 6 & 0x03030303) << 4);
    const uint32_t min_hi = (u[2] >> 4 & 0x0f0f0f0f) | ((u[1] >> 6 & 0x03030303) << 4);
    *sc = (u[0] & 0x3f3f3f3f) | (uint64_t)sc_hi << 32;
    *mins = (u[1] & 0x3f3f3f3f) | (uint64_t)min_hi << 32;
}

/* The sixteen 6-bit scales of a Q3_K block, still plus 32, one a byte: of scale g the low four bits
 * are nibble g / 8 of byte g % 8, the high two are bits 2 * (g / 4) of byte 8 + g % 4. */
static inline void mat_unpack_scales_q3k(const uint8_t scales[12], uint32_t sc[4])
{
    uint32_t u[3];

    memcpy(u, scales, sizeof u);
    for (int i = 0; i < 4; i++)
        sc[i] = (u[i % 2] >> i / 2 * 4 & 0x0f0f0f0f) | (u[2] >> 2 * i & 0x03030303) << 4;
}

/* The F16 bits of an IQ1_M block's d: the top nibbles of its four words of scales. */
static inline uint16_t mat_d_iq1_m(const uint8_t *blk)
{
    const struct blk_iq1_m *b = (const void *)blk;
    uint16_t s[4];

    memcpy(s, b->scales, sizeof s);
    return (uint16_t)(s[0] >> 12 | (s[1] >> 8 & 0x00f0) | (s[2] >> 4 & 0x0f00) | (s[3] & 0xf000));
}

#endif
