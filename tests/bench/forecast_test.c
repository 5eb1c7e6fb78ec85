/* forecast_test.c: the arithmetic of the forecast, and that the shape is the engine's. */
#include "cli/plan.h"
#include "sluice.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

static void assert_near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * fabs(b)))
        fail_msg("%.12g is not %.12g", a, b);
}

/* 8 layers of 1 MB each, head 4 MB, 8 layers x 16 experts of 1 MB, 2 per token. */
static struct forecast_shape small_shape(void)
{
    struct forecast_shape s = {.n_block = 8, .n_layer = 8, .n_expert = 16, .top_k = 2};
    s.layers.bytes[QT_Q4_K] = 8000000;
    s.layers.macs = 16e6;
    s.head.bytes[QT_Q6_K] = 4000000;
    s.head.macs = 5e6;
    s.bank.bytes[QT_Q4_K] = 128000000;
    s.bank.macs = 256e6;
    return s;
}

static struct forecast_rates small_rates(void)
{
    struct forecast_rates r = {.ram = 10e9, .drive = 1e9, .load = 2e9};
    r.gemv[QT_Q4_K] = 8e9;
    r.gemm[0][QT_Q4_K] = r.gemm[0][QT_Q6_K] = 100e9;
    r.gemm[1][QT_Q4_K] = r.gemm[1][QT_Q6_K] = 200e9;
    return r;
}

static struct forecast make(const struct forecast_run *run)
{
    const struct forecast_shape s = small_shape();
    const struct forecast_rates r = small_rates();
    struct forecast f;
    forecast_make(&s, &r, run, &f);
    return f;
}

/* Differences, so that the constant part does not matter. */
static void test_decode(void **state)
{
    (void)state;
    struct forecast_run run = {.n_prompt = 1, .ubatch = 1, .hit = -1};
    const struct forecast resident = make(&run);
    assert_near(resident.hit, 1);
    assert_near(resident.read_bytes, 0);

    run.streamed = true;
    run.hit = 1;
    assert_near(make(&run).token_s, resident.token_s);

    /* Nothing hits: all 16 MB come from the drive, and the last expert of each layer is multiplied
     * after its read. */
    run.hit = 0;
    const struct forecast cold = make(&run);
    assert_near(cold.read_bytes, 16e6);
    assert_near(cold.read_s, 16e6 / 1e9);
    assert_near(cold.token_s - resident.token_s, 16e6 / 1e9 + 8e6 / 8e9 - 16e6 / 8e9);

    /* Weights without a measured kernel are read at the rate of memory. */
    struct forecast_shape s = small_shape();
    const struct forecast_rates r = small_rates();
    struct forecast more;
    s.head.bytes[QT_Q6_K] *= 2;
    forecast_make(&s, &r, &run, &more);
    assert_near(more.token_s - cold.token_s, 4e6 / 10e9);

    double before = cold.token_s;
    for (int i = 1; i <= 10; i++) {
        run.hit = i / 10.0;
        const struct forecast f = make(&run);
        assert_true(f.token_s < before);
        before = f.token_s;
    }
}

static void test_prompt(void **state)
{
    (void)state;
    struct forecast_run run = {.n_prompt = 64, .ubatch = 64, .hit = -1, .streamed = true};
    const struct forecast one = make(&run);
    assert_true(one.prompt_bytes > 64e6 && one.prompt_bytes <= 128e6);

    run.ubatch = 16; /* narrower chunks read more */
    assert_true(make(&run).prompt_bytes > one.prompt_bytes);
    run.cache_bytes = 128000000; /* unless all stays */
    run.ubatch = 64;
    assert_true(make(&run).prompt_bytes <= one.prompt_bytes);

    run.streamed = false;
    const struct forecast resident = make(&run);
    assert_near(resident.prompt_bytes, 0);
    /* The drive is the slower one, and nothing is read while the last block is computed. */
    assert_near(one.prompt_s, one.prompt_bytes / 1e9 + resident.prompt_s / small_shape().n_block +
                                  FORECAST_STREAM_S);
}

