/* mat_neon_gemm.c: GEMM for every 64-bit Arm CPU. A tile keeps its rows apart, 16 values a vector;
 * two rows and all tokens at a time, the lanes of each output's sum are added at the end. */
#include "kernels/arm/mat_neon_ops.h"
#include "kernels/arm/mat_tile.h"

#define GEMV(name) kernels_gemv_##name##_neon

/* w[row * 16 + i] */
ALWAYS_INLINE void tile_put(struct tile *t, int q, int i, const int8x16_t v[4])
{
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++)
        t->w[(4 * q + r) * 16 + i] = v[r];
}

/* scale[row]: up to sixteen int16. */
ALWAYS_INLINE void tile_scales(struct tile *t, int r, const int16x8_t *s, int n)
{
    t->scale[r][0] = vreinterpretq_s32_s16(s[0]);
    if (n == 16)
        t->scale[r][1] = vreinterpretq_s32_s16(s[1]);
}

/* Partial sums of rows r and r + 1, of n tokens. */
ALWAYS_INLINE void mul_two_rows(const struct tile *t, int r, const int8_t *const x[4], int n,
                                int group, int32x4_t sum[4][8])
{
    const int chunks = group / 16;
    const int16_t *scale[2] = {(const int16_t *)t->scale[r], (const int16_t *)t->scale[r + 1]};
    int32x4_t acc[4][2];

#pragma GCC unroll 8
    for (int i = 0; i < 2 * n; i++)
        acc[i / 2][i % 2] = vdupq_n_s32(0);
    for (int g = 0; g < 16 / chunks; g++) {
        int16x8_t s[4][2];
#pragma GCC unroll 16
        for (int c = 0; c < chunks; c++) {
            const int at = g * chunks + c;
            const int8x16_t w[2] = {t->w[r * 16 + at], t->w[r * 16 + 16 + at]};
#pragma GCC unroll 8
            for (int i = 0; i < 2 * n; i++) {
                const int8x16_t xv = vld1q_s8(x[i / 2] + at * 16);
                s[i / 2][i % 2] = c ? add_pairs(s[i / 2][i % 2], w[i % 2], xv)
                                    : mul_pairs(w[i % 2], xv);
            }
        }
#pragma GCC unroll 8
        for (int i = 0; i < 2 * n; i++)
            acc[i / 2][i % 2] = group == 256 ? vpaddlq_s16(s[i / 2][i % 2])
                                             : add_scaled(acc[i / 2][i % 2], s[i / 2][i % 2],
                                                          scale[i % 2][g]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 2 * n; i++)
        sum[i / 2][r + i % 2] = acc[i / 2][i % 2];
}

ALWAYS_INLINE void tile_mul_k(const struct tile *t, const int8_t *const x[4], int n, int group,
                              int32x4_t isum[4][2])
{
    int32x4_t sum[4][8];

    for (int r = 0; r < 8; r += 2)
        mul_two_rows(t, r, x, n, group, sum);
#pragma GCC unroll 4
    for (int k = 0; k < n; k++) {
        isum[k][0] = sum_lanes4(sum[k]);
        isum[k][1] = sum_lanes4(sum[k] + 4);
    }
}

ALWAYS_INLINE void tile_mul_32(const struct tile *t, int b, const int8_t *const x[4], int n,
                               int half, bool wide, int32x4_t isum[4][2])
{
    int8x16_t xv[4][2];

#pragma GCC unroll 4
    for (int k = 0; k < n; k++) {
        xv[k][0] = vld1q_s8(x[k]);
        xv[k][1] = vld1q_s8(x[k] + 16);
    }
#pragma GCC unroll 2
    for (int q = 0; q < 2; q++) {
        int32x4_t sum[4][4];
#pragma GCC unroll 4
        for (int r = 0; r < 4; r++) {
            const int8x16_t *w = t->w + (4 * q + r) * 16 + 2 * b;
#pragma GCC unroll 4
            for (int k = 0; k < n; k++)
                sum[k][r] = half < 0 ? mul_run(w[0], w[1], xv[k][0], xv[k][1], wide)
                                     : mul_half(w[half < 0 ? 0 : half], xv[k][half < 0 ? 0 : half]);
        }
#pragma GCC unroll 4
        for (int k = 0; k < n; k++)
            isum[k][q] = sum_lanes4(sum[k]);
    }
}

#include "kernels/arm/mat_gemm.h"

void kernels_mat_neon_gemm(struct kernels *k)
{
#define ENTER(name, type, act) k->mat[type].gemm = gemm_##name;
    TYPES_OF_TABLE(ENTER)
#undef ENTER
}
