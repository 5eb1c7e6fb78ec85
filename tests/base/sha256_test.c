/* sha256_test.c: the standard's examples, in one piece and in many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/sha256.h"

static void hash(const char *text, size_t n, size_t piece, char hex[SHA256_HEX])
{
    struct sha256 s;
    uint8_t digest[SHA256_BYTES];
    sha256_begin(&s);
    for (size_t at = 0; at < n; at += piece)
        sha256_add(&s, text + at, n - at < piece ? n - at : piece);
    sha256_end(&s, digest);
    sha256_print(digest, hex);
}

static void test_examples(void **state)
{
    (void)state;
    static const struct {
        const char *text, *hex;
    } cases[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t piece = 1; piece < 80; piece++) {
            char hex[SHA256_HEX];
            hash(cases[i].text, strlen(cases[i].text), piece, hex);
            assert_string_equal(hex, cases[i].hex);
        }
}

static void test_million(void **state)
{
    (void)state;
    static char text[1000000];
    char hex[SHA256_HEX];
    memset(text, 'a', sizeof text);
    for (size_t piece = 63; piece < 1000000; piece = piece * 3 + 1) {
        hash(text, sizeof text, piece, hex);
        assert_string_equal(hex,
                            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_million),
    };
    return cmocka_run_group_tests_name("sha256", tests, NULL, NULL);
}
