/* fpenv.h: the floating-point environment that section "ground rules" of docs/arithmetic.md asks
 * for: round to nearest even, subnormals kept (no FTZ, no DAZ). */
#ifndef BASE_FPENV_H
#define BASE_FPENV_H

#include <stdint.h>

/* Set the default environment on this thread; returns the old state for fpenv_restore. */
uint64_t fpenv_enter(void);
void fpenv_restore(uint64_t old);

#endif
