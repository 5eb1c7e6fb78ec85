/* init.c: fills the table of compute functions for this CPU; the one place that looks at CPU
 * features.
 *
 * The scalar functions come first and are the definition. Each level above overwrites what it does
 * faster, with the same bytes. A level that has no filler in this build is never reported: the best
 * one below it is. */
#include <string.h>

#include "base/size.h"
#include "kernels/levels.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* State that the operating system saves on a context switch (XCR0); 0 when it saves none beyond
 * SSE. */
static uint64_t x86_saved_state(void)
{
    uint32_t a, b, c, d, lo, hi;

    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return 0;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

static bool x86_has_avx2(void)
{
    const uint64_t xmm_ymm = 6; /* XCR0 bits 1 and 2 */
    const uint32_t want1 = bit_AVX | bit_FMA | bit_F16C;
    uint32_t a, b, c, d;

    if ((x86_saved_state() & xmm_ymm) != xmm_ymm)
        return false;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & want1) != want1)
        return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2);
}

enum kern_level kernels_cpu_level(void)
{
    return x86_has_avx2() ? KL_AVX2 : KL_SCALAR;
}
#else
enum kern_level kernels_cpu_level(void)
{
    return KL_SCALAR;
}
#endif

/* The best level that exists here and is not above max. */
static enum kern_level bounded_level(enum kern_level max)
{
    enum kern_level level = kernels_cpu_level();

    if (max == KL_COUNT)
        return level;
#if defined(__x86_64__)
    const bool same_arch = max <= KL_AVX512VNNI;
#else
    const bool same_arch = max >= KL_NEON;
#endif
    if (!same_arch)
        return KL_SCALAR;
    return max < level ? max : level;
}

void kernels_init(struct kernels *k, enum kern_level max_level)
{
    memset(k, 0, sizeof *k);
    k->level = bounded_level(max_level);
    kernels_mat_scalar(k);
    kernels_float_scalar(k);
#if defined(__x86_64__)
    if (k->level < KL_AVX2)
        return;
    kernels_mat_avx2(k);
    kernels_float_avx2(k);
#endif
}

const char *kernels_level_name(enum kern_level level)
{
    static const char *const names[KL_COUNT] = {
        [KL_SCALAR] = "scalar",         [KL_AVX2] = "avx2",
        [KL_AVXVNNI] = "avxvnni",       [KL_AVX512] = "avx512",
        [KL_AVX512VNNI] = "avx512vnni", [KL_NEON] = "neon",
        [KL_DOTPROD] = "dotprod",       [KL_I8MM] = "i8mm",
    };
    return (unsigned)level < KL_COUNT ? names[level] : "unknown";
}

size_t act_bytes(enum act_kind kind, int n)
{
    const size_t count = n > 0 ? (size_t)n : 0;

    switch (kind) {
    case ACT_F32:
        return size_up(count, 16) * sizeof(float);
    case ACT_Q256:
        return count / 256 * sizeof(struct act_q256);
    case ACT_Q32:
        return size_up(count / 32 * sizeof(struct act_q32), 64);
    case ACT_NONE:
        break;
    }
    return 0;
}

bool act_pack(const struct kernels *k, enum act_kind kind, const float *x, int n, void *dst)
{
    switch (kind) {
    case ACT_F32:
        return k->pack_f32(x, n, dst);
    case ACT_Q256:
        return k->pack_q256(x, n, dst);
    case ACT_Q32:
        return k->pack_q32(x, n, dst);
    case ACT_NONE:
        break;
    }
    return false;
}
