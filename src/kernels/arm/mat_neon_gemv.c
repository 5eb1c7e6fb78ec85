/* mat_neon_gemv.c: GEMV for every 64-bit Arm CPU. */
#include "kernels/arm/mat_neon_ops.h"
#include "kernels/arm/mat_types_list.h"

#define GEMV(name) kernels_gemv_##name##_neon
#include "kernels/arm/mat_gemv.h"

void kernels_mat_neon_gemv(struct kernels *k)
{
#define ENTER(name, type, act) k->mat[type].gemv = GEMV(name);
    TYPES_OF_TABLE(ENTER)
#undef ENTER
}
