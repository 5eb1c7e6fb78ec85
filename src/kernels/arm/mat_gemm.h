/* mat_gemm.h: GEMM with quantised weights, compiled once per level. Eight rows are unpacked into a
 * tile of 256 values each, and every token of a run is multiplied with it. The floats follow the
 * definition: one accumulator per output, kept in y between tiles, blocks in rising order.
 *
 * The file of a level first says how a tile lies and multiplies it:
 *
 *   GEMV(name):                 its GEMV, for a few tokens
 *   tile_put(t, q, i, v):       values 16 i to 16 i + 15 of rows 4 q to 4 q + 3
 *   tile_scales(t, i, s, n):    the integer scales of row i, n of them
 *   tile_mul_k(t, x, n, group, isum):        sums over the block, scaled, rows 0-3 and 4-7, of n
 *                                            tokens (1, 2 or 4)
 *   tile_mul_32(t, b, x, n, half, wide, isum): as above, for block b of 32 values (or one half)
 */
#ifndef KERNELS_ARM_MAT_GEMM_H
#define KERNELS_ARM_MAT_GEMM_H

#include "kernels/arm/mat_tile.h"
#include "kernels/arm/mat_types_iq.h"
#include "kernels/arm/mat_types_list.h"

/* The block at p, of eight rows stride bytes apart. */
ALWAYS_INLINE void unpack_k(const uint8_t *p, size_t stride, struct tile *t, v16_fn *v16,
                            head_fn *head, dd_fn *dd, int group, int bias, bool minima,
                            float factor)
{
    for (int q = 0; q < 2; q++, p += 4 * stride) {
        uint32x4_t dds = vdupq_n_u32(0);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            int8x16_t v[4];
#pragma GCC unroll 4
            for (int r = 0; r < 4; r++)
                v[r] = v16(p + (size_t)r * stride, i) - (int8_t)bias;
            tile_put(t, q, i, v);
        }
#pragma GCC unroll 4
        for (int r = 0; r < 4; r++) {
            struct head h;
            dds[r] = dd(p + (size_t)r * stride);
            if (group == 256)
                continue;
            head(p + (size_t)r * stride, &h);
            tile_scales(t, 4 * q + r, h.scale, 256 / group);
            if (minima)
                tile_minima(t, 4 * q + r, h.min, 256 / group);
        }
        t->d[0][q] = widen_f16(vmovn_u32(dds)) * factor;
        if (minima)
            t->m[0][q] = widen_f16(vshrn_n_u32(dds, 16));
    }
}

/* n_blocks blocks of eight rows, runs of 32 values each. */
ALWAYS_INLINE void unpack_32(const uint8_t *p, size_t stride, int n_blocks, struct tile *t,
                             v16s_fn *v16, d4_fn *d4, d4_fn *m4, size_t block_bytes, int runs,
                             int halves, int bias)
{
    for (int b = 0; b < n_blocks; b++, p += block_bytes)
        for (int q = 0; q < 2; q++) {
            const uint8_t *rows = p + (size_t)(4 * q) * stride;
#pragma GCC unroll 4
            for (int s = 0; s < runs; s++) {
                const int run = b * runs + s;
#pragma GCC unroll 2
                for (int h = 0; h < 2; h++) {
                    int8x16_t v[4];
#pragma GCC unroll 4
                    for (int r = 0; r < 4; r++)
                        v[r] = v16(rows + (size_t)r * stride, s, h) - (int8_t)bias;
                    tile_put(t, q, 2 * run + h, v);
                    if (h < halves)
                        t->d[run * halves + h][q] = d4(rows, stride, s, h);
                }
                if (m4)
                    t->m[run][q] = m4(rows, stride, s, 0);
            }
        }
}

