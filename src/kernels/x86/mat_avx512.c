/* mat_avx512.c: the products at the level AVX-512 (F, BW, VL, DQ) without VNNI: sixteen rows, byte
 * products summed in twos. */
#define MAT_LANES 16
#define MAT_VNNI  0

#include "kernels/levels.h"
#include "kernels/x86/mat_wide_table.h"

void kernels_mat_avx512(struct kernels *k)
{
    kernels_mat_avx512_float(k);
    fill_wide(k);
}
