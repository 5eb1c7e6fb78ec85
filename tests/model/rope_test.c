/* rope_test.c: RoPE scaling: YaRN's frequencies and magnitude against its formula in long double
 * with the C library's functions, and the keys of a file that ask for it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gguf/gguf.h"
#include "model/config.h"
#include "support/fixtures.h"
#include "support/ggufw.h"

typedef long double real;

static real real_pi(void)
{
    return acosl(-1.0L);
}

/* The pair (as a real number) whose wave turns `turns` times over the context. */
static real correction(real turns, real n_ctx, real base, int n_rot)
{
    return (real)n_rot / 2 * logl(n_ctx / (2 * real_pi() * turns)) / logl(base);
}

/* Frequency of pair i: interpolated where the ramp is 0, untouched where it is 1. */
static real yarn_freq(const struct kern_yarn *y, real base, int n_rot, int i)
{
    real low = floorl(correction((real)y->beta_fast, (real)y->n_ctx, base, n_rot));
    real high = ceill(correction((real)y->beta_slow, (real)y->n_ctx, base, n_rot));
    low = fmaxl(low, 0);
    high = fminl(high, n_rot - 1);
    if (high - low < 0.001L)
        high = low + 0.001L;
    const real ramp = fminl(1, fmaxl(0, ((real)i - low) / (high - low)));
    const real freq = powl(base, -2.0L * i / n_rot), mask = (1 - ramp) * (real)y->ext;
    return freq / (real)y->factor * (1 - mask) + freq * mask;
}

static void test_frequencies(void **state)
{
    static const struct {
        double base;
        int n_rot;
        struct kern_yarn y;
    } cases[] = {
        {1e6, 128, {4, 1, 32768, 32, 1}},      {150000, 64, {32, 1, 4096, 32, 1}},
        {1e8, 128, {48, 1, 8192, 32, 1}},      {10000, 64, {40, 1, 4096, 32, 1}},
        {1e6, 128, {4, 0, 32768, 32, 1}},      {1e6, 128, {2.5, 0.25, 40960, 16, 2}},
        {10000, 20, {8, 1, 2, 32, 1}},         {10000, 20, {8, 1, 1e9, 32, 1}},
        {500000, 96, {1, 1, 131072, 32, 1}},   {10000, 128, {16, 1, 4096, 1, 32}},
        {10000, 64, {4, 1, 4096, 7.77, 7.77}},
    };
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const struct kern_yarn *y = &cases[c].y;
        double freqs[64];
        kern_rope_freqs(cases[c].base, cases[c].n_rot, freqs);
        kern_rope_yarn(y, cases[c].base, cases[c].n_rot, freqs);
        for (int i = 0; i < cases[c].n_rot / 2; i++) {
            const real want = yarn_freq(y, (real)cases[c].base, cases[c].n_rot, i);
            if (!(fabsl((real)freqs[i] - want) <= 1e-15L * want))
                fail_msg("case %zu pair %d: %.17g, expected %.17g", c, i, freqs[i], (double)want);
        }
    }
}

/* Fast pairs keep their frequency, slow ones are divided by the factor. */
static void test_ends(void **state)
{
    const struct kern_yarn y = {4, 1, 32768, 32, 1};
    double plain[64], freqs[64];
    (void)state;
    kern_rope_freqs(1e6, 128, plain);
    kern_rope_freqs(1e6, 128, freqs);
    kern_rope_yarn(&y, 1e6, 128, freqs);
    assert_true(freqs[0] == plain[0] && freqs[20] == plain[20]);
    assert_true(freqs[63] == plain[63] / 4 && freqs[45] == plain[45] / 4);
    assert_true(freqs[30] < plain[30] && freqs[30] > plain[30] / 4);
}

static void test_magnitude(void **state)
{
    (void)state;
    assert_true(kern_yarn_magnitude(1, 1) == 1 && kern_yarn_magnitude(0.5, 1) == 1);
    for (double f = 1.5; f < 200; f *= 1.7)
        for (double mul = 0; mul <= 1; mul += 0.25)
            assert_true(fabsl((real)kern_yarn_magnitude(f, mul) -
                              (1 + 0.1L * (real)mul * logl((real)f))) < 1e-15L);
}

/* A file with just enough for its configuration to be read. */
struct file {
    struct ggufw w;
    char path[512];
};

static void file_begin(struct file *f)
{
    static int n;
    ggufw_init(&f->w);
    snprintf(f->path, sizeof f->path, "%s/rope%d.gguf", fixture_temp_dir(), n++);
    ggufw_str(&f->w, "general.architecture", "qwen3");
    ggufw_u32(&f->w, "qwen3.block_count", 1);
    ggufw_u32(&f->w, "qwen3.embedding_length", 64);
    ggufw_u32(&f->w, "qwen3.context_length", 40960);
    ggufw_u32(&f->w, "qwen3.attention.head_count", 1);
    ggufw_u32(&f->w, "qwen3.feed_forward_length", 64);
    ggufw_f32(&f->w, "qwen3.rope.freq_base", 1e6f);
}

