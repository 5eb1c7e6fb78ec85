/* check.c: every product and pack function at every CPU level against the scalar definition, byte
 * for byte: random shapes, guard pages, unaligned weights, extreme values, GEMM against GEMV.
 * --bench times the same functions. */
#include "check_mat.h"

static void check_all(struct check *c)
{
    check_pack(c);
    check_mat(c);
}

int main(int argc, char **argv)
{
    return check_main(argc, argv, check_all);
}
