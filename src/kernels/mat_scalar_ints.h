/* mat_scalar_ints.h: the frame of the definitions that first write a block out as integers. */
#ifndef KERNELS_MAT_SCALAR_INTS_H
#define KERNELS_MAT_SCALAR_INTS_H

#include <math.h>

#include "kernels/mat.h"

/* A block of 256 values in sixteen groups of 16: w = d * scale * v - dmin * min. */
struct mat_ints {
    float d, dmin;
    int8_t v[256];
    int8_t scale[16];
    uint8_t min[16];
};
typedef void mat_ints_fn(const uint8_t *blk, struct mat_ints *b);

/* acc = +0; per block, rising:
 *
 *   isum = sum_g scale_g * sum_i v_i * q_i      below 2^31: |scale| <= 32, |v| <= 127, |q| <= 127
 *   acc  = fma(d * d_x, (float)isum, acc)       d * d_x rounded, isum converted to nearest even
 *   with minima:  msum = sum_g min_g * s_g
 *   acc  = fma(-(dmin * d_x), (float)msum, acc) */
static inline float mat_dot_ints(const uint8_t *w, const uint8_t *x8, int n, size_t block_bytes,
                                 mat_ints_fn *write_out, bool minima)
{
    const struct act_q256 *x = (const void *)x8;
    struct mat_ints b;
    float acc = 0;

    for (int i = 0; i < n / 256; i++, x++, w += block_bytes) {
        int isum = 0, msum = 0;

        write_out(w, &b);
        for (int g = 0; g < 16; g++) {
            int s = 0;
            for (int j = g * 16; j < g * 16 + 16; j++)
                s += b.v[j] * x->q[j];
            isum += b.scale[g] * s;
            if (minima)
                msum += b.min[g] * x->sum16[g];
        }
        acc = fmaf(b.d * x->d, (float)isum, acc);
        if (minima)
            acc = fmaf(-(b.dmin * x->d), (float)msum, acc);
    }
    return acc;
}

#define MAT_OF_INTS(name, block, minima)                                                           \
    static float dot_##name(const uint8_t *w, const uint8_t *x, int n)                             \
    {                                                                                              \
        return mat_dot_ints(w, x, n, sizeof(struct block), ints_##name, minima);                   \
    }                                                                                              \
    static void mat_##name(const struct mat_args *a)                                               \
    {                                                                                              \
        kernels_run_dot(a, dot_##name);                                                            \
    }

#endif
