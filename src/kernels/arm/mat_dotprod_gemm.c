/* mat_dotprod_gemm.c: GEMM for CPUs with the dot product instructions. A tile has four values of
 * four rows in a vector, so that lane r of every sum belongs to row r; four values of a token are
 * one lane of its activations. */
#include "kernels/arm/mat_tile.h"
#include "kernels/levels.h"

#define GEMV(name) kernels_gemv_##name##_dotprod

/* w[(4 i + j) * 2 + q]: values 16 i + 4 j to + 3 of the four rows. */
ALWAYS_INLINE void tile_put(struct tile *t, int q, int i, const int8x16_t v[4])
{
    const int32x4_t a = vreinterpretq_s32_s8(v[0]), b = vreinterpretq_s32_s8(v[1]);
    const int32x4_t c = vreinterpretq_s32_s8(v[2]), d = vreinterpretq_s32_s8(v[3]);
    const int64x2_t ab0 = vreinterpretq_s64_s32(vtrn1q_s32(a, b));
    const int64x2_t ab1 = vreinterpretq_s64_s32(vtrn2q_s32(a, b));
    const int64x2_t cd0 = vreinterpretq_s64_s32(vtrn1q_s32(c, d));
    const int64x2_t cd1 = vreinterpretq_s64_s32(vtrn2q_s32(c, d));
    int8x16_t *out = t->w + 8 * i + q;

    out[0] = vreinterpretq_s8_s64(vtrn1q_s64(ab0, cd0));
    out[2] = vreinterpretq_s8_s64(vtrn1q_s64(ab1, cd1));
    out[4] = vreinterpretq_s8_s64(vtrn2q_s64(ab0, cd0));
    out[6] = vreinterpretq_s8_s64(vtrn2q_s64(ab1, cd1));
}

/* scale[g]: of rows 0-3, of rows 4-7. */
ALWAYS_INLINE void tile_scales(struct tile *t, int r, const int16x8_t *s, int n)
{
#pragma GCC unroll 16
    for (int g = 0; g < n; g++)
        ((int32_t *)t->scale[g])[r] = s[g / 8][g % 8];
}

/* Add the products of chunk i (16 values) for n tokens. The lane has to be a literal. */
#define ADD_DWORD(j)                                                                               \
    s[k][0] = vdotq_laneq_s32(s[k][0], w[2 * (j)], xv, j);                                         \
    s[k][1] = vdotq_laneq_s32(s[k][1], w[2 * (j) + 1], xv, j)
ALWAYS_INLINE void add_chunk(const struct tile *t, int i, const int8_t *const x[4], int x_at, int n,
                             int32x4_t s[4][2])
{
    const int8x16_t *w = t->w + i * 8;

#pragma GCC unroll 4
    for (int k = 0; k < n; k++) {
        const int8x16_t xv = vld1q_s8(x[k] + x_at);
        ADD_DWORD(0);
        ADD_DWORD(1);
        ADD_DWORD(2);
        ADD_DWORD(3);
    }
}

ALWAYS_INLINE void zero_sums(int32x4_t s[4][2], int n)
{
#pragma GCC unroll 4
    for (int k = 0; k < n; k++)
        s[k][0] = s[k][1] = vdupq_n_s32(0);
}

ALWAYS_INLINE void tile_mul_k(const struct tile *t, const int8_t *const x[4], int n, int group,
                              int32x4_t isum[4][2])
{
    const int chunks = group / 16;

    zero_sums(isum, n);
    for (int g = 0; g < 16 / chunks; g++) {
        int32x4_t s[4][2];
        zero_sums(s, n);
#pragma GCC unroll 2
        for (int c = 0; c < chunks; c++)
            add_chunk(t, g * chunks + c, x, 16 * (g * chunks + c), n, s);
#pragma GCC unroll 8
        for (int i = 0; i < 2 * n; i++)
            isum[i / 2][i % 2] = group == 256 ? s[i / 2][i % 2]
                                              : vmlaq_s32(isum[i / 2][i % 2], s[i / 2][i % 2],
                                                          t->scale[g][i % 2]);
    }
}

ALWAYS_INLINE void tile_mul_32(const struct tile *t, int b, const int8_t *const x[4], int n,
                               int half, bool wide, int32x4_t isum[4][2])
{
    (void)wide;
    zero_sums(isum, n);
    if (half != 1)
        add_chunk(t, 2 * b, x, 0, n, isum);
    if (half != 0)
        add_chunk(t, 2 * b + 1, x, 16, n, isum);
}

#include "kernels/arm/mat_gemm.h"

void kernels_mat_dotprod_gemm(struct kernels *k)
{
#define ENTER(name, type, act) k->mat[type].gemm = gemm_##name;
    TYPES_OF_TABLE(ENTER)
#undef ENTER
}

void kernels_mat_dotprod(struct kernels *k)
{
    kernels_mat_dotprod_gemv(k);
    kernels_mat_dotprod_gemm(k);
}
