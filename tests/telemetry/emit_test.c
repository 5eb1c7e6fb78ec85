/* Numbers and strings as programs read them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "telemetry/emit.h"
#include "text/utf8.h"

static void expect(struct emit *e, const char *want)
{
    assert_false(e->failed);
    assert_int_equal(e->n, strlen(want));
    assert_memory_equal(e->text, want, e->n);
    emit_clear(e);
}

static void test_numbers(void **state)
{
    (void)state;
    struct emit e = {0};
    const struct {
        double v;
        const char *text;
    } rows[] = {{0, "0"},
                {-0.0, "0"},
                {0.1, "0.1"},
                {1e-9, "1e-09"},
                {123456789.5, "123456790"},
                {-2.5, "-2.5"},
                {(double)NAN, ""},
                {(double)INFINITY, ""},
                {-(double)INFINITY, ""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        emit_add_text(&e, "x");
        emit_add_number(&e, rows[i].v);
        char want[32];
        snprintf(want, sizeof want, "x%s", rows[i].text);
        expect(&e, want);
    }
    emit_add_time(&e, 1234567.000000001);
    expect(&e, "1234567.000000001");
    emit_add_int(&e, INT64_MIN);
    emit_add_text(&e, " ");
    emit_add_uint(&e, UINT64_MAX);
    expect(&e, "-9223372036854775808 18446744073709551615");
    emit_free(&e);
}

/* A locale with another decimal point changes nothing; skipped where the system has none. */
static void test_locale(void **state)
{
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"};
    struct emit e = {0};
    const char *set = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !set; i++)
        set = setlocale(LC_NUMERIC, names[i]);
    if (!set)
        print_message("no locale with a decimal comma on this system\n");
    emit_add_number(&e, 1.5);
    emit_add_text(&e, " ");
    emit_add_time(&e, -2.25);
    setlocale(LC_NUMERIC, "C");
    expect(&e, "1.5 -2.250000000");
    emit_free(&e);
}

static void test_strings(void **state)
{
    (void)state;
    struct emit e = {0};
    const struct {
        const char *raw;
        size_t n;
        const char *text;
    } rows[] = {
        {"plain", 5, "\"plain\""},
        {"a\"b\\c", 5, "\"a\\\"b\\\\c\""},
        {"\n\t\r\b\f\1\x7f", 7, "\"\\n\\t\\r\\b\\f\\u0001\\u007f\""},
        {"a\0b", 3, "\"a\\u0000b\""},
        {"\xc3\xa4", 2, "\"\xc3\xa4\""},
        {"\xc3", 1, "\"\xef\xbf\xbd\""},
        {"\xed\xa0\x80", 3, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
        {"\xf0\x9f\xa6\x8a!", 5, "\"\xf0\x9f\xa6\x8a!\""},
        {"", 0, "\"\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        emit_add_string(&e, rows[i].raw, rows[i].n);
        expect(&e, rows[i].text);
    }
    emit_free(&e);
}

/* Whatever the bytes, the object is one that another program reads, and valid characters survive.
 */
static void test_random_bytes(void **state)
{
    (void)state;
    unsigned seed = 12345;
    print_message("seed %u\n", seed);
    srand(seed);
    struct emit e = {0};
    for (int round = 0; round < 2000; round++) {
        char raw[40];
        size_t n = (size_t)rand() % sizeof raw;
        for (size_t i = 0; i < n; i++)
            raw[i] = (char)(rand() % 4 ? 1 + rand() % 127 : 128 + rand() % 128);
        emit_open(&e);
        emit_put_int(&e, "i", round);
        emit_put_bytes(&e, "s", raw, n);
        emit_put_number(&e, "nan", (double)NAN);
        emit_put_text(&e, "null", NULL);
        emit_put_bool(&e, "yes", true);
        emit_close(&e);
        json_t *j = json_loadb(e.text, e.n, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(j);
        assert_int_equal(json_integer_value(json_object_get(j, "i")), round);
        assert_true(json_is_null(json_object_get(j, "nan")) &&
                    json_is_null(json_object_get(j, "null")));
        const char *back = json_string_value(json_object_get(j, "s"));
        if (utf8_valid_prefix(raw, n) == n)
            assert_true(strlen(back) == n && memcmp(back, raw, n) == 0);
        json_decref(j);
        emit_clear(&e);
    }
    emit_free(&e);
}

static void test_no_memory(void **state)
{
    (void)state;
    struct emit e = {0};
    mem_fail_after(0);
    emit_add_text(&e, "lost");
    mem_fail_after(-1);
    assert_true(e.failed && e.n == 0);
    emit_add_text(&e, "nothing follows what is incomplete");
    assert_true(e.failed && e.n == 0);
    emit_clear(&e);
    emit_add_text(&e, "again");
    expect(&e, "again");
    emit_free(&e);
    assert_int_equal(mem_now(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),   cmocka_unit_test(test_locale),
        cmocka_unit_test(test_strings),   cmocka_unit_test(test_random_bytes),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
