/* mat_scalar.c: the definition of the products with float weights and with the commonest 32-value
 * blocks, and of how activations are packed. mat_scalar_small.c has the other small blocks,
 * mat_scalar_k.c, mat_scalar_low.c and mat_scalar_iq.c those of 256 values.
 *
 * Every result is an exact sequence of binary32 operations; other levels give the same bytes. Each
 * output has one accumulator (float weights: sixteen) and takes its blocks in rising order, so GEMV
 * and GEMM are the same function here. */
#include <math.h>
#include <string.h>

#include "kernels/levels.h"
#include "kernels/mat.h"

/* Packing.
 *
 *   a = max |x_i| over the block, on the bits as integers (NaN and infinity are the largest)
 *   a < 2^-100: d = +0, all q_i = 0
 *   else        d = a / 127; r = 127 / a; q_i = nearest_even(x_i * r), |q_i| <= 127
 *
 * The bound 2^-100 keeps r finite and x_i * r meaningful. */
static bool pack_block(const float *x, int n, int8_t *q, float *d)
{
    uint32_t top = 0;
    float a, r;

    for (int i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffff;
        top = bits > top ? bits : top;
    }
    if (top >= 0x7f800000)
        return false;
    memcpy(&a, &top, sizeof a);
    if (a < 0x1p-100f) {
        *d = 0;
        memset(q, 0, (size_t)n);
        return true;
    }
    *d = a / 127.0f;
    r = 127.0f / a;
    for (int i = 0; i < n; i++)
        q[i] = (int8_t)lrintf(x[i] * r);
    return true;
}

static bool pack_f32_scalar(const float *x, int n, void *dst)
{
    float *y = dst;
    uint32_t top = 0;

    for (int i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffff;
        top = bits > top ? bits : top;
        y[i] = x[i];
    }
    for (int i = n; i % 16; i++)
        y[i] = 0;
    return top < 0x7f800000;
}

static bool pack_q256_scalar(const float *x, int n, void *dst)
{
    struct act_q256 *y = dst;

    for (int b = 0; b < n / 256; b++) {
        if (!pack_block(x + b * 256, 256, y[b].q, &y[b].d))
            return false;
        for (int g = 0; g < 16; g++) {
            int sum = 0;
            for (int i = 0; i < 16; i++)
                sum += y[b].q[g * 16 + i];
            y[b].sum16[g] = (int16_t)sum; /* at most 2032 */
        }
        memset(y[b].pad, 0, sizeof y[b].pad);
    }
    return true;
}

static bool pack_q32_scalar(const float *x, int n, void *dst)
{
    struct act_q32 *y = dst;

    for (int b = 0; b < n / 32; b++) {
        if (!pack_block(x + b * 32, 32, y[b].q, &y[b].d))
            return false;
        y[b].sum = 0;
        for (int i = 0; i < 32; i++)
            y[b].sum += y[b].q[i];
        memset(y[b].pad, 0, sizeof y[b].pad);
    }
    return true;
}

void kernels_run_dot(const struct mat_args *a, mat_dot_fn *dot)
{
    for (int r = 0; r < a->n_rows; r++) {
        const uint8_t *row = a->w + (size_t)r * a->row_bytes;
        for (int t = 0; t < a->n_tok; t++)
            a->y[(size_t)t * a->y_stride + (size_t)r] = dot(row, a->x + (size_t)t * a->x_stride,
                                                            a->n_cols);
    }
}

/* Float weights: widened exactly, then
 *
 *   l[0..15] = +0;  l[i % 16] = fma(w_i, x_i, l[i % 16]), i rising
 *   both extended with +0 to a multiple of 16, these products carried out (-0 becomes +0 there)
 *   for s = 8, 4, 2, 1: l[i] = l[i] + l[i + s], i < s;  result l[0] */
typedef void widen_fn(const uint8_t *w, int first, int n, float *out); /* n <= 16 */

static void widen_f32(const uint8_t *w, int first, int n, float *out)
{
    memcpy(out, w + (size_t)first * 4, (size_t)n * 4);
}

static void widen_f16(const uint8_t *w, int first, int n, float *out)
{
    uint16_t half[16];

    memcpy(half, w + (size_t)first * 2, (size_t)n * 2);
    for (int i = 0; i < n; i++)
        out[i] = quant_f16_to_f32(half[i]);
}

static void widen_bf16(const uint8_t *w, int first, int n, float *out)
{
    uint16_t half[16];

    memcpy(half, w + (size_t)first * 2, (size_t)n * 2);
    for (int i = 0; i < n; i++)
        out[i] = quant_bf16_to_f32(half[i]);
}

static inline float dot_float(const uint8_t *w, const uint8_t *x, int n, widen_fn *widen)
{
    float l[16] = {0}, wide[16], act[16];

    for (int i = 0; i < n; i += 16) {
        const int left = n - i < 16 ? n - i : 16;
        memset(wide, 0, sizeof wide);
        widen(w, i, left, wide);
        memcpy(act, x + (size_t)i * 4, sizeof act); /* packed with +0 to a multiple of 16 */
        for (int j = 0; j < 16; j++)
            l[j] = fmaf(wide[j], act[j], l[j]);
    }
    for (int s = 8; s > 0; s /= 2)
        for (int i = 0; i < s; i++)
            l[i] = l[i] + l[i + s];
    return l[0];
}

