/* Encoding against a plain definition of byte-pair merging, round trips, special tokens, and texts
 * that make careless tokenizers slow. */
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

static uint64_t rng;
static struct make_list list;
static struct make_vocab spec;

/* A vocabulary over "abcde ." whose merges are random: each joins two tokens that exist. Letters
 * are their own stand-ins, the space's stand-in is U+0120. */
static void add_random_merges(int n)
{
    int32_t base[] = {'a', 'b', 'c', 'd', 'e', ' ', '.'};
    int32_t pool[600];
    int n_pool = (int)(sizeof base / sizeof *base);
    memcpy(pool, base, sizeof base);
    for (int i = 0; i < n; i++) {
        int32_t l = pool[random_next(&rng) % (uint64_t)n_pool];
        int32_t r = pool[random_next(&rng) % (uint64_t)n_pool];
        char s[400];
        if (strlen(list.tokens[l]) + strlen(list.tokens[r]) > 60)
            continue;
        snprintf(s, sizeof s, "%s%s", list.tokens[l], list.tokens[r]);
        bool known = false;
        for (size_t t = 0; t < list.n_tokens; t++)
            known |= strcmp(list.tokens[t], s) == 0;
        make_list_merge(&list, list.tokens[l], list.tokens[r]);
        if (!known)
            pool[n_pool++] = make_list_add(&list, s, 1);
    }
}

static void begin(const char *pre)
{
    make_list_init(&list);
    make_vocab_init(&spec);
    spec.pre = pre;
}

static struct vocab *finish(void)
{
    struct vocab *v;
    struct sl_err err;
    make_list_use(&list, &spec);
    if (make_vocab_open(&spec, &v, &err) != 0)
        fail_msg("%s", err.msg);
    return v;
}

static void encode(const struct vocab *v, const char *s, size_t n, unsigned flags, int32_t **ids,
                   size_t *n_ids)
{
    struct sl_err err;
    if (vocab_encode(v, s, n, flags, ids, n_ids, &err) != 0)
        fail_msg("%s", err.msg);
}

/* ---- Against the definition ----------------------------------------------------------------- */

static int32_t token_of(const char *a, const char *b)
{
    char s[400];
    snprintf(s, sizeof s, "%s%s", a, b);
    for (size_t t = 0; t < list.n_tokens; t++)
        if (strcmp(list.tokens[t], s) == 0)
            return (int32_t)t;
    return -1;
}

/* While any pair of neighbours is in the list of merges, join the leftmost of the earliest. */
static size_t merge_plainly(int32_t *ids, size_t n)
{
    for (;;) {
        size_t best = n, best_rank = list.n_merges;
        for (size_t i = 0; i + 1 < n; i++) {
            char s[400];
            snprintf(s, sizeof s, "%s %s", list.tokens[ids[i]], list.tokens[ids[i + 1]]);
            for (size_t r = 0; r < best_rank; r++)
                if (strcmp(list.merges[r], s) == 0) {
                    best_rank = r;
                    best = i;
                }
        }
        if (best == n)
            return n;
        ids[best] = token_of(list.tokens[ids[best]], list.tokens[ids[best + 1]]);
        memmove(ids + best + 1, ids + best + 2, (n - best - 2) * sizeof *ids);
        n--;
    }
}

/* Words of letters alone are one piece, below and above the length where the heap takes over. */
static void test_merging_agrees_with_the_definition(void **state)
{
    (void)state;
    for (int round = 0; round < 30; round++) {
        begin("gpt-2");
        add_random_merges(5 + (int)(random_next(&rng) % 60));
        struct vocab *v = finish();
        for (int k = 0; k < 40; k++) {
            char word[100];
            int32_t want[100];
            size_t n = 1 + random_next(&rng) % 80, n_ids;
            unsigned letters = 1 + (unsigned)(random_next(&rng) % 5);
            for (size_t i = 0; i < n; i++) {
                word[i] = (char)('a' + random_next(&rng) % letters);
                want[i] = (unsigned char)word[i];
            }
            size_t n_want = merge_plainly(want, n);
            int32_t *ids;
            encode(v, word, n, 0, &ids, &n_ids);
            assert_int_equal(n_ids, n_want);
            assert_memory_equal(ids, want, n_ids * sizeof *ids);
            mem_free(ids);
        }
        vocab_close(&v);
        make_list_free(&list);
    }
}

