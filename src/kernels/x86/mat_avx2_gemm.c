/* mat_avx2_gemm.c: GEMM with quantised weights. Eight rows are unpacked into a tile
 * (mat_avx2_tile.h), and every token of a run is multiplied with it. The floats follow the
 * definition: one accumulator per output, kept in y between tiles, blocks in rising order.
 *
 * Sums of maddubs results stay int16 over some dwords where that is exact; then madd by the scale
 * (or by one). The bounds stand beside each type's number of dwords. */
#include "kernels/x86/mat_avx2_tile.h"

/* n tokens (1, 2 or 4), their packed activations x_stride bytes apart from x on, against a tile.
 * dwords: as said above; values: those that share a scale; minima: else 32 * the pairs are taken
 * off. */
ALWAYS_INLINE void mul_k(const struct tile *t, const uint8_t *x, size_t x_stride, float *y,
                         size_t y_stride, int n, int dwords, int values, bool minima)
{
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
        for (int j = i; j < i + dwords; j++)
#pragma GCC unroll 4
            for (int k = 0; k < n; k++)
                s[k] = _mm256_add_epi16(
                    s[k], _mm256_maddubs_epi16(t->w[j], load_dword(xs[k]->q + j * 4)));
#pragma GCC unroll 4
        for (int k = 0; k < n; k++)
            isum[k] = _mm256_add_epi32(isum[k], _mm256_madd_epi16(s[k], t->scale[i * 4 / values]));
    }
#pragma GCC unroll 4
    for (int k = 0; k < n; k++) {
        const __m256 dx = _mm256_set1_ps(xs[k]->d);
        __m256 acc = _mm256_loadu_ps(y + (size_t)k * y_stride);
        __m256i sum = _mm256_setzero_si256();
        for (int j = 0; j < 8; j++)
            sum = _mm256_add_epi32(sum,
                                   _mm256_madd_epi16(t->pair[j], load_dword(xs[k]->sum16 + 2 * j)));
        if (!minima)
            isum[k] = _mm256_sub_epi32(isum[k], _mm256_slli_epi32(sum, 5));
        acc = _mm256_fmadd_ps(_mm256_mul_ps(t->d[0], dx), _mm256_cvtepi32_ps(isum[k]), acc);
        if (minima)
            acc = _mm256_fnmadd_ps(_mm256_mul_ps(t->min[0], dx), _mm256_cvtepi32_ps(sum), acc);
        _mm256_storeu_ps(y + (size_t)k * y_stride, acc);
    }
}

/* As mul_k for up to eight blocks of 32. bias is taken off every unsigned weight; is_signed: the
 * weight's sign moves to the activation (dwords = 1). */
ALWAYS_INLINE void mul_32(const struct tile *t, const uint8_t *x, size_t x_stride, float *y,
                          size_t y_stride, int n, int n_blocks, int dwords, int bias,
                          bool is_signed, bool minima)
{
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

#define MUL_TOKENS(name, call)                                                                     \
    static void mul_##name(const struct tile *t, const uint8_t *x, size_t xs, float *y, size_t ys, \
                           int n_tok, int n_blocks)                                                \
    {                                                                                              \
        (void)n_blocks;                                                                            \
        for (; n_tok >= 4; n_tok -= 4, x += 4 * xs, y += 4 * ys)                                   \
            call(4);                                                                               \
        if (n_tok >= 2) {                                                                          \
            call(2);                                                                               \
            x += 2 * xs;                                                                           \
            y += 2 * ys;                                                                           \
        }                                                                                          \
        if (n_tok & 1)                                                                             \
            call(1);                                                                               \
    }

/* int16 sums: Q4_K 8 * 2 * 15 * 127 = 30480; Q5_K 4 * 2 * 31 * 127 = 31496; Q6_K 2 * 2 * 63 * 127 =
 * 32004. */
