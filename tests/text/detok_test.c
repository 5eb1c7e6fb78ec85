/* Streaming detokenisation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "text/make_vocab.h"
#include "text/random_text.h"
#include "text/utf8.h"

static uint64_t rng;
static struct make_list list;
static struct vocab *vocab;
static int32_t control, cut;

static int setup(void **state)
{
    (void)state;
    struct make_vocab spec;
    struct sl_err err;
    make_vocab_init(&spec);
    make_list_init(&list);
    control = make_list_add(&list, "<c>", 3);
    cut = make_list_add(&list, "a\xc3\xb0\xc5\x81", 1); /* 'a', then bytes f0 9f: half an emoji */
    make_list_use(&list, &spec);
    return make_vocab_open(&spec, &vocab, &err);
}

static int teardown(void **state)
{
    (void)state;
    vocab_close(&vocab);
    make_list_free(&list);
    return mem_now() != 0;
}

static struct detok *open_detok(void)
{
    struct detok *d;
    struct sl_err err;
    assert_int_equal(detok_open(vocab, &d, &err), 0);
    return d;
}

static void feed(struct detok *d, int32_t id, const char *want)
{
    const char *s;
    size_t n;
    struct sl_err err;
    assert_int_equal(detok_feed(d, id, &s, &n, &err), 0);
    assert_int_equal(n, strlen(want));
    assert_memory_equal(s, want, n);
}

static void flush(struct detok *d, const char *want)
{
    const char *s;
    size_t n;
    detok_flush(d, &s, &n);
    assert_int_equal(n, strlen(want));
    assert_memory_equal(s, want, n);
}

static void test_characters_are_whole(void **state)
{
    (void)state;
    struct detok *d = open_detok();
    feed(d, 0xc3, "");
    feed(d, 0xa9, "\xc3\xa9");
    feed(d, cut, "a");
    feed(d, 0x98, "");
    feed(d, control, ""); /* gives nothing and breaks nothing */
    feed(d, 0x80, "\xf0\x9f\x98\x80");
    feed(d, 'x', "x");
    flush(d, "");
    detok_close(&d);
    assert_null(d);
}

static void test_invalid_bytes_pass_through(void **state)
{
    (void)state;
    struct detok *d = open_detok();
    feed(d, 0x80, "\x80");
    feed(d, 0xff, "\xff");
    feed(d, 0xe2, "");
    feed(d, 'x', "\xe2x"); /* what was held was no character after all */
    feed(d, 0xed, "");
    feed(d, 0xa0, "\xed\xa0"); /* a surrogate: never valid */
    feed(d, 0xf0, "");
    feed(d, 0x9f, "");
    flush(d, "\xf0\x9f");
    flush(d, "");
    feed(d, 0x98, "\x98");
    detok_close(&d);
}

static void test_wrong_ids(void **state)
{
    (void)state;
    static const int32_t bad[] = {-1, 258, INT32_MIN, INT32_MAX};
    struct detok *d = open_detok();
    for (size_t i = 0; i < 4; i++) {
        const char *s;
        size_t n = 1;
        struct sl_err err;
        assert_int_equal(detok_feed(d, bad[i], &s, &n, &err), SL_E_ARG);
        assert_int_equal(n, 0);
    }
    feed(d, 'a', "a");
    detok_close(&d);
}

/* Together the parts are the text, and of valid text each part is valid. */
static void test_random_text(void **state)
{
    (void)state;
    for (int i = 0; i < 2000; i++) {
        size_t n = random_next(&rng) % 60, out = 0;
        bool valid = i % 2;
        char *s = valid ? random_valid(&rng, n, &n) : random_bytes(&rng, n);
        struct detok *d = open_detok();
        for (size_t k = 0; k <= n; k++) {
            const char *p;
            size_t len;
            struct sl_err err;
            if (k < n)
                assert_int_equal(detok_feed(d, (unsigned char)s[k], &p, &len, &err), 0);
            else
                detok_flush(d, &p, &len);
            assert_true(len <= n - out);
            assert_memory_equal(p, s + out, len);
            if (valid)
                assert_int_equal(utf8_valid_prefix(p, len), len);
            out += len;
            assert_true(k >= n || k + 1 - out <= 3); /* never more than three bytes late */
        }
        assert_int_equal(out, n);
        detok_close(&d);
        free(s);
    }
}

int main(void)
{
    rng = random_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_characters_are_whole),
        cmocka_unit_test(test_invalid_bytes_pass_through),
        cmocka_unit_test(test_wrong_ids),
        cmocka_unit_test(test_random_text),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
