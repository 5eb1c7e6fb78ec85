/* pool_test.c: every thread runs every job once, ranges are covered once, and waking is quick. */
#include "base/clock.h"
#include "base/cpus.h"
#include "base/mem.h"
#include "base/sys.h"
#include "thread/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <fenv.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static const int counts[] = {1, 2, 3, 8, 33};
#define N_COUNTS     (sizeof counts / sizeof *counts)
#define THREADS_MOST 64

struct job {
    int calls[THREADS_MOST];
    int rounding[THREADS_MOST];
};

static void count_call(void *arg, int tid)
{
    struct job *j = arg;
    j->calls[tid]++; /* not atomic: a second call at the same time is for TSan to find */
    j->rounding[tid] = fegetround();
}

static void test_run_once_on_each(void **state)
{
    (void)state;
    for (size_t c = 0; c < N_COUNTS; c++) {
        struct pool *p;
        struct sl_err e;
        assert_int_equal(pool_create(counts[c], &p, &e), 0);
        assert_int_equal(pool_threads(p), counts[c]);
        struct job j = {0};
        fesetround(FE_UPWARD);
        for (int i = 0; i < 300; i++) {
            pool_run(p, count_call, &j);
            if (i % 100 == 50)
                clock_sleep(0.002); /* workers fall asleep */
        }
        int after = fegetround();
        fesetround(FE_TONEAREST);
        assert_int_equal(after, FE_UPWARD);
        for (int t = 0; t < counts[c]; t++) {
            assert_int_equal(j.calls[t], 300);
            assert_int_equal(j.rounding[t], FE_TONEAREST);
        }
        pool_destroy(&p);
        assert_null(p);
    }
}

struct cover {
    uint8_t *seen;
    int64_t n, grain;
    int threads;
    atomic_int bad;
};

static void mark(void *arg, int64_t begin, int64_t end, int tid)
{
    struct cover *c = arg;
    if (begin < 0 || begin >= end || end > c->n || begin % c->grain != 0 ||
        (end % c->grain != 0 && end != c->n) || tid < 0 || tid >= c->threads) {
        atomic_fetch_add(&c->bad, 1);
        return;
    }
    for (int64_t i = begin; i < end; i++)
        c->seen[i]++;
}

static void test_ranges_covered_once(void **state)
{
    (void)state;
    static const int64_t ns[] = {1, 2, 7, 8, 9, 100, 1000, 4096, 100003};
    static const int64_t grains[] = {1, 2, 3, 16, 64, 1000};
    for (size_t c = 0; c < N_COUNTS; c++) {
        struct pool *p;
        assert_int_equal(pool_create(counts[c], &p, NULL), 0);
        for (size_t i = 0; i < sizeof ns / sizeof *ns; i++)
            for (size_t g = 0; g < sizeof grains / sizeof *grains; g++) {
                struct cover v = {.n = ns[i], .grain = grains[g], .threads = counts[c]};
                v.seen = mem_calloc((size_t)ns[i], 1);
                assert_non_null(v.seen);
                pool_for(p, v.n, v.grain, mark, &v);
                assert_int_equal(atomic_load(&v.bad), 0);
                for (int64_t k = 0; k < v.n; k++)
                    assert_int_equal(v.seen[k], 1);
                mem_free(v.seen);
            }
        struct cover none = {.n = 0, .grain = 1, .threads = counts[c]};
        pool_for(p, 0, 1, mark, &none);
        pool_for(p, -5, 1, mark, &none);
        assert_int_equal(atomic_load(&none.bad), 0);
        pool_destroy(&p);
    }
}

static void check_huge(void *arg, int64_t begin, int64_t end, int tid)
{
    (void)tid;
    atomic_fetch_add((_Atomic int64_t *)arg, end - begin);
}

static void test_huge_ranges(void **state)
{
    (void)state;
    struct pool *p;
    assert_int_equal(pool_create(3, &p, NULL), 0);
    static const int64_t grains[] = {1, 1000, INT64_MAX / 2, INT64_MAX - 1, INT64_MAX};
    for (size_t g = 0; g < sizeof grains / sizeof *grains; g++) {
        _Atomic int64_t sum = 0;
        pool_for(p, INT64_MAX, grains[g], check_huge, &sum);
        assert_true(sum == INT64_MAX);
    }
    pool_destroy(&p);
}

