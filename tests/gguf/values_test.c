/* values_test.c: the getters: every type through every getter, ranges, arrays of every type. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "gguf/gguf.h"
#include "support/ggufw.h"

static struct gguf *G;

static int setup(void **state)
{
    (void)state;
    struct ggufw w;
    ggufw_init(&w);
    ggufw_u8(&w, "u8", 200);
    ggufw_i8(&w, "i8", -128);
    ggufw_u16(&w, "u16", 65535);
    ggufw_i16(&w, "i16", -32768);
    ggufw_u32(&w, "u32", 4294967295u);
    ggufw_i32(&w, "i32", INT32_MIN);
    ggufw_u64(&w, "u64", UINT64_MAX);
    ggufw_i64(&w, "i64", INT64_MIN);
    ggufw_i64(&w, "i64.max", INT64_MAX);
    ggufw_f32(&w, "f32", 1e-5f);
    ggufw_f64(&w, "f64", 0.1);
    ggufw_bool(&w, "yes", 1);
    ggufw_bool(&w, "no", 0);
    ggufw_str(&w, "str", "zwölf");
    ggufw_str(&w, "str.empty", "");
    static const char *const strs[] = {"one", "", "three\n"};
    ggufw_arr_str(&w, "a.str", strs, 3);
    ggufw_arr(&w, "a.i16", GGUF_I16, 3, (int16_t[]){1, -2, 3}, 6);
    ggufw_arr(&w, "a.u64", GGUF_U64, 3, (uint64_t[]){5, UINT64_MAX, 6}, 24);
    ggufw_arr(&w, "a.bool", GGUF_BOOL, 3, "\1\0\1", 3);
    ggufw_arr(&w, "a.f32", GGUF_F32, 2, (float[]){0.5f, -2}, 8);
    ggufw_arr(&w, "a.f64", GGUF_F64, 1, (double[]){0.1}, 8);
    ggufw_arr(&w, "a.none", GGUF_U32, 0, "", 0);
    static const uint8_t nest[] = {0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9};
    ggufw_arr(&w, "a.nested", GGUF_ARRAY, 1, nest, sizeof nest);
    ggufw_u8(&w, "last", 7); /* behind the nested array: it was walked to its end */
    size_t n;
    struct sl_err err;
    uint8_t *p = ggufw_bytes(&w, &n);
    int rc = gguf_parse(p, n, n, "v.gguf", &G, &err);
    free(p);
    ggufw_free(&w);
    return rc;
}

static int teardown(void **state)
{
    (void)state;
    gguf_close(&G);
    return mem_now() == 0 ? 0 : -1;
}

static void want_i64(const char *key, int64_t want)
{
    int64_t v = 0;
    struct sl_err err;
    assert_int_equal(gguf_get_i64(G, key, &v, &err), 1);
    assert_true(v == want);
}

static void want_u64(const char *key, uint64_t want)
{
    uint64_t v = 0;
    struct sl_err err;
    assert_int_equal(gguf_get_u64(G, key, &v, &err), 1);
    assert_true(v == want);
}

static void test_integers(void **state)
{
    (void)state;
    want_i64("u8", 200);
    want_i64("i8", -128);
    want_i64("u16", 65535);
    want_i64("i16", -32768);
    want_i64("u32", 4294967295);
    want_i64("i32", INT32_MIN);
    want_i64("i64", INT64_MIN);
    want_u64("u8", 200);
    want_u64("u32", 4294967295);
    want_u64("u64", UINT64_MAX);
    want_u64("i64.max", INT64_MAX);
    want_u64("last", 7);
}

static void test_integers_out_of_range(void **state)
{
    (void)state;
    struct sl_err err;
    uint64_t u = 1;
    int64_t i = 1;
    static const char *const negative[] = {"i8", "i16", "i32", "i64"};
    for (size_t k = 0; k < 4; k++) {
        assert_int_equal(gguf_get_u64(G, negative[k], &u, &err), SL_E_FORMAT);
        assert_non_null(strstr(err.msg, "is negative"));
        assert_non_null(strstr(err.msg, negative[k]));
    }
    assert_int_equal(gguf_get_i64(G, "u64", &i, &err), SL_E_FORMAT);
    assert_string_equal(err.msg, "v.gguf: metadata key 'u64' is too large");
    assert_true(u == 1 && i == 1); /* untouched by failures */
}

static void test_floats_bools_strings(void **state)
{
    (void)state;
    double d = 0;
    bool b = false;
    struct gguf_str s;
    assert_int_equal(gguf_get_f64(G, "f32", &d, NULL), 1);
    assert_true(d == (double)1e-5f);
    assert_int_equal(gguf_get_f64(G, "f64", &d, NULL), 1);
    assert_true(d == 0.1);
    assert_int_equal(gguf_get_bool(G, "yes", &b, NULL), 1);
    assert_true(b);
    assert_int_equal(gguf_get_bool(G, "no", &b, NULL), 1);
    assert_false(b);
    assert_int_equal(gguf_get_str(G, "str", &s, NULL), 1);
    assert_int_equal(s.n, 6);
    assert_memory_equal(s.p, "zwölf", 6);
    assert_int_equal(gguf_get_str(G, "str.empty", &s, NULL), 1);
    assert_int_equal(s.n, 0);
}

