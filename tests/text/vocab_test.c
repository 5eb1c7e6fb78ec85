/* What a vocabulary accepts, refuses and answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "text/make_vocab.h"

static struct make_list list;
static struct make_vocab spec;
static int32_t he, hello, think, start, end, eot, bos, unused;

static int setup(void **state)
{
    (void)state;
    make_list_init(&list);
    make_vocab_init(&spec);
    he = make_list_add(&list, "he", 1);
    hello = make_list_add(&list, "\xc4\xa0hello", 1); /* the stand-in for a space, then hello */
    think = make_list_add(&list, "<think>", 4);
    start = make_list_add(&list, "<|im_start|>", 3);
    end = make_list_add(&list, "<|im_end|>", 3);
    eot = make_list_add(&list, "<|done|>", 3);
    bos = make_list_add(&list, "<s>", 3);
    unused = make_list_add(&list, "[PAD]", 5);
    make_list_merge(&list, "h", "e");
    make_list_merge(&list, "x", "y"); /* no token "xy": can't happen */
    make_list_use(&list, &spec);
    spec.bos = bos;
    spec.eos = end;
    spec.eot = eot;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    make_list_free(&list);
    return mem_now() != 0; /* nothing is left */
}

static void refuse(int code, const char *word)
{
    struct vocab *v;
    struct sl_err err = {0};
    int rc = make_vocab_open(&spec, &v, &err);
    if (rc != code || !strstr(err.msg, word))
        fail_msg("code %d, '%s' instead of %d with '%s'", rc, err.msg, code, word);
    assert_null(v);
}

static struct vocab *open_ok(void)
{
    struct vocab *v;
    struct sl_err err = {0};
    if (make_vocab_open(&spec, &v, &err) != 0)
        fail_msg("%s", err.msg);
    assert_non_null(v);
    return v;
}

static void test_no_vocabulary(void **state)
{
    (void)state;
    const char *models[] = {NULL, "none", "no_vocab"};
    for (int i = 0; i < 3; i++) {
        struct vocab *v;
        struct sl_err err;
        spec.model = models[i];
        assert_int_equal(make_vocab_open(&spec, &v, &err), 0);
        assert_null(v);
    }
}

static void test_unsupported_kinds_are_named(void **state)
{
    (void)state;
    spec.pre = "qwen35";
    refuse(SL_E_UNSUPPORTED, "'qwen35' is not supported; supported: qwen2, llama-bpe, gpt-2");
    spec.pre = "";
    refuse(SL_E_UNSUPPORTED, "supported: qwen2");
    spec.pre = NULL;
    refuse(SL_E_UNSUPPORTED, "does not name");
    spec.model = "llama";
    refuse(SL_E_UNSUPPORTED, "'llama' is not supported; supported: gpt2");
}

static void test_faults(void **state)
{
    (void)state;
    struct make_vocab good = spec;
    spec.no_tokens = true;
    refuse(SL_E_FORMAT, "tokenizer.ggml.tokens");
    spec = good;
    spec.no_merges = true;
    refuse(SL_E_FORMAT, "tokenizer.ggml.merges");
    spec = good;
    spec.merges_are_numbers = true;
    refuse(SL_E_FORMAT, "strings");
    spec = good;
    spec.n_tokens = 0;
    refuse(SL_E_FORMAT, "empty");
    spec = good;
    spec.n_types--;
    refuse(SL_E_FORMAT, "types for");
    spec = good;
    list.types[3] = 7;
    refuse(SL_E_FORMAT, "token 3");
    list.types[3] = 0;
    refuse(SL_E_FORMAT, "token 3");
    list.types[3] = 1;
    spec.eos = (int32_t)spec.n_tokens;
    refuse(SL_E_FORMAT, "eos_token_id");
}

static void test_malformed_merges(void **state)
{
    (void)state;
    static const char *const bad[] = {"", " ", "a", "a ", " a", "a b c", "a  b", "  "};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *merges[] = {"h e", bad[i]};
        spec.merges = merges;
        spec.n_merges = 2;
        refuse(SL_E_FORMAT, "merge 1 is not two tokens");
    }
}

static void test_long_tokens(void **state)
{
    (void)state;
    char *s = malloc(70000);
    assert_non_null(s);
    memset(s, 'a', 70000);
    s[600] = '\0';
    const char *old = list.tokens[think];
    list.tokens[think] = s;
    refuse(SL_E_UNSUPPORTED, "special token");
    s[600] = 'a';
    s[69999] = '\0';
    refuse(SL_E_UNSUPPORTED, "69999 bytes");
    list.tokens[think] = old;
    free(s);
}

