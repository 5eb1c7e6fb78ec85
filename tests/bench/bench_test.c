/* bench_test.c: the measuring code: its data, its statistics, what it measures and leaves out. No
 * speed is judged: the machine that runs this may be busy, or emulated. */
#include "base/clock.h"
#include "base/mem.h"
#include "bench/bench.h"
#include "bench/parts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- Data ---- */

static bool plain(float f)
{
    return f == 0 || (isfinite(f) && fabsf(f) < 1e4f && fabsf(f) > 1e-8f);
}

/* Every type that has a product gets weights that are finite, plain, and not all the same. */
static void test_weights(void **state)
{
    (void)state;
    uint64_t rng = 1;
    for (int t = 0; t < QT_COUNT; t++) {
        uint8_t bytes[2048 * 4];
        float x[2048];
        if (!bench_has_product((enum quant_type)t))
            continue;
        bench_fill_weights((enum quant_type)t, bytes, (size_t)quant_row_bytes((uint32_t)t, 2048),
                           &rng);
        assert_true(quant_dequant((uint32_t)t, bytes, x, 2048));
        int changes = 0;
        for (int i = 0; i < 2048; i++) {
            if (!plain(x[i]))
                fail_msg("%s: value %d is %g", quant_type_info((uint32_t)t)->name, i, (double)x[i]);
            changes += i > 0 && x[i] != x[i - 1];
        }
        assert_true(changes > 500);
    }
}

/* ---- Statistics ---- */

static void test_median(void **state)
{
    (void)state;
    struct bench_time t;
    double odd[] = {5, 1, 9}, even[] = {8, 2, 4, 1}, one[] = {7};
    bench_take_median(odd, 3, &t);
    assert_true(t.median == 5 && t.best == 1 && t.worst == 9 && t.reps == 3);
    bench_take_median(even, 4, &t);
    assert_true(t.median == 3 && t.best == 1 && t.worst == 8 && t.reps == 4);
    bench_take_median(one, 1, &t);
    assert_true(t.median == 7 && t.best == 7 && t.worst == 7);
}

struct counter {
    int64_t calls, batches, last;
};

static void count_calls(void *arg, int64_t calls)
{
    struct counter *c = arg;
    const double end = clock_now() + 1e-5 * (double)calls;
    c->calls += calls;
    c->batches++;
    c->last = calls;
    while (clock_now() < end)
        ;
}

/* Short work is repeated until a sample is long enough, and the time is that of one call. */
static void test_samples(void **state)
{
    (void)state;
    const struct bench_effort effort = {3, 1e-3};
    struct counter c = {0};
    struct bench_time t;
    bench_time_work(&effort, count_calls, &c, &t);
    assert_true(t.reps >= 1 && t.reps <= 3);
    assert_true(c.last > 1 && c.batches > t.reps);
    assert_true(t.best >= 1e-5);
    assert_true(t.best <= t.median && t.median <= t.worst);
}

static void slow(void *arg, int64_t calls)
{
    (*(int *)arg)++;
    clock_sleep(0.3 * (double)calls);
}

/* Long work ends early instead of taking all samples. */
static void test_budget(void **state)
{
    (void)state;
    const struct bench_effort effort = {50, 1e-3};
    struct bench_time t;
    int batches = 0;
    bench_time_work(&effort, slow, &batches, &t);
    assert_true(t.reps <= 2 && batches == t.reps + 1);
}

/* ---- The machine ---- */

#define TREE(name) SL_SOURCE_DIR "/tests/bench/trees/" name

static void test_machine_x86(void **state)
{
    (void)state;
    struct bench_machine m;
    struct bench_ticks ticks;
    bench_read_machine(TREE("x86"), &m);
    assert_string_equal(m.cpu, "13th Gen Intel(R) Core(TM) i7-13700");
    assert_string_equal(m.governor, "powersave");
    assert_true(m.mhz_max == 5200);
    assert_int_equal(m.l2, 2 << 20);
    assert_int_equal(m.llc, 36 << 20);
    assert_true(m.load[0] == 0.42 && m.load[1] == 1.25 && m.load[2] == 3);
    bench_read_ticks(TREE("x86"), &ticks);
    assert_true(fabs(ticks.busy / ticks.steal - 1330 / 50.0) < 1e-9);
}

