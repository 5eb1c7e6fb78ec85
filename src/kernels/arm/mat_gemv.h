/* mat_gemv.h: GEMV with quantised weights, four rows in float lanes, compiled once per level.
 *
 * The file of a level first gives its products of int8:
 *
 *   mul_groups(v16, p, x, scale, group): four partial sums of scale_g * sum v_i * q_i over a block
 *   mul_run(v0, v1, x0, x1, wide):       four partial sums of 32 products
 *   mul_half(v, x):                      four partial sums of 16 products
 *
 * Types whose values are stored with a bias enter with it; the bias times the sums of the
 * activations is taken off again. Everything inside a block is exact, then come the float steps of
 * the definition, blocks in rising order. */
#ifndef KERNELS_ARM_MAT_GEMV_H
#define KERNELS_ARM_MAT_GEMV_H

#include "kernels/arm/mat_types.h"
#include "kernels/arm/mat_types_iq.h"

/* Sum of a_g * b_g over eight or sixteen int16 pairs, in four partial sums. */
ALWAYS_INLINE int32x4_t mul_sums(const int16x8_t a[2], const int16x8_t b[2], int n)
{
    int32x4_t sum = vmull_s16(vget_low_s16(a[0]), vget_low_s16(b[0]));

    sum = vmlal_high_s16(sum, a[0], b[0]);
    if (n == 8)
        return sum;
    sum = vmlal_s16(sum, vget_low_s16(a[1]), vget_low_s16(b[1]));
    return vmlal_high_s16(sum, a[1], b[1]);
}

/* acc = fma(d * d_x, isum, acc); then fma(-(dmin * d_x), msum, acc); dd: dmin << 16 | d. */
ALWAYS_INLINE float32x4_t add_k(float32x4_t acc, uint32x4_t dd, float factor, float d_x,
                                int32x4_t isum, const int32x4_t *msum)
{
    const float32x4_t d = widen_f16(vmovn_u32(dd)) * factor;

    acc = vfmaq_f32(acc, d * d_x, vcvtq_f32_s32(isum));
    if (!msum)
        return acc;
    const float32x4_t dmin = widen_f16(vshrn_n_u32(dd, 16));
    return vfmsq_f32(acc, dmin * d_x, vcvtq_f32_s32(*msum));
}

/* group: values per scale (256: none). bias: in v16. factor: D / d. */
ALWAYS_INLINE float32x4_t gemv_k(const struct row_group *g, v16_fn *v16, head_fn *head, dd_fn *dd,
                                 size_t block_bytes, int group, int bias, bool minima, float factor)
{
    const struct act_q256 *x = g->x;
    const int n_groups = group == 32 ? 8 : 16;
    float32x4_t acc = vdupq_n_f32(0);
    size_t at = 0;

    for (int b = 0; b < g->n_blocks; b++, x++, at += block_bytes) {
        int16x8_t sums[2] = {vld1q_s16(x->sum16), vld1q_s16(x->sum16 + 8)};
        int32x4_t isum[4], msum[4], total;
        uint32x4_t dds = vdupq_n_u32(0);

        if (group == 32)
            sums[0] = vpaddq_s16(sums[0], sums[1]);
        if (g->prefetch)
            prefetch_bytes(g->prefetch + 4 * at, (int)(4 * block_bytes));
        for (int r = 0; r < 4; r++) {
            const uint8_t *p = g->w + at + (size_t)r * g->stride;
            struct head h;
            head(p, &h);
            isum[r] = mul_groups(v16, p, x->q, h.scale, group);
            if (bias)
                isum[r] = vmlsq_n_s32(isum[r], mul_sums(h.scale, sums, n_groups), bias);
            if (minima)
                msum[r] = mul_sums(h.min, sums, n_groups);
        }
#pragma GCC unroll 4
        for (int r = 0; r < 4; r++)
            dds[r] = dd(g->w + at + (size_t)r * g->stride);
        if (minima)
            total = sum_lanes4(msum);
        acc = add_k(acc, dds, factor, x->d, sum_lanes4(isum), minima ? &total : NULL);
    }
    return acc;
}

/* runs: of 32 values in a block. halves: 2 where D belongs to 16 values. wide: two products of v
 * and q fill an int16, not four. m4: minima that are added, or NULL. */
ALWAYS_INLINE float32x4_t gemv_32(const struct row_group *g, v16s_fn *v16, d4_fn *d4, d4_fn *m4,
                                  size_t block_bytes, int runs, int halves, int bias, bool wide)
{
    const struct act_q32 *x = g->x;
    float32x4_t acc = vdupq_n_f32(0);
    size_t at = 0;

    for (int b = 0; b < g->n_blocks; b++, at += block_bytes) {
        const uint8_t *w = g->w + at;

        if (g->prefetch)
            prefetch_bytes(g->prefetch + 4 * at, (int)(4 * block_bytes));
#pragma GCC unroll 4
        for (int s = 0; s < runs; s++, x++) {
            const int8x16_t xq[2] = {vld1q_s8(x->q), vld1q_s8(x->q + 16)};
            int32x4_t sum[2][4], isum;
#pragma GCC unroll 4
            for (int r = 0; r < 4; r++) {
                const uint8_t *p = w + (size_t)r * g->stride;
                const int8x16_t v0 = v16(p, s, 0), v1 = v16(p, s, 1);
                if (halves == 1) {
                    sum[0][r] = mul_run(v0, v1, xq[0], xq[1], wide);
                    continue;
                }
                sum[0][r] = mul_half(v0, xq[0]);
                sum[1][r] = mul_half(v1, xq[1]);
            }
#pragma GCC unroll 2
            for (int h = 0; h < halves; h++) {
                isum = sum_lanes4(sum[h]);
                if (bias)
                    isum -= bias * x->sum;
                acc = vfmaq_f32(acc, d4(w, g->stride, s, h) * x->d, vcvtq_f32_s32(isum));
            }
            if (m4)
                acc = vfmaq_n_f32(acc, m4(w, g->stride, s, 0) * x->d, (float)x->sum);
        }
    }
    return acc;
}

#define GEMV_OF_K(name, block, group, bias, minima, factor, head, dd)                              \
    ALWAYS_INLINE float32x4_t group_##name(const struct row_group *g)                              \
    {                                                                                              \
        return gemv_k(g, v16_##name, head, dd, sizeof(struct block), group, bias, minima, factor); \
    }                                                                                              \
    void GEMV(name)(const struct mat_args *a)                                                      \
    {                                                                                              \
        gemv_rows(a, 256, group_##name);                                                           \
    }

#define GEMV_OF_32(name, block, runs, halves, bias, wide, d4, m4)                                  \
    ALWAYS_INLINE float32x4_t group_##name(const struct row_group *g)                              \
    {                                                                                              \
        return gemv_32(g, v16_##name, d4, m4, sizeof(struct block), runs, halves, bias, wide);     \
    }                                                                                              \
    void GEMV(name)(const struct mat_args *a)                                                      \
    {                                                                                              \
        gemv_rows(a, 32 * (runs), group_##name);                                                   \
    }

TYPES_OF_K(GEMV_OF_K)
TYPES_OF_32(GEMV_OF_32)

#endif
