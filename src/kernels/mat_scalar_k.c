/* mat_scalar_k.c: the definition of the products with Q4_K, Q5_K and Q6_K weights.
 *
 * Per output acc = +0, then for each block of 256, rising, all integers exact:
 *
 *   isum = sum_g S_g * sum_i v_i * q_i
 *   acc  = fma(D * d_x, (float)isum, acc)            D * d_x rounded, isum converted to nearest
 * even with minima:  msum = sum_g M_g * s_g             s_g: sum of q over sub-block g acc  =
 * fma(-(Dmin * d_x), (float)msum, acc)
 *
 * |isum| <= 256 * 32 * 128 * 127 = 133,169,152 (Q6_K), so int32 holds it. */
#include <math.h>

#include "kernels/mat.h"

static inline float add_block(uint16_t d, uint16_t dmin, float d_x, int isum, int msum, float acc)
{
    acc = fmaf(quant_f16_to_f32(d) * d_x, (float)isum, acc);
    return fmaf(-(quant_f16_to_f32(dmin) * d_x), (float)msum, acc);
}

/* Eight sub-blocks of 32: S = 6-bit scale, M = 6-bit minimum, v = nibble. */
static float dot_q4k(const uint8_t *w8, const uint8_t *x8, int n)
{
    const struct blk_q4_K *w = (const void *)w8;
    const struct act_q256 *x = (const void *)x8;
    float acc = 0;

    for (int b = 0; b < n / 256; b++, x++, w++) {
        uint64_t sc, mins;
        int isum = 0, msum = 0;

        mat_unpack_scales(w->scales, &sc, &mins);
        for (int j = 0; j < 8; j++) {
            const uint8_t *qs = w->qs + j / 2 * 32;
            const int8_t *q = x->q + j * 32;
            int s = 0;
            for (int i = 0; i < 32; i++)
                s += (qs[i] >> j % 2 * 4 & 15) * q[i];
            isum += (int)(sc >> 8 * j & 63) * s;
            msum += (int)(mins >> 8 * j & 63) * (x->sum16[2 * j] + x->sum16[2 * j + 1]);
        }
        acc = add_block(w->d, w->dmin, x->d, isum, msum, acc);
    }
    return acc;
}

/* As Q4_K with a fifth bit of v: bit j of qh[i]. */
static float dot_q5k(const uint8_t *w8, const uint8_t *x8, int n)
{
    const struct blk_q5_K *w = (const void *)w8;
    const struct act_q256 *x = (const void *)x8;
    float acc = 0;

    for (int b = 0; b < n / 256; b++, x++, w++) {
        const uint8_t *qh = w->qh;
        uint64_t sc, mins;
        int isum = 0, msum = 0;

        mat_unpack_scales(w->scales, &sc, &mins);
        for (int j = 0; j < 8; j++) {
            const uint8_t *qs = w->qs + j / 2 * 32;
            const int8_t *q = x->q + j * 32;
            int s = 0;
            for (int i = 0; i < 32; i++)
                s += ((qs[i] >> j % 2 * 4 & 15) | (qh[i] >> j & 1) << 4) * q[i];
            isum += (int)(sc >> 8 * j & 63) * s;
            msum += (int)(mins >> 8 * j & 63) * (x->sum16[2 * j] + x->sum16[2 * j + 1]);
        }
        acc = add_block(w->d, w->dmin, x->d, isum, msum, acc);
    }
    return acc;
}

/* Sixteen groups of 16: S = int8 scale, v = 6 bits - 32. Each half of the block has 64 bytes of low
 * nibbles and 32 bytes of high bit pairs; run g of 32 values takes the low nibbles of bytes
 * 32 * (g % 2) for g < 2, else their high ones, and bits 2g of the pairs. */
static float dot_q6k(const uint8_t *w8, const uint8_t *x8, int n)
{
    const struct blk_q6_K *w = (const void *)w8;
    const struct act_q256 *x = (const void *)x8;
    float acc = 0;

    for (int b = 0; b < n / 256; b++, x++, w++) {
        int isum = 0;

        for (int g = 0; g < 16; g++) {
            const int half = g / 8, run = g / 2 % 4, at = g % 2 * 16;
            const uint8_t *ql = w->ql + half * 64 + run % 2 * 32 + at;
            const uint8_t *qh = w->qh + half * 32 + at;
            int s = 0;
            for (int i = 0; i < 16; i++) {
                const int low = ql[i] >> run / 2 * 4 & 15, high = qh[i] >> run * 2 & 3;
                s += ((low | high << 4) - 32) * x->q[g * 16 + i];
            }
            isum += w->scales[g] * s;
        }
        acc = fmaf(quant_f16_to_f32(w->d) * x->d, (float)isum, acc);
    }
    return acc;
}

static void mat_q4k(const struct mat_args *a)
{
    kernels_run_dot(a, dot_q4k);
}

static void mat_q5k(const struct mat_args *a)
{
    kernels_run_dot(a, dot_q5k);
}

static void mat_q6k(const struct mat_args *a)
{
    kernels_run_dot(a, dot_q6k);
}

void kernels_mat_scalar_k(struct kernels *k)
{
    k->mat[QT_Q4_K] = (struct mat_kernel){ACT_Q256, mat_q4k, mat_q4k};
    k->mat[QT_Q5_K] = (struct mat_kernel){ACT_Q256, mat_q5k, mat_q5k};
    k->mat[QT_Q6_K] = (struct mat_kernel){ACT_Q256, mat_q6k, mat_q6k};
}
