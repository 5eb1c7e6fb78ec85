#include "base/fpenv.h"

#if defined(__x86_64__)

#include <xmmintrin.h>

/* All exceptions masked, nearest even, FTZ and DAZ off: the value after reset. */
#define MXCSR_DEFAULT 0x1f80u

uint64_t fpenv_enter(void)
{
    unsigned old = _mm_getcsr();
    if (old != MXCSR_DEFAULT)
        _mm_setcsr(MXCSR_DEFAULT);
    return old;
}

void fpenv_restore(uint64_t old)
{
    /* The caller's sticky flags come back too: our arithmetic leaves no trace. */
    _mm_setcsr((unsigned)old);
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
