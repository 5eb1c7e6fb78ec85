/* peak_x86.c: loops of one instruction each on twelve registers that do not depend on one another:
 * more than latency times units on any CPU, and as many as AVX2 has beside two operands. The empty
 * asm statements make the compiler keep every value and every instruction. */
#include "bench/parts.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/x86/mat_tiles.h"

#define CHAINS 12
/* Whole, so that the array becomes registers (in builds that optimise). */
#define UNROLLED _Pragma("GCC unroll 16")

/* Functions compiled for what their instruction needs, called only where the CPU has it. step: an
 * expression of x (the chain) and two operands a, b. */
#define PEAK_LOOP(name, needs, vec, zero, step)                                                    \
    __attribute__((target(needs))) static void name(int64_t rounds)                                \
    {                                                                                              \
        vec acc[CHAINS], a = zero, b = zero;                                                       \
        UNROLLED for (int i = 0; i < CHAINS; i++) acc[i] = zero;                                   \
        __asm__ volatile("" : "+x"(a), "+x"(b));                                                   \
        for (; rounds > 0; rounds--)                                                               \
            UNROLLED for (int i = 0; i < CHAINS; i++)                                              \
            {                                                                                      \
                vec x = acc[i];                                                                    \
                x = step;                                                                          \
                __asm__ volatile("" : "+x"(x));                                                    \
                acc[i] = x;                                                                        \
            }                                                                                      \
    }

PEAK_LOOP(maddubs_ymm, "avx2", __m256i, _mm256_setzero_si256(), _mm256_maddubs_epi16(x, a))
PEAK_LOOP(fma_ymm, "avx2,fma", __m256, _mm256_setzero_ps(), _mm256_fmadd_ps(a, b, x))
PEAK_LOOP(dpbusd_ymm, "avx2,avxvnni", __m256i, _mm256_setzero_si256(),
          _mm256_dpbusd_avx_epi32(x, a, b))
PEAK_LOOP(maddubs_zmm, "avx512f,avx512bw", __m512i, _mm512_setzero_si512(),
          _mm512_maddubs_epi16(x, a))
PEAK_LOOP(fma_zmm, "avx512f", __m512, _mm512_setzero_ps(), _mm512_fmadd_ps(a, b, x))
PEAK_LOOP(dpbusd_ymm_512, "avx512f,avx512vl,avx512vnni", __m256i, _mm256_setzero_si256(),
          _mm256_dpbusd_epi32(x, a, b))
PEAK_LOOP(dpbusd_zmm, "avx512f,avx512vnni", __m512i, _mm512_setzero_si512(),
          _mm512_dpbusd_epi32(x, a, b))

/* Six sums; tiles 6 and 7 are the operands, 0. */
static void dot_tiles(int64_t rounds)
{
    struct tile_shapes s = {.palette = 1};

    for (int i = 0; i < 8; i++) {
        s.row_bytes[i] = 64;
        s.rows[i] = TILE_ROWS;
    }
    TILES_CONFIGURE(&s);
    for (; rounds > 0; rounds--) {
        TILE_DOT_SS(0, 6, 7);
        TILE_DOT_SS(1, 6, 7);
        TILE_DOT_SS(2, 6, 7);
        TILE_DOT_SS(3, 6, 7);
        TILE_DOT_SS(4, 6, 7);
        TILE_DOT_SS(5, 6, 7);
    }
    TILES_RELEASE();
}

const struct bench_loop bench_loops[] = {
    {"vpmaddubsw ymm", BENCH_INT8, KL_AVX2, 32 * CHAINS, maddubs_ymm},
    {"vfmadd ymm", BENCH_FMA, KL_AVX2, 8 * CHAINS, fma_ymm},
    {"vpdpbusd ymm", BENCH_INT8, KL_AVXVNNI, 32 * CHAINS, dpbusd_ymm},
    {"vpmaddubsw zmm", BENCH_INT8, KL_AVX512, 64 * CHAINS, maddubs_zmm},
    {"vfmadd zmm", BENCH_FMA, KL_AVX512, 16 * CHAINS, fma_zmm},
    {"vpdpbusd ymm", BENCH_INT8, KL_AVX512VNNI, 32 * CHAINS, dpbusd_ymm_512},
    {"vpdpbusd zmm", BENCH_INT8, KL_AVX512VNNI, 64 * CHAINS, dpbusd_zmm},
    {"tdpbssd", BENCH_INT8, KL_AMX, TILE_ROWS *TILE_ROWS * 64 * 6, dot_tiles},
    {NULL, BENCH_INT8, KL_SCALAR, 0, NULL},
};
#endif
