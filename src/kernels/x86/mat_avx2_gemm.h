/* mat_avx2_gemm.h: the frame of GEMM with quantised weights. Groups of eight rows are unpacked into
 * tiles (mat_avx2_tile.h), and every token of a run is multiplied with them. The floats follow the
 * definition: one accumulator per output, blocks in rising order. Accumulators lie in a buffer of
 * their own until the last block is done: results of one group are often a power of two apart in y,
 * and would evict each other from the L1 cache.
 *
 * Sums of maddubs results stay int16 over some dwords where that is exact; then madd by the scale
 * (or by one). The bounds stand beside each type's number of dwords. */
#ifndef KERNELS_X86_MAT_AVX2_GEMM_H
#define KERNELS_X86_MAT_AVX2_GEMM_H

#include "kernels/x86/mat_avx2_tile.h"

/* What the tile's bytes are, where they are not simply unsigned weights. */
enum tile_form {
    TF_PLAIN,
    TF_MINIMA, /* with minima */
    TF_SIGNED  /* signed: the sign moves to the activation */
};

#define GROUPS 2 /* row groups per pass: every dword of activations is loaded once for both */

/* The accumulators of token k and group g. */
#define ACC(acc, k, g) ((acc) + ((size_t)(k)*GROUPS + (size_t)(g)) * 8)

/* s + products of four unsigned and four signed bytes per lane, two int16 sums. */
ALWAYS_INLINE __m256i dot_dword(__m256i s, __m256i w, __m256i v, bool is_signed)
{
    const __m256i u = is_signed ? _mm256_abs_epi8(w) : w;

    v = is_signed ? _mm256_sign_epi8(v, w) : v;
    return _mm256_add_epi16(s, _mm256_maddubs_epi16(u, v));
}

/* Sums of a token's activations as int16 pairs, in the order of a tile's pairs: of 16 values, as
 * they lie in the activations, or, where minima are of 32, of 32 values, which are made here. */
struct pair_sums {
    const void *p;
    int n; /* pairs; 0 where no sum is wanted */
    __m128i own;
};

ALWAYS_INLINE void find_sums(const struct act_q256 *x, int values, int bias, bool minima,
                             struct pair_sums *s)
{
    s->p = x->sum16;
    s->n = bias || minima ? 8 : 0;
    if (minima && values == 32) {
        const __m256i v = _mm256_madd_epi16(load256(x->sum16), _mm256_set1_epi16(1));
        s->own = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
        s->p = &s->own;
        s->n = 4;
    }
}

/* One token's block against a tile whose products are isum. */
ALWAYS_INLINE __m256 add_k_block(__m256 acc, const struct tile *t, float d,
                                 const struct pair_sums *s, __m256i isum, int bias, bool minima)
{
    const __m256 dx = _mm256_set1_ps(d);
    __m256i sum = _mm256_setzero_si256();

#pragma GCC unroll 8
    for (int j = 0; j < s->n; j++)
        sum = _mm256_add_epi32(
            sum, _mm256_madd_epi16(t->pair[j], load_dword((const char *)s->p + 4 * j)));
    if (bias)
        isum = _mm256_sub_epi32(isum, _mm256_mullo_epi32(sum, _mm256_set1_epi32(bias)));
    acc = _mm256_fmadd_ps(_mm256_mul_ps(t->d[0], dx), _mm256_cvtepi32_ps(isum), acc);
    return minima ? _mm256_fnmadd_ps(_mm256_mul_ps(t->min[0], dx), _mm256_cvtepi32_ps(sum), acc)
                  : acc;
}

/* n tokens (1, 2 or 4), their packed activations x_stride bytes apart from x on, against n_g tiles.
 * dwords: as said above; values: those that share a scale; bias: taken off every weight. */
