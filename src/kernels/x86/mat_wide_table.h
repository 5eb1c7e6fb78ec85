/* mat_wide_table.h: the products of a level (see mat_wide.h) as functions of the kernel table. */
#ifndef KERNELS_X86_MAT_WIDE_TABLE_H
#define KERNELS_X86_MAT_WIDE_TABLE_H

#include "kernels/x86/mat_wide_gemm.h"

/* rows1_NAME, rows2_NAME, rows4_NAME: a group of rows against so many tokens. */
#define ROWS(name, call, n)                                                                        \
    static void rows##n##_##name(const struct gemv_rows *g, vfloat *to)                            \
    {                                                                                              \
        vfloat acc[n];                                                                             \
        for (int t = 0; t < n; t++)                                                                \
            acc[t] = to[t];                                                                        \
        call(*g, n, acc);                                                                          \
        for (int t = 0; t < n; t++)                                                                \
            to[t] = acc[t];                                                                        \
    }

#define SIZE_K(type)  ((struct block_size){256, type.block_bytes, sizeof(struct act_q256)})
#define SIZE_32(type) ((struct block_size){32, type.block_bytes, sizeof(struct act_q32)})

/* unpack_NAME and mul_NAME. */
#define TILE_K(name, type)                                                                         \
    static void unpack_##name(const struct lanes *l, const uint8_t *ahead, int n_blocks,           \
                              struct tile *t)                                                      \
    {                                                                                              \
        (void)n_blocks;                                                                            \
        unpack_k(l, ahead, type, t);                                                               \
    }                                                                                              \
    static void mul_##name(const struct tile *t, struct tokens tok, int n_g, int n_tok,            \
                           int n_blocks)                                                           \
    {                                                                                              \
        (void)n_blocks;                                                                            \
        MUL_TOKENS(MUL_##name);                                                                    \
    }
#define TILE_32(name, type)                                                                        \
    static void unpack_##name(const struct lanes *l, const uint8_t *ahead, int n_blocks,           \
                              struct tile *t)                                                      \
    {                                                                                              \
        unpack_32(*l, ahead, n_blocks, type, t);                                                   \
    }                                                                                              \
    static void mul_##name(const struct tile *t, struct tokens tok, int n_g, int n_tok,            \
                           int n_blocks)                                                           \
    {                                                                                              \
        MUL_TOKENS(MUL_##name);                                                                    \
    }

/* mat_gemv_NAME and mat_gemm_NAME. gemv4: what three and four tokens get, or NULL: a tile, where
 * that is faster (measured). */
#define MAT(name, block_size, tile_blocks, gemv4)                                                  \
    static void mat_gemv_##name(const struct mat_args *a)                                          \
    {                                                                                              \
        gemv_wide(a, block_size, 1, rows1_##name);                                                 \
    }                                                                                              \
    static void mat_gemm_##name(const struct mat_args *a)                                          \
    {                                                                                              \
        gemm_wide(a,                                                                               \
                  &(const struct gemm_type){block_size, gemm_groups, tile_blocks, unpack_##name,   \
                                            mul_##name, rows1_##name, rows2_##name, gemv4});       \
    }

#define CALL_K(name, type)                                                                         \
    ALWAYS_INLINE void call_##name(struct gemv_rows g, int n, vfloat *acc)                         \
    {                                                                                              \
        gemv_k(g, type, n, acc);                                                                   \
    }
#define PRODUCTS_K(name, type)                                                                     \
    CALL_K(name, type)                                                                             \
    ROWS(name, call_##name, 1)                                                                     \
    ROWS(name, call_##name, 2)                                                                     \
    TILE_K(name, type)                                                                             \
    MAT(name, SIZE_K(type), 1, NULL)
#define PRODUCTS_K4(name, type)                                                                    \
    CALL_K(name, type)                                                                             \
    ROWS(name, call_##name, 1)                                                                     \
    ROWS(name, call_##name, 2)                                                                     \
    ROWS(name, call_##name, 4)                                                                     \
    TILE_K(name, type)                                                                             \
    MAT(name, SIZE_K(type), 1, rows4_##name)
#define PRODUCTS_32(name, type)                                                                    \
    ALWAYS_INLINE void call_##name(struct gemv_rows g, int n, vfloat *acc)                         \
    {                                                                                              \
        gemv_32(g, type, n, acc);                                                                  \
    }                                                                                              \
    ROWS(name, call_##name, 2)                                                                     \
    ROWS(name, call_##name, 4)                                                                     \
    TILE_32(name, type)                                                                            \
    MAT(name, SIZE_32(type), TILE_BLOCKS32, rows4_##name)

#define MUL_q4k(g, n)   mul_k(t, &tok, g, n, TYPE_Q4K)
#define MUL_q5k(g, n)   mul_k(t, &tok, g, n, TYPE_Q5K)
#define MUL_q6k(g, n)   mul_k(t, &tok, g, n, TYPE_Q6K)
#define MUL_q2k(g, n)   mul_k(t, &tok, g, n, TYPE_Q2K)
#define MUL_q3k(g, n)   mul_k(t, &tok, g, n, TYPE_Q3K)
#define MUL_iq4xs(g, n) mul_k(t, &tok, g, n, TYPE_IQ4XS)
#define MUL_q4_0(g, n)  mul_32(t, &tok, n_blocks, g, n, TYPE_Q4_0)
#define MUL_q4_1(g, n)  mul_32(t, &tok, n_blocks, g, n, TYPE_Q4_1)
#define MUL_q5_0(g, n)  mul_32(t, &tok, n_blocks, g, n, TYPE_Q5_0)
#define MUL_q5_1(g, n)  mul_32(t, &tok, n_blocks, g, n, TYPE_Q5_1)
#define MUL_q8_0(g, n)  mul_32(t, &tok, n_blocks, g, n, TYPE_Q8_0)
#define MUL_mxfp4(g, n) mul_32(t, &tok, n_blocks, g, n, TYPE_MXFP4)
#define MUL_iq4nl(g, n) mul_32(t, &tok, n_blocks, g, n, TYPE_IQ4NL)

static void rows1_q8_0(const struct gemv_rows *g, vfloat *acc)
{
    *acc = gemv_q8_0_rows(*g, *acc);
}

#define ONE_32(name, type)                                                                         \
    static void rows1_##name(const struct gemv_rows *g, vfloat *to)                                \
    {                                                                                              \
        vfloat acc = *to;                                                                          \
        gemv_32(*g, type, 1, &acc);                                                                \
        *to = acc;                                                                                 \
    }
ONE_32(q4_0, TYPE_Q4_0)
ONE_32(q4_1, TYPE_Q4_1)
ONE_32(q5_0, TYPE_Q5_0)
ONE_32(q5_1, TYPE_Q5_1)
ONE_32(mxfp4, TYPE_MXFP4)
ONE_32(iq4nl, TYPE_IQ4NL)

PRODUCTS_K4(q4k, TYPE_Q4K)
PRODUCTS_K4(q5k, TYPE_Q5K)
PRODUCTS_K(q6k, TYPE_Q6K)
PRODUCTS_K(q2k, TYPE_Q2K)
PRODUCTS_K(q3k, TYPE_Q3K)
PRODUCTS_K4(iq4xs, TYPE_IQ4XS)
PRODUCTS_32(q4_0, TYPE_Q4_0)
PRODUCTS_32(q4_1, TYPE_Q4_1)
PRODUCTS_32(q5_0, TYPE_Q5_0)
PRODUCTS_32(q5_1, TYPE_Q5_1)
PRODUCTS_32(q8_0, TYPE_Q8_0)
PRODUCTS_32(mxfp4, TYPE_MXFP4)
PRODUCTS_32(iq4nl, TYPE_IQ4NL)

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
