/* parse_test.c: every way in which one file can be wrong, with the code and the words that the user
 * sees; and that neither a cut, nor a failing allocation, nor a hostile count does harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "gguf/gguf.h"
#include "quant/quant.h"
#include "support/ggufw.h"

static const uint64_t d64[] = {64}, d64x2[] = {64, 2}, d256x2x3[] = {256, 2, 3};

/* A small file with something of everything. */
static void good(struct ggufw *w)
{
    ggufw_init(w);
    ggufw_str(w, "general.architecture", "test");
    ggufw_u32(w, "test.block_count", 2);
    static const char *const tokens[] = {"a", "", "ccc"};
    ggufw_arr_str(w, "tokenizer.ggml.tokens", tokens, 3);
    ggufw_tensor(w, "token_embd.weight", QT_F32, 2, d64x2, NULL, 512);
    ggufw_tensor(w, "blk.0.ffn_up_exps.weight", QT_Q4_K, 3, d256x2x3, NULL, 6 * 144);
}

static int parse(const uint8_t *p, size_t n, uint64_t file_size, struct sl_err *err)
{
    struct gguf *g = NULL;
    memset(err, 0, sizeof *err);
    int rc = gguf_parse(p, n, file_size, "m.gguf", &g, err);
    assert_int_equal(rc == 0, g != NULL);
    gguf_close(&g);
    return rc;
}

static void refuse_bytes(const void *p, size_t n, int code, const char *words)
{
    uint8_t *exact = malloc(n ? n : 1);
    assert_non_null(exact);
    memcpy(exact, p, n);
    struct sl_err err;
    int rc = parse(exact, n, n, &err);
    free(exact);
    if (rc != code || !strstr(err.msg, words) || strncmp(err.msg, "m.gguf: ", 8) != 0)
        fail_msg("wanted %d and \"%s\", got %d and \"%s\"", code, words, rc, err.msg);
    assert_int_equal(err.code, code);
    assert_string_equal(err.where, "m.gguf");
}

static void refuse(struct ggufw *w, int code, const char *words)
{
    size_t n;
    uint8_t *p = ggufw_bytes(w, &n);
    refuse_bytes(p, n, code, words);
    free(p);
    ggufw_free(w);
}

static void accept(struct ggufw *w)
{
    size_t n;
    struct sl_err err;
    uint8_t *p = ggufw_bytes(w, &n);
    if (parse(p, n, n, &err) != 0)
        fail_msg("refused: %s", err.msg);
    free(p);
    ggufw_free(w);
}

static void test_good(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        struct ggufw w;
        struct gguf *g;
        struct sl_err err;
        size_t n;
        good(&w);
        w.version = version;
        uint8_t *p = ggufw_bytes(&w, &n);
        assert_int_equal(gguf_parse(p, n, n, "m.gguf", &g, &err), 0);
        memset(p, 0xee, n); /* the bytes need not outlive the call */
        free(p);
        ggufw_free(&w);
        assert_int_equal(gguf_version(g), version);
        assert_int_equal(gguf_n_shards(g), 1);
        assert_string_equal(gguf_shard_path(g, 0), "m.gguf");
        assert_int_equal(gguf_shard_size(g, 0), n);
        assert_int_equal(gguf_n_kv(g), 3);
        assert_int_equal(gguf_n_tensors(g), 2);
        const struct gguf_tensor *a = gguf_find_tensor(g, "token_embd.weight");
        const struct gguf_tensor *b = gguf_find_tensor(g, "blk.0.ffn_up_exps.weight");
        assert_ptr_equal(a, gguf_tensor_at(g, 0));
        assert_null(gguf_find_tensor(g, "token_embd"));
        assert_int_equal(a->bytes, 512);
        assert_int_equal(a->dims[2], 1);
        assert_int_equal(b->type, QT_Q4_K);
        assert_int_equal(b->n_dims, 3);
        assert_int_equal(b->bytes, 864);
        assert_int_equal(b->offset, n - 864);
        assert_int_equal(a->offset, n - 864 - 512);
        gguf_close(&g);
        assert_null(g);
    }
}

static void test_not_gguf(void **state)
{
    (void)state;
    refuse_bytes("", 0, SL_E_FORMAT, "empty");
    refuse_bytes("Once upon a time\n", 17, SL_E_FORMAT, "text file, not a GGUF file");
    refuse_bytes("\x93\x01\x02\x03zzzz\0\0\0\0", 12, SL_E_FORMAT, "not a GGUF file");
    refuse_bytes("version https://git-lfs.github.com/spec/v1\n", 43, SL_E_FORMAT, "git lfs pull");
    refuse_bytes("<!DOCTYPE html><html>", 21, SL_E_FORMAT, "web page");
    refuse_bytes("tjgg\1\0\0\0", 8, SL_E_FORMAT, "came before GGUF");
    refuse_bytes("PK\3\4\0\0", 6, SL_E_FORMAT, "PyTorch");
    refuse_bytes("\x20\0\0\0\0\0\0\0{\"__metadata__\"", 24, SL_E_FORMAT, "safetensors");
    refuse_bytes("GG", 2, SL_E_FORMAT, "not a GGUF file");
    refuse_bytes("GGUF", 4, SL_E_FORMAT, "truncated");
}