#define SLOW_RANGE 3200

struct slow {
    _Atomic int64_t by_tid[2];
};

/* A core that does one piece while the other does most of the rest, or waits for that in vain. */
static void slow_first(void *arg, int64_t begin, int64_t end, int tid)
{
    struct slow *s = arg;
    double limit = clock_now() + 20;
    while (tid == 1 && s->by_tid[0] <= SLOW_RANGE / 2 && clock_now() < limit)
        clock_sleep(0.0002);
    atomic_fetch_add(&s->by_tid[tid], end - begin);
}

static void test_slow_thread_does_less(void **state)
{
    (void)state;
    struct pool *p;
    assert_int_equal(pool_create(2, &p, NULL), 0);
    struct slow s = {0};
    pool_for(p, SLOW_RANGE, 1, slow_first, &s);
    assert_int_equal(s.by_tid[0] + s.by_tid[1], SLOW_RANGE);
    assert_true(s.by_tid[0] > s.by_tid[1]);
    pool_destroy(&p);
}

/* Calls of both kinds in turn: nobody may be taken for a worker of another call. */
static void test_mixed_calls(void **state)
{
    (void)state;
    struct pool *p;
    assert_int_equal(pool_create(4, &p, NULL), 0);
    double start = clock_now();
    for (int i = 0; i < 2000 && clock_now() - start < 2; i++) {
        struct job j = {0};
        _Atomic int64_t sum = 0;
        pool_for(p, 1 + i % 200, 1, check_huge, &sum);
        pool_run(p, count_call, &j);
        assert_true(sum == 1 + i % 200);
        for (int t = 0; t < 4; t++)
            assert_int_equal(j.calls[t], 1);
    }
    pool_destroy(&p);
}

static void sleep_on_each(void *arg, int tid)
{
    (void)arg;
    (void)tid;
    clock_sleep(0.01);
}

static void sleep_range(void *arg, int64_t begin, int64_t end, int tid)
{
    (void)begin;
    (void)end;
    sleep_on_each(arg, tid);
}

/* Time is counted inside calls, alone or shared, and nowhere else. */
static void test_busy_time(void **state)
{
    (void)state;
    struct pool *p;
    assert_int_equal(pool_create(2, &p, NULL), 0);
    assert_true(pool_busy(p) == 0);
    double start = clock_now();
    pool_run(p, sleep_on_each, NULL);
    assert_true(pool_busy(p) >= 0.01);
    pool_for(p, 1, 1, sleep_range, NULL);
    double busy = pool_busy(p), inside = clock_now() - start;
    assert_true(busy >= 0.02 && busy <= inside);
    clock_sleep(0.01);
    assert_true(pool_busy(p) == busy);
    pool_destroy(&p);
}

static void test_refusals(void **state)
{
    (void)state;
    struct pool *p = (struct pool *)state;
    struct sl_err e;
    assert_int_equal(pool_create(0, &p, &e), SL_E_ARG);
    assert_null(p);
    assert_int_equal(pool_create(-1, &p, &e), SL_E_ARG);
    assert_int_equal(pool_create(1 << 20, &p, &e), SL_E_ARG);
    uint64_t before = mem_now();
    for (int n = 0; n < 2; n++) {
        mem_fail_after(n);
        assert_int_equal(pool_create(4, &p, &e), SL_E_MEM);
        mem_fail_after(-1);
        assert_int_equal(mem_now(), before);
    }
    pool_destroy(&p);
    pool_destroy(NULL);
}

struct seen_cpus {
    struct cpus_mask by_tid[THREADS_MOST];
};

static void look(void *arg, int tid)
{
    assert_int_equal(cpus_save(&((struct seen_cpus *)arg)->by_tid[tid]), 0);
}

static void check_bound(const struct cpus_mask *m, int cpu)
{
    struct cpus_mask one = {{0}};
    one.bits[cpu / 64] = UINT64_C(1) << cpu % 64;
    assert_memory_equal(m, &one, sizeof one);
}

