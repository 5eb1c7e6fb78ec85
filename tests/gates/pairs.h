/* pairs.h: a small set of ways in which every pair of levels of every two axes occurs. */
#ifndef GATES_PAIRS_H
#define GATES_PAIRS_H

#include "gates/axes.h"

/* n_levels[a]: levels 0 .. n-1 of each axis. Returns the number of ways written to out (at most
 * max), the same set every time; -1: max is too small. */
int pairs_cover(const int n_levels[AX_COUNT], struct way *out, int max);

#endif
