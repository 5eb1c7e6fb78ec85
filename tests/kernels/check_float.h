/* check_float.h: the checks of float operations, each for one level against the definition. */
#ifndef TESTS_KERNELS_CHECK_FLOAT_H
#define TESTS_KERNELS_CHECK_FLOAT_H

#include "check_common.h"

void check_float_ops(struct check *c);       /* maps, norms, sums, rotations, softmax */
void check_float_attention(struct check *c); /* attention and the stores into the cache */

#endif