/* Each thread sees its CPU alone, no two the same, and the caller gets back what it had. */
static void test_pinned(void **state)
{
    (void)state;
    struct cpus_mask before, after;
    int most = cpus_allowed("", &before);
    for (int n = 1; n <= most && n <= 8; n++) {
        struct pool *p;
        struct seen_cpus s, free_again;
        assert_int_equal(pool_create(n, &p, NULL), 0);
        assert_int_equal(pool_cpu(p, 0), -1);
        assert_int_equal(pool_pin(p, NULL), 0);
        assert_int_equal(cpus_save(&after), 0);
        assert_memory_equal(&after, &before, sizeof before);
        assert_int_equal(pool_enter(p, NULL), 0);
        pool_run(p, look, &s);
        pool_leave(p);
        pool_run(p, look, &free_again);
        assert_memory_equal(&free_again.by_tid[0], &before, sizeof before);
        for (int t = 0; t < n; t++) {
            check_bound(&s.by_tid[t], pool_cpu(p, t));
            for (int u = 0; u < t; u++)
                assert_int_not_equal(pool_cpu(p, t), pool_cpu(p, u));
        }
        pool_destroy(&p);
        assert_int_equal(cpus_save(&after), 0);
        assert_memory_equal(&after, &before, sizeof before);
    }
}

/* Who may use one CPU only gets no second thread there. */
static void test_pin_refused(void **state)
{
    (void)state;
    struct cpus_mask before;
    struct pool *p;
    struct sl_err e;
    int cpu;
    assert_int_equal(cpus_save(&before), 0);
    assert_true(cpus_order("", &cpu, 1) > 0);
    assert_int_equal(cpus_bind(pthread_self(), cpu), 0);
    assert_int_equal(pool_create(2, &p, NULL), 0);
    assert_int_equal(pool_pin(p, &e), SL_E_ARG);
    assert_non_null(strstr(e.msg, "2 threads, but only 1 CPU may be used"));
    pool_destroy(&p);
    assert_int_equal(cpus_restore(&before), 0);
    assert_int_equal(cpus_bind(pthread_self(), -1), EINVAL);
    assert_int_equal(cpus_bind(pthread_self(), CPUS_MOST), EINVAL);
    assert_int_equal(pool_create(1, &p, NULL), 0);
    uint64_t held = mem_now();
    mem_fail_after(0);
    assert_int_equal(pool_pin(p, &e), SL_E_MEM);
    mem_fail_after(1);
    assert_int_equal(pool_pin(p, &e), SL_E_SYSTEM);
    mem_fail_after(-1);
    assert_int_equal(mem_now(), held);
    pool_destroy(&p);
}

static void nothing(void *arg, int tid)
{
    (void)arg;
    (void)tid;
}

/* Prints the cost of an empty call while the threads are hot. Not asserted: other programs run. */
static void test_print_latency(void **state)
{
    (void)state;
    int cpus = sys_usable_cpus("");
    for (int n = 1; n <= 4; n *= 2) {
        struct pool *p;
        assert_int_equal(pool_create(n, &p, NULL), 0);
        double best = 1, start = clock_now();
        for (int round = 0; round < 100 && clock_now() - start < 0.2; round++) {
            enum { CALLS = 50 };
            double t = clock_now();
            for (int i = 0; i < CALLS; i++)
                pool_run(p, nothing, NULL);
            t = (clock_now() - t) / CALLS;
            best = t < best ? t : best;
        }
        printf("%d threads on %d CPUs: %.2f us per call\n", n, cpus, best * 1e6);
        pool_destroy(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_once_on_each), cmocka_unit_test(test_ranges_covered_once),
        cmocka_unit_test(test_huge_ranges),      cmocka_unit_test(test_slow_thread_does_less),
        cmocka_unit_test(test_mixed_calls),      cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_pinned),           cmocka_unit_test(test_pin_refused),
        cmocka_unit_test(test_busy_time),        cmocka_unit_test(test_print_latency),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
