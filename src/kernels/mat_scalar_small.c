/* mat_scalar_small.c: the definition of the products with Q5_0, Q5_1, IQ4_NL, NVFP4, Q1_0 and Q2_0
 * weights.
 *
 * acc = +0; per 32 values (NVFP4: 16), rising, with the d_x of their 32 activations:
 *
 *   isum = sum v_i * q_i (exact, |v| <= 127);  acc = fma(D * d_x, (float)isum, acc)
 *
 * the product D * d_x rounded. */
#include <math.h>

#include "kernels/mat.h"
#include "quant/grids.h"

/* Value i of a Q5 block: a nibble and bit i of qh. */
static inline int five_bits(const uint8_t qh[4], const uint8_t qs[16], int i)
{
    return (qs[i % 16] >> i / 16 * 4 & 15) | (qh[i / 8] >> i % 8 & 1) << 4;
}

static inline int dot_five_bits(const uint8_t qh[4], const uint8_t qs[16], const int8_t *q)
{
    int sum = 0;

    for (int i = 0; i < 32; i++)
        sum += five_bits(qh, qs, i) * q[i];
    return sum;
}

/* v = q - 16. */
static float dot_q5_0(const uint8_t *w8, const uint8_t *x8, int n)
{
    const struct blk_q5_0 *w = (const void *)w8;
    const struct act_q32 *x = (const void *)x8;
    float acc = 0;

    for (int b = 0; b < n / 32; b++) {
        const int isum = dot_five_bits(w[b].qh, w[b].qs, x[b].q) - 16 * x[b].sum;
        acc = fmaf(quant_f16_to_f32(w[b].d) * x[b].d, (float)isum, acc);
    }
    return acc;
}

/* v = q; then the minimum m is added: acc = fma(m * d_x, (float)sum, acc). */
static float dot_q5_1(const uint8_t *w8, const uint8_t *x8, int n)
{
    const struct blk_q5_1 *w = (const void *)w8;
    const struct act_q32 *x = (const void *)x8;
    float acc = 0;

    for (int b = 0; b < n / 32; b++) {
        const int isum = dot_five_bits(w[b].qh, w[b].qs, x[b].q);
        acc = fmaf(quant_f16_to_f32(w[b].d) * x[b].d, (float)isum, acc);
        acc = fmaf(quant_f16_to_f32(w[b].m) * x[b].d, (float)x[b].sum, acc);
    }
    return acc;
}

/* sum of values[nibble i] * q_i: n low nibbles, then n high ones. */
static inline int dot_nibbles(const uint8_t *qs, const int8_t *values, const int8_t *q, int n)
{
    int sum = 0;

    for (int i = 0; i < n; i++)
        sum += values[qs[i] & 15] * q[i] + values[qs[i] >> 4] * q[n + i];
    return sum;
}

static float dot_iq4_nl(const uint8_t *w8, const uint8_t *x8, int n)
{
    const struct blk_iq4_nl *w = (const void *)w8;
    const struct act_q32 *x = (const void *)x8;
    float acc = 0;

    for (int b = 0; b < n / 32; b++) {
        const int isum = dot_nibbles(w[b].qs, quant_iq4_values, x[b].q, 16);
        acc = fmaf(quant_f16_to_f32(w[b].d) * x[b].d, (float)isum, acc);
    }
    return acc;
}

/* Half of an unsigned E4M3 number (bias 7): the sign bit is ignored, 0x7f (a NaN) reads as +0. The
 * binary16 with these bits below its sign and first exponent bit is 2^-7 times as large. */
static inline float half_ue4m3(uint8_t s)
{
    s &= 0x7f;
    return s == 0x7f ? 0 : quant_f16_to_f32((uint16_t)(s << 7)) * 128;
}

/* D of each 16 values; v is twice an E2M1 value; one step per 16 values. */
static float dot_nvfp4(const uint8_t *w8, const uint8_t *x8, int n)
{
    const struct blk_nvfp4 *w = (const void *)w8;
    const struct act_q32 *x = (const void *)x8;
    float acc = 0;

    for (int g = 0; g < n / 16; g++) {
        const struct blk_nvfp4 *p = w + g / 4;
        const struct act_q32 *xg = x + g / 2;
        const int isum = dot_nibbles(p->qs + g % 4 * 8, quant_fp4_values, xg->q + g % 2 * 16, 8);
        acc = fmaf(half_ue4m3(p->d[g % 4]) * xg->d, (float)isum, acc);
    }
    return acc;
}

/* v = +1 where the bit is set, else -1; D of 128 values. */
static float dot_q1_0(const uint8_t *w8, const uint8_t *x8, int n)
{
    const struct blk_q1_0 *w = (const void *)w8;
    const struct act_q32 *x = (const void *)x8;
    float acc = 0;

    for (int b = 0; b < n / 32; b++) {
        const struct blk_q1_0 *p = w + b / 4;
        const uint8_t *qs = p->qs + b % 4 * 4;
        int isum = 0;
        for (int i = 0; i < 32; i++)
            isum += qs[i / 8] >> i % 8 & 1 ? x[b].q[i] : -x[b].q[i];
        acc = fmaf(quant_f16_to_f32(p->d) * x[b].d, (float)isum, acc);
    }
    return acc;
}

/* v = q - 1, up to 2; D of 64 values. */
static float dot_q2_0(const uint8_t *w8, const uint8_t *x8, int n)
{
    const struct blk_q2_0 *w = (const void *)w8;
    const struct act_q32 *x = (const void *)x8;
    float acc = 0;

    for (int b = 0; b < n / 32; b++) {
        const struct blk_q2_0 *p = w + b / 2;
        const uint8_t *qs = p->qs + b % 2 * 8;
        int isum = 0;
        for (int i = 0; i < 32; i++)
            isum += ((qs[i / 4] >> i % 4 * 2 & 3) - 1) * x[b].q[i];
        acc = fmaf(quant_f16_to_f32(p->d) * x[b].d, (float)isum, acc);
    }
    return acc;
}

#define MAT(name)                                                                                  \
    static void mat_##name(const struct mat_args *a)                                               \
    {                                                                                              \
        kernels_run_dot(a, dot_##name);                                                            \
    }
MAT(q5_0)
MAT(q5_1)
MAT(iq4_nl)
MAT(nvfp4)
MAT(q1_0)
MAT(q2_0)

void kernels_mat_scalar_small(struct kernels *k)
{
    k->mat[QT_Q5_0] = (struct mat_kernel){ACT_Q32, mat_q5_0, mat_q5_0};
    k->mat[QT_Q5_1] = (struct mat_kernel){ACT_Q32, mat_q5_1, mat_q5_1};
    k->mat[QT_IQ4_NL] = (struct mat_kernel){ACT_Q32, mat_iq4_nl, mat_iq4_nl};
    k->mat[QT_NVFP4] = (struct mat_kernel){ACT_Q32, mat_nvfp4, mat_nvfp4};
    k->mat[QT_Q1_0] = (struct mat_kernel){ACT_Q32, mat_q1_0, mat_q1_0};
    k->mat[QT_Q2_0] = (struct mat_kernel){ACT_Q32, mat_q2_0, mat_q2_0};
}