static void test_machine_unknown(void **state)
{
    (void)state;
    struct bench_machine m;
    struct bench_ticks ticks;
    bench_read_machine(TREE("arm"), &m);
    assert_string_equal(m.cpu, "implementer 0x41 part 0xd0c");
    assert_string_equal(m.governor, "");
    assert_true(m.l2 == 0 && m.llc == 0 && m.mhz_max == 0);
    assert_true(m.load[0] < 0);
    bench_read_ticks(TREE("arm"), &ticks);
    assert_true(ticks.busy < 0 && ticks.steal < 0);
    bench_read_machine("/nonexistent", &m);
    assert_string_equal(m.cpu, "");
}

static void test_thread_counts(void **state)
{
    (void)state;
    int c[BENCH_MAX_COUNTS];
    assert_int_equal(bench_thread_counts(1, c), 1);
    assert_int_equal(c[0], 1);
    assert_int_equal(bench_thread_counts(3, c), 3);
    assert_true(c[0] == 1 && c[1] == 2 && c[2] == 3);
    assert_int_equal(bench_thread_counts(12, c), 5);
    assert_true(c[0] == 1 && c[3] == 8 && c[4] == 12);
    assert_int_equal(bench_thread_counts(1024, c), 11);
    assert_int_equal(c[10], 1024);
}

/* ---- A run ---- */

static struct bench_plan tiny_plan(void)
{
    struct bench_plan p = {.threads = {1, 2},
                           .n_threads = 2,
                           .tokens = {3},
                           .n_tokens = 1,
                           .rows = 16,
                           .cols = 256,
                           .attention = true,
                           .keys = 20,
                           .heads = 2,
                           .head_dim = 32,
                           .ram_bytes = 1 << 20,
                           .effort = {1, 1e-5},
                           .seed = 1};
    p.levels[kernels_cpu_level()] = true;
    return p;
}

struct told {
    int events[3], last;
};

static void tell(void *arg, const struct bench_report *r, enum bench_event event)
{
    struct told *t = arg;
    t->events[event]++;
    t->last = r->n_results;
}

static bool good_time(const struct bench_time *t)
{
    return t->best > 0 && t->best <= t->median && t->median <= t->worst && t->reps >= 1;
}

static int count_results(const struct bench_report *r, const char *type, enum bench_kernel kernel,
                         enum bench_source source)
{
    int n = 0;
    for (int i = 0; i < r->n_results; i++)
        n += strcmp(r->results[i].type, type) == 0 && r->results[i].kernel == kernel &&
             r->results[i].source == source;
    return n;
}

static void check_result(const struct bench_result *r)
{
    assert_true(good_time(&r->time));
    assert_true(r->bytes > 0 && r->ops > 0);
    assert_true((r->ram_before > 0) == (r->source == BENCH_RAM));
    assert_true((r->ram_after > 0) == (r->source == BENCH_RAM));
    assert_true((r->limit_s > 0) == (r->limit != BENCH_NO_LIMIT));
    if (r->kernel != BENCH_ATTENTION && r->source == BENCH_CACHE)
        assert_true(r->ops == (double)r->rows * r->cols * r->tokens * r->threads);
}

/* Every type that has a product appears, with one token and with several, from cache and from
 * memory, at both thread counts; so does attention. */
static void test_run(void **state)
{
    (void)state;
    struct bench_plan p = tiny_plan();
    struct bench_report r;
    struct sl_err err;
    struct told told = {{0}, 0};
    for (int t = 0; t < QT_COUNT; t++)
        p.types[t] = bench_has_product((enum quant_type)t);
    const uint64_t before = mem_now();
    assert_int_equal(bench_run(&p, tell, &told, &r, &err), 0);
    assert_int_equal(r.n_ram, 2);
    for (int i = 0; i < r.n_ram; i++)
        assert_true(good_time(&r.ram[i].before) && good_time(&r.ram[i].after) &&
                    r.ram[i].threads == i + 1);
    for (int i = 0; i < r.n_peaks; i++)
        assert_true(good_time(&r.peaks[i].time) && r.peaks[i].ops > 0);
    assert_true((r.n_peaks > 0) == (r.level != KL_SCALAR));
    for (int t = 0; t < QT_COUNT; t++) {
        if (!bench_has_product((enum quant_type)t))
            continue;
        const char *name = quant_type_info((uint32_t)t)->name;
        const int attention = t == QT_F32 || t == QT_F16 || t == QT_Q8_0 ? 2 : 0;
        assert_int_equal(count_results(&r, name, BENCH_GEMV, BENCH_CACHE), 2);
        assert_int_equal(count_results(&r, name, BENCH_GEMV, BENCH_RAM), 2);
        assert_int_equal(count_results(&r, name, BENCH_GEMM, BENCH_CACHE), 2);
        assert_int_equal(count_results(&r, name, BENCH_ATTENTION, BENCH_CACHE), attention);
        assert_int_equal(count_results(&r, name, BENCH_ATTENTION, BENCH_RAM), attention);
    }
    for (int i = 0; i < r.n_results; i++)
        check_result(&r.results[i]);
    assert_int_equal(told.events[BENCH_HAS_LIMITS], 1);
    assert_int_equal(told.events[BENCH_HAS_RESULT], r.n_results);
    assert_int_equal(told.events[BENCH_HAS_END], 1);
    assert_int_equal(told.last, r.n_results);
    bench_free_report(&r);
    assert_int_equal(mem_now(), before);
}

