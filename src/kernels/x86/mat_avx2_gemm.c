/* mat_avx2_gemm.c: the walk of GEMM over rows and tokens, and GEMM with Q4_K, Q5_K, Q6_K, Q8_0,
 * Q4_0, Q4_1 and MXFP4 weights. */
#include "kernels/x86/mat_avx2_gemm.h"

#define MAX_RUN 128 /* tokens per pass */

struct gemm_pass {
    const struct mat_args *a;
    const struct gemm_type *type;
    const uint8_t *w[GROUPS]; /* first row of each group */
    size_t stride;            /* of its rows; 0: one row eight times */
    int n_g;
    const uint8_t *prefetch;
    int first_tok, n_tok;
};

/* One or two groups of rows for a run of tokens, into acc. */
static void gemm_groups(const struct gemm_pass *p, float *acc)
{
    const struct gemm_type *type = p->type;
    const int n_blocks = p->a->n_cols / type->block_values;
    const size_t tile_bytes = (size_t)type->tile_blocks * type->block_bytes;
    const uint8_t *x = p->a->x + (size_t)p->first_tok * p->a->x_stride, *ahead = p->prefetch;
    struct tile t[GROUPS];

    memset(acc, 0, (size_t)p->n_tok * GROUPS * 8 * sizeof *acc);
    for (int b = 0; b < n_blocks; b += type->tile_blocks) {
        const int left = n_blocks - b;
        const int n = left < type->tile_blocks ? left : type->tile_blocks;
        for (int g = 0; g < p->n_g; g++, ahead += 8 * tile_bytes) {
            prefetch_bytes(ahead, (int)(8 * tile_bytes));
            type->unpack(p->w[g] + (size_t)b * type->block_bytes, p->stride, n, &t[g]);
        }
        type->mul(t, x + (size_t)b * type->act_bytes, p->a->x_stride, acc, p->n_g, p->n_tok, n);
    }
}

/* Fewer than eight rows: each on its own. */
static void gemm_few_rows(struct gemm_pass *p, float *acc)
{
    const struct mat_args *a = p->a;

    p->n_g = 1;
    p->stride = 0;
    p->prefetch = a->w;
    for (int r = 0; r < a->n_rows; r++) {
        p->w[0] = a->w + (size_t)r * a->row_bytes;
        gemm_groups(p, acc);
        for (int k = 0; k < p->n_tok; k++)
            a->y[(size_t)(p->first_tok + k) * a->y_stride + (size_t)r] = *ACC(acc, k, 0);
    }
}

/* The last group of rows overlaps the one before it when their number is no multiple of eight. */
static void gemm_all_rows(struct gemm_pass *p, float *acc)
{
    const struct mat_args *a = p->a;
    const int last = a->n_rows - 8;

    p->stride = a->row_bytes;
    for (int r = 0; r < a->n_rows; r += 8 * GROUPS) {
        int first[GROUPS];
        p->n_g = r + 8 < a->n_rows ? GROUPS : 1;
        for (int g = 0; g < p->n_g; g++) {
            first[g] = r + 8 * g < last ? r + 8 * g : last;
            p->w[g] = a->w + (size_t)first[g] * a->row_bytes;
        }
        p->prefetch = prefetch_from(a, (size_t)(p->w[0] - a->w),
                                    (size_t)(p->n_g * 8) * a->row_bytes, PREFETCH_AHEAD);
        gemm_groups(p, acc);
        for (int k = 0; k < p->n_tok; k++)
            for (int g = 0; g < p->n_g; g++)
                _mm256_storeu_ps(a->y + (size_t)(p->first_tok + k) * a->y_stride + first[g],
                                 _mm256_load_ps(ACC(acc, k, g)));
    }
}

/* Tokens are taken in runs whose activations stay in the L2 cache while all rows pass. */
void kernels_gemm_rows_avx2(const struct mat_args *a, const struct gemm_type *type)
{
    _Alignas(64) float acc[MAX_RUN * GROUPS * 8];
    const int fit = tokens_in_cache(a->x_stride, 64) / 4 * 4, run = fit < MAX_RUN ? fit : MAX_RUN;
    struct gemm_pass p = {.a = a, .type = type};

    if (a->n_tok < type->least_tokens) {
        type->gemv(a);
        return;
    }
    for (p.first_tok = 0; p.first_tok < a->n_tok; p.first_tok += run) {
        p.n_tok = a->n_tok - p.first_tok < run ? a->n_tok - p.first_tok : run;
        if (a->n_rows < 8)
            gemm_few_rows(&p, acc);
        else
            gemm_all_rows(&p, acc);
    }
}

/* int16 sums: Q4_K 8 * 2 * 15 * 127 = 30480; Q5_K 4 * 2 * 31 * 127 = 31496; Q6_K 2 * 2 * 63 * 127 =
 * 32004. */
MUL_TOKENS(q4k, mul_k(t, x, xs, acc, n_g, n, 8, 32, 0, TF_MINIMA))
MUL_TOKENS(q5k, mul_k(t, x, xs, acc, n_g, n, 4, 32, 0, TF_MINIMA))
MUL_TOKENS(q6k, mul_k(t, x, xs, acc, n_g, n, 2, 16, 32, TF_PLAIN))
/* Q8_0 2 * 128 * 127 = 32512; Q4_x 8 * 2 * 15 * 127 = 30480; MXFP4 4 * 2 * 24 * 127 = 24384. */
MUL_TOKENS(q8_0, mul_32(t, x, xs, acc, n_g, n, n_blocks, 1, 0, TF_SIGNED))
MUL_TOKENS(q4_0, mul_32(t, x, xs, acc, n_g, n, n_blocks, 8, 8, TF_PLAIN))
MUL_TOKENS(q4_1, mul_32(t, x, xs, acc, n_g, n, n_blocks, 8, 0, TF_MINIMA))
MUL_TOKENS(mxfp4, mul_32(t, x, xs, acc, n_g, n, n_blocks, 4, 12, TF_PLAIN))

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
