#include "base/fpenv.h"

#if defined(__x86_64__)

#include <xmmintrin.h>

/* All exceptions masked, nearest even, FTZ and DAZ off: the values after reset. The x87 word
 * matters although nothing computes there: the C library's strtod and printf take the rounding mode
 * from it. */
#define MXCSR_DEFAULT 0x1f80u
#define X87_DEFAULT   0x037fu

static unsigned get_x87(void)
{
    uint16_t cw;
    __asm__ __volatile__("fnstcw %0" : "=m"(cw));
    return cw;
}

static void set_x87(unsigned word)
{
    uint16_t cw = (uint16_t)word;
    __asm__ __volatile__("fldcw %0" : : "m"(cw));
}

/* The state is MXCSR, with the x87 control word in bits 32..47. */
uint64_t fpenv_enter(void)
{
    unsigned mxcsr = _mm_getcsr(), x87 = get_x87();
    if (mxcsr != MXCSR_DEFAULT)
        _mm_setcsr(MXCSR_DEFAULT);
    if (x87 != X87_DEFAULT)
        set_x87(X87_DEFAULT);
    return (uint64_t)x87 << 32 | mxcsr;
}

void fpenv_restore(uint64_t old)
{
    /* The caller's sticky flags come back too: our arithmetic leaves no trace. */
    _mm_setcsr((unsigned)old);
    if (get_x87() != old >> 32)
        set_x87((unsigned)(old >> 32));
}

#elif defined(__aarch64__)

/* FPCR 0: nearest even, FZ, FZ16, AH and DN off, no traps. */
uint64_t fpenv_enter(void)
{
    uint64_t old;
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(old));
    if (old != 0)
        __asm__ __volatile__("msr fpcr, %0" : : "r"((uint64_t)0) : "memory");
    return old;
}

void fpenv_restore(uint64_t old)
{
    __asm__ __volatile__("msr fpcr, %0" : : "r"(old) : "memory");
}

#else

#include <fenv.h>

uint64_t fpenv_enter(void)
{
    int old = fegetround();
    fesetround(FE_TONEAREST);
    return (uint64_t)(old < 0 ? FE_TONEAREST : old);
}

void fpenv_restore(uint64_t old)
{
    fesetround((int)old);
}

#endif
