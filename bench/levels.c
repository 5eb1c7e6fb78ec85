/* levels.c: the CPU levels of this machine, and what each has of its own. */
#include "bench/parts.h"

void bench_find_levels(bool levels[KL_COUNT])
{
    for (int i = 0; i < KL_COUNT; i++) {
        struct kernels k;
        kernels_init(&k, (enum kern_level)i);
        levels[i] = k.level == (enum kern_level)i;
    }
}

void bench_init_below(struct kernels *k, enum kern_level level)
{
    const bool lowest = level == KL_SCALAR || level == KL_NEON;
    kernels_init(k, lowest ? KL_SCALAR : (enum kern_level)(level - 1));
}

bool bench_has_product(enum quant_type type)
{
    struct kernels k;
    kernels_init(&k, KL_SCALAR);
    return k.mat[type].act != ACT_NONE;
}