static int file_read(struct file *f, struct model_config *c, struct sl_err *err)
{
    const uint64_t dims[2] = {64, 4};
    struct gguf *g;
    ggufw_tensor(&f->w, "token_embd.weight", 0, 2, dims, NULL, 64 * 4 * 4);
    ggufw_save(&f->w, f->path);
    ggufw_free(&f->w);
    assert_int_equal(gguf_open(f->path, &g, err), 0);
    const int rc = model_config_read(g, c, err);
    gguf_close(&g);
    return rc;
}

static void test_defaults(void **state)
{
    struct model_config c;
    struct sl_err err;
    struct file f;
    (void)state;
    file_begin(&f);
    assert_int_equal(file_read(&f, &c, &err), 0);
    assert_true(!c.rope_yarn && c.rope_linear == 1 && c.rope_magnitude == 1);
    file_begin(&f);
    ggufw_str(&f.w, "qwen3.rope.scaling.type", "yarn");
    ggufw_f32(&f.w, "qwen3.rope.scaling.factor", 4);
    assert_int_equal(file_read(&f, &c, &err), 0);
    assert_true(c.rope_yarn && c.rope_linear == 1 && c.yarn.factor == 4 && c.yarn.ext == 1);
    assert_true(c.yarn.n_ctx == 40960 && c.yarn.beta_fast == 32 && c.yarn.beta_slow == 1);
    assert_true(c.rope_magnitude == kern_yarn_magnitude(4, 1));
    file_begin(&f);
    ggufw_str(&f.w, "qwen3.rope.scaling.type", "linear");
    ggufw_f32(&f.w, "qwen3.rope.scaling.factor", 2);
    assert_int_equal(file_read(&f, &c, &err), 0);
    assert_true(!c.rope_yarn && c.rope_linear == 2 && c.rope_magnitude == 1);
}

static void test_keys(void **state)
{
    struct model_config c;
    struct sl_err err;
    struct file f;
    (void)state;
    file_begin(&f);
    ggufw_str(&f.w, "qwen3.rope.scaling.type", "yarn");
    ggufw_f32(&f.w, "qwen3.rope.scaling.factor", 48);
    ggufw_u32(&f.w, "qwen3.rope.scaling.original_context_length", 8192);
    ggufw_f32(&f.w, "qwen3.rope.scaling.yarn_ext_factor", -1);
    ggufw_f32(&f.w, "qwen3.rope.scaling.yarn_beta_fast", 4);
    ggufw_f32(&f.w, "qwen3.rope.scaling.yarn_beta_slow", 2);
    ggufw_f32(&f.w, "qwen3.rope.scaling.yarn_log_multiplier", 1);
    ggufw_f32(&f.w, "qwen3.rope.scaling.attn_factor", 0.5f);
    assert_int_equal(file_read(&f, &c, &err), 0);
    assert_true(c.yarn.factor == 48 && c.yarn.n_ctx == 8192 && c.yarn.ext == 1);
    assert_true(c.yarn.beta_fast == 4 && c.yarn.beta_slow == 2);
    assert_true(c.rope_magnitude == 0.5); /* the log multiplier takes all growth back */
}

static void test_refusals(void **state)
{
    static const struct {
        const char *key;
        float value;
    } bad[] = {
        {"qwen3.rope.scaling.yarn_beta_fast", 0}, {"qwen3.rope.scaling.yarn_beta_slow", -1},
        {"qwen3.rope.scaling.factor", -4},        {"qwen3.rope.scaling.yarn_ext_factor", INFINITY},
        {"qwen3.rope.scaling.attn_factor", NAN},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct model_config c;
        struct sl_err err;
        struct file f;
        file_begin(&f);
        ggufw_str(&f.w, "qwen3.rope.scaling.type", "yarn");
        ggufw_f32(&f.w, bad[i].key, bad[i].value);
        assert_int_equal(file_read(&f, &c, &err), SL_E_FORMAT);
    }
    struct model_config c;
    struct sl_err err;
    struct file f;
    file_begin(&f);
    ggufw_str(&f.w, "qwen3.rope.scaling.type", "longrope");
    assert_int_equal(file_read(&f, &c, &err), SL_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "longrope"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frequencies), cmocka_unit_test(test_ends),
        cmocka_unit_test(test_magnitude),   cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_keys),        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("rope", tests, NULL, NULL);
}
