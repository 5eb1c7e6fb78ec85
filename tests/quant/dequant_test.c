/* dequant_test.c: quant_dequant equals tests/data/quants bit for bit, for every type listed there;
 * from any address, touching no byte outside the blocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "quant/quant.h"

#define DATA SL_SOURCE_DIR "/tests/data/quants/"

static void *read_file(const char *name, const char *suffix, size_t want)
{
    char path[512];
    snprintf(path, sizeof path, DATA "%s%s", name, suffix);
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("cannot open %s", path);
    void *p = malloc(want + 1);
    assert_non_null(p);
    size_t got = fread(p, 1, want + 1, f);
    fclose(f);
    if (got != want)
        fail_msg("%s has not %zu bytes", path, want);
    return p;
}

static void expect_equal(const char *what, const float *got, const float *want, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(got + i, want + i, sizeof *got) != 0)
            fail_msg("%s: value %zu is %.9g (%a), expected %.9g (%a)", what, i, (double)got[i],
                     (double)got[i], (double)want[i], (double)want[i]);
}

/* n bytes that end where an inaccessible page begins, and begin after another one if at_start. */
struct guarded {
    uint8_t *map, *p;
    size_t map_bytes;
};

static struct guarded guard_alloc(size_t n, bool at_start)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t inner = (n + page - 1) / page * page;
    struct guarded g = {.map_bytes = inner + 2 * page};
    g.map = mmap(NULL, g.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g.map != MAP_FAILED);
    assert_int_equal(mprotect(g.map, page, PROT_NONE), 0);
    assert_int_equal(mprotect(g.map + page + inner, page, PROT_NONE), 0);
    g.p = at_start ? g.map + page : g.map + page + inner - n;
    return g;
}

static void guard_free(struct guarded *g)
{
    munmap(g->map, g->map_bytes);
}

/* Whole file, block by block between guard pages, and from odd addresses. */
static void check_file(uint32_t type, const char *name, const char *set, size_t blocks, size_t bv,
                       size_t bb)
{
    char suffix[32], what[96];
    snprintf(suffix, sizeof suffix, ".%s.bin", set);
    uint8_t *src = read_file(name, suffix, blocks * bb);
    snprintf(suffix, sizeof suffix, ".%s.f32", set);
    float *want = read_file(name, suffix, blocks * bv * sizeof(float));
    float *got = malloc(blocks * bv * sizeof(float));
    assert_non_null(got);
    snprintf(what, sizeof what, "%s.%s", name, set);

    assert_true(quant_dequant(type, src, got, blocks * bv));
    expect_equal(what, got, want, blocks * bv);

    for (int at_start = 0; at_start < 2; at_start++) {
        struct guarded in = guard_alloc(bb, at_start), out = guard_alloc(bv * 4, at_start);
        for (size_t i = 0; i < blocks && i < 16; i++) {
            memcpy(in.p, src + i * bb, bb);
            assert_true(quant_dequant(type, in.p, (float *)(void *)out.p, bv));
            expect_equal(what, (float *)(void *)out.p, want + i * bv, bv);
        }
        guard_free(&in);
        guard_free(&out);
    }
    uint8_t *odd = malloc(blocks * bb + 8);
    assert_non_null(odd);
    for (size_t shift = 1; shift < 8; shift++) {
        memcpy(odd + shift, src, blocks * bb);
        memset(got, 0xff, blocks * bv * sizeof(float));
        assert_true(quant_dequant(type, odd + shift, got, blocks * bv));
        expect_equal(what, got, want, blocks * bv);
    }
    free(odd);
    free(got);
    free(want);
    free(src);
}

static void test_goldens(void **state)
{
    (void)state;
    json_error_t e;
    json_t *root = json_load_file(DATA "manifest.json", 0, &e);
    if (!root)
        fail_msg("manifest.json: %s", e.text);
    json_t *types = json_object_get(root, "types"), *t;
    size_t i;
    assert_true(json_array_size(types) >= 27);
    json_array_foreach(types, i, t)
    {
        const char *name = json_string_value(json_object_get(t, "name"));
        uint32_t type = (uint32_t)json_integer_value(json_object_get(t, "ggml_type"));
        size_t bv = (size_t)json_integer_value(json_object_get(t, "block_values"));
        size_t bb = (size_t)json_integer_value(json_object_get(t, "block_bytes"));
        const struct quant_info *info = quant_type_info(type);
        assert_non_null(name);
        assert_non_null(info);
        assert_int_equal(info->block_values, bv);
        assert_int_equal(info->block_bytes, bb);
        check_file(type, name, "real",
                   (size_t)json_integer_value(json_object_get(t, "real_blocks")), bv, bb);
        check_file(type, name, "rand",
                   (size_t)json_integer_value(json_object_get(t, "rand_blocks")), bv, bb);
    }
    json_decref(root);
}

static void test_f32(void **state)
{
    (void)state;
    uint8_t bytes[4 * 5 + 1];
    float want[5] = {0.0f, -0.0f, 1.5f, 0x1p-149f, -3.0e38f}, got[5];
    memcpy(bytes + 1, want, sizeof want);
    assert_true(quant_dequant(QT_F32, bytes + 1, got, 5));
    assert_memory_equal(got, want, sizeof want);
}

static void test_refusals(void **state)
{
    (void)state;
    static const uint8_t src[512];
    float dst[256];
    for (uint32_t type = 0; type < QT_COUNT + 8; type++) {
        const struct quant_info *info = quant_type_info(type);
        bool integer = type == QT_I8 || type == QT_I16 || type == QT_I32 || type == QT_I64;
        if (!info || integer)
            assert_false(quant_dequant(type, src, dst, info ? info->block_values : 32));
        else if (info->block_values > 1) /* not a whole block */
            assert_false(quant_dequant(type, src, dst, info->block_values - 1));
        if (info && !integer && info->block_values > 1 && type != QT_Q8_1)
            assert_true(quant_dequant(type, src, dst, 0));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goldens),
        cmocka_unit_test(test_f32),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("dequant", tests, NULL, NULL);
}
