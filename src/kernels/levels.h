/* levels.h: what each file of the kernel table provides; called by kernels_init only, scalar first,
 * then upward. Two families fill the table: products (mat) and float operations. */
#ifndef KERNELS_LEVELS_H
#define KERNELS_LEVELS_H

#include "kernels/kernels.h"

void kernels_mat_scalar(struct kernels *k);
void kernels_float_scalar(struct kernels *k);
#if defined(__x86_64__)
void kernels_mat_avx2(struct kernels *k);
void kernels_float_avx2(struct kernels *k);
void kernels_mat_avxvnni(struct kernels *k);
void kernels_mat_avx512(struct kernels *k);
void kernels_mat_avx512_float(struct kernels *k); /* part of kernels_mat_avx512 */
void kernels_float_avx512(struct kernels *k);
void kernels_mat_avx512vnni(struct kernels *k);
void kernels_mat_amx(struct kernels *k); /* over kernels_mat_avx512vnni */
#elif defined(__aarch64__)
void kernels_mat_neon(struct kernels *k);
void kernels_float_neon(struct kernels *k);
void kernels_mat_dotprod(struct kernels *k);
void kernels_mat_i8mm(struct kernels *k);
#endif

#endif
