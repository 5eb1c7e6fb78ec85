/* check_variant.c: the products of a level that few CPUs have, compiled for others
 * (CMakeLists.txt), against the scalar definition. VARIANT: its level; VARIANT_BELOW: what it is
 * filled over; VARIANT_FILL: its function. */
#include <string.h>

#include "check_mat.h"

void VARIANT_FILL(struct kernels *k);

static void check_all(struct check *c)
{
    if (c->k.level != KL_AVX512VNNI)
        return;
    kernels_init(&c->k, VARIANT_BELOW);
    VARIANT_FILL(&c->k);
    c->k.level = VARIANT;
    check_mat(c);
}

int main(int argc, char **argv)
{
    return check_main(argc, argv, check_all);
}