static void with_version(uint32_t version, int code, const char *words)
{
    struct ggufw w;
    good(&w);
    w.version = version;
    refuse(&w, code, words);
}

static void test_versions(void **state)
{
    (void)state;
    with_version(0, SL_E_UNSUPPORTED, "version 0 is not known");
    with_version(1, SL_E_UNSUPPORTED, "version 1 is too old");
    with_version(4, SL_E_UNSUPPORTED, "version 4 is not known");
    with_version(0x03000000, SL_E_UNSUPPORTED, "big-endian GGUF file (version 3)");
    with_version(0x02000000, SL_E_UNSUPPORTED, "big-endian GGUF file (version 2)");
    refuse_bytes("FUGG\0\0\0\3", 8, SL_E_UNSUPPORTED, "big-endian");
}

/* Counts that promise more than there is must cost nothing. */
static void test_hostile_counts(void **state)
{
    (void)state;
    static const int64_t counts[] = {INT64_MAX, (int64_t)1 << 60, (int64_t)1 << 32, 1000};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct ggufw w;
        good(&w);
        w.n_kv = counts[i];
        refuse(&w, SL_E_FORMAT, "metadata keys, more than the file's");
        good(&w);
        w.n_tensors = counts[i];
        refuse(&w, SL_E_FORMAT, "tensors, more than the file's");
    }
    /* The same in a file that is said to be huge. */
    struct ggufw w;
    struct sl_err err;
    size_t n;
    good(&w);
    w.n_kv = (int64_t)1 << 36;
    uint8_t *p = ggufw_bytes(&w, &n);
    assert_int_equal(parse(p, n, (uint64_t)1 << 50, &err), SL_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "more than 65536"));
    free(p);
    w.n_kv = -1;
    w.n_tensors = (int64_t)1 << 36;
    p = ggufw_bytes(&w, &n);
    assert_int_equal(parse(p, n, (uint64_t)1 << 50, &err), SL_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "more than 262144"));
    free(p);
    ggufw_free(&w);
}

static void test_keys(void **state)
{
    (void)state;
    struct ggufw w;
    good(&w);
    ggufw_u8(&w, "test.block_count", 1);
    refuse(&w, SL_E_FORMAT, "metadata key 'test.block_count' occurs twice");
    good(&w);
    ggufw_u8(&w, "", 1);
    refuse(&w, SL_E_FORMAT, "metadata key 3 is empty");
    good(&w);
    ggufw_u8(&w, "a\nb", 1);
    refuse(&w, SL_E_FORMAT, "metadata key 3 holds control characters");
    char *longest = malloc(65537);
    assert_non_null(longest);
    memset(longest, 'k', 65536);
    longest[65536] = 0;
    good(&w);
    ggufw_u8(&w, longest, 1);
    refuse(&w, SL_E_FORMAT, "metadata key 3 is longer than 65535 bytes");
    longest[65535] = 0;
    good(&w);
    ggufw_u8(&w, longest, 1);
    accept(&w);
    free(longest);
}

