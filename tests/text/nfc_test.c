/* UTF-8 and normalisation against utf8proc's own driver. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "text/nfc.h"
#include "text/random_text.h"
#include "text/utf8.h"

static uint64_t rng;

static void test_utf8_agrees_with_the_definition(void **state)
{
    (void)state;
    for (int32_t c = 0; c <= 0x10ffff; c++) {
        if (c >= 0xd800 && c <= 0xdfff)
            continue;
        char s[4];
        size_t n = utf8_encode_char(c, s), len;
        assert_int_equal(utf8_decode_char(s, n, &len), c);
        assert_int_equal(len, n);
        assert_int_equal(utf8_valid_prefix(s, n), n);
        for (size_t k = 1; k < n; k++) { /* every cut is open and not valid */
            assert_int_equal(utf8_valid_prefix(s, k), 0);
            assert_int_equal(utf8_open_tail(s, k), k);
        }
        assert_int_equal(utf8_open_tail(s, n), 0);
    }
    static const char *const bad[] = {"\x80",         "\xc0\xaf",         "\xc1\xbf",
                                      "\xe0\x9f\xbf", "\xed\xa0\x80",     "\xf0\x8f\xbf\xbf",
                                      "\xff",         "\xf4\x90\x80\x80", "\xf5\x80\x80\x80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t len;
        assert_int_equal(utf8_valid_prefix(bad[i], strlen(bad[i])), 0);
        assert_int_equal(utf8_decode_char(bad[i], strlen(bad[i]), &len), -1);
        assert_int_equal(len, 1);
        assert_int_equal(utf8_open_tail(bad[i], strlen(bad[i])), 0);
    }
}

static void check_one(struct nfc *b, const char *s, size_t n)
{
    const char *got;
    size_t n_got;
    struct sl_err err;
    assert_int_equal(nfc_normalise(b, s, n, &got, &n_got, &err), 0);
    utf8proc_uint8_t *want = NULL;
    utf8proc_ssize_t n_want = utf8proc_map((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n, &want,
                                           UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    assert_true(n_want >= 0);
    assert_int_equal(n_got, n_want);
    assert_memory_equal(got, want, n_got);
    free(want);
}

static void test_nfc_of_random_text(void **state)
{
    (void)state;
    struct nfc b = {0};
    for (int i = 0; i < 4000; i++) {
        size_t n;
        char *s = random_valid(&rng, random_next(&rng) % 60, &n);
        check_one(&b, s, n);
        free(s);
    }
    nfc_free(&b);
    assert_int_equal(mem_now(), 0);
}

/* Each character alone, and between letters and marks. */
static void test_nfc_of_every_character(void **state)
{
    (void)state;
    struct nfc b = {0};
    for (int32_t c = 1; c <= 0x10ffff; c++) {
        if ((c >= 0xd800 && c <= 0xdfff) || (c > 0x323af && c < 0xe0000 && c % 97))
            continue;
        char s[64] = "xe", mark[4];
        size_t n = 2 + utf8_encode_char(c, s + 2);
        size_t n_mark = utf8_encode_char(0x301, mark);
        memcpy(s + n, mark, n_mark);
        check_one(&b, s, n + n_mark);
        check_one(&b, s + 2, n - 2);
    }
    nfc_free(&b);
}

static void test_nfc_of_a_long_run_of_marks(void **state)
{
    (void)state;
    struct nfc b = {0};
    enum { N = 500000 }; /* an exchange sort would take 10^11 steps */
    char *s = malloc(1 + 2 * N);
    assert_non_null(s);
    s[0] = 'a';
    for (size_t i = 0; i < N; i++)
        utf8_encode_char(i % 2 ? 0x323 : 0x301, s + 1 + 2 * i);
    const char *got;
    size_t n;
    struct sl_err err;
    assert_int_equal(nfc_normalise(&b, s, 1 + 2 * N, &got, &n, &err), 0);
    char want[] = "\xe1\xba\xa1\xcc\xa3"; /* a with dot below, the next dot below */
    assert_memory_equal(got, want, 5);
    free(s);
    nfc_free(&b);
}

int main(void)
{
    rng = random_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_utf8_agrees_with_the_definition),
        cmocka_unit_test(test_nfc_of_random_text),
        cmocka_unit_test(test_nfc_of_every_character),
        cmocka_unit_test(test_nfc_of_a_long_run_of_marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
