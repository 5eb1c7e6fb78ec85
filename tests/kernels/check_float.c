/* check_float.c: every float operation of the kernel table at every level, by memcmp against the
 * definition. Run with --digest it also compares the definition with recorded bytes, which is how
 * two architectures are shown to agree. */
#include "check_float.h"

static void check_all(struct check *c)
{
    check_float_ops(c);
    check_float_attention(c);
}

int main(int argc, char **argv)
{
    return check_main(argc, argv, check_all);
}