/* Sums of the minima times those of the activations, rows 0-3 and 4-7. */
ALWAYS_INLINE void mul_minima(const struct tile *t, const struct act_q256 *x, int group,
                              int32x4_t msum[2])
{
    int16x8_t sums[2] = {vld1q_s16(x->sum16), vld1q_s16(x->sum16 + 8)};

    msum[0] = msum[1] = vdupq_n_s32(0);
    if (group == 32)
        sums[0] = vpaddq_s16(sums[0], sums[1]);
#pragma GCC unroll 16
    for (int g = 0; g < 256 / group; g++) {
        const int16x8_t m = vld1q_s16(t->min[g]);
        msum[0] = vmlal_n_s16(msum[0], vget_low_s16(m), sums[g / 8][g % 8]);
        msum[1] = vmlal_high_n_s16(msum[1], m, sums[g / 8][g % 8]);
    }
}

/* n tokens (1, 2 or 4), their packed activations x_stride bytes apart from x on, against a tile. */
ALWAYS_INLINE void mul_k(const struct tile *t, const uint8_t *x, size_t x_stride, float *y,
                         size_t y_stride, int n, int group, bool minima)
{
    const int8_t *xq[4];
    int32x4_t isum[4][2];

#pragma GCC unroll 4
    for (int k = 0; k < n; k++)
        xq[k] = ((const struct act_q256 *)(const void *)(x + (size_t)k * x_stride))->q;
    tile_mul_k(t, xq, n, group, isum);
#pragma GCC unroll 4
    for (int k = 0; k < n; k++, y += y_stride, x += x_stride) {
        const struct act_q256 *xk = (const void *)x;
        int32x4_t msum[2];
        if (minima)
            mul_minima(t, xk, group, msum);
#pragma GCC unroll 2
        for (int q = 0; q < 2; q++) {
            float32x4_t acc = vld1q_f32(y + 4 * q);
            acc = vfmaq_f32(acc, t->d[0][q] * xk->d, vcvtq_f32_s32(isum[k][q]));
            if (minima)
                acc = vfmsq_f32(acc, t->m[0][q] * xk->d, vcvtq_f32_s32(msum[q]));
            vst1q_f32(y + 4 * q, acc);
        }
    }
}

/* As mul_k for n_runs runs of 32 values. */
ALWAYS_INLINE void mul_32(const struct tile *t, const uint8_t *x, size_t x_stride, float *y,
                          size_t y_stride, int n, int n_runs, int halves, bool wide, bool minima)
{
    float32x4_t acc[4][2];

#pragma GCC unroll 4
    for (int k = 0; k < n; k++) {
        acc[k][0] = vld1q_f32(y + (size_t)k * y_stride);
        acc[k][1] = vld1q_f32(y + (size_t)k * y_stride + 4);
    }
    for (int b = 0; b < n_runs; b++, x += sizeof(struct act_q32)) {
        const struct act_q32 *xs[4];
        const int8_t *xq[4];
        int32x4_t isum[4][2];
#pragma GCC unroll 4
        for (int k = 0; k < n; k++) {
            xs[k] = (const void *)(x + (size_t)k * x_stride);
            xq[k] = xs[k]->q;
        }
#pragma GCC unroll 2
        for (int h = 0; h < halves; h++) {
            tile_mul_32(t, b, xq, n, halves == 2 ? h : -1, wide, isum);
#pragma GCC unroll 8
            for (int i = 0; i < 2 * n; i++) {
                const int k = i / 2, q = i % 2;
                acc[k][q] = vfmaq_f32(acc[k][q], t->d[b * halves + h][q] * xs[k]->d,
                                      vcvtq_f32_s32(isum[k][q]));
            }
        }
        if (!minima)
            continue;
#pragma GCC unroll 8
        for (int i = 0; i < 2 * n; i++) {
            const int k = i / 2, q = i % 2;
            acc[k][q] = vfmaq_n_f32(acc[k][q], t->m[b][q] * xs[k]->d, (float)xs[k]->sum);
        }
    }
#pragma GCC unroll 4
    for (int k = 0; k < n; k++) {
        vst1q_f32(y + (size_t)k * y_stride, acc[k][0]);
        vst1q_f32(y + (size_t)k * y_stride + 4, acc[k][1]);
    }
}

