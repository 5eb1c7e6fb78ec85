/* mat_avx2_gemm.c: the walk of GEMM over rows and tokens, and GEMM with Q4_K, Q5_K, Q6_K, Q8_0,
 * Q4_0, Q4_1 and MXFP4 weights. */
#include "kernels/x86/mat_avx2_gemm.h"

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
        prefetch_bytes(prefetch, (int)(8 * tile_bytes));
        prefetch += 8 * tile_bytes;
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
            gemm_group(a, type, a->w + (size_t)r * a->row_bytes, 0, a->w,
                       a->x + (size_t)k * a->x_stride, n, y, 8);
            for (int i = 0; i < n; i++)
                a->y[(size_t)(k + i) * a->y_stride + (size_t)r] = y[i * 8];
        }
}

/* Tokens are taken in runs whose activations stay in the L2 cache while all rows pass. The last
 * group of rows overlaps the one before it when their number is no multiple of eight. */
void kernels_gemm_rows_avx2(const struct mat_args *a, const struct gemm_type *type)
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
            gemm_group(a, type, a->w + at, a->row_bytes,
                       prefetch_from(a, at, 8 * a->row_bytes, PREFETCH_AHEAD),
                       a->x + (size_t)k * a->x_stride, n_tok,
                       a->y + (size_t)k * a->y_stride + (size_t)first, a->y_stride);
        }
    }
}

/* int16 sums: Q4_K 8 * 2 * 15 * 127 = 30480; Q5_K 4 * 2 * 31 * 127 = 31496; Q6_K 2 * 2 * 63 * 127 =
 * 32004. */
MUL_TOKENS(q4k, mul_k(t, x, xs, y, ys, n, 8, 32, 0, TF_MINIMA))
MUL_TOKENS(q5k, mul_k(t, x, xs, y, ys, n, 4, 32, 0, TF_MINIMA))
MUL_TOKENS(q6k, mul_k(t, x, xs, y, ys, n, 2, 16, 32, TF_PLAIN))
/* Q8_0 2 * 128 * 127 = 32512; Q4_x 8 * 2 * 15 * 127 = 30480; MXFP4 4 * 2 * 24 * 127 = 24384. */
MUL_TOKENS(q8_0, mul_32(t, x, xs, y, ys, n, n_blocks, 1, 0, TF_SIGNED))
MUL_TOKENS(q4_0, mul_32(t, x, xs, y, ys, n, n_blocks, 8, 8, TF_PLAIN))
MUL_TOKENS(q4_1, mul_32(t, x, xs, y, ys, n, n_blocks, 8, 0, TF_MINIMA))
MUL_TOKENS(mxfp4, mul_32(t, x, xs, y, ys, n, n_blocks, 4, 12, TF_PLAIN))

GEMM(q4k, blk_q4_K, act_q256, 256, 1, 7, kernels_unpack_q4k, kernels_gemv_q4k_avx2)
GEMM(q5k, blk_q5_K, act_q256, 256, 1, 5, kernels_unpack_q5k, kernels_gemv_q5k_avx2)
GEMM(q6k, blk_q6_K, act_q256, 256, 1, 7, kernels_unpack_q6k, kernels_gemv_q6k_avx2)
GEMM(q8_0, blk_q8_0, act_q32, 32, TILE_BLOCKS32, 7, kernels_unpack_q8_0, kernels_gemv_q8_0_avx2)
GEMM(q4_0, blk_q4_0, act_q32, 32, TILE_BLOCKS32, 5, kernels_unpack_q4_0, kernels_gemv_q4_0_avx2)
GEMM(q4_1, blk_q4_1, act_q32, 32, TILE_BLOCKS32, 5, kernels_unpack_q4_1, kernels_gemv_q4_1_avx2)
GEMM(mxfp4, blk_mxfp4, act_q32, 32, TILE_BLOCKS32, 5, kernels_unpack_mxfp4, kernels_gemv_mxfp4_avx2)

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
