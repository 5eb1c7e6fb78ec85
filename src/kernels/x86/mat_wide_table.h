/* mat_wide_table.h: the products of a level (see mat_wide.h) as functions of the kernel table. */
#ifndef KERNELS_X86_MAT_WIDE_TABLE_H
#define KERNELS_X86_MAT_WIDE_TABLE_H

#include "kernels/x86/mat_wide_gemm.h"

/* Names of a type's functions: mat_gemv_NAME, mat_gemm_NAME. */
#define MAT_FUNCTIONS(name, block_size, tile_blocks, gemv_one)                                     \
    static void mat_gemv_##name(const struct mat_args *a)                                          \
    {                                                                                              \
        gemv_wide(a, block_size, 1, gemv_one);                                                     \
    }                                                                                              \
    static void mat_gemv2_##name(const struct mat_args *a)                                         \
    {                                                                                              \
        gemv_wide(a, block_size, 2, gemv_##name);                                                  \
    }                                                                                              \
    static void mat_gemm_##name(const struct mat_args *a)                                          \
    {                                                                                              \
        gemm_wide(a, &(const struct gemm_type){block_size, tile_blocks, unpack_##name, mul_##name, \
                                               mat_gemv_##name, mat_gemv2_##name});                \
    }

#define PRODUCTS_K(name, type)                                                                     \
    ALWAYS_INLINE void gemv_##name(struct gemv_rows g, int n, vfloat *acc)                         \
    {                                                                                              \
        gemv_k(g, type, n, acc);                                                                   \
    }                                                                                              \
    ALWAYS_INLINE void unpack_##name(struct lanes l, int n_blocks, struct tile *t)                 \
    {                                                                                              \
        (void)n_blocks;                                                                            \
        unpack_k(l, type, t);                                                                      \
    }                                                                                              \
    static void mul_##name(const struct tile *t, struct tokens tok, int n_g, int n_tok,            \
                           int n_blocks)                                                           \
    {                                                                                              \
        (void)n_blocks;                                                                            \
        MUL_TOKENS(STEP_K_##name);                                                                 \
    }                                                                                              \
    MAT_FUNCTIONS(name, ((struct block_size){256, type.block_bytes, sizeof(struct act_q256)}), 1,  \
                  gemv_##name)

#define PRODUCTS_32(name, type, gemv_one)                                                          \
    ALWAYS_INLINE void gemv_##name(struct gemv_rows g, int n, vfloat *acc)                         \
    {                                                                                              \
        gemv_32(g, type, n, acc);                                                                  \
    }                                                                                              \
    ALWAYS_INLINE void unpack_##name(struct lanes l, int n_blocks, struct tile *t)                 \
    {                                                                                              \
        unpack_32(l, n_blocks, type, t);                                                           \
    }                                                                                              \
    static void mul_##name(const struct tile *t, struct tokens tok, int n_g, int n_tok,            \
                           int n_blocks)                                                           \
    {                                                                                              \
        MUL_TOKENS(STEP_32_##name);                                                                \
    }                                                                                              \
    MAT_FUNCTIONS(name, ((struct block_size){32, type.block_bytes, sizeof(struct act_q32)}),       \
                  TILE_BLOCKS32, gemv_one)

#define STEP_K_q4k(g, n)    mul_k(t, &tok, g, n, TYPE_Q4K)
#define STEP_K_q5k(g, n)    mul_k(t, &tok, g, n, TYPE_Q5K)
#define STEP_K_q6k(g, n)    mul_k(t, &tok, g, n, TYPE_Q6K)
#define STEP_K_q2k(g, n)    mul_k(t, &tok, g, n, TYPE_Q2K)
#define STEP_K_q3k(g, n)    mul_k(t, &tok, g, n, TYPE_Q3K)
#define STEP_K_iq4xs(g, n)  mul_k(t, &tok, g, n, TYPE_IQ4XS)
#define STEP_32_q4_0(g, n)  mul_32(t, &tok, n_blocks, g, n, TYPE_Q4_0)
#define STEP_32_q4_1(g, n)  mul_32(t, &tok, n_blocks, g, n, TYPE_Q4_1)
#define STEP_32_q5_0(g, n)  mul_32(t, &tok, n_blocks, g, n, TYPE_Q5_0)
#define STEP_32_q5_1(g, n)  mul_32(t, &tok, n_blocks, g, n, TYPE_Q5_1)
#define STEP_32_q8_0(g, n)  mul_32(t, &tok, n_blocks, g, n, TYPE_Q8_0)
#define STEP_32_mxfp4(g, n) mul_32(t, &tok, n_blocks, g, n, TYPE_MXFP4)
#define STEP_32_iq4nl(g, n) mul_32(t, &tok, n_blocks, g, n, TYPE_IQ4NL)

ALWAYS_INLINE void gemv_one_q8_0(struct gemv_rows g, int n, vfloat *acc)
{
    (void)n;
    *acc = gemv_q8_0_rows(g, *acc);
}

PRODUCTS_K(q4k, TYPE_Q4K)
PRODUCTS_K(q5k, TYPE_Q5K)
PRODUCTS_K(q6k, TYPE_Q6K)
PRODUCTS_K(q2k, TYPE_Q2K)
PRODUCTS_K(q3k, TYPE_Q3K)
PRODUCTS_K(iq4xs, TYPE_IQ4XS)
PRODUCTS_32(q4_0, TYPE_Q4_0, gemv_q4_0)
PRODUCTS_32(q4_1, TYPE_Q4_1, gemv_q4_1)
PRODUCTS_32(q5_0, TYPE_Q5_0, gemv_q5_0)
PRODUCTS_32(q5_1, TYPE_Q5_1, gemv_q5_1)
PRODUCTS_32(q8_0, TYPE_Q8_0, gemv_one_q8_0)
PRODUCTS_32(mxfp4, TYPE_MXFP4, gemv_mxfp4)
PRODUCTS_32(iq4nl, TYPE_IQ4NL, gemv_iq4nl)

static inline void fill_wide(struct kernels *k)
{
    k->mat[QT_Q4_K] = (struct mat_kernel){ACT_Q256, mat_gemv_q4k, mat_gemm_q4k};
    k->mat[QT_Q5_K] = (struct mat_kernel){ACT_Q256, mat_gemv_q5k, mat_gemm_q5k};
    k->mat[QT_Q6_K] = (struct mat_kernel){ACT_Q256, mat_gemv_q6k, mat_gemm_q6k};
    k->mat[QT_Q2_K] = (struct mat_kernel){ACT_Q256, mat_gemv_q2k, mat_gemm_q2k};
    k->mat[QT_Q3_K] = (struct mat_kernel){ACT_Q256, mat_gemv_q3k, mat_gemm_q3k};
    k->mat[QT_IQ4_XS] = (struct mat_kernel){ACT_Q256, mat_gemv_iq4xs, mat_gemm_iq4xs};
    k->mat[QT_Q4_0] = (struct mat_kernel){ACT_Q32, mat_gemv_q4_0, mat_gemm_q4_0};
    k->mat[QT_Q4_1] = (struct mat_kernel){ACT_Q32, mat_gemv_q4_1, mat_gemm_q4_1};
    k->mat[QT_Q5_0] = (struct mat_kernel){ACT_Q32, mat_gemv_q5_0, mat_gemm_q5_0};
    k->mat[QT_Q5_1] = (struct mat_kernel){ACT_Q32, mat_gemv_q5_1, mat_gemm_q5_1};
    k->mat[QT_Q8_0] = (struct mat_kernel){ACT_Q32, mat_gemv_q8_0, mat_gemm_q8_0};
    k->mat[QT_MXFP4] = (struct mat_kernel){ACT_Q32, mat_gemv_mxfp4, mat_gemm_mxfp4};
    k->mat[QT_IQ4_NL] = (struct mat_kernel){ACT_Q32, mat_gemv_iq4nl, mat_gemm_iq4nl};
}

#endif
