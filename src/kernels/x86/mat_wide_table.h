/* mat_wide_table.h: the products of a level (see mat_wide.h) as functions of the kernel table. */
#ifndef KERNELS_X86_MAT_WIDE_TABLE_H
#define KERNELS_X86_MAT_WIDE_TABLE_H

#include "kernels/x86/mat_wide_gemm.h"

#define MUL_Q4K(g, n)                                                                              \
    mul_k(t, &tok, g, n, (struct mul_type){.group = 32, .limit = 8, .minima = true})
#define MUL_Q5K(g, n)                                                                              \
    mul_k(t, &tok, g, n, (struct mul_type){.group = 32, .limit = 4, .minima = true})
#define MUL_Q6K(g, n) mul_k(t, &tok, g, n, (struct mul_type){.group = 16, .limit = 2, .bias = 32})
#define MUL_Q8_0(g, n)                                                                             \
    mul_32(t, &tok, n_blocks, g, n,                                                                \
           (struct mul_type){.limit = 1, .bias = MAT_VNNI ? 128 : 0, .is_signed = true})
#define MUL_Q4_0(g, n) mul_32(t, &tok, n_blocks, g, n, (struct mul_type){.limit = 8, .bias = 8})
#define MUL_Q4_1(g, n)                                                                             \
    mul_32(t, &tok, n_blocks, g, n, (struct mul_type){.limit = 8, .minima = true})
#define MUL_MXFP4(g, n) mul_32(t, &tok, n_blocks, g, n, (struct mul_type){.limit = 4, .bias = 12})
MUL_FN(q4k, MUL_Q4K)
MUL_FN(q5k, MUL_Q5K)
MUL_FN(q6k, MUL_Q6K)
MUL_FN(q8_0, MUL_Q8_0)
MUL_FN(q4_0, MUL_Q4_0)
MUL_FN(q4_1, MUL_Q4_1)
MUL_FN(mxfp4, MUL_MXFP4)

#define TYPE_256(block) ((struct wide_type){256, sizeof(struct block), sizeof(struct act_q256)})
#define TYPE_32(block)  ((struct wide_type){32, sizeof(struct block), sizeof(struct act_q32)})

#define WIDE_MAT(name, wide, blocks, least)                                                        \
    static void mat_gemv_##name(const struct mat_args *a)                                          \
    {                                                                                              \
        gemv_wide(a, wide, gemv_##name);                                                           \
    }                                                                                              \
    static void mat_gemm_##name(const struct mat_args *a)                                          \
    {                                                                                              \
        gemm_wide(a, &(const struct gemm_type){wide, blocks, unpack_##name, mul_##name,            \
                                               mat_gemv_##name, least});                           \
    }
WIDE_MAT(q4k, TYPE_256(blk_q4_K), 1, 2)
WIDE_MAT(q5k, TYPE_256(blk_q5_K), 1, 2)
WIDE_MAT(q6k, TYPE_256(blk_q6_K), 1, 2)
WIDE_MAT(q8_0, TYPE_32(blk_q8_0), TILE_BLOCKS32, 2)
WIDE_MAT(q4_0, TYPE_32(blk_q4_0), TILE_BLOCKS32, 2)
WIDE_MAT(q4_1, TYPE_32(blk_q4_1), TILE_BLOCKS32, 2)
WIDE_MAT(mxfp4, TYPE_32(blk_mxfp4), TILE_BLOCKS32, 2)

static inline void fill_wide(struct kernels *k)
{
    k->mat[QT_Q4_K] = (struct mat_kernel){ACT_Q256, mat_gemv_q4k, mat_gemm_q4k};
    k->mat[QT_Q5_K] = (struct mat_kernel){ACT_Q256, mat_gemv_q5k, mat_gemm_q5k};
    k->mat[QT_Q6_K] = (struct mat_kernel){ACT_Q256, mat_gemv_q6k, mat_gemm_q6k};
    k->mat[QT_Q8_0] = (struct mat_kernel){ACT_Q32, mat_gemv_q8_0, mat_gemm_q8_0};
    k->mat[QT_Q4_0] = (struct mat_kernel){ACT_Q32, mat_gemv_q4_0, mat_gemm_q4_0};
    k->mat[QT_Q4_1] = (struct mat_kernel){ACT_Q32, mat_gemv_q4_1, mat_gemm_q4_1};
    k->mat[QT_MXFP4] = (struct mat_kernel){ACT_Q32, mat_gemv_mxfp4, mat_gemm_mxfp4};
}

#endif
