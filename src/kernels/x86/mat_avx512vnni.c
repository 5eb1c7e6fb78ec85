/* mat_avx512vnni.c: the products at the level AVX-512 VNNI: sixteen rows, byte products summed in
 * fours. */
#define MAT_LANES 16
#define MAT_VNNI  1

#include "kernels/levels.h"
#include "kernels/x86/mat_wide_table.h"

void kernels_mat_avx512vnni(struct kernels *k)
{
    fill_wide(k);
}