/* A long text goes through the cache of pieces, a short one does not. */
static void test_the_cache_changes_nothing(void **state)
{
    (void)state;
    begin("gpt-2");
    add_random_merges(60);
    struct vocab *v = finish();
    enum { N = 20000 };
    char *s = malloc(N);
    assert_non_null(s);
    for (int i = 0; i < N; i++)
        s[i] = random_next(&rng) % 5 ? (char)('a' + random_next(&rng) % 4) : ' ';
    int32_t *all, *part;
    size_t n_all, n_part, at = 0;
    encode(v, s, N, 0, &all, &n_all);
    for (size_t i = 0, j; i < N; i = j) { /* cut before a space that follows a letter */
        for (j = i + 1; j < N && !(s[j] == ' ' && s[j - 1] != ' ' && j - i > 500); j++)
            ;
        encode(v, s + i, j - i, 0, &part, &n_part);
        assert_true(at + n_part <= n_all);
        assert_memory_equal(part, all + at, n_part * sizeof *part);
        at += n_part;
        mem_free(part);
    }
    assert_int_equal(at, n_all);
    mem_free(all);
    free(s);
    vocab_close(&v);
    make_list_free(&list);
}

/* ---- Round trips ---------------------------------------------------------------------------- */

static void check_round_trip(const struct vocab *v, const char *s, size_t n)
{
    int32_t *ids;
    size_t n_ids, at = 0;
    encode(v, s, n, 0, &ids, &n_ids);
    for (size_t i = 0; i < n_ids; i++) {
        struct gguf_str p = vocab_piece(v, ids[i]);
        assert_true(p.n > 0 && p.n <= n - at);
        assert_memory_equal(p.p, s + at, p.n);
        at += p.n;
    }
    assert_int_equal(at, n);
    mem_free(ids);
}

static void test_round_trips(void **state)
{
    (void)state;
    static const char *const pres[] = {"gpt-2", "smollm", "llama-bpe"}; /* qwen2 normalises */
    for (size_t k = 0; k < 3; k++) {
        begin(pres[k]);
        add_random_merges(60);
        make_list_add(&list, "<tool>", 4);
        make_list_add(&list, "<|end|>", 3);
        struct vocab *v = finish();
        for (int i = 0; i < 300; i++) {
            size_t n = random_next(&rng) % 400, bytes;
            char *s = random_bytes(&rng, n);
            check_round_trip(v, s, n);
            free(s);
            s = random_valid(&rng, n, &bytes);
            check_round_trip(v, s, bytes);
            free(s);
        }
        vocab_close(&v);
        make_list_free(&list);
    }
}

/* With normalisation invalid bytes still pass through, and twice is as once. */
static void test_normalising_pre_tokenizer(void **state)
{
    (void)state;
    begin("qwen2");
    add_random_merges(30);
    struct vocab *v = finish();
    int32_t *ids, *again;
    size_t n, n_again;
    encode(v, "e\xcc\x81\xff\xc3", 5, 0, &ids, &n);
    const int32_t want[] = {0xc3, 0xa9, 0xff, 0xc3};
    assert_int_equal(n, 4);
    assert_memory_equal(ids, want, sizeof want);
    mem_free(ids);
    for (int i = 0; i < 300; i++) {
        size_t len = random_next(&rng) % 300, out = 0;
        char *s = random_bytes(&rng, len), *t = malloc(12 * len + 1);
        assert_non_null(t);
        encode(v, s, len, 0, &ids, &n);
        for (size_t k = 0; k < n; k++) {
            struct gguf_str p = vocab_piece(v, ids[k]);
            memcpy(t + out, p.p, p.n);
            out += p.n;
        }
        encode(v, t, out, 0, &again, &n_again);
        assert_int_equal(n_again, n);
        if (n)
            assert_memory_equal(again, ids, n * sizeof *ids);
        mem_free(ids);
        mem_free(again);
        free(s);
        free(t);
    }
    vocab_close(&v);
    make_list_free(&list);
}

