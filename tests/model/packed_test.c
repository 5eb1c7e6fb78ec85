/* packed_test.c: how packed trees are laid out, and which manifests are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "model/packed.h"
#include "quant/quant.h"
#include "support/fixtures.h"
#include "support/ggufw.h"
#include "support/pack.h"

#define DATA SL_SOURCE_DIR "/tests/data/"

static struct packed_tree *plan(const char *path, enum sl_packed kind, struct gguf **g)
{
    struct packed_tree *t = NULL;
    struct sl_err err;
    assert_int_equal(gguf_open(path, g, &err), 0);
    assert_int_equal(packed_plan(*g, kind, PACKED_PAGE, &t, &err), 0);
    return t;
}

static void check_layout(const struct packed_tree *t)
{
    for (int i = 0; i < t->n_layers; i++) {
        const struct packed_layer *l = &t->layer[i];
        uint64_t at = 0;
        assert_int_equal(l->n_parts, 3);
        for (int j = 0; j < l->n_parts; j++) {
            const struct packed_part *p = &l->part[j];
            uint64_t values = p->rows * p->row_values;
            assert_int_equal(p->at, at);
            assert_int_equal(p->bytes, quant_row_bytes(p->type, values));
            assert_int_equal(values * l->n_experts,
                             p->source->dims[0] * p->source->dims[1] * p->source->dims[2]);
            if (t->kind == SL_PACKED_LOSSLESS)
                assert_int_equal(p->bytes * l->n_experts, p->source->bytes);
            at += p->bytes;
        }
        assert_int_equal(l->stride, size_up(at, t->page));
    }
}

static void test_layout(void **state)
{
    (void)state;
    static const enum sl_packed kinds[] = {SL_PACKED_LOSSLESS, SL_PACKED_4BIT, SL_PACKED_Q3,
                                           SL_PACKED_2BIT};
    for (int i = 0; i < 4; i++) {
        struct gguf *g;
        struct packed_tree *t = plan(DATA "qmodels/Q6_K/model.gguf", kinds[i], &g);
        check_layout(t);
        assert_int_equal(t->n_layers, 2);
        packed_free(&t);
        gguf_close(&g);
    }
}

/* Each expert's slices stand in the layer's file, and nothing but zeros behind them. */
static void test_contents(void **state)
{
    (void)state;
    static const char model[] = DATA "arch/qwen3moe-f32/model.gguf";
    char dir[512], path[1024];
    snprintf(dir, sizeof dir, "%s/contents", fixture_temp_dir());
    assert_true(pack_write(model, dir, SL_PACKED_LOSSLESS));
    struct gguf *g;
    struct packed_tree *t = plan(model, SL_PACKED_LOSSLESS, &g);
    size_t n_model, n;
    uint8_t *all = fixture_read_file(model, &n_model);
    assert_non_null(all);
    for (int i = 0; i < t->n_layers; i++) {
        const struct packed_layer *l = &t->layer[i];
        assert_true(packed_layer_path(dir, t->kind, l->block, path, sizeof path));
        uint8_t *file = fixture_read_file(path, &n);
        assert_non_null(file);
        assert_int_equal(n, packed_file_bytes(l));
        for (uint64_t e = 0; e < l->n_experts; e++) {
            uint64_t at = 0;
            for (int j = 0; j < l->n_parts; j++) {
                const struct packed_part *p = &l->part[j];
                assert_memory_equal(file + e * l->stride + p->at,
                                    all + p->source->offset + e * p->bytes, p->bytes);
                at = p->at + p->bytes;
            }
            for (; at < l->stride; at++)
                assert_int_equal(file[e * l->stride + at], 0);
        }
        free(file);
    }
    free(all);
    packed_free(&t);
    gguf_close(&g);
}

static void expect_refused(const char *path, enum sl_packed kind, const char *what)
{
    struct gguf *g;
    struct packed_tree *t;
    struct sl_err err;
    assert_int_equal(gguf_open(path, &g, &err), 0);
    assert_true(packed_plan(g, kind, PACKED_PAGE, &t, &err) < 0);
    assert_null(t);
    if (!strstr(err.msg, what))
        fail_msg("'%s' does not say '%s'", err.msg, what);
    gguf_close(&g);
}

