/* cached_test.c: what the measurement of cached reads asks the system for, and what it says of the
 * page cache; no speed is judged. */
#include "bench/cached.h"

#include "base/mem.h"
#include "io/syscalls.h"
#include "io/temp_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SIZE ((uint64_t)(3 << 20) + 99)
#define RAM  ((uint64_t)8 << 20)

static char path[256];
static struct bench_stream ram;

/* The real system, watched: how often each byte was asked for, and where reads began and ended. */
static struct {
    pthread_mutex_t lock;
    uint8_t count[SIZE], edge[SIZE + 1];
    int64_t reads, fail_at; /* fail_at: the read that fails; 0: none */
    int cached;             /* what the page cache has; -1: the system is asked */
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER};

static ssize_t watch_pread(int fd, void *buf, size_t n, off_t offset)
{
    pthread_mutex_lock(&seen.lock);
    const bool fail = ++seen.reads == seen.fail_at;
    seen.edge[offset] = seen.edge[(size_t)offset + n] = 1;
    for (size_t i = 0; i < n; i++)
        seen.count[(size_t)offset + i]++;
    pthread_mutex_unlock(&seen.lock);
    if (fail) {
        errno = EIO;
        return -1;
    }
    return pread(fd, buf, n, offset);
}

static int watch_cached(int fd, uint64_t offset, bool by_map)
{
    return seen.cached >= 0 ? seen.cached : io_real_syscalls.cached(fd, offset, by_map);
}

static void watch(int cached, int64_t fail_at)
{
    memset(seen.count, 0, sizeof seen.count);
    memset(seen.edge, 0, sizeof seen.edge);
    seen.reads = 0;
    seen.fail_at = fail_at;
    seen.cached = cached;
}

static struct io_file *open_watched(bool direct)
{
    static struct io_syscalls calls;
    struct io_file *f;
    calls = io_real_syscalls;
    calls.pread = watch_pread;
    calls.cached = watch_cached;
    io_syscalls_replace(&calls);
    assert_int_equal(io_file_open(path, direct, &f, NULL), 0);
    io_syscalls_replace(NULL);
    return f;
}

/* Every byte of every expert once a pass, none beside them; cuts at pages of the file. */
static void check_reads(const struct bench_places *p, int split, int passes)
{
    static uint8_t want[SIZE], begin[SIZE + 1];
    memset(want, 0, sizeof want);
    memset(begin, 0, sizeof begin);
    for (int64_t i = 0; i < p->n; i++) {
        memset(want + p->slice[i].offset, passes, p->slice[i].bytes);
        begin[p->slice[i].offset] = begin[p->slice[i].offset + p->slice[i].bytes] = 1;
    }
    assert_memory_equal(seen.count, want, sizeof want);
    int64_t cuts = 0;
    for (uint64_t i = 0; i <= SIZE; i++)
        if (seen.edge[i] && !begin[i]) {
            cuts++;
            assert_int_equal(i % mem_page_size(), 0);
        }
    assert_true(split > 1 ? cuts > 0 : cuts == 0);
}

static void check_row(const struct bench_places *p, const struct bench_cached_spec *s,
                      const struct bench_cached_row *r)
{
    assert_int_equal(r->threads, s->threads);
    assert_int_equal(r->split, s->split);
    assert_int_equal(r->experts, p->n / p->group);
    assert_int_equal(r->tasks, r->experts * s->split);
    assert_int_equal(r->bytes, p->bytes);
    assert_int_equal(r->passes, s->passes);
    double sum = 0;
    for (int i = 0; i < r->passes; i++) {
        assert_true(r->pass_s[i] >= r->best_s && r->pass_s[i] <= r->worst_s);
        sum += r->pass_s[i];
    }
    assert_true(sum > 0 && sum == r->seconds);
    assert_true(r->copy_gb_s > 0 && r->read_gb_s > 0 && bench_cached_rate(r) > 0);
}

static void test_every_byte_once(void **state)
{
    (void)state;
    struct io_file *f = open_watched(false);
    const struct bench_bank banks[] = {
        {.n_parts = 1, .n_experts = 7, .part = {{f, 0, 81920, 80000}}},
        {.n_parts = 3,
         .n_experts = 5,
         .part = {{f, 32, 70000, 70000}, {f, 500064, 70016, 70000}, {f, 1000000, 200000, 130001}}},
    };
    for (int b = 0; b < 2; b++) {
        struct bench_places p;
        assert_int_equal(bench_list_experts(&banks[b], 1, &p, NULL), 0);
        for (int i = 0; i < 8; i++) {
            struct bench_cached_row row;
            struct sl_err err = {0};
            const struct bench_cached_spec spec = {.threads = 1 + i % 4,
                                                   .split = 1 + i,
                                                   .warmup = i % 3,
                                                   .passes = 1 + i % 2,
                                                   .slots = i & 1,
                                                   .huge = i & 2,
                                                   .seed = (uint64_t)i};
            watch(1, 0);
            if (bench_measure_cached(&p, &spec, &ram, &row, &err) != 0)
                fail_msg("%s", err.msg);
            check_row(&p, &spec, &row);
            /* An untimed pass before each timed one, but for the first of no warm-up. */
            check_reads(&p, spec.split, spec.warmup + 2 * spec.passes - (spec.warmup == 0));
            assert_true(row.cached);
        }
        bench_free_places(&p);
    }
    io_file_close(&f);
}