/* ---- Special tokens ------------------------------------------------------------------------- */

static void check_ids(const struct vocab *v, const char *text, unsigned flags, const int32_t *want)
{
    int32_t *ids;
    size_t n, n_want = 0;
    while (want[n_want] >= 0)
        n_want++;
    encode(v, text, strlen(text), flags, &ids, &n);
    assert_int_equal(n, n_want);
    assert_memory_equal(ids, want, n * sizeof *ids);
    mem_free(ids);
}

#define IDS(...) ((const int32_t[]){__VA_ARGS__, -1})

static void test_special_tokens(void **state)
{
    (void)state;
    begin("gpt-2");
    int32_t user = make_list_add(&list, "<t>", 4);
    int32_t longer = make_list_add(&list, "<t><u>", 4);
    int32_t control = make_list_add(&list, "<c>", 3);
    int32_t with_text = make_list_add(&list, "<c>x", 3);
    int32_t spaced = make_list_add(&list, "a b", 4);
    int32_t plain = make_list_add(&list, "cc", 1);
    make_list_add(&list, "", 3);
    make_list_merge(&list, "c", "c");
    int32_t letters = make_list_add(&list, "qrs", 3);
    int32_t qr = make_list_add(&list, "qr", 1);
    make_list_merge(&list, "q", "r"); /* merges must not build the control token either */
    make_list_merge(&list, "qr", "s");
    struct vocab *v = finish();
    const unsigned parse = SL_TOK_PARSE_CONTROL;
    check_ids(v, "<t>", 0, IDS(user));
    check_ids(v, "<t>", parse, IDS(user));
    check_ids(v, "<t><u>", 0, IDS(longer));
    check_ids(v, "<t><t><u", 0, IDS(user, user, '<', 'u'));
    check_ids(v, "<c>", 0, IDS('<', 'c', '>'));
    check_ids(v, "qrs", 0, IDS(qr, 's'));
    check_ids(v, "qrs", parse, IDS(letters));
    check_ids(v, "<c>", parse, IDS(control));
    check_ids(v, "<c>x<c>", parse, IDS(with_text, control));
    check_ids(v, "cc<c>cc", parse, IDS(plain, control, plain));
    check_ids(v, "xa bx", 0, IDS('x', spaced, 'x'));
    check_ids(v, "<c", parse, IDS('<', 'c'));
    vocab_close(&v);
    make_list_free(&list);
}

/* Whatever the text, without the flag no id is that of a control token. */
static void test_plain_text_gives_no_control_token(void **state)
{
    (void)state;
    begin("llama-bpe");
    add_random_merges(40);
    static const char *const names[] = {"<|a|>", "<|ab|>", "<|", "ab", " ", "\xff\xfe", "e"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        make_list_add(&list, names[i], 3);
    make_list_add(&list, "<|b|>", 4);
    struct vocab *v = finish();
    for (int i = 0; i < 2000; i++) {
        char s[64];
        size_t n = 0, n_ids;
        static const char *const bits[] = {"<|", "|>", "a", "b", " ", "\xff", "\xfe", "e", "<|a|>"};
        while (n < 50) {
            const char *bit = bits[random_next(&rng) % (sizeof bits / sizeof *bits)];
            memcpy(s + n, bit, strlen(bit));
            n += strlen(bit);
        }
        int32_t *ids;
        encode(v, s, n, 0, &ids, &n_ids);
        for (size_t k = 0; k < n_ids; k++)
            assert_false(vocab_is_control(v, ids[k]));
        mem_free(ids);
        check_round_trip(v, s, n);
    }
    vocab_close(&v);
    make_list_free(&list);
}

/* A piece that is a token is that token for llama-bpe, although no merge builds it. */
static void test_ignore_merges(void **state)
{
    (void)state;
    static const char *const pres[] = {"llama-bpe", "gpt-2"};
    for (int i = 0; i < 2; i++) {
        begin(pres[i]);
        int32_t whole = make_list_add(&list, "abc", 1);
        struct vocab *v = finish();
        check_ids(v, "abc", 0, i == 0 ? IDS(whole) : IDS('a', 'b', 'c'));
        vocab_close(&v);
        make_list_free(&list);
    }
}

static void test_missing_bytes(void **state)
{
    (void)state;
    begin("gpt-2");
    list.types['z'] = 5;
    int32_t unk = make_list_add(&list, "<unk>", 2);
    struct vocab *v = finish();
    struct sl_err err;
    int32_t *ids;
    size_t n;
    assert_int_equal(vocab_encode(v, "az", 2, 0, &ids, &n, &err), SL_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "0x7a"));
    assert_null(ids);
    vocab_close(&v);
    spec.unk = unk;
    v = finish();
    check_ids(v, "az", 0, IDS('a', unk));
    vocab_close(&v);
    list.types[unk] = 3; /* text must not give a control token */
    v = finish();
    assert_int_equal(vocab_encode(v, "az", 2, 0, &ids, &n, &err), SL_E_UNSUPPORTED);
    vocab_close(&v);
    make_list_free(&list);
}

