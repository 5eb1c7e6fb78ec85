/* mat_types_list.h: all quantised weight types with what the Arm products need to know of them. */
#ifndef KERNELS_ARM_MAT_TYPES_LIST_H
#define KERNELS_ARM_MAT_TYPES_LIST_H

#include "kernels/arm/mat_arm.h"

/* X(name, block, values per scale, bias, minima, D / d, head, dd); names as in v16_NAME. int16 sums
 * of four products (two, where a scale belongs to 16 values) hold: the largest |v + bias| with a
 * scale per 32 is 62 of IQ3_XXS, 4 * 62 * 127 = 31496; with one per 16, 127 of IQ4_XS (whose scales
 * are taken twice), 2 * 127 * 127 = 32258. TQ types: 32 * 2 * 127 = 8128. */
#define TYPES_OF_K(X)                                                                              \
    X(q2k, blk_q2_K, 16, 0, true, 1, head_q2k, dd_q2k)                                             \
    X(q3k, blk_q3_K, 16, 4, false, 1, head_q3k, dd_q3k)                                            \
    X(q4k, blk_q4_K, 32, 0, true, 1, head_q4k, dd_q4k)                                             \
    X(q5k, blk_q5_K, 32, 0, true, 1, head_q4k, dd_q4k)                                             \
    X(q6k, blk_q6_K, 16, 32, false, 1, head_q6k, dd_q6k)                                           \
    X(tq1_0, blk_tq1_0, 256, 0, false, 1, head_none, dd_tq1_0)                                     \
    X(tq2_0, blk_tq2_0, 256, 0, false, 1, head_none, dd_tq2_0)                                     \
    X(iq1_s, blk_iq1_s, 32, 0, false, 0.125f, head_iq1_s, dd_first)                                \
    X(iq1_m, blk_iq1_m, 16, 0, false, 0.125f, head_iq1_m, dd_iq1_m)                                \
    X(iq2_xxs, blk_iq2_xxs, 32, 0, false, 0.125f, head_iq2_xxs, dd_first)                          \
    X(iq2_xs, blk_iq2_xs, 16, 0, false, 0.125f, head_iq2_xs, dd_first)                             \
    X(iq2_s, blk_iq2_s, 16, 0, false, 0.125f, head_iq2_s, dd_first)                                \
    X(iq3_xxs, blk_iq3_xxs, 32, 0, false, 0.25f, head_iq3_xxs, dd_first)                           \
    X(iq3_s, blk_iq3_s, 32, 0, false, 1, head_iq3_s, dd_first)                                     \
    X(iq4_xs, blk_iq4_xs, 16, 0, false, 1, head_iq4_xs, dd_first)

/* X(name, block, runs of 32 values, values per D as parts of a run, bias, wide, d4, m4); wide: only
 * two products fit into an int16, 2 * 128 * 127 = 32512; otherwise four, 4 * 31 * 127 = 15748. */
#define TYPES_OF_32(X)                                                                             \
    X(q8_0, blk_q8_0, 1, 1, 0, true, d4_first, NULL)                                               \
    X(q4_0, blk_q4_0, 1, 1, 8, false, d4_first, NULL)                                              \
    X(q4_1, blk_q4_1, 1, 1, 0, false, d4_first, d4_second)                                         \
    X(q5_0, blk_q5_0, 1, 1, 16, false, d4_first, NULL)                                             \
    X(q5_1, blk_q5_1, 1, 1, 0, false, d4_first, d4_second)                                         \
    X(iq4_nl, blk_iq4_nl, 1, 1, 0, true, d4_first, NULL)                                           \
    X(mxfp4, blk_mxfp4, 1, 1, 0, false, d4_mxfp4, NULL)                                            \
    X(nvfp4, blk_nvfp4, 2, 2, 0, false, d4_nvfp4, NULL)                                            \
    X(q1_0, blk_q1_0, 4, 1, 0, false, d4_first, NULL)                                              \
    X(q2_0, blk_q2_0, 2, 1, 1, false, d4_first, NULL)

/* Every type with its index in the kernel table. */
#define TYPES_OF_TABLE(X)                                                                          \
    X(q2k, QT_Q2_K, ACT_Q256)                                                                      \
    X(q3k, QT_Q3_K, ACT_Q256)                                                                      \
    X(q4k, QT_Q4_K, ACT_Q256)                                                                      \
    X(q5k, QT_Q5_K, ACT_Q256)                                                                      \
    X(q6k, QT_Q6_K, ACT_Q256)                                                                      \
    X(tq1_0, QT_TQ1_0, ACT_Q256)                                                                   \
    X(tq2_0, QT_TQ2_0, ACT_Q256)                                                                   \
    X(iq1_s, QT_IQ1_S, ACT_Q256)                                                                   \
    X(iq1_m, QT_IQ1_M, ACT_Q256)                                                                   \
    X(iq2_xxs, QT_IQ2_XXS, ACT_Q256)                                                               \
    X(iq2_xs, QT_IQ2_XS, ACT_Q256)                                                                 \
    X(iq2_s, QT_IQ2_S, ACT_Q256)                                                                   \
    X(iq3_xxs, QT_IQ3_XXS, ACT_Q256)                                                               \
    X(iq3_s, QT_IQ3_S, ACT_Q256)                                                                   \
    X(iq4_xs, QT_IQ4_XS, ACT_Q256)                                                                 \
    X(q8_0, QT_Q8_0, ACT_Q32)                                                                      \
    X(q4_0, QT_Q4_0, ACT_Q32)                                                                      \
    X(q4_1, QT_Q4_1, ACT_Q32)                                                                      \
    X(q5_0, QT_Q5_0, ACT_Q32)                                                                      \
    X(q5_1, QT_Q5_1, ACT_Q32)                                                                      \
    X(iq4_nl, QT_IQ4_NL, ACT_Q32)                                                                  \
    X(mxfp4, QT_MXFP4, ACT_Q32)                                                                    \
    X(nvfp4, QT_NVFP4, ACT_Q32)                                                                    \
    X(q1_0, QT_Q1_0, ACT_Q32)                                                                      \
    X(q2_0, QT_Q2_0, ACT_Q32)

/* GEMV of a level, which its GEMM uses for a few tokens. */
#define DECLARE_GEMV(name, type, act)                                                              \
    mat_fn kernels_gemv_##name##_neon;                                                             \
    mat_fn kernels_gemv_##name##_dotprod;
TYPES_OF_TABLE(DECLARE_GEMV)
#undef DECLARE_GEMV

#endif
