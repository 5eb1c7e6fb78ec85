/* How each pre-tokenizer cuts text. Expected cuts follow from the models' tokenizer definitions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "text/pretok.h"

/* Pieces joined by '/'. */
static void check(const char *kind, const char *text, const char *want)
{
    struct sl_err err;
    struct pretok *p;
    struct pretok_run *r;
    const struct pretok_kind *k = pretok_find_kind(kind, strlen(kind));
    assert_non_null(k);
    size_t n = strlen(text), len, out = 0;
    char got[512];
    assert_int_equal(pretok_open(k, &p, &err), 0);
    assert_int_equal(pretok_start(p, n, &r, &err), 0);
    for (; n > 0; text += len, n -= len) {
        assert_int_equal(pretok_next(r, text, n, &len, &err), 0);
        assert_in_range(len, 1, n);
        out += (size_t)snprintf(got + out, sizeof got - out, "%s%.*s", out ? "/" : "", (int)len,
                                text);
    }
    got[out] = '\0';
    assert_string_equal(got, want);
    pretok_stop(&r);
    pretok_close(&p);
    assert_int_equal(mem_now(), 0);
}

static void test_qwen2(void **state)
{
    (void)state;
    check("qwen2", "I'LL don't 123, ok!!\n\nx", "I/'LL/ don/'t/ /1/2/3/,/ ok/!!\n\n/x");
    check("qwen2", "a  b\n  c  ", "a/ / b/\n/ / c/  ");
    check("qwen2", "$x\xe2\x82\xac\xc3\xa9 \xe4\xb8\xad\xe6\x96\x87",
          "$x/\xe2\x82\xac\xc3\xa9/ \xe4\xb8\xad\xe6\x96\x87");
}

static void test_llama(void **state)
{
    (void)state;
    check("llama-bpe", "1234567 it's", "123/456/7/ it/'s");
    check("llama-bpe", "x \n \n  y", "x/ \n \n/ / y");
}

static void test_gpt2(void **state)
{
    (void)state;
    check("gpt-2", "I'LL don't 123 (ok)!!\n\nx", "I/'/LL/ don/'t/ 123/ (/ok/)!!/\n/\n/x");
    check("gpt-2", "a  1  ", "a/ / 1/  ");
}

static void test_smollm(void **state)
{
    (void)state;
    check("smollm", "don't 123 x2y", "don/'t/ /1/2/3/ x/2/y");
    check("smollm", "a  1  b", "a/  /1/ / b"); /* white space before a digit stays together */
}

/* U+0085 is white space for Unicode, U+180E is not. */
static void test_white_space_is_unicodes(void **state)
{
    (void)state;
    check("gpt-2", "a\xc2\x85 \xc2\x85", "a/\xc2\x85 \xc2\x85");
    check("gpt-2", "a \xe1\xa0\x8e", "a/ \xe1\xa0\x8e");
}

static void test_names(void **state)
{
    (void)state;
    assert_null(pretok_find_kind("qwen", 4));
    assert_null(pretok_find_kind("qwen22", 6));
    assert_null(pretok_find_kind("", 0));
    assert_true(pretok_find_kind("qwen2", 5)->nfc);
    assert_true(pretok_find_kind("llama-bpe", 9)->ignore_merges);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_qwen2), cmocka_unit_test(test_llama),
        cmocka_unit_test(test_gpt2),  cmocka_unit_test(test_smollm),
        cmocka_unit_test(test_names), cmocka_unit_test(test_white_space_is_unicodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
