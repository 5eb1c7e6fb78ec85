/* mat_avx512_float.c: products with F32, F16 and BF16 weights. An output's sixteen accumulators are
 * one vector; a register tile of rows x tokens keeps enough of them in flight. */
#include "kernels/levels.h"
#include "kernels/x86/mat_avx2.h"

enum elem { ELEM_F32, ELEM_F16, ELEM_BF16 };

#define ELEM_BYTES(e) ((e) == ELEM_F32 ? 4 : 2)

#define GEMV_ROWS   8 /* chains of fma */
#define TILE_ROWS   4
#define TILE_TOKENS 4

/* The first n (at most 16) values at p, then +0. Masked loads touch no byte beyond them. */
ALWAYS_INLINE __m512 load_widened(const uint8_t *p, enum elem e, __mmask16 mask)
{
    if (e == ELEM_F32)
        return mask == 0xffff ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(mask, p);
    const __m256i half = mask == 0xffff ? load256(p) : _mm256_maskz_loadu_epi16(mask, p);
    if (e == ELEM_F16)
        return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* l[i] + l[i + s] for s = 8, 4, 2, 1. */
ALWAYS_INLINE float sum_tree(__m512 l)
{
    const __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(l), _mm512_extractf32x8_ps(l, 1));
    const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));

    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

/* Some rows and tokens. */
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

/* Columns i to i + 15, or those of mask. acc: n_t per row. */
ALWAYS_INLINE void tile_step(const struct tile *t, size_t i, __m512 *acc, int n_r, int n_t,
                             enum elem e, __mmask16 mask)
{
    __m512 x[TILE_TOKENS];

#pragma GCC unroll 4
    for (int k = 0; k < n_t; k++)
        x[k] = _mm512_load_ps(t->x + (size_t)k * t->x_stride + i);
#pragma GCC unroll 8
    for (int r = 0; r < n_r; r++) {
        const __m512 w = load_widened(t->w + (size_t)r * t->stride + i * ELEM_BYTES(e), e, mask);
#pragma GCC unroll 4
        for (int k = 0; k < n_t; k++)
            acc[r * n_t + k] = _mm512_fmadd_ps(w, x[k], acc[r * n_t + k]);
    }
}

ALWAYS_INLINE void tile_dot(const struct tile *t, int n_r, int n_t, enum elem e)
{
    const int full = t->n / 16 * 16, left = t->n - full, bytes = ELEM_BYTES(e) * 16 * n_r;
    __m512 acc[TILE_ROWS * TILE_TOKENS];

#pragma GCC unroll 16
    for (int i = 0; i < n_r * n_t; i++)
        acc[i] = _mm512_setzero_ps();
    for (int i = 0; i < full; i += 16) {
        if (t->prefetch)
            prefetch_bytes(t->prefetch + (size_t)(i / 16 * bytes), bytes);
        tile_step(t, (size_t)i, acc, n_r, n_t, e, 0xffff);
    }
    if (left) /* extended with +0; activations are packed that way */
        tile_step(t, (size_t)full, acc, n_r, n_t, e, (__mmask16)((1u << left) - 1));
#pragma GCC unroll 8
    for (int r = 0; r < n_r; r++)
#pragma GCC unroll 4
        for (int k = 0; k < n_t; k++)
            t->y[(size_t)k * t->y_stride + (size_t)r] = sum_tree(acc[r * n_t + k]);
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

ALWAYS_INLINE void gemv_float(const struct mat_args *a, enum elem e)
{
    struct tile t = first_tile(a);
    int r = 0;

    for (; r + GEMV_ROWS <= a->n_rows;
         r += GEMV_ROWS, t.w += GEMV_ROWS * a->row_bytes, t.y += GEMV_ROWS) {
        t.prefetch = prefetch_from(a, (size_t)r * a->row_bytes, GEMV_ROWS * a->row_bytes,
                                   PREFETCH_AHEAD);
        tile_dot(&t, GEMV_ROWS, 1, e);
    }
    t.prefetch = NULL;
    for (; r < a->n_rows; r++, t.w += a->row_bytes, t.y++)
        tile_dot(&t, 1, 1, e);
}

ALWAYS_INLINE void gemm_tokens(struct tile t, int n_tok, int n_r, enum elem e)
{
    int k = 0;

    for (; k + TILE_TOKENS <= n_tok;
         k += TILE_TOKENS, t.x += TILE_TOKENS * t.x_stride, t.y += TILE_TOKENS * t.y_stride)
        tile_dot(&t, n_r, TILE_TOKENS, e);
    for (; k + 2 <= n_tok; k += 2, t.x += 2 * t.x_stride, t.y += 2 * t.y_stride)
        tile_dot(&t, n_r, 2, e);
    if (k < n_tok)
        tile_dot(&t, n_r, 1, e);
}

/* Tokens are taken in runs whose activations stay in the L2 cache while all rows pass. */
ALWAYS_INLINE void gemm_float(const struct mat_args *a, enum elem e)
{
    const int run = tokens_in_cache(a->x_stride, 16);

    for (int k = 0; k < a->n_tok; k += run) {
        const int n_tok = a->n_tok - k < run ? a->n_tok - k : run;
        struct tile t = first_tile(a);
        int r = 0;
        t.x += (size_t)k * t.x_stride;
        t.y += (size_t)k * t.y_stride;
        for (; r + TILE_ROWS <= a->n_rows;
             r += TILE_ROWS, t.w += TILE_ROWS * a->row_bytes, t.y += TILE_ROWS)
            gemm_tokens(t, n_tok, TILE_ROWS, e);
        for (; r < a->n_rows; r++, t.w += a->row_bytes, t.y++)
            gemm_tokens(t, n_tok, 1, e);
    }
}

#define FLOAT_MAT(name, elem)                                                                      \
    static void gemv_##name(const struct mat_args *a)                                              \
    {                                                                                              \
        gemv_float(a, elem);                                                                       \
    }                                                                                              \
    static void gemm_##name(const struct mat_args *a)                                              \
    {                                                                                              \
        gemm_float(a, elem);                                                                       \
    }
FLOAT_MAT(f32, ELEM_F32)
FLOAT_MAT(f16, ELEM_F16)
FLOAT_MAT(bf16, ELEM_BF16)

void kernels_mat_avx512_float(struct kernels *k)
{
    k->mat[QT_F32] = (struct mat_kernel){ACT_F32, gemv_f32, gemm_f32};
    k->mat[QT_F16] = (struct mat_kernel){ACT_F32, gemv_f16, gemm_f16};
    k->mat[QT_BF16] = (struct mat_kernel){ACT_F32, gemv_bf16, gemm_bf16};
}