/* An expert of fewer pages than pieces: some tasks have nothing to do. */
static void test_small_experts(void **state)
{
    (void)state;
    struct io_file *f = open_watched(false);
    const struct bench_bank bank = {.n_parts = 1, .n_experts = 9, .part = {{f, 100, 300, 300}}};
    const struct bench_cached_spec spec = {.threads = 2, .split = 4, .passes = 1};
    struct bench_cached_row row;
    struct bench_places p;
    assert_int_equal(bench_list_experts(&bank, 1, &p, NULL), 0);
    watch(1, 0);
    assert_int_equal(bench_measure_cached(&p, &spec, &ram, &row, NULL), 0);
    assert_int_equal(row.tasks, 36);
    assert_int_equal(seen.reads, 9);
    bench_free_places(&p);
    io_file_close(&f);
}

/* Pages that are not there, at once or because nobody read them before, are not called cached. */
static void test_not_cached(void **state)
{
    (void)state;
    struct io_file *f = open_watched(false);
    const struct bench_bank bank = {.n_parts = 1, .n_experts = 9, .part = {{f, 0, 300000, 300000}}};
    struct bench_cached_spec spec = {.threads = 2, .split = 2, .passes = 3};
    struct bench_cached_row row;
    struct bench_places p;
    assert_int_equal(bench_list_experts(&bank, 1, &p, NULL), 0);
    watch(0, 0);
    assert_int_equal(bench_measure_cached(&p, &spec, &ram, &row, NULL), 0);
    assert_false(row.cached);
    assert_true(row.pass_cached[0] == 0 && row.pass_cached[2] == 0);
    watch(-1, 0);
    io_file_drop(f, 0, SIZE);
    if (io_file_cached(f, 0, SIZE, 64) == 0) { /* no file system in memory */
        assert_int_equal(bench_measure_cached(&p, &spec, &ram, &row, NULL), 0);
        assert_false(row.cached);
        assert_true(row.pass_cached[0] == 0);
        spec.warmup = 1;
        io_file_drop(f, 0, SIZE);
        assert_int_equal(bench_measure_cached(&p, &spec, &ram, &row, NULL), 0);
    }
    bench_free_places(&p);
    io_file_close(&f);
}

static void test_refused(void **state)
{
    (void)state;
    struct sl_err err = {0};
    struct bench_cached_row row;
    struct bench_places p;
    struct io_file *f = open_watched(false);
    const struct bench_bank bank = {.n_parts = 1, .n_experts = 9, .part = {{f, 0, 300000, 300000}}};
    struct bench_cached_spec spec = {.threads = 3, .split = 2, .passes = 2};
    const struct bench_stream little = {ram.p, 1000, 0};
    const uint64_t before = mem_now();
    assert_int_equal(bench_list_experts(&bank, 1, &p, NULL), 0);
    watch(1, 25); /* in the second pass */
    assert_int_equal(bench_measure_cached(&p, &spec, &ram, &row, &err), SL_E_IO);
    assert_non_null(strstr(err.where, path));
    assert_int_equal(bench_measure_cached(&p, &spec, &little, &row, &err), SL_E_ARG);
    spec.split = BENCH_MAX_SPLIT + 1;
    assert_int_equal(bench_measure_cached(&p, &spec, &ram, &row, &err), SL_E_ARG);
    spec.split = 1;
    for (int n = 0; n < 6; n++) { /* list, pool (3), order, destinations */
        mem_fail_after(n);
        int rc = bench_measure_cached(&p, &spec, &ram, &row, &err);
        mem_fail_after(-1);
        assert_true(rc == SL_E_MEM || (n == 5 && rc == 0));
    }
    bench_free_places(&p);
    io_file_close(&f);
    assert_true(mem_now() <= before);

    assert_int_equal(io_file_open(path, true, &f, NULL), 0);
    if (io_file_direct(f)) {
        const struct bench_bank direct = {.n_parts = 1, .n_experts = 2, .part = {{f, 0, 99, 99}}};
        assert_int_equal(bench_list_experts(&direct, 1, &p, NULL), 0);
        assert_int_equal(bench_measure_cached(&p, &spec, &ram, &row, &err), SL_E_ARG);
        bench_free_places(&p);
    }
    io_file_close(&f);
}

static void test_memory_beside(void **state)
{
    (void)state;
    struct bench_places p = {.bytes = UINT64_C(400) << 20, .bytes_most = 3 << 20};
    assert_int_equal(bench_cached_ram(&p, 8, UINT64_MAX), p.bytes);
    assert_int_equal(bench_cached_ram(&p, 8, 200 << 20), 200 << 20);
    p.bytes = UINT64_C(1) << 40;
    assert_int_equal(bench_cached_ram(&p, 8, UINT64_MAX), 1 << 30);
    p.bytes = 1000;
    assert_true(bench_cached_ram(&p, 8, UINT64_MAX) >= 64 << 20);
    p.bytes_most = UINT64_C(2) << 30;
    assert_true(bench_cached_ram(&p, 8, UINT64_MAX) >= p.bytes_most);
}

static int set_up(void **state)
{
    (void)state;
    return bench_open_stream(&ram, RAM) ? temp_create(".", SIZE, path) : -1;
}

static int tear_down(void **state)
{
    (void)state;
    bench_close_stream(&ram);
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_byte_once), cmocka_unit_test(test_small_experts),
        cmocka_unit_test(test_not_cached),      cmocka_unit_test(test_refused),
        cmocka_unit_test(test_memory_beside),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
