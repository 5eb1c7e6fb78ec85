/* check_mat.h: the products and pack functions against their definition. */
#ifndef TESTS_KERNELS_CHECK_MAT_H
#define TESTS_KERNELS_CHECK_MAT_H

#include "check_common.h"

/* Both are a check_fn. */
void check_mat(struct check *c);
void check_pack(struct check *c);

/* n activations, n a multiple of block: every block at random one of: plain values, all +-a, zero,
 * tiny (around 2^-100), small enough for subnormal products, maximum 127 and halves (exact ties).
 */
void check_mat_activations(struct check *c, float *x, int n, int block);

#endif
