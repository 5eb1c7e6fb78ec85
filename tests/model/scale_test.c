/* scale_test.c: NAME.scale tensors beside matrices. Halving a matrix and giving it the scale 2
 * changes no byte of any logit, since both are exact; a scale of 3 changes them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "gguf/gguf.h"
#include "support/fixtures.h"
#include "support/ggufw.h"
#include "support/run.h"

#define MODEL SL_SOURCE_DIR "/tests/data/arch/qwen3moe-f32/model.gguf"

static void copy_kv(struct ggufw *w, const struct gguf *g, size_t i)
{
    struct gguf_kv kv;
    char key[256], text[256];
    gguf_kv_at(g, i, &kv);
    snprintf(key, sizeof key, "%.*s", (int)kv.key.n, kv.key.p);
    if (strncmp(key, "tokenizer.", 10) == 0)
        return; /* token ids are all that is needed */
    if (kv.type == GGUF_STRING) {
        struct gguf_str s;
        assert_int_equal(gguf_get_str(g, key, &s, NULL), 1);
        snprintf(text, sizeof text, "%.*s", (int)s.n, s.p);
        ggufw_str(w, key, text);
    } else if (kv.type == GGUF_F32) {
        double v;
        assert_int_equal(gguf_get_f64(g, key, &v, NULL), 1);
        ggufw_f32(w, key, (float)v);
    } else {
        uint64_t v;
        assert_int_equal(gguf_get_u64(g, key, &v, NULL), 1);
        ggufw_u32(w, key, (uint32_t)v);
    }
}

/* Copy t; when it is a matrix of a layer (or the embedding), halve it and add its scale. */
static void copy_tensor(struct ggufw *w, const struct gguf_tensor *t, const char *file, float scale)
{
    float *v = mem_alloc((size_t)t->bytes);
    memcpy(v, file + t->offset, (size_t)t->bytes);
    bool matrix = t->n_dims >= 2;
    for (uint64_t i = 0; matrix && i < t->bytes / sizeof *v; i++)
        v[i] *= 0.5f;
    ggufw_tensor(w, t->name, t->type, t->n_dims, t->dims, v, (size_t)t->bytes);
    mem_free(v);
    if (!matrix)
        return;
    char name[128];
    uint64_t n = t->dims[2];
    float s[64];
    assert_true(n <= 64);
    for (uint64_t i = 0; i < n; i++)
        s[i] = scale;
    snprintf(name, sizeof name, "%.*s.scale", (int)(strlen(t->name) - strlen(".weight")), t->name);
    ggufw_tensor(w, name, 0, 1, &n, s, (size_t)n * sizeof *s);
}

static void write_scaled(const char *path, float scale)
{
    struct gguf *g;
    struct ggufw w;
    size_t n;
    char *file = fixture_read_file(MODEL, &n);
    assert_non_null(file);
    assert_int_equal(gguf_open(MODEL, &g, NULL), 0);
    ggufw_init(&w);
    for (size_t i = 0; i < gguf_n_kv(g); i++)
        copy_kv(&w, g, i);
    for (size_t i = 0; i < gguf_n_tensors(g); i++)
        copy_tensor(&w, gguf_tensor_at(g, i), file, scale);
    ggufw_save(&w, path);
    ggufw_free(&w);
    gguf_close(&g);
    free(file);
}

static void run_file(const char *path, enum sl_stream_mode stream, struct run_result *out)
{
    static const int32_t ids[] = {1, 30, 7, 99, 200, 3, 3, 64};
    struct run_spec spec = {.path = path, .ids = ids, .n_prompt = 6, .n_step = 2};
    struct sl_err err;
    sl_engine_options_init(&spec.opt);
    spec.opt.stream = stream;
    spec.opt.threads = 2;
    if (run_model(&spec, out, &err) != 0)
        fail_msg("%s", err.msg);
}

static void test_scales(void **state)
{
    (void)state;
    char exact[600], other[600];
    snprintf(exact, sizeof exact, "%s/exact.gguf", fixture_temp_dir());
    snprintf(other, sizeof other, "%s/other.gguf", fixture_temp_dir());
    write_scaled(exact, 2.0f);
    write_scaled(other, 3.0f);
    struct run_result base, resident, streamed, changed;
    run_file(MODEL, SL_STREAM_OFF, &base);
    run_file(exact, SL_STREAM_OFF, &resident);
    run_file(exact, SL_STREAM_ON, &streamed);
    run_file(other, SL_STREAM_OFF, &changed);
    assert_int_equal(run_differs(&base, &resident, 0), -1);
    assert_int_equal(run_differs(&base, &streamed, 0), -1);
    assert_int_equal(run_differs(&base, &changed, 0), 0);
    run_free(&base);
    run_free(&resident);
    run_free(&streamed);
    run_free(&changed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scales)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