/* Blocks 0 (whole) and 1, whose tensors are given. */
static void write_model(const char *path, const char *name, uint32_t type, const uint64_t dims[3],
                        size_t bytes)
{
    static const uint64_t good[3] = {256, 2, 3};
    struct ggufw w;
    ggufw_init(&w);
    ggufw_str(&w, "general.architecture", "qwen3moe");
    ggufw_tensor(&w, "blk.0.ffn_gate_exps.weight", QT_F16, 3, good, NULL, 256 * 2 * 3 * 2);
    ggufw_tensor(&w, "blk.0.ffn_up_exps.weight", QT_F16, 3, good, NULL, 256 * 2 * 3 * 2);
    ggufw_tensor(&w, name, type, 3, dims, NULL, bytes);
    ggufw_save(&w, path);
    ggufw_free(&w);
}

static void test_refused_models(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s/odd.gguf", fixture_temp_dir());
    expect_refused(DATA "arch/llama/model.gguf", SL_PACKED_LOSSLESS, "no routed experts");
    expect_refused(DATA "qmodels/Q8_0/model.gguf", SL_PACKED_Q3, "blk.0.ffn_");
    expect_refused(DATA "qmodels/Q8_0/model.gguf", SL_PACKED_4BIT, "multiple of 256");
    write_model(path, "blk.0.ffn_down_exps.weight", QT_F16, (uint64_t[]){256, 2, 4},
                256 * 2 * 4 * 2);
    expect_refused(path, SL_PACKED_LOSSLESS, "blk.0.ffn_down_exps.weight has 4 experts");
    write_model(path, "blk.0.ffn_down_exps.weight", QT_I8, (uint64_t[]){256, 2, 3}, 256 * 2 * 3);
    expect_refused(path, SL_PACKED_2BIT, "blk.0.ffn_down_exps.weight has type I8");
    write_model(path, "blk.0.ffn_gate_up_exps.weight", QT_F16, (uint64_t[]){256, 2, 3},
                256 * 2 * 3 * 2);
    expect_refused(path, SL_PACKED_LOSSLESS, "in each other's way");
}

static char *format_one(void)
{
    struct gguf *g;
    struct packed_manifest m = {.source = "model \"x\".gguf", .source_bytes = 123};
    struct packed_tree *t = plan(DATA "qmodels/Q6_K/model.gguf", SL_PACKED_Q3, &g);
    struct sl_err err;
    char *text;
    memset(m.identity, 'a', SHA256_HEX - 1);
    t->layer[0].done = true;
    t->layer[0].sha256[31] = 0x5f;
    m.tree[packed_folder_index(t->kind)] = t;
    assert_int_equal(packed_format(&m, &text, &err), 0);
    packed_free(&t);
    gguf_close(&g);
    return text;
}

static int parse(const char *text, size_t n)
{
    struct packed_manifest *m;
    struct sl_err err;
    int rc = packed_parse(text, n, "it", &m, &err);
    assert_true((rc == 0) == (m != NULL));
    packed_close(&m);
    return rc;
}

static void test_manifest(void **state)
{
    (void)state;
    char *text = format_one(), why[256];
    struct packed_manifest *m;
    struct gguf *g;
    struct sl_err err;
    assert_int_equal(packed_parse(text, strlen(text), "it", &m, &err), 0);
    struct packed_tree *t = plan(DATA "qmodels/Q6_K/model.gguf", SL_PACKED_Q3, &g);
    assert_null(packed_compare(t, m->tree[1], why, sizeof why));
    assert_null(m->tree[0]);
    assert_string_equal(m->source, "model \"x\".gguf");
    assert_int_equal(m->source_bytes, 123);
    assert_true(m->tree[1]->layer[0].done && !m->tree[1]->layer[1].done);
    assert_int_equal(m->tree[1]->layer[0].sha256[31], 0x5f);
    m->tree[1]->layer[1].part[2].rows++;
    assert_non_null(packed_compare(t, m->tree[1], why, sizeof why));
    assert_non_null(strstr(why, "ffn_down_exps"));
    for (size_t i = 0; i + 1 < strlen(text); i++) /* the last byte is a line end */
        assert_true(i + 2 >= strlen(text) || parse(text, i) < 0);
    packed_free(&t);
    gguf_close(&g);
    packed_close(&m);
    mem_free(text);
}