ALWAYS_INLINE void mul_k(const struct tile *t, const uint8_t *x, size_t x_stride, float *acc,
                         int n_g, int n, int dwords, int values, int bias, enum tile_form form)
{
    const struct act_q256 *xs[4];
    __m256i isum[GROUPS][4];

#pragma GCC unroll 4
    for (int k = 0; k < n; k++) {
        xs[k] = (const void *)(x + (size_t)k * x_stride);
#pragma GCC unroll 2
        for (int g = 0; g < n_g; g++)
            isum[g][k] = _mm256_setzero_si256();
    }
    for (int i = 0; i < 64; i += dwords) {
        __m256i s[GROUPS][4];
#pragma GCC unroll 4
        for (int k = 0; k < n; k++)
#pragma GCC unroll 2
            for (int g = 0; g < n_g; g++)
                s[g][k] = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (int j = i; j < i + dwords; j++)
#pragma GCC unroll 4
            for (int k = 0; k < n; k++) {
                const __m256i v = load_dword(xs[k]->q + j * 4);
#pragma GCC unroll 2
                for (int g = 0; g < n_g; g++) {
                    s[g][k] = dot_dword(s[g][k], t[g].w[j], v, form == TF_SIGNED);
                    if (dwords > 1)
                        KEEP_ORDER(s[g][k]);
                }
            }
#pragma GCC unroll 4
        for (int k = 0; k < n; k++)
#pragma GCC unroll 2
            for (int g = 0; g < n_g; g++)
                isum[g][k] = _mm256_add_epi32(
                    isum[g][k], _mm256_madd_epi16(s[g][k], t[g].scale[i * 4 / values]));
    }
#pragma GCC unroll 4
    for (int k = 0; k < n; k++) {
        struct pair_sums sums;
        find_sums(xs[k], values, bias, form == TF_MINIMA, &sums);
#pragma GCC unroll 2
        for (int g = 0; g < n_g; g++)
            _mm256_store_ps(ACC(acc, k, g),
                            add_k_block(_mm256_load_ps(ACC(acc, k, g)), t + g, xs[k]->d, &sums,
                                        isum[g][k], bias, form == TF_MINIMA));
    }
}

/* Likewise with one of 32: block b of the tile. */
ALWAYS_INLINE __m256 add_block32(__m256 acc, const struct tile *t, int b, const struct act_q32 *x,
                                 __m256i isum, int bias, bool minima)
{
    const __m256 dx = _mm256_set1_ps(x->d);

    if (bias)
        isum = _mm256_sub_epi32(isum, _mm256_set1_epi32(bias * x->sum));
    acc = _mm256_fmadd_ps(_mm256_mul_ps(t->d[b], dx), _mm256_cvtepi32_ps(isum), acc);
    return minima
               ? _mm256_fmadd_ps(_mm256_mul_ps(t->min[b], dx), _mm256_set1_ps((float)x->sum), acc)
               : acc;
}

/* As mul_k for up to eight blocks of 32; bias is taken off with the sum of the activations. */
ALWAYS_INLINE void mul_32(const struct tile *t, const uint8_t *x, size_t x_stride, float *acc,
                          int n_g, int n, int n_blocks, int dwords, int bias, enum tile_form form)
{
    const __m256i one = _mm256_set1_epi16(1);
    __m256 a[GROUPS][4];

#pragma GCC unroll 4
    for (int k = 0; k < n; k++)
#pragma GCC unroll 2
        for (int g = 0; g < n_g; g++)
            a[g][k] = _mm256_load_ps(ACC(acc, k, g));
    for (int b = 0; b < n_blocks; b++, x += sizeof(struct act_q32)) {
        __m256i isum[GROUPS][4];
#pragma GCC unroll 4
        for (int k = 0; k < n; k++)
#pragma GCC unroll 2
            for (int g = 0; g < n_g; g++)
                isum[g][k] = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (int i = 0; i < 8; i += dwords) {
            __m256i s[GROUPS][4];
#pragma GCC unroll 4
            for (int k = 0; k < n; k++)
#pragma GCC unroll 2
                for (int g = 0; g < n_g; g++)
                    s[g][k] = _mm256_setzero_si256();
#pragma GCC unroll 8
            for (int j = i; j < i + dwords; j++)
#pragma GCC unroll 4
                for (int k = 0; k < n; k++) {
                    const __m256i v = load_dword(x + (size_t)k * x_stride + j * 4);
#pragma GCC unroll 2
                    for (int g = 0; g < n_g; g++) {
                        s[g][k] = dot_dword(s[g][k], t[g].w[b * 8 + j], v, form == TF_SIGNED);
                        if (dwords > 1)
                            KEEP_ORDER(s[g][k]);
                    }
                }
#pragma GCC unroll 4
            for (int k = 0; k < n; k++)
#pragma GCC unroll 2
                for (int g = 0; g < n_g; g++)
                    isum[g][k] = _mm256_add_epi32(isum[g][k], _mm256_madd_epi16(s[g][k], one));
        }
#pragma GCC unroll 4
        for (int k = 0; k < n; k++)
#pragma GCC unroll 2
            for (int g = 0; g < n_g; g++)
                a[g][k] = add_block32(a[g][k], t + g, b, (const void *)(x + (size_t)k * x_stride),
                                      isum[g][k], bias, form == TF_MINIMA);
    }
#pragma GCC unroll 4
    for (int k = 0; k < n; k++)
#pragma GCC unroll 2
        for (int g = 0; g < n_g; g++)
            _mm256_store_ps(ACC(acc, k, g), a[g][k]);
}

