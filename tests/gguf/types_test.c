/* types_test.c: the type table and the 16-bit float conversions, all 65536 of the latter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "quant/quant.h"

static uint32_t bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static void test_table(void **state)
{
    (void)state;
    int known = 0;
    for (uint32_t t = 0; t < 64; t++) {
        const struct quant_info *q = quant_type_info(t);
        if (!q)
            continue;
        known++;
        assert_true(q->block_values > 0 && q->block_bytes > 0);
        assert_int_equal(quant_row_bytes(t, 0), 0);
        assert_int_equal(quant_row_bytes(t, 512), 512 / q->block_values * q->block_bytes);
        if (q->block_values > 1)
            assert_int_equal(quant_row_bytes(t, q->block_values + 1), 0);
    }
    assert_int_equal(known, 35);
    static const uint32_t gone[] = {4, 5, 31, 32, 33, 36, 37, 38, 43, 1000, UINT32_MAX};
    for (size_t i = 0; i < sizeof gone / sizeof gone[0]; i++)
        assert_null(quant_type_info(gone[i]));
    assert_int_equal(quant_row_bytes(QT_F32, UINT64_MAX), 0);
    assert_int_equal(quant_row_bytes(4, 32), 0);
}

/* The block sizes that the reference quantiser wrote into the recorded blocks' manifest. */
static void test_manifest(void **state)
{
    (void)state;
    json_t *root = json_load_file(SL_SOURCE_DIR "/tests/data/quants/manifest.json", 0, NULL), *t;
    const json_t *list = json_is_array(root) ? root : json_object_get(root, "types");
    size_t i;
    assert_non_null(root);
    json_array_foreach(list, i, t)
    {
        json_int_t id = json_integer_value(json_object_get(t, "ggml_type"));
        const struct quant_info *q = quant_type_info((uint32_t)id);
        assert_non_null(q);
        assert_int_equal(q->block_values, json_integer_value(json_object_get(t, "block_values")));
        assert_int_equal(q->block_bytes, json_integer_value(json_object_get(t, "block_bytes")));
    }
    assert_true(i > 20);
    json_decref(root);
}

static void test_f16_values(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        uint32_t exp = h >> 10 & 31, frac = h & 1023;
        float f = quant_f16_to_f32((uint16_t)h);
        if (exp == 31 && frac) {
            assert_true(isnan(f));
            assert_true(isnan(quant_f16_to_f32(quant_f32_to_f16(f))));
            continue;
        }
        double want = exp == 31  ? (double)INFINITY
                      : exp == 0 ? ldexp(frac, -24)
                                 : ldexp(1024 + frac, (int)exp - 25);
        assert_int_equal(bits(f), bits((float)(h & 0x8000 ? -want : want)));
        assert_int_equal(quant_f32_to_f16(f), h);
    }
}

/* Between two neighbours: below the middle down, above it up, at the middle to the even one. */
static void test_f16_rounding(void **state)
{
    (void)state;
    for (uint16_t h = 0; h < 0x7bff; h++) {
        double mid = ((double)quant_f16_to_f32(h) + (double)quant_f16_to_f32((uint16_t)(h + 1))) /
                     2;
        float m = (float)mid; /* exact */
        assert_int_equal(quant_f32_to_f16(m), h & 1 ? h + 1 : h);
        assert_int_equal(quant_f32_to_f16(nextafterf(m, 0)), h);
        assert_int_equal(quant_f32_to_f16(nextafterf(m, INFINITY)), h + 1);
        assert_int_equal(quant_f32_to_f16(-m), (h & 1 ? h + 1 : h) | 0x8000);
    }
    assert_int_equal(quant_f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(quant_f32_to_f16(65520), 0x7c00);
    assert_int_equal(quant_f32_to_f16(-1e30f), 0xfc00);
    assert_int_equal(quant_f32_to_f16(from_bits(1)), 0);
    assert_true((quant_f32_to_f16(from_bits(0x7f800001)) & 0x7fff) > 0x7c00);
}

static void test_bf16(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++)
        assert_int_equal(bits(quant_bf16_to_f32((uint16_t)h)), h << 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),      cmocka_unit_test(test_manifest),
        cmocka_unit_test(test_f16_values), cmocka_unit_test(test_f16_rounding),
        cmocka_unit_test(test_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
