/* init.c: fills the table of compute functions for this CPU; the one place that looks at CPU
 * features.
 *
 * The scalar functions come first and are the definition. Each level above overwrites what it does
 * faster, with the same bytes. A level that has no filler in this build is never reported: the best
 * one below it is. */
#include <string.h>

#include "base/cpus.h"
#include "base/size.h"
#include "kernels/levels.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#ifndef HWCAP2_I8MM /* headers before Linux 5.10 */
#define HWCAP2_I8MM (1 << 13)
#endif
#endif
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

static bool x86_has_avxvnni(void)
{
    const uint32_t avx_vnni = 1u << 4; /* leaf 7, subleaf 1, EAX */
    uint32_t a, b, c, d;

    return x86_has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & avx_vnni);
}

/* With the vector lengths and byte operations that every such CPU since 2017 has. */
static bool x86_has_avx512(bool vnni)
{
    const uint64_t opmask_zmm = 0xe0; /* XCR0 bits 5, 6, 7 */
    const uint32_t want = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
    uint32_t a, b, c, d;

    if (!x86_has_avx2() || (x86_saved_state() & opmask_zmm) != opmask_zmm)
        return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & want) == want &&
           (!vnni || (c & bit_AVX512VNNI));
}

/* Tiles and their int8 products. The operating system saves tiles only for a process that asked. */
static bool x86_has_amx(void)
{
    const uint64_t tiles = 3u << 17; /* XCR0 bits 17, 18 */
    const uint32_t want = 3u << 24;  /* leaf 7, EDX: AMX-TILE, AMX-INT8 */
    uint32_t a, b, c, d;

    return x86_has_avx512(true) && (x86_saved_state() & tiles) == tiles &&
           __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & want) == want && cpus_allow_tiles();
}
#endif

/* The levels of this architecture that this build has, rising; scalar apart. A CPU may lack one and
 * have those above it. */
struct level {
    enum kern_level level;
    void (*fill)(struct kernels *k);
};

#if defined(__x86_64__)
static void fill_avx2(struct kernels *k)
{
    kernels_mat_avx2(k);
    kernels_float_avx2(k);
}

static void fill_avx512(struct kernels *k)
{
    kernels_mat_avx512(k);
    kernels_float_avx512(k);
}

static const struct level levels[] = {
    {KL_AVX2, fill_avx2},      {KL_AVXVNNI, kernels_mat_avxvnni},
    {KL_AVX512, fill_avx512},  {KL_AVX512VNNI, kernels_mat_avx512vnni},
    {KL_AMX, kernels_mat_amx},
};
#define N_LEVELS (sizeof levels / sizeof *levels)

static bool cpu_has(enum kern_level level)
{
    switch (level) {
    case KL_AVX2:
        return x86_has_avx2();
    case KL_AVXVNNI:
        return x86_has_avxvnni();
    case KL_AVX512:
        return x86_has_avx512(false);
    case KL_AVX512VNNI:
        return x86_has_avx512(true);
    case KL_AMX:
        return x86_has_amx();
    default:
        return false;
    }
}
#elif defined(__aarch64__)
static void fill_neon(struct kernels *k)
{
    kernels_mat_neon(k);
    kernels_float_neon(k);
}

static const struct level levels[] = {
    {KL_NEON, fill_neon},
    {KL_DOTPROD, kernels_mat_dotprod},
    {KL_I8MM, kernels_mat_i8mm},
};
#define N_LEVELS (sizeof levels / sizeof *levels)

/* What the kernel says it lets programs use. The level of int8 matrix products needs the dot
 * product too, whose GEMV it keeps. */
static bool cpu_has(enum kern_level level)
{
    const bool dotprod = getauxval(AT_HWCAP) & HWCAP_ASIMDDP;

    switch (level) {
    case KL_NEON:
        return true;
    case KL_DOTPROD:
        return dotprod;
    case KL_I8MM:
        return dotprod && (getauxval(AT_HWCAP2) & HWCAP2_I8MM);
    default:
        return false;
    }
}
#else
static const struct level levels[1];
#define N_LEVELS 0

static bool cpu_has(enum kern_level level)
{
    (void)level;
    return false;
}
#endif

static bool same_arch(enum kern_level level)
{
#if defined(__x86_64__)
    return level <= KL_AMX;
#else
    return level >= KL_NEON;
#endif
}

enum kern_level kernels_cpu_level(void)
{
    enum kern_level best = KL_SCALAR;

    for (size_t i = 0; i < N_LEVELS; i++)
        if (cpu_has(levels[i].level))
            best = levels[i].level;
    return best;
}

void kernels_init(struct kernels *k, enum kern_level max_level)
{
    memset(k, 0, sizeof *k);
    k->level = KL_SCALAR;
    kernels_mat_scalar(k);
    kernels_float_scalar(k);
    if (max_level != KL_COUNT && !same_arch(max_level))
        return;
    for (size_t i = 0; i < N_LEVELS; i++)
        if (levels[i].level <= max_level && cpu_has(levels[i].level)) {
            levels[i].fill(k);
            k->level = levels[i].level;
        }
}

const char *kernels_level_name(enum kern_level level)
{
    static const char *const names[KL_COUNT] = {
        [KL_SCALAR] = "scalar",
        [KL_AVX2] = "avx2",
        [KL_AVXVNNI] = "avxvnni",
        [KL_AVX512] = "avx512",
        [KL_AVX512VNNI] = "avx512vnni",
        [KL_AMX] = "amx",
        [KL_NEON] = "neon",
        [KL_DOTPROD] = "dotprod",
        [KL_I8MM] = "i8mm",
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