static void test_values(void **state)
{
    (void)state;
    struct ggufw w;
    good(&w);
    ggufw_raw(&w, "x.odd", 13, "abcd", 4);
    refuse(&w, SL_E_FORMAT, "metadata key 'x.odd' has a value of unknown type 13");
    good(&w);
    ggufw_bool(&w, "x.flag", 2);
    refuse(&w, SL_E_FORMAT, "metadata key 'x.flag' is a bool that is neither 0 nor 1");
    good(&w);
    ggufw_arr(&w, "x.flags", GGUF_BOOL, 3, "\0\1\2", 3);
    refuse(&w, SL_E_FORMAT, "metadata key 'x.flags' holds a bool that is neither 0 nor 1");
    good(&w);
    ggufw_arr(&w, "x.list", 77, 0, "", 0);
    refuse(&w, SL_E_FORMAT, "metadata key 'x.list' is an array of unknown type 77");
    ggufw_init(&w);
    ggufw_arr(&w, "x.list", GGUF_U64, (uint64_t)1 << 61, "12345678", 8);
    refuse(&w, SL_E_FORMAT, "it ends inside metadata key 'x.list'");
    ggufw_init(&w);
    ggufw_arr(&w, "x.list", GGUF_STRING, UINT64_MAX, "12345678", 8);
    refuse(&w, SL_E_FORMAT, "it ends inside metadata key 'x.list'");
    ggufw_init(&w);
    ggufw_raw(&w, "x.text", GGUF_STRING, "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
    refuse(&w, SL_E_FORMAT, "it ends inside metadata key 'x.text'");
}

/* An array inside `depth` others. */
static void nested(struct ggufw *w, int depth)
{
    uint8_t b[256];
    size_t n = 0;
    for (int i = 0; i < depth; i++) {
        uint32_t elem = i + 1 < depth ? GGUF_ARRAY : GGUF_U8;
        uint64_t count = 1;
        memcpy(b + n, &elem, 4);
        memcpy(b + n + 4, &count, 8);
        n += 12;
    }
    b[n++] = 42;
    ggufw_raw(w, "x.deep", GGUF_ARRAY, b, n);
}

static void test_nested_arrays(void **state)
{
    (void)state;
    struct ggufw w;
    good(&w);
    nested(&w, 4);
    accept(&w);
    good(&w);
    nested(&w, 5);
    refuse(&w, SL_E_UNSUPPORTED, "'x.deep': arrays nest deeper than 4");
}

static void test_alignment(void **state)
{
    (void)state;
    struct ggufw w;
    static const uint32_t bad[] = {0, 1, 4, 24, 33, 3u << 20, 1u << 21, 0x80000000u};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        good(&w);
        ggufw_u32(&w, "general.alignment", bad[i]);
        refuse(&w, SL_E_FORMAT, "general.alignment is");
    }
    good(&w);
    ggufw_str(&w, "general.alignment", "32");
    refuse(&w, SL_E_FORMAT, "'general.alignment' is of type string, not an integer");
    static const uint32_t fine[] = {8, 64, 4096};
    for (size_t i = 0; i < sizeof fine / sizeof fine[0]; i++) {
        ggufw_init(&w);
        w.align = fine[i];
        ggufw_u32(&w, "general.alignment", fine[i]);
        ggufw_tensor(&w, "a", QT_F32, 1, d64, NULL, 256);
        ggufw_tensor(&w, "b", QT_F32, 1, d64, NULL, 256);
        accept(&w);
    }
    ggufw_init(&w);
    ggufw_tensor_raw(&w, "crooked", 7, QT_F32, 1, d64, 40);
    ggufw_raw(&w, "pad", GGUF_U8, "", 1);
    refuse(&w, SL_E_FORMAT, "tensor 'crooked': offset 40 is no multiple of the alignment 32");
}

static void one_tensor(uint32_t type, uint32_t n_dims, const uint64_t *dims, uint64_t offset,
                       int code, const char *words)
{
    struct ggufw w;
    good(&w);
    ggufw_tensor_raw(&w, "blk.1.bad.weight", 16, type, n_dims, dims, offset);
    refuse(&w, code, words);
}

static void test_tensor_types(void **state)
{
    (void)state;
    static const uint32_t withdrawn[] = {4, 5, 31, 32, 33, 36, 37, 38};
    for (size_t i = 0; i < sizeof withdrawn / sizeof withdrawn[0]; i++) {
        char words[96];
        snprintf(words, sizeof words, "tensor 'blk.1.bad.weight' has type %u, which was withdrawn",
                 withdrawn[i]);
        one_tensor(withdrawn[i], 1, d64, 0, SL_E_UNSUPPORTED, words);
    }
    one_tensor(43, 1, d64, 0, SL_E_UNSUPPORTED, "'blk.1.bad.weight' has the unknown type 43");
    one_tensor(UINT32_MAX, 1, d64, 0, SL_E_UNSUPPORTED, "has the unknown type 4294967295");
    one_tensor(QT_Q4_K, 1, d64, 0, SL_E_FORMAT,
               "tensor 'blk.1.bad.weight': rows of 64 values are no whole number of Q4_K blocks "
               "(256 values each)");
}

static void test_tensor_shapes(void **state)
{
    (void)state;
    static const uint64_t five[] = {32, 1, 1, 1, 1}, zero[] = {32, 0};
    static const uint64_t huge[] = {(uint64_t)1 << 32, (uint64_t)1 << 32};
    static const uint64_t row[] = {UINT64_MAX - 7}, bits[] = {(uint64_t)1 << 63};
    one_tensor(QT_F32, 5, five, 0, SL_E_FORMAT, "'blk.1.bad.weight' has 5 dimensions");
    one_tensor(QT_F32, 2, zero, 0, SL_E_FORMAT, "'blk.1.bad.weight': dimension 1 is 0");
    one_tensor(QT_F32, 2, huge, 0, SL_E_FORMAT, "does not fit in 63 bits");
    one_tensor(QT_F32, 1, row, 0, SL_E_FORMAT, "does not fit in 63 bits");
    one_tensor(QT_Q1_0, 1, bits, 0, SL_E_FORMAT, "does not fit in 63 bits");
    one_tensor(QT_F32, 1, d64, UINT64_MAX - 31, SL_E_FORMAT, "does not fit in 64 bits");
    one_tensor(QT_F32, 1, d64, (uint64_t)1 << 40, SL_E_FORMAT,
               "the file is truncated: tensor 'blk.1.bad.weight' ends at byte");
    struct ggufw w;
    good(&w);
    ggufw_tensor(&w, "scalar", QT_F32, 0, d64, NULL, 4);
    accept(&w);
}

