/* mat_avx2_float.c: products with F32, F16 and BF16 weights. An output's sixteen accumulators are
 * two vectors; a register tile of rows x tokens keeps enough of them in flight. */
#include "kernels/x86/mat_avx2.h"

enum elem { ELEM_F32, ELEM_F16, ELEM_BF16 };

#define ELEM_BYTES(e) ((e) == ELEM_F32 ? 4 : 2)

ALWAYS_INLINE __m256 load_widened(const uint8_t *p, enum elem e)
{
    if (e == ELEM_F32)
        return _mm256_loadu_ps((const float *)(const void *)p);
    if (e == ELEM_F16)
        return widen_f16(load128(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(p)), 16));
}

/* l[i] + l[i + s] for s = 8, 4, 2, 1. */
ALWAYS_INLINE float sum_tree(__m256 lo, __m256 hi)
{
    const __m256 s8 = _mm256_add_ps(lo, hi);
    const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));

    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

/* A tile of n_r rows and n_t tokens (n_r * n_t <= 6: two vectors each, 16 registers). */
struct tile {
    const uint8_t *w;
    size_t stride;
    const float *x;
    size_t x_stride; /* floats */
    int n;
    const uint8_t *prefetch;
    float *y;
    size_t y_stride;
};

/* Sixteen columns: weights of row r at w[r], activations of token k at x + k * x_stride. */
ALWAYS_INLINE void tile_step(const uint8_t *const *w, const float *x, size_t x_stride,
                             __m256 (*acc)[6], int n_r, int n_t, enum elem e)
{
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        __m256 wide[4];
#pragma GCC unroll 4
        for (int r = 0; r < n_r; r++)
            wide[r] = load_widened(w[r] + h * 8 * ELEM_BYTES(e), e);
#pragma GCC unroll 3
        for (int k = 0; k < n_t; k++) {
            const __m256 v = _mm256_load_ps(x + (size_t)k * x_stride + h * 8);
#pragma GCC unroll 4
            for (int r = 0; r < n_r; r++)
                acc[h][r * n_t + k] = _mm256_fmadd_ps(wide[r], v, acc[h][r * n_t + k]);
        }
    }
}

ALWAYS_INLINE void tile_dot(const struct tile *t, int n_r, int n_t, enum elem e)
{
    const size_t bytes = ELEM_BYTES(e);
    const int full = t->n / 16 * 16, left = t->n - full;
    const uint8_t *w[4];
    __m256 acc[2][6];

#pragma GCC unroll 6
    for (int i = 0; i < n_r * n_t; i++)
        acc[0][i] = acc[1][i] = _mm256_setzero_ps();
    for (int i = 0; i < full; i += 16) {
        if (t->prefetch)
            prefetch_bytes(t->prefetch + (size_t)i * bytes * (size_t)n_r, (int)bytes * 16 * n_r);
#pragma GCC unroll 4
        for (int r = 0; r < n_r; r++)
            w[r] = t->w + (size_t)r * t->stride + (size_t)i * bytes;
        tile_step(w, t->x + i, t->x_stride, acc, n_r, n_t, e);
    }
    if (left) { /* the rest, extended with +0; activations are packed that way */
        uint8_t rest[4][64] = {0};
        for (int r = 0; r < n_r; r++) {
            memcpy(rest[r], t->w + (size_t)r * t->stride + (size_t)full * bytes,
                   (size_t)left * bytes);
            w[r] = rest[r];
        }
        tile_step(w, t->x + full, t->x_stride, acc, n_r, n_t, e);
    }
    for (int r = 0; r < n_r; r++)
        for (int k = 0; k < n_t; k++)
            t->y[(size_t)k * t->y_stride + (size_t)r] = sum_tree(acc[0][r * n_t + k],
                                                                 acc[1][r * n_t + k]);
}

static inline struct tile first_tile(const struct mat_args *a)
{
    return (struct tile){a->w,
                         a->row_bytes,
                         (const float *)(const void *)a->x,
                         a->x_stride / sizeof(float),
                         a->n_cols,
                         NULL,
                         a->y,
                         a->y_stride};
}

/* Four rows: eight chains of fma. */
ALWAYS_INLINE void gemv_float(const struct mat_args *a, enum elem e)
{
    struct tile t = first_tile(a);
    int r = 0;

    for (; r + 4 <= a->n_rows; r += 4, t.w += 4 * a->row_bytes, t.y += 4) {
        t.prefetch = prefetch_from(a, (size_t)r * a->row_bytes, 4 * a->row_bytes, PREFETCH_AHEAD);
        tile_dot(&t, 4, 1, e);
    }
    t.prefetch = NULL;
    for (; r < a->n_rows; r++, t.w += a->row_bytes, t.y++)
        tile_dot(&t, 1, 1, e);
}

/* Tokens in threes: each widened weight is used three times, each activation twice. */
ALWAYS_INLINE void gemm_tokens(struct tile t, int n_tok, int n_r, enum elem e)
{
    int k = 0;

    for (; k + 3 <= n_tok; k += 3, t.x += 3 * t.x_stride, t.y += 3 * t.y_stride)
        tile_dot(&t, n_r, 3, e);
    for (; k < n_tok; k++, t.x += t.x_stride, t.y += t.y_stride)
        tile_dot(&t, n_r, 1, e);
}

/* Tokens are taken in runs whose activations stay in the L2 cache while all rows pass. */
ALWAYS_INLINE void gemm_float(const struct mat_args *a, enum elem e)
{
    const int run = tokens_in_cache(a->x_stride, 48);

    for (int k = 0; k < a->n_tok; k += run) {
        const int n_tok = a->n_tok - k < run ? a->n_tok - k : run;
        struct tile t = first_tile(a);
        int r = 0;
        t.x += (size_t)k * t.x_stride;
        t.y += (size_t)k * t.y_stride;
        for (; r + 2 <= a->n_rows; r += 2, t.w += 2 * a->row_bytes, t.y += 2)
            gemm_tokens(t, n_tok, 2, e);
        if (r < a->n_rows)
            gemm_tokens(t, n_tok, 1, e);
    }
}

#define FLOAT_MAT(name, elem)                                                                      \
    static void gemv_##name##_avx2(const struct mat_args *a)                                       \
    {                                                                                              \
        gemv_float(a, elem);                                                                       \
    }                                                                                              \
    static void gemm_##name##_avx2(const struct mat_args *a)                                       \
    {                                                                                              \
        gemm_float(a, elem);                                                                       \
    }
FLOAT_MAT(f32, ELEM_F32)
FLOAT_MAT(f16, ELEM_F16)
FLOAT_MAT(bf16, ELEM_BF16)

void kernels_mat_avx2_float(struct kernels *k)
{
    k->mat[QT_F32] = (struct mat_kernel){ACT_F32, gemv_f32_avx2, gemm_f32_avx2};
    k->mat[QT_F16] = (struct mat_kernel){ACT_F32, gemv_f16_avx2, gemm_f16_avx2};
    k->mat[QT_BF16] = (struct mat_kernel){ACT_F32, gemv_bf16_avx2, gemm_bf16_avx2};
}