typedef void unpack_fn(const uint8_t *w, size_t stride, int n_blocks, struct tile *t);
/* n_tok tokens against a tile that holds n_blocks blocks. */
typedef void mul_fn(const struct tile *t, const uint8_t *x, size_t x_stride, float *y,
                    size_t y_stride, int n_tok, int n_blocks);

struct gemm_type {
    int block_values;
    size_t block_bytes;
    unpack_fn *unpack;
    mul_fn *mul;
    mat_fn *gemv;
};

/* Below it unpacking is taken to cost more than it saves: GEMV, with as many tokens (not measured
 * on Arm). */
#define LEAST_TOKENS 4

#define TILE_VALUES 256

/* Eight rows at w (stride 0: one row eight times) for n_tok tokens at x, from +0. */
static void gemm_group(const struct mat_args *a, const struct gemm_type *type, const uint8_t *w,
                       size_t stride, const uint8_t *prefetch, const uint8_t *x, int n_tok,
                       float *y, size_t y_stride)
{
    const int n_blocks = a->n_cols / type->block_values;
    const int tile_blocks = TILE_VALUES / type->block_values;
    const size_t tile_bytes = (size_t)tile_blocks * type->block_bytes;
    const size_t x_bytes = type->block_values == 256 ? sizeof(struct act_q256)
                                                     : TILE_VALUES / 32 * sizeof(struct act_q32);
    struct tile t;

    for (int k = 0; k < n_tok; k++) {
        vst1q_f32(y + (size_t)k * y_stride, vdupq_n_f32(0));
        vst1q_f32(y + (size_t)k * y_stride + 4, vdupq_n_f32(0));
    }
    for (int b = 0; b < n_blocks; b += tile_blocks, w += tile_bytes, x += x_bytes) {
        const int left = n_blocks - b, n = left < tile_blocks ? left : tile_blocks;
        if (prefetch) {
            prefetch_bytes(prefetch, (int)(8 * tile_bytes));
            prefetch += 8 * tile_bytes;
        }
        type->unpack(w, stride, n, &t);
        type->mul(&t, x, a->x_stride, y, y_stride, n_tok, n);
    }
}

/* Fewer than eight rows: each on its own, through a buffer of TOKENS results of eight equal lanes.
 */
#define TOKENS 64
static void gemm_few_rows(const struct mat_args *a, const struct gemm_type *type)
{
    float y[TOKENS * 8];

    for (int r = 0; r < a->n_rows; r++)
        for (int k = 0; k < a->n_tok; k += TOKENS) {
            const int n = a->n_tok - k < TOKENS ? a->n_tok - k : TOKENS;
            gemm_group(a, type, a->w + (size_t)r * a->row_bytes, 0, NULL,
                       a->x + (size_t)k * a->x_stride, n, y, 8);
            for (int i = 0; i < n; i++)
                a->y[(size_t)(k + i) * a->y_stride + (size_t)r] = y[i * 8];
        }
}

/* Tokens are taken in runs whose activations stay in the L2 cache while all rows pass. The last
 * group of rows overlaps the one before it when their number is no multiple of eight. */
static void gemm_rows(const struct mat_args *a, const struct gemm_type *type)
{
    const int run = tokens_in_cache(a->x_stride, 64) / 4 * 4;

    if (a->n_tok < LEAST_TOKENS) {
        type->gemv(a);
        return;
    }
    if (a->n_rows < 8) {
        gemm_few_rows(a, type);
        return;
    }
    for (int k = 0; k < a->n_tok; k += run) {
        const int n_tok = a->n_tok - k < run ? a->n_tok - k : run;
        for (int r = 0; r < a->n_rows; r += 8) {
            const int first = r + 8 <= a->n_rows ? r : a->n_rows - 8;
            const size_t at = (size_t)first * a->row_bytes;
            gemm_group(a, type, a->w + at, a->row_bytes, prefetch_from(a, at, 8 * a->row_bytes),
                       a->x + (size_t)k * a->x_stride, n_tok,
                       a->y + (size_t)k * a->y_stride + (size_t)first, a->y_stride);
        }
    }
}