/* n_tok tokens against n_g tiles that hold n_blocks blocks. */
typedef void mul_fn(const struct tile *t, const uint8_t *x, size_t x_stride, float *acc, int n_g,
                    int n_tok, int n_blocks);

/* A weight type: blocks per tile, sizes, and its two steps. */
struct gemm_type {
    int tile_blocks;
    size_t block_bytes;
    size_t act_bytes;
    int block_values;
    unpack_fn *unpack;
    mul_fn *mul;
    mat_fn *gemv;
    int least_tokens; /* below it unpacking costs more than it saves (measured): GEMV, any n_tok */
};

/* mul_NAME from its step: a call of mul_k or mul_32 for n_g groups and n tokens. */
#define MUL_TOKENS(name, ...)                                                                      \
    ALWAYS_INLINE void mul_some_##name(const struct tile *t, const uint8_t *x, size_t xs,          \
                                       float *acc, int n_g, int n, int n_blocks)                   \
    {                                                                                              \
        (void)n_blocks;                                                                            \
        __VA_ARGS__;                                                                               \
    }                                                                                              \
    ALWAYS_INLINE void mul_groups_##name(const struct tile *t, const uint8_t *x, size_t xs,        \
                                         float *acc, int n_g, int n_tok, int n_blocks)             \
    {                                                                                              \
        for (; n_tok >= 4; n_tok -= 4, x += 4 * xs, acc += 4 * GROUPS * 8)                         \
            mul_some_##name(t, x, xs, acc, n_g, 4, n_blocks);                                      \
        if (n_tok >= 2) {                                                                          \
            mul_some_##name(t, x, xs, acc, n_g, 2, n_blocks);                                      \
            x += 2 * xs;                                                                           \
            acc += 2 * GROUPS * 8;                                                                 \
        }                                                                                          \
        if (n_tok & 1)                                                                             \
            mul_some_##name(t, x, xs, acc, n_g, 1, n_blocks);                                      \
    }                                                                                              \
    static void mul_##name(const struct tile *t, const uint8_t *x, size_t xs, float *acc, int n_g, \
                           int n_tok, int n_blocks)                                                \
    {                                                                                              \
        if (n_g == GROUPS)                                                                         \
            mul_groups_##name(t, x, xs, acc, GROUPS, n_tok, n_blocks);                             \
        else                                                                                       \
            mul_groups_##name(t, x, xs, acc, 1, n_tok, n_blocks);                                  \
    }

/* All rows of a, by tiles. */
void kernels_gemm_rows_avx2(const struct mat_args *a, const struct gemm_type *type);

#define GEMM(name, block, act, values, blocks, least, unpack, gemv)                                \
    static void gemm_##name##_avx2(const struct mat_args *a)                                       \
    {                                                                                              \
        static const struct gemm_type type = {                                                     \
            blocks, sizeof(struct block), sizeof(struct act), values, unpack, mul_##name, gemv,    \
            least};                                                                                \
        kernels_gemm_rows_avx2(a, &type);                                                          \
    }

#endif