/* Weights that come while the prompt is evaluated take the drive's time, and only that. */
static void test_loading(void **state)
{
    (void)state;
    struct forecast_run run = {
        .n_prompt = 64, .ubatch = 64, .hit = -1, .streamed = true, .load_bytes = 500000000};
    const struct forecast before = make(&run);
    assert_near(before.load_s, 0.25);
    run.load_behind = true;
    const struct forecast behind = make(&run);
    assert_near(behind.load_s, 0.25);
    /* The drive is the slower one. */
    assert_near(behind.prompt_s, before.prompt_s + 0.25 + FORECAST_BEHIND_S);

    /* In memory. Arithmetic is the slower one: it waits for the embeddings and the first block. */
    run.streamed = false;
    run.load_behind = false;
    const double alone = make(&run).prompt_s;
    run.load_behind = true;
    run.load_bytes = 20000;
    run.embd_bytes = 4000;
    assert_near(make(&run).prompt_s,
                alone + FORECAST_BEHIND_S + (4000 + 16000.0 / small_shape().n_block) / 2e9);
}

static void test_hits(void **state)
{
    (void)state;
    const int n[] = {128, 16, 256};
    for (int j = 0; j < 3; j++) {
        assert_near(forecast_hit(1, n[j]), 1);
        assert_near(forecast_hit(7, n[j]), 1);
        assert_true(forecast_hit(0, n[j]) == 0 && forecast_hit(-1, n[j]) == 0);
        assert_true(forecast_hit(NAN, n[j]) == 0);
        for (int i = 1; i <= 100; i++) {
            assert_true(forecast_hit(i / 100.0, n[j]) >= forecast_hit((i - 1) / 100.0, n[j]));
            assert_true(forecast_hit(i / 100.0, n[j]) >= i / 100.0); /* choosing evenly */
        }
    }
    assert_near(forecast_hit(0.1, 128), 0.656);
    assert_near(forecast_hit(0.1, 512), 0.656);
    assert_near(forecast_hit(0.1, 64), 0.1 + 0.556 / 2); /* halfway to an even choice */
    assert_near(forecast_hit(0.8, 128), 0.9995);
    assert_true(forecast_hit(0.5, 0) == 0);
}

static void test_reach(void **state)
{
    (void)state;
    const int n_expert[] = {128, 16, 256};
    for (int j = 0; j < 3; j++) {
        const double used = 4.0 / n_expert[j];
        assert_near(forecast_reach(1, used, n_expert[j]), used);
        double before = used;
        for (int n = 2; n <= 4096; n *= 2) {
            const double r = forecast_reach(n, used, n_expert[j]);
            assert_true(r >= before && r <= 1);
            assert_true(r <= 1 - pow(1 - used, n) + 1e-12); /* no more than an even choice */
            before = r;
        }
    }
    /* Recorded: 64 tokens of 6 experts reach 0.45 and 0.47, of 2 experts 0.34; 128 tokens 0.57 and
     * 0.58, 0.48. */
    assert_true(fabs(forecast_reach(64, 6.0 / 128, 128) - 0.46) < 0.05);
    assert_true(fabs(forecast_reach(128, 6.0 / 128, 128) - 0.575) < 0.05);
    assert_true(fabs(forecast_reach(64, 2.0 / 128, 128) - 0.34) < 0.05);
    assert_true(fabs(forecast_reach(128, 2.0 / 128, 128) - 0.48) < 0.06);
    assert_true(forecast_reach(0, 0.1, 128) == 0 && forecast_reach(5, 0, 128) == 0);
    assert_true(forecast_reach(5, 1, 128) == 1 && forecast_reach(5, 0.1, 0) == 0);
}

/* The first read takes the time of one that is alone; the first use of memory is paid for. */
static void test_small(void **state)
{
    (void)state;
    const struct forecast_shape s = small_shape();
    struct forecast_rates r = small_rates();
    struct forecast_run run = {
        .n_prompt = 4, .ubatch = 4, .hit = 0, .streamed = true, .in_flight = 4, .parts = 3};
    struct forecast fast, slow;
    forecast_make(&s, &r, &run, &fast);
    r.latency = 0.2e-3; /* less than the third of a ms that a read takes at the drive's rate */
    forecast_make(&s, &r, &run, &slow);
    assert_near(slow.token_s, fast.token_s);
    r.latency = 1e-3; /* the first of the six reads takes as long, the others follow */
    forecast_make(&s, &r, &run, &slow);
    assert_near(slow.token_s - fast.token_s, 8 * 2e-3 / 3);
    r.latency = 5e-3; /* six reads, four at a time: two rounds */
    forecast_make(&s, &r, &run, &slow);
    assert_near(slow.read_s, 8 * 10e-3);
    assert_near(slow.token_s - fast.token_s, 8 * 8e-3);
    r.touch = 1e9;
    run.streamed = false;
    forecast_make(&s, &r, &run, &fast);
    run.kv_bytes = 1000000;
    run.batch_bytes = 3000000;
    forecast_make(&s, &r, &run, &slow);
    assert_near(slow.prompt_s - fast.prompt_s, 7e6 / 1e9);
}