/* One passage changed: refused. */
static const struct {
    const char *from, *to;
} CHANGES[] = {
    {"sluice packed experts", "other"},
    {"\"version\": 1", "\"version\": 2"},
    {"\"version\": 1", "\"version\": \"1\""},
    {"aaaaaaaa", "aaaaaaa"},
    {"aaaaaaaa", "AAAAAAAA"},
    {"\"kind\": \"Q3_K\"", "\"kind\": \"Q9\""},
    {"\"kind\": \"Q3_K\"", "\"kind\": \"none\""},
    {"\"page\": 4096", "\"page\": 4095"},
    {"\"page\": 4096", "\"page\": 2048"},
    {"\"page\": 4096", "\"page\": 4194304"},
    {"\"page\": 4096", "\"page\": -4096"},
    {"\"block\": 0", "\"block\": 1024"},
    {"\"block\": 0", "\"block\": -1"},
    {"\"block\": 0", "\"block\": 0.0"},
    {"\"experts\": 3", "\"experts\": 70000"},
    {"\"stride\": ", "\"stride\": 99999999"},
    {"\"sha256\": null", "\"sha256\": \"00\""},
    {"\"sha256\": null", "\"sha256\": 7"},
    {"\"type\": \"Q3_K\"", "\"type\": \"Q99\""},
    {"\"rows\": ", "\"rows\": -"},
    {"\"row_values\": ", "\"row_values\": 9999999999"},
    {"blk.0.ffn_gate_exps.weight", "blk.0.a\\nb"},
    {"blk.0.ffn_gate_exps.weight",
     "blk.0.a-name-that-is-longer-than-any-name-of-a-tensor-of-experts-that-there-is.weight"},
    {"\"parts\": [", "\"parts\": [1, "},
    {"\"parts\": [", "\"parts\": [[[[[["},
    {"\"layers\": [", "\"layers\": [1, "},
    {"\"layers\": [", "\"layer\": ["},
    {"\"trees\": [", "\"trees\": [1, "},
    {"\"trees\": [", "\"trees\": [{}, {}, {}, "},
    {"\"bytes\": 123", "\"bytes\": -1"},
    {"\"version\": 1", "\"version\": 1, \"version\": 1"},
};

static void test_refused_manifests(void **state)
{
    (void)state;
    char *text = format_one();
    for (size_t i = 0; i < sizeof CHANGES / sizeof *CHANGES; i++) {
        char *at = strstr(text, CHANGES[i].from), *bad = malloc(strlen(text) + 200);
        assert_true(at && bad);
        size_t head = (size_t)(at - text);
        memcpy(bad, text, head);
        int n = snprintf(bad + head, strlen(text) + 200 - head, "%s%s", CHANGES[i].to,
                         at + strlen(CHANGES[i].from));
        if (parse(bad, head + (size_t)n) == 0)
            fail_msg("%s instead of %s was accepted", CHANGES[i].to, CHANGES[i].from);
        free(bad);
    }
    mem_free(text);
}

static void test_odd_manifests(void **state)
{
    (void)state;
    char *text = format_one();
    char *deep = malloc(100000);
    assert_non_null(deep);
    memset(deep, '[', 100000);
    assert_int_equal(parse(deep, 100000), SL_E_FORMAT);
    free(deep);
    char *two = malloc(2 * strlen(text) + 1); /* the same folder twice */
    assert_non_null(two);
    const char *tree = strstr(text, "\"trees\": [") + strlen("\"trees\": [");
    size_t len = strlen(tree) - strlen("\n ]\n}\n");
    int n = snprintf(two, 2 * strlen(text) + 1, "%.*s%.*s,%s", (int)(tree - text), text, (int)len,
                     tree, tree);
    assert_int_equal(parse(two, (size_t)n), SL_E_FORMAT);
    free(two);
    mem_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_contents),
        cmocka_unit_test(test_refused_models),
        cmocka_unit_test(test_manifest),
        cmocka_unit_test(test_refused_manifests),
        cmocka_unit_test(test_odd_manifests),
    };
    return cmocka_run_group_tests_name("packed", tests, NULL, NULL);
}