/* CALL(n) for four tokens at a time, then two, then one. */
#define IN_TOKENS(CALL)                                                                            \
    do {                                                                                           \
        for (; n_tok >= 4; n_tok -= 4, x += 4 * xs, y += 4 * ys)                                   \
            CALL(4);                                                                               \
        if (n_tok >= 2) {                                                                          \
            CALL(2);                                                                               \
            x += 2 * xs;                                                                           \
            y += 2 * ys;                                                                           \
        }                                                                                          \
        if (n_tok & 1)                                                                             \
            CALL(1);                                                                               \
    } while (0)

/* The multiplication is the same function for types that agree in what it depends on. */
#define MUL_K(group, minima)                                                                       \
    static void mul_k_##group##_##minima(const struct tile *t, const uint8_t *x, size_t xs,        \
                                         float *y, size_t ys, int n_tok, int n_blocks)             \
    {                                                                                              \
        (void)n_blocks;                                                                            \
        IN_TOKENS(MUL_K_CALL_##group##_##minima);                                                  \
    }
#define MUL_K_CALL_16_true(n)   mul_k(t, x, xs, y, ys, n, 16, true)
#define MUL_K_CALL_16_false(n)  mul_k(t, x, xs, y, ys, n, 16, false)
#define MUL_K_CALL_32_true(n)   mul_k(t, x, xs, y, ys, n, 32, true)
#define MUL_K_CALL_32_false(n)  mul_k(t, x, xs, y, ys, n, 32, false)
#define MUL_K_CALL_256_false(n) mul_k(t, x, xs, y, ys, n, 256, false)
MUL_K(16, true)
MUL_K(16, false)
MUL_K(32, true)
MUL_K(32, false)
MUL_K(256, false)

#define MUL_32(name, runs, halves, wide, m4)                                                       \
    static void mul_##name(const struct tile *t, const uint8_t *x, size_t xs, float *y, size_t ys, \
                           int n_tok, int n_blocks)                                                \
    {                                                                                              \
        for (; n_tok >= 4; n_tok -= 4, x += 4 * xs, y += 4 * ys)                                   \
            mul_32(t, x, xs, y, ys, 4, n_blocks *(runs), halves, wide, m4 != NULL);                \
        for (; n_tok > 0; n_tok--, x += xs, y += ys)                                               \
            mul_32(t, x, xs, y, ys, 1, n_blocks *(runs), halves, wide, m4 != NULL);                \
    }

#define GEMM(name, values, block, mul)                                                             \
    static void gemm_##name(const struct mat_args *a)                                              \
    {                                                                                              \
        static const struct gemm_type type = {values, sizeof(struct block), unpack_##name, mul,    \
                                              GEMV(name)};                                         \
        gemm_rows(a, &type);                                                                       \
    }

#define GEMM_OF_K(name, block, group, bias, minima, factor, head, dd)                              \
    static void unpack_##name(const uint8_t *w, size_t stride, int n_blocks, struct tile *t)       \
    {                                                                                              \
        (void)n_blocks;                                                                            \
        unpack_k(w, stride, t, v16_##name, head, dd, group, bias, minima, factor);                 \
    }                                                                                              \
    GEMM(name, 256, block, mul_k_##group##_##minima)

#define GEMM_OF_32(name, block, runs, halves, bias, wide, d4, m4)                                  \
    static void unpack_##name(const uint8_t *w, size_t stride, int n_blocks, struct tile *t)       \
    {                                                                                              \
        unpack_32(w, stride, n_blocks, t, v16_##name, d4, m4, sizeof(struct block), runs, halves,  \
                  bias);                                                                           \
    }                                                                                              \
    MUL_32(name, runs, halves, wide, m4)                                                           \
    GEMM(name, 32 * (runs), block, mul_##name)

TYPES_OF_K(GEMM_OF_K)
TYPES_OF_32(GEMM_OF_32)

#endif
