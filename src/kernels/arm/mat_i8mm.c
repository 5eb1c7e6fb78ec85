/* mat_i8mm.c: GEMM for CPUs with int8 matrix products. One instruction multiplies eight values of
 * two rows with those of two tokens; GEMV would leave half of it unused and stays with the dot
 * product.
 *
 * A tile has eight values of two rows in a vector. Sums are 2 x 2 per vector (row 0 token 0, row 0
 * token 1, row 1 token 0, row 1 token 1) until a block is done. */
#include "kernels/arm/mat_tile.h"
#include "kernels/levels.h"

#define GEMV(name) kernels_gemv_##name##_dotprod

ALWAYS_INLINE int8x16_t zip_low(int8x16_t a, int8x16_t b)
{
    return vreinterpretq_s8_s64(vzip1q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}

ALWAYS_INLINE int8x16_t zip_high(int8x16_t a, int8x16_t b)
{
    return vreinterpretq_s8_s64(vzip2q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}

/* w[(2 i + j) * 4 + pair]: values 16 i + 8 j to + 7 of rows 2 pair and 2 pair + 1. */
ALWAYS_INLINE void tile_put(struct tile *t, int q, int i, const int8x16_t v[4])
{
    int8x16_t *out = t->w + 8 * i + 2 * q;

    out[0] = zip_low(v[0], v[1]);
    out[1] = zip_low(v[2], v[3]);
    out[4] = zip_high(v[0], v[1]);
    out[5] = zip_high(v[2], v[3]);
}

/* scale[g][pair]: twice that of the first row, twice that of the second. */
ALWAYS_INLINE void tile_scales(struct tile *t, int r, const int16x8_t *s, int n)
{
#pragma GCC unroll 16
    for (int g = 0; g < n; g++) {
        int32_t *out = (int32_t *)t->scale[g] + 2 * r;
        out[0] = out[1] = s[g / 8][g % 8];
    }
}

/* Add the products of chunk i (16 values): s[p][pair] of the p-th two tokens. One token counts
 * twice. */
ALWAYS_INLINE void add_chunk(const struct tile *t, int i, const int8_t *const x[4], int x_at, int n,
                             int32x4_t s[2][4])
{
    const int8x16_t *w = t->w + i * 8;

#pragma GCC unroll 2
    for (int p = 0; p < (n + 1) / 2; p++) {
        const int8x16_t x0 = vld1q_s8(x[2 * p] + x_at);
        const int8x16_t x1 = n == 1 ? x0 : vld1q_s8(x[n == 1 ? 0 : 2 * p + 1] + x_at);
        const int8x16_t low = zip_low(x0, x1), high = zip_high(x0, x1);
#pragma GCC unroll 4
        for (int pair = 0; pair < 4; pair++)
            s[p][pair] = vmmlaq_s32(vmmlaq_s32(s[p][pair], w[pair], low), w[4 + pair], high);
    }
}

ALWAYS_INLINE void zero_sums(int32x4_t s[2][4], int n)
{
#pragma GCC unroll 8
    for (int i = 0; i < (n + 1) / 2 * 4; i++)
        s[i / 4][i % 4] = vdupq_n_s32(0);
}

/* From 2 x 2 to rows in lanes. */
ALWAYS_INLINE void sums_of_tokens(const int32x4_t s[2][4], int n, int32x4_t isum[4][2])
{
#pragma GCC unroll 4
    for (int k = 0; k < n; k++)
#pragma GCC unroll 2
        for (int q = 0; q < 2; q++)
            isum[k][q] = k % 2 ? vuzp2q_s32(s[k / 2][2 * q], s[k / 2][2 * q + 1])
                               : vuzp1q_s32(s[k / 2][2 * q], s[k / 2][2 * q + 1]);
}

ALWAYS_INLINE void tile_mul_k(const struct tile *t, const int8_t *const x[4], int n, int group,
                              int32x4_t isum[4][2])
{
    const int chunks = group / 16;
    int32x4_t sum[2][4];

    zero_sums(sum, n);
    for (int g = 0; g < 16 / chunks; g++) {
        int32x4_t s[2][4];
        zero_sums(s, n);
#pragma GCC unroll 2
        for (int c = 0; c < chunks; c++)
            add_chunk(t, g * chunks + c, x, 16 * (g * chunks + c), n, s);
#pragma GCC unroll 8
        for (int i = 0; i < (n + 1) / 2 * 4; i++)
            sum[i / 4][i % 4] = group == 256 ? s[i / 4][i % 4]
                                             : vmlaq_s32(sum[i / 4][i % 4], s[i / 4][i % 4],
                                                         t->scale[g][i % 4]);
    }
    sums_of_tokens(sum, n, isum);
}

ALWAYS_INLINE void tile_mul_32(const struct tile *t, int b, const int8_t *const x[4], int n,
                               int half, bool wide, int32x4_t isum[4][2])
{
    int32x4_t sum[2][4];

    (void)wide;
    zero_sums(sum, n);
    if (half != 1)
        add_chunk(t, 2 * b, x, 0, n, sum);
    if (half != 0)
        add_chunk(t, 2 * b + 1, x, 16, n, sum);
    sums_of_tokens(sum, n, isum);
}

#include "kernels/arm/mat_gemm.h"

void kernels_mat_i8mm(struct kernels *k)
{
#define ENTER(name, type, act) k->mat[type].gemm = gemm_##name;
    TYPES_OF_TABLE(ENTER)
#undef ENTER
}