static void test_tensor_names(void **state)
{
    (void)state;
    struct ggufw w;
    char name[257];
    memset(name, 'n', sizeof name);
    good(&w);
    ggufw_tensor_raw(&w, "token_embd.weight", 17, QT_F32, 1, d64, 0);
    refuse(&w, SL_E_FORMAT, "tensor name 'token_embd.weight' occurs twice");
    good(&w);
    ggufw_tensor_raw(&w, "", 0, QT_F32, 1, d64, 0);
    refuse(&w, SL_E_FORMAT, "the name of tensor 2 is empty");
    good(&w);
    ggufw_tensor_raw(&w, "a\0b", 3, QT_F32, 1, d64, 0);
    refuse(&w, SL_E_FORMAT, "the name of tensor 2 holds control characters");
    good(&w);
    ggufw_tensor_raw(&w, name, 256, QT_F32, 1, d64, 0);
    refuse(&w, SL_E_FORMAT, "the name of tensor 2 is longer than 255 bytes");
    good(&w);
    ggufw_tensor_raw(&w, name, 255, QT_F32, 1, d64, 0);
    accept(&w);
}

/* The data of the last tensor end with the file, so every shorter file lacks something. */
static void test_every_cut(void **state)
{
    (void)state;
    struct ggufw w;
    struct sl_err err;
    size_t n;
    good(&w);
    uint8_t *p = ggufw_bytes(&w, &n);
    for (size_t cut = 0; cut < n; cut++) {
        uint8_t *exact = malloc(cut ? cut : 1);
        assert_non_null(exact);
        memcpy(exact, p, cut);
        int rc = parse(exact, cut, cut, &err);
        free(exact);
        if (rc != SL_E_FORMAT)
            fail_msg("cut to %zu bytes: %d %s", cut, rc, err.msg);
        if (cut > 24 && !strstr(err.msg, "truncated"))
            fail_msg("cut to %zu bytes: %s", cut, err.msg);
    }
    free(p);
    ggufw_free(&w);
}

static void test_failing_allocations(void **state)
{
    (void)state;
    struct ggufw w;
    struct sl_err err;
    size_t n;
    good(&w);
    uint8_t *p = ggufw_bytes(&w, &n);
    uint64_t before = mem_now();
    int rc = SL_E_MEM, tries = 0;
    for (; rc == SL_E_MEM && tries < 100; tries++) {
        mem_fail_after(tries);
        rc = parse(p, n, n, &err);
        mem_fail_after(-1);
        assert_int_equal(mem_now(), before);
    }
    assert_int_equal(rc, 0);
    assert_true(tries > 5);
    free(p);
    ggufw_free(&w);
}

/* More names than one block of the arena and one growth of the arrays hold. */
static void test_many(void **state)
{
    (void)state;
    enum { N = 5000 };
    struct ggufw w;
    struct gguf *g;
    struct sl_err err;
    size_t n;
    char name[64];
    ggufw_init(&w);
    for (unsigned i = 0; i < N; i++) {
        snprintf(name, sizeof name, "test.key.%u", i);
        ggufw_u32(&w, name, i);
        snprintf(name, sizeof name, "blk.%u.weight", i);
        ggufw_tensor(&w, name, QT_I8, 1, d64, NULL, 64);
    }
    uint8_t *p = ggufw_bytes(&w, &n);
    assert_int_equal(gguf_parse(p, n, n, "m.gguf", &g, &err), 0);
    for (unsigned i = 0; i < N; i++) {
        uint64_t v;
        snprintf(name, sizeof name, "test.key.%u", i);
        assert_int_equal(gguf_get_u64(g, name, &v, &err), 1);
        assert_int_equal(v, i);
        snprintf(name, sizeof name, "blk.%u.weight", i);
        assert_ptr_equal(gguf_find_tensor(g, name), gguf_tensor_at(g, i));
    }
    gguf_close(&g);
    free(p);
    ggufw_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_not_gguf),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_hostile_counts),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_nested_arrays),
        cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_tensor_types),
        cmocka_unit_test(test_tensor_shapes),
        cmocka_unit_test(test_tensor_names),
        cmocka_unit_test(test_every_cut),
        cmocka_unit_test(test_failing_allocations),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
