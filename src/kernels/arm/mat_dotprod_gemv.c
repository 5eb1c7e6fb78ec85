/* mat_dotprod_gemv.c: GEMV for CPUs with the dot product instructions. */
#include "kernels/arm/mat_dotprod_ops.h"
#include "kernels/arm/mat_types_list.h"

#define GEMV(name) kernels_gemv_##name##_dotprod
#include "kernels/arm/mat_gemv.h"

void kernels_mat_dotprod_gemv(struct kernels *k)
{
#define ENTER(name, type, act) k->mat[type].gemv = GEMV(name);
    TYPES_OF_TABLE(ENTER)
#undef ENTER
}