static float dot_f32(const uint8_t *w, const uint8_t *x, int n)
{
    return dot_float(w, x, n, widen_f32);
}

static float dot_f16(const uint8_t *w, const uint8_t *x, int n)
{
    return dot_float(w, x, n, widen_f16);
}

static float dot_bf16(const uint8_t *w, const uint8_t *x, int n)
{
    return dot_float(w, x, n, widen_bf16);
}

/* Blocks of 32: acc = +0; per block, rising: isum = sum v_i * q_i (exact);
 * acc = fma(D * d_x, (float)isum, acc), the product D * d_x rounded. */

/* D is an F16, v is an int8. |isum| <= 32 * 128 * 127. */
static float dot_q8_0(const uint8_t *w8, const uint8_t *x8, int n)
{
    const struct blk_q8_0 *w = (const void *)w8;
    const struct act_q32 *x = (const void *)x8;
    float acc = 0;

    for (int b = 0; b < n / 32; b++) {
        int isum = 0;
        for (int i = 0; i < 32; i++)
            isum += w[b].qs[i] * x[b].q[i];
        acc = fmaf(quant_f16_to_f32(w[b].d) * x[b].d, (float)isum, acc);
    }
    return acc;
}

/* sum of values[nibble i] * q_i: the low nibbles are values 0..15, the high ones 16..31. */
static inline int dot_nibbles(const uint8_t *qs, const int8_t *values, const int8_t *q)
{
    int sum = 0;

    for (int i = 0; i < 16; i++)
        sum += values[qs[i] & 15] * q[i] + values[qs[i] >> 4] * q[16 + i];
    return sum;
}

/* D is an F16, v = nibble - 8. */
static float dot_q4_0(const uint8_t *w8, const uint8_t *x8, int n)
{
    static const int8_t values[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
    const struct blk_q4_0 *w = (const void *)w8;
    const struct act_q32 *x = (const void *)x8;
    float acc = 0;

    for (int b = 0; b < n / 32; b++) {
        const int isum = dot_nibbles(w[b].qs, values, x[b].q);
        acc = fmaf(quant_f16_to_f32(w[b].d) * x[b].d, (float)isum, acc);
    }
    return acc;
}

/* D is an F16, v = nibble; then the minimum m is added: acc = fma(m * d_x, (float)sum, acc). */
static float dot_q4_1(const uint8_t *w8, const uint8_t *x8, int n)
{
    static const int8_t values[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const struct blk_q4_1 *w = (const void *)w8;
    const struct act_q32 *x = (const void *)x8;
    float acc = 0;

    for (int b = 0; b < n / 32; b++) {
        const int isum = dot_nibbles(w[b].qs, values, x[b].q);
        acc = fmaf(quant_f16_to_f32(w[b].d) * x[b].d, (float)isum, acc);
        acc = fmaf(quant_f16_to_f32(w[b].m) * x[b].d, (float)x[b].sum, acc);
    }
    return acc;
}

/* D = 2^(e - 128) (subnormal for e < 2), v is twice an E2M1 value. */
static float dot_mxfp4(const uint8_t *w8, const uint8_t *x8, int n)
{
    static const int8_t values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    const struct blk_mxfp4 *w = (const void *)w8;
    const struct act_q32 *x = (const void *)x8;
    float acc = 0;

    for (int b = 0; b < n / 32; b++) {
        const uint32_t e = w[b].e, bits = e < 2 ? 0x200000u << e : (e - 1) << 23;
        const int isum = dot_nibbles(w[b].qs, values, x[b].q);
        float d;
        memcpy(&d, &bits, sizeof d);
        acc = fmaf(d * x[b].d, (float)isum, acc);
    }
    return acc;
}

#define MAT(name)                                                                                  \
    static void mat_##name(const struct mat_args *a)                                               \
    {                                                                                              \
        kernels_run_dot(a, dot_##name);                                                            \
    }
MAT(f32)
MAT(f16)
MAT(bf16)
MAT(q8_0)
MAT(q4_0)
MAT(q4_1)
MAT(mxfp4)

void kernels_mat_scalar(struct kernels *k)
{
    k->pack_f32 = pack_f32_scalar;
    k->pack_q256 = pack_q256_scalar;
    k->pack_q32 = pack_q32_scalar;
    k->mat[QT_F32] = (struct mat_kernel){ACT_F32, mat_f32, mat_f32};
    k->mat[QT_F16] = (struct mat_kernel){ACT_F32, mat_f16, mat_f16};
    k->mat[QT_BF16] = (struct mat_kernel){ACT_F32, mat_bf16, mat_bf16};
    k->mat[QT_Q8_0] = (struct mat_kernel){ACT_Q32, mat_q8_0, mat_q8_0};
    k->mat[QT_Q4_0] = (struct mat_kernel){ACT_Q32, mat_q4_0, mat_q4_0};
    k->mat[QT_Q4_1] = (struct mat_kernel){ACT_Q32, mat_q4_1, mat_q4_1};
    k->mat[QT_MXFP4] = (struct mat_kernel){ACT_Q32, mat_mxfp4, mat_mxfp4};
    kernels_mat_scalar_k(k);
    kernels_mat_scalar_low(k);
    kernels_mat_scalar_iq(k);
    kernels_mat_scalar_small(k);
}