static void test_shape(void **state)
{
    (void)state;
    struct sl_engine_options opt;
    struct sl_model_info info;
    struct sl_engine_plan plan;
    struct sl_err err;
    struct gguf *g;
    struct forecast_shape s;
    sl_engine_options_init(&opt);
    opt.stream = SL_STREAM_ON;
    assert_int_equal(sl_plan(MODEL, &opt, &info, &plan, &err), 0);
    assert_int_equal(gguf_open(MODEL, &g, &err), 0);
    struct plan_tensors tensors;
    plan_read_shape(g, info.n_expert_run, &s, &tensors);
    gguf_close(&g);
    assert_int_equal(s.n_block, info.n_layer);
    assert_int_equal(s.n_layer, info.n_layer);
    assert_int_equal(s.n_expert, info.n_expert);
    uint64_t bank = 0, dense = 0;
    for (int t = 0; t < QT_COUNT; t++) {
        bank += s.bank.bytes[t];
        dense += s.layers.bytes[t] + s.head.bytes[t];
    }
    assert_int_equal(bank, info.expert_bytes);
    /* The engine counts norms too, and the embedding where it is not the head. */
    assert_true(dense <= info.dense_bytes && dense > info.dense_bytes / 2);
    assert_int_equal(tensors.n_bank, 3 * info.n_layer);
    assert_int_equal(tensors.n_dense, 5 * info.n_layer + 1); /* q, k, v, o, router; embeddings */
    assert_true(tensors.embd_bytes > 0 && tensors.embd_bytes < info.dense_bytes);
    assert_near(s.attention_macs, 2.0 * info.n_embd * info.n_layer);
}

/* The plan that opening makes, without opening; filled too when it does not fit. */
static void test_plan_is_the_engines(void **state)
{
    (void)state;
    struct sl_engine_options opt;
    struct sl_model_info info, open_info;
    struct sl_engine_plan plan, open_plan;
    struct sl_err err;
    struct sl_engine *e;
    sl_engine_options_init(&opt);
    opt.stream = SL_STREAM_ON;
    opt.ram = 64 << 20;
    assert_int_equal(sl_plan(MODEL, &opt, &info, &plan, &err), 0);
    assert_int_equal(sl_engine_open(MODEL, &opt, &e, &err), 0);
    sl_engine_get_plan(e, &open_plan);
    sl_engine_info(e, &open_info);
    assert_int_equal(plan.n_ctx, open_plan.n_ctx);
    assert_int_equal(plan.ubatch, open_plan.ubatch);
    assert_int_equal(plan.dense_bytes, open_plan.dense_bytes);
    assert_int_equal(plan.kv_bytes, open_plan.kv_bytes);
    assert_int_equal(plan.compute_bytes, open_plan.compute_bytes);
    assert_int_equal(info.expert_bytes, open_info.expert_bytes);
    assert_string_equal(info.arch, open_info.arch);
    sl_engine_close(&e);

    opt.ram = 16 << 20;
    memset(&plan, 0, sizeof plan);
    assert_int_equal(sl_plan(MODEL, &opt, &info, &plan, &err), SL_E_BUDGET);
    assert_true(plan.total_bytes > opt.ram);
    assert_int_equal(sl_plan("no such file", &opt, &info, &plan, &err), SL_E_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode),  cmocka_unit_test(test_prompt),
        cmocka_unit_test(test_loading), cmocka_unit_test(test_hits),
        cmocka_unit_test(test_reach),   cmocka_unit_test(test_small),
        cmocka_unit_test(test_shape),   cmocka_unit_test(test_plan_is_the_engines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