/* All levels of this CPU, and only those that were asked for. */
static void test_levels(void **state)
{
    (void)state;
    struct bench_plan p = tiny_plan();
    struct bench_report r;
    struct sl_err err;
    int levels = 0;
    p.attention = false;
    p.n_threads = 1;
    p.n_tokens = 0;
    p.types[QT_Q4_K] = true;
    bench_find_levels(p.levels);
    for (int l = 0; l < KL_COUNT; l++)
        levels += p.levels[l];
    assert_int_equal(bench_run(&p, NULL, NULL, &r, &err), 0);
    assert_int_equal(r.n_results, 2 * levels);
    assert_true(r.results[0].level == KL_SCALAR && r.results[0].limit == BENCH_NO_LIMIT);
    assert_true(r.results[1].limit == BENCH_BY_RAM || r.results[1].limit == BENCH_BY_CACHE);
    bench_free_report(&r);
}

/* Shapes that no number of rows or threads divides evenly. */
static void test_odd_shapes(void **state)
{
    (void)state;
    struct bench_plan p = tiny_plan();
    struct bench_report r;
    struct sl_err err;
    p.rows = 7;
    p.cols = 2880;
    p.keys = 1;
    p.head_dim = 5;
    p.heads = 1;
    p.threads[1] = 3;
    p.types[QT_MXFP4] = p.types[QT_F32] = true;
    p.seed = 99;
    assert_int_equal(bench_run(&p, NULL, NULL, &r, &err), 0);
    for (int i = 0; i < r.n_results; i++)
        check_result(&r.results[i]);
    bench_free_report(&r);
}

static void refuse(const struct bench_plan *p, int code, const char *part)
{
    struct bench_report r;
    struct sl_err err;
    const uint64_t before = mem_now();
    assert_int_equal(bench_run(p, NULL, NULL, &r, &err), code);
    if (!strstr(err.msg, part))
        fail_msg("'%s' does not contain '%s'", err.msg, part);
    bench_free_report(&r);
    assert_int_equal(mem_now(), before);
}

static void test_refused(void **state)
{
    (void)state;
    struct bench_plan p = tiny_plan();
    p.keys = 1 << 20;
    refuse(&p, SL_E_ARG, "--buffer");
    p = tiny_plan();
    p.types[QT_F32] = true;
    p.cols = 1 << 18;
    refuse(&p, SL_E_ARG, "--buffer");
    p = tiny_plan();
    p.ram_bytes = 1 << 16;
    refuse(&p, SL_E_ARG, "--buffer");
    p.ram_bytes = UINT64_C(1) << 50;
    refuse(&p, SL_E_MEM, "MiB");
}

/* Whichever allocation fails: an error, and nothing is left. */
static void test_no_memory(void **state)
{
    (void)state;
    struct bench_plan p = tiny_plan();
    p.types[QT_Q8_0] = true;
    p.n_threads = 1;
    p.n_tokens = 0;
    int failed = 0, rc;
    do {
        struct bench_report r;
        struct sl_err err;
        const uint64_t before = mem_now();
        mem_fail_after(failed);
        rc = bench_run(&p, NULL, NULL, &r, &err);
        mem_fail_after(-1);
        bench_free_report(&r);
        assert_int_equal(mem_now(), before);
        if (rc != 0)
            assert_true(err.msg[0] != '\0');
        failed++;
    } while (rc != 0 && failed < 200);
    assert_int_equal(rc, 0);
    assert_true(failed > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights),       cmocka_unit_test(test_median),
        cmocka_unit_test(test_samples),       cmocka_unit_test(test_budget),
        cmocka_unit_test(test_machine_x86),   cmocka_unit_test(test_machine_unknown),
        cmocka_unit_test(test_thread_counts), cmocka_unit_test(test_run),
        cmocka_unit_test(test_levels),        cmocka_unit_test(test_odd_shapes),
        cmocka_unit_test(test_refused),       cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
