/* dispatch.c: which level a table gets, and that nothing is missing in it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kernels.h"

static enum kern_level level_below(enum kern_level max)
{
    struct kernels k;

    kernels_init(&k, max);
    return k.level;
}

static void test_level_is_bounded(void **state)
{
    const enum kern_level best = kernels_cpu_level();
    const int first = best >= KL_NEON ? KL_NEON : KL_SCALAR;

    (void)state;
    assert_int_equal(level_below(KL_COUNT), best);
    assert_int_equal(level_below(best), best);
    assert_int_equal(level_below(KL_SCALAR), KL_SCALAR);
    for (int l = first; l < (int)best; l++)
        assert_true(level_below((enum kern_level)l) <= (enum kern_level)l);
}

static void test_foreign_levels_are_scalar(void **state)
{
    (void)state;
#if defined(__x86_64__)
    assert_int_equal(level_below(KL_NEON), KL_SCALAR);
    assert_int_equal(level_below(KL_I8MM), KL_SCALAR);
    assert_int_equal(level_below(KL_AMX), kernels_cpu_level());
#else
    assert_int_equal(level_below(KL_AVX2), KL_SCALAR);
    assert_int_equal(level_below(KL_AMX), KL_SCALAR);
    assert_int_equal(level_below(KL_I8MM), kernels_cpu_level());
#endif
}

static void test_tables_are_whole(void **state)
{
    static const enum quant_type none[] = {QT_Q8_1, QT_Q8_K, QT_I8, QT_I16, QT_I32, QT_I64, QT_F64};

    (void)state;
    for (int l = 0; l < KL_COUNT; l++) {
        struct kernels k;
        kernels_init(&k, (enum kern_level)l);
        for (uint32_t type = 0; type < QT_COUNT; type++) {
            const struct mat_kernel *m = &k.mat[type];
            const struct quant_info *info = quant_type_info(type);
            bool has_product = info != NULL;
            for (size_t i = 0; i < sizeof none / sizeof *none; i++)
                has_product = has_product && type != none[i];
            if (!has_product) {
                assert_int_equal(m->act, ACT_NONE);
                continue;
            }
            assert_non_null(m->gemv);
            assert_non_null(m->gemm);
            assert_int_equal(m->act, info->block_values == 1    ? ACT_F32
                                     : info->block_values < 256 ? ACT_Q32
                                                                : ACT_Q256);
        }
        assert_non_null(k.pack_f32);
        assert_non_null(k.pack_q256);
        assert_non_null(k.pack_q32);
        assert_non_null(k.rms_norm);
        assert_non_null(k.attention);
        assert_non_null(k.softmax);
        assert_non_null(k.dot);
    }
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(kernels_level_name(KL_SCALAR), "scalar");
    assert_string_equal(kernels_level_name(KL_AVX512VNNI), "avx512vnni");
    assert_string_equal(kernels_level_name(KL_AMX), "amx");
    assert_string_equal(kernels_level_name(KL_I8MM), "i8mm");
    assert_string_equal(kernels_level_name(KL_COUNT), "unknown");
}

static void test_act_bytes(void **state)
{
    (void)state;
    assert_int_equal(act_bytes(ACT_F32, 1), 64);
    assert_int_equal(act_bytes(ACT_F32, 16), 64);
    assert_int_equal(act_bytes(ACT_F32, 17), 128);
    assert_int_equal(act_bytes(ACT_Q256, 512), 2 * sizeof(struct act_q256));
    assert_int_equal(act_bytes(ACT_Q32, 32), 64);
    assert_int_equal(act_bytes(ACT_Q32, 128), 192);
    assert_int_equal(act_bytes(ACT_NONE, 256), 0);
    assert_int_equal(sizeof(struct act_q256) % 64, 0);
}

static void test_pack_refuses(void **state)
{
    static _Alignas(64) uint8_t dst[2048];
    struct kernels k;
    float x[256];

    (void)state;
    kernels_init(&k, KL_COUNT);
    memset(x, 0, sizeof x);
    assert_true(act_pack(&k, ACT_F32, x, 256, dst));
    assert_true(act_pack(&k, ACT_Q256, x, 256, dst));
    assert_true(act_pack(&k, ACT_Q32, x, 256, dst));
    assert_false(act_pack(&k, ACT_NONE, x, 256, dst));
    x[255] = NAN;
    assert_false(act_pack(&k, ACT_F32, x, 256, dst));
    assert_false(act_pack(&k, ACT_Q256, x, 256, dst));
    x[255] = -INFINITY;
    assert_false(act_pack(&k, ACT_Q32, x, 256, dst));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_level_is_bounded), cmocka_unit_test(test_foreign_levels_are_scalar),
        cmocka_unit_test(test_tables_are_whole), cmocka_unit_test(test_names),
        cmocka_unit_test(test_act_bytes),        cmocka_unit_test(test_pack_refuses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
