/* check_avxvnni.c: the products of the AVX-VNNI level, compiled for AVX-512's encoding of the same
 * instructions (CMakeLists.txt), against the scalar definition. */
#include <string.h>

#include "check_mat.h"

void check_fill_avxvnni(struct kernels *k);

static void check_all(struct check *c)
{
    if (c->k.level != KL_AVX512VNNI)
        return;
    kernels_init(&c->k, KL_AVX2);
    check_fill_avxvnni(&c->k);
    c->k.level = KL_AVXVNNI;
    check_mat(c);
}

int main(int argc, char **argv)
{
    return check_main(argc, argv, check_all);
}
