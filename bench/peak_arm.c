/* peak_arm.c: as peak_x86.c, on sixteen of the 32 registers. The file is compiled for dotprod and
 * i8mm; nothing in it runs but the loops, each only where the CPU has its instruction. */
#include "bench/parts.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#define CHAINS 16
/* Whole, so that the array becomes registers (in builds that optimise). */
#define UNROLLED _Pragma("GCC unroll 16")

#define PEAK_LOOP(name, vec, zero, other, other_zero, step)                                        \
    static void name(int64_t rounds)                                                               \
    {                                                                                              \
        vec acc[CHAINS];                                                                           \
        other a = other_zero, b = other_zero;                                                      \
        UNROLLED for (int i = 0; i < CHAINS; i++) acc[i] = zero;                                   \
        __asm__ volatile("" : "+w"(a), "+w"(b));                                                   \
        for (; rounds > 0; rounds--)                                                               \
            UNROLLED for (int i = 0; i < CHAINS; i++)                                              \
            {                                                                                      \
                acc[i] = step;                                                                     \
                __asm__ volatile("" : "+w"(acc[i]));                                               \
            }                                                                                      \
    }

PEAK_LOOP(mlal, int16x8_t, vdupq_n_s16(0), int8x8_t, vdup_n_s8(0), vmlal_s8(acc[i], a, b))
PEAK_LOOP(fmla, float32x4_t, vdupq_n_f32(0), float32x4_t, vdupq_n_f32(0), vfmaq_f32(acc[i], a, b))
PEAK_LOOP(sdot, int32x4_t, vdupq_n_s32(0), int8x16_t, vdupq_n_s8(0), vdotq_s32(acc[i], a, b))
PEAK_LOOP(smmla, int32x4_t, vdupq_n_s32(0), int8x16_t, vdupq_n_s8(0), vmmlaq_s32(acc[i], a, b))

const struct bench_loop bench_loops[] = {
    {"smlal", BENCH_INT8, KL_NEON, 8 * CHAINS, mlal},
    {"fmla", BENCH_FMA, KL_NEON, 4 * CHAINS, fmla},
    {"sdot", BENCH_INT8, KL_DOTPROD, 16 * CHAINS, sdot},
    {"smmla", BENCH_INT8, KL_I8MM, 32 * CHAINS, smmla},
    {NULL, BENCH_INT8, KL_SCALAR, 0, NULL},
};
#elif !defined(__x86_64__)
const struct bench_loop bench_loops[] = {{NULL, BENCH_INT8, KL_SCALAR, 0, NULL}};
#endif
