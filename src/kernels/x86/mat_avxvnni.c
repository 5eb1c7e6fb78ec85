/* mat_avxvnni.c: the products at the level AVX-VNNI: eight rows, byte products summed in fours. */
#define MAT_LANES 8
#define MAT_VNNI  1

#include "kernels/levels.h"
#include "kernels/x86/mat_wide_table.h"

void kernels_mat_avxvnni(struct kernels *k)
{
    fill_wide(k);
}