/* ---- Texts that hurt ------------------------------------------------------------------------ */

/* Powers of two of one letter and of spaces as tokens. A quadratic step anywhere would take these
 * megabytes from below a second to hours. */
static void test_long_texts(void **state)
{
    (void)state;
    static const char *const pres[] = {"gpt-2", "smollm", "llama-bpe", "qwen2"};
    static const char *const units[] = {
        "a", " ", "\n", " \n", ".", "\xff", "\xcc\x81", "<t", "a ", "1", "\xcc\x81\xcc\xa3"};
    enum { N_MAX = 1 << 20 };
    char *s = malloc(N_MAX + 1), *noise = random_bytes(&rng, N_MAX);
    assert_non_null(s);
    for (size_t k = 0; k < 4; k++) {
        const size_t n_text = k == 3 ? N_MAX : N_MAX / 8;
        begin(pres[k]);
        const char *space = "\xc4\xa0";
        char a[17] = "a", sp[33];
        memcpy(sp, space, 3);
        for (int i = 0; i < 4; i++) {
            make_list_merge(&list, a, a);
            make_list_merge(&list, sp, sp);
            memcpy(a + strlen(a), a, (size_t)1 << i);
            a[2u << i] = '\0';
            memcpy(sp + strlen(sp), sp, (size_t)2 << i);
            sp[4u << i] = '\0';
            make_list_add(&list, a, 1);
            make_list_add(&list, sp, 1);
        }
        make_list_add(&list, "<t>", 4);
        struct vocab *v = finish();
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            size_t n = strlen(units[u]);
            for (size_t i = 0; i < n_text; i++)
                s[i] = units[u][i % n];
            s[n_text] = 'x'; /* white space is not at the end */
            int32_t *ids;
            size_t n_ids;
            encode(v, s, n_text + 1, 0, &ids, &n_ids);
            if (u == 0)
                assert_int_equal(n_ids, n_text / 16 + 1);
            mem_free(ids);
        }
        int32_t *ids;
        size_t n_ids;
        encode(v, noise, n_text, SL_TOK_PARSE_CONTROL, &ids, &n_ids);
        mem_free(ids);
        vocab_close(&v);
        make_list_free(&list);
    }
    free(s);
    free(noise);
}

int main(void)
{
    rng = random_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merging_agrees_with_the_definition),
        cmocka_unit_test(test_the_cache_changes_nothing),
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_normalising_pre_tokenizer),
        cmocka_unit_test(test_special_tokens),
        cmocka_unit_test(test_plain_text_gives_no_control_token),
        cmocka_unit_test(test_ignore_merges),
        cmocka_unit_test(test_missing_bytes),
        cmocka_unit_test(test_long_texts),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    if (mem_now() != 0)
        fprintf(stderr, "%llu bytes were not freed\n", (unsigned long long)mem_now());
    return rc || mem_now() != 0;
}