#define MUL_Q4K(n) mul_k(t, x, xs, y, ys, n, 8, 32, true)
#define MUL_Q5K(n) mul_k(t, x, xs, y, ys, n, 4, 32, true)
#define MUL_Q6K(n) mul_k(t, x, xs, y, ys, n, 2, 16, false)
/* Q8_0 2 * 128 * 127 = 32512; Q4_x 8 * 2 * 15 * 127 = 30480; MXFP4 4 * 2 * 24 * 127 = 24384. */
#define MUL_Q8_0(n)  mul_32(t, x, xs, y, ys, n, n_blocks, 1, 0, true, false)
#define MUL_Q4_0(n)  mul_32(t, x, xs, y, ys, n, n_blocks, 8, 8, false, false)
#define MUL_Q4_1(n)  mul_32(t, x, xs, y, ys, n, n_blocks, 8, 0, false, true)
#define MUL_MXFP4(n) mul_32(t, x, xs, y, ys, n, n_blocks, 4, 12, false, false)
MUL_TOKENS(q4k, MUL_Q4K)
MUL_TOKENS(q5k, MUL_Q5K)
MUL_TOKENS(q6k, MUL_Q6K)
MUL_TOKENS(q8_0, MUL_Q8_0)
MUL_TOKENS(q4_0, MUL_Q4_0)
MUL_TOKENS(q4_1, MUL_Q4_1)
MUL_TOKENS(mxfp4, MUL_MXFP4)

/* Eight rows at w (stride 0: one row eight times) for n_tok tokens at x, from +0. */
static void gemm_group(const struct mat_args *a, const struct gemm_type *type, const uint8_t *w,
                       size_t stride, const uint8_t *prefetch, const uint8_t *x, int n_tok,
                       float *y, size_t y_stride)
{
    const int n_blocks = a->n_cols / type->block_values;
    const size_t tile_bytes = (size_t)type->tile_blocks * type->block_bytes;
    struct tile t;

    for (int k = 0; k < n_tok; k++)
        _mm256_storeu_ps(y + (size_t)k * y_stride, _mm256_setzero_ps());
    for (int b = 0; b < n_blocks; b += type->tile_blocks) {
        const int left = n_blocks - b;
        const int n = left < type->tile_blocks ? left : type->tile_blocks;
        if (prefetch) {
            prefetch_bytes(prefetch, (int)(8 * tile_bytes));
            prefetch += 8 * tile_bytes;
        }
        type->unpack(w + (size_t)b * type->block_bytes, stride, n, &t);
        type->mul(&t, x + (size_t)b * type->act_bytes, a->x_stride, y, y_stride, n_tok, n);
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

    if (a->n_tok < type->least_tokens) {
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

#define GEMM(name, block, act, values, blocks, least)                                              \
    static void gemm_##name##_avx2(const struct mat_args *a)                                       \
    {                                                                                              \
        static const struct gemm_type type = {blocks,                                              \
                                              sizeof(struct block),                                \
                                              sizeof(struct act),                                  \
                                              values,                                              \
                                              kernels_unpack_##name,                               \
                                              mul_##name,                                          \
                                              kernels_gemv_##name##_avx2,                          \
                                              least};                                              \
        gemm_rows(a, &type);                                                                       \
    }
GEMM(q4k, blk_q4_K, act_q256, 256, 1, 6)
GEMM(q5k, blk_q5_K, act_q256, 256, 1, 5)
GEMM(q6k, blk_q6_K, act_q256, 256, 1, 6)
GEMM(q8_0, blk_q8_0, act_q32, 32, TILE_BLOCKS32, 4)
GEMM(q4_0, blk_q4_0, act_q32, 32, TILE_BLOCKS32, 5)
GEMM(q4_1, blk_q4_1, act_q32, 32, TILE_BLOCKS32, 5)
GEMM(mxfp4, blk_mxfp4, act_q32, 32, TILE_BLOCKS32, 5)

void kernels_mat_avx2_gemm(struct kernels *k)
{
    k->mat[QT_Q4_K].gemm = gemm_q4k_avx2;
    k->mat[QT_Q5_K].gemm = gemm_q5k_avx2;
    k->mat[QT_Q6_K].gemm = gemm_q6k_avx2;
    k->mat[QT_Q8_0].gemm = gemm_q8_0_avx2;
    k->mat[QT_Q4_0].gemm = gemm_q4_0_avx2;
    k->mat[QT_Q4_1].gemm = gemm_q4_1_avx2;
    k->mat[QT_MXFP4].gemm = gemm_mxfp4_avx2;
}
