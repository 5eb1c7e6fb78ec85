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
/* The part of kernels_mat_scalar with 256-value blocks. */
void kernels_mat_scalar_k(struct kernels *k);

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

#endif