static void test_wrong_types(void **state)
{
    (void)state;
    struct sl_err err;
    uint64_t u;
    int64_t i;
    double d;
    bool b;
    struct gguf_str s;
    enum gguf_type elem;
    struct gguf_arr *a;
    assert_int_equal(gguf_get_u64(G, "str", &u, &err), SL_E_FORMAT);
    assert_string_equal(err.msg, "v.gguf: metadata key 'str' is of type string, not an integer");
    assert_int_equal(gguf_get_i64(G, "f32", &i, &err), SL_E_FORMAT);
    assert_int_equal(gguf_get_i64(G, "yes", &i, &err), SL_E_FORMAT);
    assert_int_equal(gguf_get_f64(G, "u32", &d, &err), SL_E_FORMAT);
    assert_int_equal(gguf_get_bool(G, "u8", &b, &err), SL_E_FORMAT);
    assert_int_equal(gguf_get_str(G, "a.i16", &s, &err), SL_E_FORMAT);
    assert_string_equal(err.msg,
                        "v.gguf: metadata key 'a.i16' is of type array of int16, not a string");
    assert_int_equal(gguf_get_arr(G, "u8", &elem, &u, &err), SL_E_FORMAT);
    assert_int_equal(gguf_arr_open(G, "str", &a, &err), SL_E_FORMAT);
    assert_null(a);
    assert_int_equal(gguf_arr_open(G, "a.nested", &a, &err), SL_E_FORMAT);
    assert_null(a);
}

static void test_absent(void **state)
{
    (void)state;
    uint64_t u;
    struct gguf_str s;
    struct gguf_arr *a;
    struct gguf_kv kv;
    enum gguf_type elem;
    assert_int_equal(gguf_get_u64(G, "u", &u, NULL), 0);
    assert_int_equal(gguf_get_u64(G, "u88", &u, NULL), 0);
    assert_int_equal(gguf_get_str(G, "", &s, NULL), 0);
    assert_int_equal(gguf_get_arr(G, "none", &elem, &u, NULL), 0);
    assert_int_equal(gguf_arr_open(G, "none", &a, NULL), 0);
    assert_null(a);
    assert_int_equal(gguf_find_kv(G, "none", &kv), 0);
    assert_null(gguf_find_tensor(G, "none")); /* a file without tensors */
}

static void test_listing(void **state)
{
    (void)state;
    struct gguf_kv kv;
    assert_int_equal(gguf_n_kv(G), 24);
    gguf_kv_at(G, 0, &kv);
    assert_int_equal(kv.key.n, 2);
    assert_memory_equal(kv.key.p, "u8", 2);
    assert_int_equal(kv.type, GGUF_U8);
    assert_int_equal(gguf_find_kv(G, "a.u64", &kv), 1);
    assert_int_equal(kv.type, GGUF_ARRAY);
    assert_int_equal(kv.elem, GGUF_U64);
    assert_int_equal(kv.n, 3);
    assert_int_equal(gguf_find_kv(G, "a.nested", &kv), 1);
    assert_int_equal(kv.elem, GGUF_ARRAY);
}

static void test_arrays(void **state)
{
    (void)state;
    struct gguf_arr *a;
    struct gguf_str s;
    int64_t i;
    double d;
    enum gguf_type elem;
    uint64_t n;
    assert_int_equal(gguf_get_arr(G, "a.str", &elem, &n, NULL), 1);
    assert_true(elem == GGUF_STRING && n == 3);
    assert_int_equal(gguf_arr_open(G, "a.str", &a, NULL), 1);
    assert_false(gguf_arr_next_i64(a, &i));
    assert_true(gguf_arr_next_str(a, &s) && s.n == 3 && memcmp(s.p, "one", 3) == 0);
    assert_true(gguf_arr_next_str(a, &s) && s.n == 0);
    assert_true(gguf_arr_next_str(a, &s) && s.n == 6);
    assert_false(gguf_arr_next_str(a, &s));
    gguf_arr_close(&a);
    assert_null(a);
    assert_int_equal(gguf_arr_open(G, "a.i16", &a, NULL), 1);
    assert_false(gguf_arr_next_str(a, &s) || gguf_arr_next_f64(a, &d));
    assert_true(gguf_arr_next_i64(a, &i) && i == 1);
    assert_true(gguf_arr_next_i64(a, &i) && i == -2);
    assert_true(gguf_arr_next_i64(a, &i) && i == 3);
    assert_false(gguf_arr_next_i64(a, &i));
    gguf_arr_close(&a);
    assert_int_equal(gguf_arr_open(G, "a.u64", &a, NULL), 1);
    assert_true(gguf_arr_next_i64(a, &i) && i == 5);
    assert_false(gguf_arr_next_i64(a, &i)); /* does not fit: never a wrong number */
    gguf_arr_close(&a);
    assert_int_equal(gguf_arr_open(G, "a.bool", &a, NULL), 1);
    assert_true(gguf_arr_next_i64(a, &i) && i == 1);
    assert_true(gguf_arr_next_i64(a, &i) && i == 0);
    gguf_arr_close(&a);
    assert_int_equal(gguf_arr_open(G, "a.f32", &a, NULL), 1);
    assert_true(gguf_arr_next_f64(a, &d) && d == 0.5);
    assert_true(gguf_arr_next_f64(a, &d) && d == -2);
    assert_false(gguf_arr_next_f64(a, &d) || gguf_arr_next_i64(a, &i));
    gguf_arr_close(&a);
    assert_int_equal(gguf_arr_open(G, "a.none", &a, NULL), 1);
    assert_false(gguf_arr_next_i64(a, &i));
    gguf_arr_close(&a);
    gguf_arr_close(&a);
    gguf_arr_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_integers_out_of_range),
        cmocka_unit_test(test_floats_bools_strings),
        cmocka_unit_test(test_wrong_types),
        cmocka_unit_test(test_absent),
        cmocka_unit_test(test_listing),
        cmocka_unit_test(test_arrays),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
