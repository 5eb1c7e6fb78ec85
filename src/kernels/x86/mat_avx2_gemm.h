/* mat_avx2_gemm.h: the frame of GEMM with quantised weights. Eight rows are unpacked into a tile
 * (mat_avx2_tile.h), and every token of a run is multiplied with it. The floats follow the
 * definition: one accumulator per output, kept in y between tiles, blocks in rising order.
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

/* n tokens (1, 2 or 4), their packed activations x_stride bytes apart from x on, against a tile.
 * dwords: as said above; values: those that share a scale; bias: taken off every weight. */
ALWAYS_INLINE void mul_k(const struct tile *t, const uint8_t *x, size_t x_stride, float *y,
                         size_t y_stride, int n, int dwords, int values, int bias,
                         enum tile_form form)
{
    const bool minima = form == TF_MINIMA, is_signed = form == TF_SIGNED;
    const __m256i biases = _mm256_set1_epi32(bias);
    const struct act_q256 *xs[4];
    __m256i isum[4];

#pragma GCC unroll 4
    for (int k = 0; k < n; k++) {
        xs[k] = (const void *)(x + (size_t)k * x_stride);
        isum[k] = _mm256_setzero_si256();
    }
    for (int i = 0; i < 64; i += dwords) {
        __m256i s[4];
#pragma GCC unroll 4
        for (int k = 0; k < n; k++)
            s[k] = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (int j = i; j < i + dwords; j++) {
            const __m256i w = t->w[j], u = is_signed ? _mm256_abs_epi8(w) : w;
#pragma GCC unroll 4
            for (int k = 0; k < n; k++) {
                __m256i v = load_dword(xs[k]->q + j * 4);
                v = is_signed ? _mm256_sign_epi8(v, w) : v;
                s[k] = _mm256_add_epi16(s[k], _mm256_maddubs_epi16(u, v));
            }
        }
#pragma GCC unroll 4
        for (int k = 0; k < n; k++)
            isum[k] = _mm256_add_epi32(isum[k], _mm256_madd_epi16(s[k], t->scale[i * 4 / values]));
    }
#pragma GCC unroll 4
    for (int k = 0; k < n; k++) {
        const __m256 dx = _mm256_set1_ps(xs[k]->d);
        __m256 acc = _mm256_loadu_ps(y + (size_t)k * y_stride);
        __m256i sum = _mm256_setzero_si256();
        for (int j = 0; j < 8 && (bias || minima); j++)
            sum = _mm256_add_epi32(sum,
                                   _mm256_madd_epi16(t->pair[j], load_dword(xs[k]->sum16 + 2 * j)));
        if (bias)
            isum[k] = _mm256_sub_epi32(isum[k], _mm256_mullo_epi32(sum, biases));
        acc = _mm256_fmadd_ps(_mm256_mul_ps(t->d[0], dx), _mm256_cvtepi32_ps(isum[k]), acc);
        if (minima)
            acc = _mm256_fnmadd_ps(_mm256_mul_ps(t->min[0], dx), _mm256_cvtepi32_ps(sum), acc);
        _mm256_storeu_ps(y + (size_t)k * y_stride, acc);
    }
}

/* As mul_k for up to eight blocks of 32; bias is taken off with the sum of the activations. */
ALWAYS_INLINE void mul_32(const struct tile *t, const uint8_t *x, size_t x_stride, float *y,
                          size_t y_stride, int n, int n_blocks, int dwords, int bias,
                          enum tile_form form)
{
    const bool minima = form == TF_MINIMA, is_signed = form == TF_SIGNED;
    const __m256i one = _mm256_set1_epi16(1);
    __m256 acc[4];

#pragma GCC unroll 4
    for (int k = 0; k < n; k++)
        acc[k] = _mm256_loadu_ps(y + (size_t)k * y_stride);
    for (int b = 0; b < n_blocks; b++, x += sizeof(struct act_q32)) {
        __m256i isum[4];
#pragma GCC unroll 4
        for (int k = 0; k < n; k++)
            isum[k] = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (int i = 0; i < 8; i += dwords) {
            __m256i s[4];
#pragma GCC unroll 4
            for (int k = 0; k < n; k++)
                s[k] = _mm256_setzero_si256();
#pragma GCC unroll 8
            for (int j = i; j < i + dwords; j++) {
                const __m256i w = t->w[b * 8 + j], u = is_signed ? _mm256_abs_epi8(w) : w;
#pragma GCC unroll 4
                for (int k = 0; k < n; k++) {
                    __m256i v = load_dword(x + (size_t)k * x_stride + j * 4);
                    v = is_signed ? _mm256_sign_epi8(v, w) : v;
                    s[k] = _mm256_add_epi16(s[k], _mm256_maddubs_epi16(u, v));
                }
            }
#pragma GCC unroll 4
            for (int k = 0; k < n; k++)
                isum[k] = _mm256_add_epi32(isum[k], _mm256_madd_epi16(s[k], one));
        }
#pragma GCC unroll 4
        for (int k = 0; k < n; k++) {
            const struct act_q32 *xk = (const void *)(x + (size_t)k * x_stride);
            const __m256 dx = _mm256_set1_ps(xk->d);
            if (bias)
                isum[k] = _mm256_sub_epi32(isum[k], _mm256_set1_epi32(bias * xk->sum));
            acc[k] = _mm256_fmadd_ps(_mm256_mul_ps(t->d[b], dx), _mm256_cvtepi32_ps(isum[k]),
                                     acc[k]);
            if (minima)
                acc[k] = _mm256_fmadd_ps(_mm256_mul_ps(t->min[b], dx),
                                         _mm256_set1_ps((float)xk->sum), acc[k]);
        }
    }
#pragma GCC unroll 4
    for (int k = 0; k < n; k++)
        _mm256_storeu_ps(y + (size_t)k * y_stride, acc[k]);
}

/* n_tok tokens against a tile that holds n_blocks blocks. */
typedef void mul_fn(const struct tile *t, const uint8_t *x, size_t x_stride, float *y,
                    size_t y_stride, int n_tok, int n_blocks);

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

/* mul_NAME from its step: a call of mul_k or mul_32 for n tokens. */
#define MUL_TOKENS(name, ...)                                                                      \
    ALWAYS_INLINE void mul_some_##name(const struct tile *t, const uint8_t *x, size_t xs,          \
                                       float *y, size_t ys, int n, int n_blocks)                   \
    {                                                                                              \
        (void)n_blocks;                                                                            \
        __VA_ARGS__;                                                                               \
    }                                                                                              \
    static void mul_##name(const struct tile *t, const uint8_t *x, size_t xs, float *y, size_t ys, \
                           int n_tok, int n_blocks)                                                \
    {                                                                                              \
        for (; n_tok >= 4; n_tok -= 4, x += 4 * xs, y += 4 * ys)                                   \
            mul_some_##name(t, x, xs, y, ys, 4, n_blocks);                                         \
        if (n_tok >= 2) {                                                                          \
            mul_some_##name(t, x, xs, y, ys, 2, n_blocks);                                         \
            x += 2 * xs;                                                                           \
            y += 2 * ys;                                                                           \
        }                                                                                          \
        if (n_tok & 1)                                                                             \
            mul_some_##name(t, x, xs, y, ys, 1, n_blocks);                                         \
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