static void test_pieces_and_find(void **state)
{
    (void)state;
    struct vocab *v = open_ok();
    assert_int_equal(vocab_size(v), 264);
    assert_string_equal(vocab_model(v), "gpt2");
    assert_string_equal(vocab_pre(v), "gpt-2");
    assert_int_equal(vocab_find(v, " hello"), hello);
    assert_int_equal(vocab_find(v, "he"), he);
    assert_int_equal(vocab_find(v, "\n"), '\n');
    assert_int_equal(vocab_find(v, "<think>"), think);
    assert_int_equal(vocab_find(v, "<|im_end|>"), end);
    assert_int_equal(vocab_find(v, "<|im_end|"), -1);
    assert_int_equal(vocab_find(v, "<|im_end|>x"), -1);
    assert_int_equal(vocab_find(v, "[PAD]"), -1);
    assert_int_equal(vocab_find(v, ""), -1);
    struct gguf_str s = vocab_piece(v, hello);
    assert_int_equal(s.n, 6);
    assert_memory_equal(s.p, " hello", 6);
    assert_int_equal(vocab_piece(v, think).n, 7);
    assert_int_equal(vocab_piece(v, end).n, 0);
    assert_int_equal(vocab_piece(v, unused).n, 0);
    assert_int_equal(vocab_piece(v, -1).n, 0);
    assert_int_equal(vocab_piece(v, 264).n, 0);
    assert_int_equal(vocab_text(v, end).n, 10);
    assert_int_equal(vocab_piece(v, 0xc3).n, 1);
    vocab_close(&v);
    assert_null(v);
}

static void test_end_of_generation(void **state)
{
    (void)state;
    spec.eos = bos;
    struct vocab *v = open_ok();
    assert_true(vocab_is_eog(v, bos)); /* the file's EOS */
    assert_true(vocab_is_eog(v, eot)); /* the file's end of turn */
    assert_true(vocab_is_eog(v, end)); /* known by its name */
    assert_false(vocab_is_eog(v, start));
    assert_false(vocab_is_eog(v, -1));
    assert_false(vocab_is_eog(v, 264));
    vocab_close(&v);
    list.types[end] = 1; /* a plain token of that name ends nothing */
    v = open_ok();
    assert_false(vocab_is_eog(v, end));
    vocab_close(&v);
}

static void check_ids(const struct vocab *v, const char *text, unsigned flags, const int32_t *want,
                      size_t n_want)
{
    int32_t *ids;
    size_t n;
    struct sl_err err;
    assert_int_equal(vocab_encode(v, text, strlen(text), flags, &ids, &n, &err), 0);
    assert_int_equal(n, n_want);
    if (n)
        assert_memory_equal(ids, want, n * sizeof *ids);
    mem_free(ids);
}

/* { pre, file's add_bos, file's add_eos } and whether they come. */
static void test_bos_and_eos(void **state)
{
    (void)state;
    static const struct {
        const char *pre;
        int add_bos, add_eos;
        bool bos, eos;
    } cases[] = {{"qwen2", -1, -1, false, false}, {"llama-bpe", -1, -1, true, false},
                 {"gpt-2", -1, -1, false, false}, {"smollm", -1, -1, false, false},
                 {"qwen2", 1, 1, true, true},     {"llama-bpe", 0, 1, false, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        spec.pre = cases[i].pre;
        spec.add_bos = cases[i].add_bos;
        spec.add_eos = cases[i].add_eos;
        struct vocab *v = open_ok();
        int32_t want[3];
        size_t n = 0;
        if (cases[i].bos)
            want[n++] = bos;
        want[n++] = he;
        if (cases[i].eos)
            want[n++] = end;
        check_ids(v, "he", SL_TOK_ADD_SPECIAL, want, n);
        check_ids(v, "he", 0, &he, 1);
        check_ids(v, "", 0, NULL, 0);
        vocab_close(&v);
    }
    spec.bos = -1; /* asked for, but there is none */
    spec.add_bos = 1;
    spec.add_eos = 0;
    struct vocab *v = open_ok();
    assert_int_equal(vocab_bos(v), -1);
    check_ids(v, "he", SL_TOK_ADD_SPECIAL, &he, 1);
    vocab_close(&v);
}

/* Every allocation fails once: an error, no leak, no crash. */
static void test_no_memory(void **state)
{
    (void)state;
    struct gguf *g = make_vocab_gguf(&spec);
    uint64_t before = mem_now();
    int rc = SL_E_MEM;
    for (int64_t i = 0; rc; i++) {
        struct vocab *v = NULL;
        struct sl_err err;
        int32_t *ids = NULL;
        size_t n;
        char text[3000]; /* long enough for the cache of pieces */
        memset(text, 'h', sizeof text);
        mem_fail_after(i);
        rc = vocab_open(g, &v, &err);
        if (!rc)
            rc = vocab_encode(v, text, sizeof text, SL_TOK_ADD_SPECIAL, &ids, &n, &err);
        mem_fail_after(-1);
        if (rc)
            assert_int_equal(rc, SL_E_MEM);
        mem_free(ids);
        vocab_close(&v);
        assert_int_equal(mem_now(), before);
        assert_true(i < 1000);
    }
    gguf_close(&g);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_no_vocabulary),
        TEST(test_unsupported_kinds_are_named),
        TEST(test_faults),
        TEST(test_malformed_merges),
        TEST(test_long_tokens),
        TEST(test_pieces_and_find),
        TEST(test_end_of_generation),
        TEST(test_bos_and_eos),
        TEST(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
