/* drive_test.c: what the measurement of a drive reads and says about itself; no speed is judged. */
#include "bench/drive.h"

#include "base/clock.h"
#include "base/mem.h"
#include "io/syscalls.h"
#include "io/temp_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIZE  ((uint64_t)(6 << 20) + 99)
#define PIECE ((uint64_t)50000)

static char path[256];

static void test_places_of_a_file(void **state)
{
    (void)state;
    struct io_file *f;
    struct bench_places p;
    struct sl_err err;
    assert_int_equal(io_file_open(path, true, &f, NULL), 0);
    assert_int_equal(bench_list_file(f, PIECE, &p, &err), 0);
    assert_int_equal(p.n, SIZE / PIECE);
    assert_int_equal(p.group, 1);
    assert_int_equal(p.bytes, (uint64_t)p.n * PIECE);
    assert_int_equal(p.bytes_most, PIECE);
    for (int64_t i = 0; i < p.n; i++)
        assert_int_equal(p.slice[i].offset, (uint64_t)i * PIECE);
    bench_free_places(&p);
    assert_int_equal(bench_list_file(f, SIZE + 1, &p, &err), SL_E_UNSUPPORTED);
    assert_int_equal(bench_list_file(f, 0, &p, &err), SL_E_ARG);
    assert_int_equal(bench_list_file(f, UINT64_MAX, &p, &err), SL_E_ARG);
    io_file_close(&f);
}

static void test_places_of_experts(void **state)
{
    (void)state;
    struct io_file *f;
    struct bench_places p;
    struct sl_err err;
    assert_int_equal(io_file_open(path, true, &f, NULL), 0);
    struct bench_bank banks[3] = {
        {.n_parts = 0},
        {.n_parts = 2, .n_experts = 4, .part = {{f, 100, 1000, 1000}, {f, 5000, 2000, 1500}}},
        {.n_parts = 2, .n_experts = 3, .part = {{f, 20000, 1000, 1000}, {f, 30000, 1000, 1000}}},
    };
    assert_int_equal(bench_list_experts(banks, 3, &p, &err), 0);
    assert_int_equal(p.group, 2);
    assert_int_equal(p.n, 14);
    assert_int_equal(p.bytes_most, 1500);
    assert_int_equal(p.slice[2].offset, 1100); /* expert 1 of the first bank */
    assert_int_equal(p.slice[3].offset, 7000);
    assert_int_equal(p.slice[3].bytes, 1500);
    assert_int_equal(p.slice[8].offset, 20000);
    bench_free_places(&p);
    assert_int_equal(bench_list_experts(banks, 1, &p, &err), SL_E_UNSUPPORTED);
    mem_fail_after(0);
    assert_int_equal(bench_list_experts(banks, 3, &p, &err), SL_E_MEM);
    mem_fail_after(-1);
    io_file_close(&f);
}

/* Every place once, then again, said so; what was left out of the order is what earlier rows read.
 */
static void test_rows(void **state)
{
    (void)state;
    static const char *const engines[] = {"auto", "threads", "plain"};
    struct io_file *f;
    struct bench_places p;
    struct sl_err err = {0};
    assert_int_equal(io_file_open(path, true, &f, NULL), 0);
    assert_int_equal(bench_list_file(f, PIECE, &p, NULL), 0);
    for (int i = 0; i < 3; i++) {
        struct bench_drive_row row;
        struct bench_drive_spec spec = {
            .engine = engines[i], .in_flight = 1 << i, .seconds = 0, .seed = 7 + (uint64_t)i};
        if (bench_measure_drive(&p, &spec, &row, &err) != 0)
            fail_msg("%s", err.msg);
        assert_int_equal(row.in_flight, spec.in_flight);
        assert_int_equal(row.direct, io_file_direct(f));
        assert_int_equal(row.reads, row.groups);
        assert_true(row.groups >= 1 && row.groups <= 4u << i);
        assert_true(row.bytes >= row.reads * PIECE && row.gb_s > 0 && row.seconds > 0);
        assert_false(row.again);
        if (i > 0)
            assert_string_equal(row.engine, engines[i]);
        spec.seconds = 0.2;
        assert_int_equal(bench_measure_drive(&p, &spec, &row, &err), 0);
        assert_true(row.again == (row.groups + row.skipped > (uint64_t)p.n));
    }
    bench_free_places(&p);
    io_file_close(&f);
}

/* A row is direct when every file of its places is, whichever part of an expert lies there. */
static void test_direct_of_all_files(void **state)
{
    (void)state;
    struct io_file *f[2];
    assert_int_equal(io_file_open(path, true, &f[0], NULL), 0);
    assert_int_equal(io_file_open(path, false, &f[1], NULL), 0);
    const bool can = io_file_direct(f[0]);
    for (int i = 0; can && i < 4; i++) {
        struct io_file *a = f[i / 2], *b = f[i % 2];
        struct bench_places p;
        struct bench_drive_row row;
        struct bench_drive_spec spec = {.engine = "plain", .in_flight = 1, .seed = 1};
        struct bench_bank bank = {
            .n_parts = 2, .n_experts = 4, .part = {{a, 0, 8192, 8192}, {b, 65536, 8192, 8192}}};
        assert_int_equal(bench_list_experts(&bank, 1, &p, NULL), 0);
        int rc = bench_measure_drive(&p, &spec, &row, NULL);
        assert_true(rc == 0 || (rc == SL_E_UNSUPPORTED && i > 0)); /* pages that stay cached */
        assert_int_equal(row.direct, i == 0);
        bench_free_places(&p);
    }
    io_file_close(&f[0]);
    io_file_close(&f[1]);
    if (!can)
        skip();
}

/* The buffers of reads, those used before left out; reads whose middle page was cached; where reads
 * begin, in order; bytes of windows that lie in the file, and of the largest window. */
static const uint8_t *buffer[512];
static int n_buffers, n_submitted, n_middles_cached;
static uint64_t begins[512], in_file, memory_then;
static size_t longest;

static void forget_reads(void)
{
    n_buffers = n_submitted = n_middles_cached = 0;
    in_file = longest = 0;
}

static bool middle_cached(const struct io_req *q)
{
    return io_file_cached(q->file, q->offset + q->need - PIECE / 2, 1, 1) > 0;
}

void __wrap_io_reader_submit(struct io_reader *r, struct io_req *list, int n);
void __real_io_reader_submit(struct io_reader *r, struct io_req *list, int n);

void __wrap_io_reader_submit(struct io_reader *r, struct io_req *list, int n)
{
    for (const struct io_req *q = list; q; q = q->next, n_submitted++) {
        const uint64_t left = io_file_size(q->file) - q->offset;
        n_middles_cached += !io_file_direct(q->file) && middle_cached(q);
        in_file += q->len < left ? q->len : left;
        longest = q->len > longest ? q->len : longest;
        if (n_submitted < (int)(sizeof begins / sizeof begins[0]))
            begins[n_submitted] = q->offset;
        int i = 0;
        while (i < n_buffers && buffer[i] != q->buf)
            i++;
        if (i == n_buffers && n_buffers < (int)(sizeof buffer / sizeof buffer[0]))
            buffer[n_buffers++] = q->buf;
    }
    memory_then = mem_now();
    __real_io_reader_submit(r, list, n);
}

/* Every reap takes so long. */
static double reap_s;
static int n_reaps;

struct io_req *__wrap_io_reader_reap(struct io_reader *r, bool wait);
struct io_req *__real_io_reader_reap(struct io_reader *r, bool wait);

struct io_req *__wrap_io_reader_reap(struct io_reader *r, bool wait)
{
    n_reaps++;
    if (reap_s > 0)
        clock_sleep(reap_s);
    return __real_io_reader_reap(r, wait);
}

/* What is said to have been read is what was, in the time up to the end of the last read. */
static void test_rate(void **state)
{
    (void)state;
    struct io_file *f;
    struct bench_places p;
    struct bench_drive_row row;
    struct bench_drive_spec spec = {.engine = "plain", .in_flight = 4, .seed = 2};
    assert_int_equal(io_file_open(path, true, &f, NULL), 0);
    assert_int_equal(bench_list_file(f, PIECE, &p, NULL), 0);
    forget_reads();
    n_reaps = 0;
    reap_s = 2e-3;
    assert_int_equal(bench_measure_drive(&p, &spec, &row, NULL), 0);
    reap_s = 0;
    assert_true(n_reaps > 1 && row.seconds >= 2e-3 * n_reaps);
    assert_int_equal(row.bytes, in_file);
    assert_true(fabs(row.gb_s * row.seconds * 1e9 / (double)row.bytes - 1) < 1e-9);
    bench_free_places(&p);
    io_file_close(&f);
}

/* Every place once, in an order that the seed makes, before any again; a row that skips goes on
 * where the one before ended. Sixteen are submitted at once. */
static void test_order(void **state)
{
    (void)state;
    struct io_file *f;
    assert_int_equal(io_file_open(path, true, &f, NULL), 0);
    for (uint64_t seed = 0; seed < 40; seed++) {
        const int n = seed % 2 ? 12 : 16;
        uint64_t first[16];
        struct bench_places p;
        struct bench_drive_row row;
        struct bench_drive_spec spec = {.engine = "plain", .in_flight = 8, .seed = seed};
        assert_int_equal(bench_list_file(f, SIZE / (uint64_t)n / 4096 * 4096, &p, NULL), 0);
        assert_int_equal(p.n, n);
        for (int skip = 0; skip < 2 * n; skip += 5) {
            spec.skip = (uint64_t)skip;
            forget_reads();
            int rc = bench_measure_drive(&p, &spec, &row, NULL);
            if (rc == SL_E_UNSUPPORTED || row.skipped)
                break; /* a file system that is memory */
            assert_int_equal(rc, 0);
            assert_int_equal(n_submitted, 16);
            assert_int_equal(row.again, n < 16);
            for (int i = 0; i < 16; i++) {
                if (skip == 0)
                    first[i % n] = begins[i];
                assert_int_equal(begins[i], first[(i + skip) % n]);
                for (int j = i + 1; j < i + n && j < 16; j++)
                    assert_int_not_equal(begins[i], begins[j]);
            }
        }
        bench_free_places(&p);
    }
    io_file_close(&f);
}

/* All of the memory is read into before any of it a second time; without room for them, as many
 * buffers as reads may be open. No window reaches into another's buffer, and what there is to read
 * bounds the memory. */
static void test_memory(void **state)
{
    (void)state;
    struct io_file *f;
    struct bench_places p;
    assert_int_equal(io_file_open(path, true, &f, NULL), 0);
    assert_int_equal(bench_list_file(f, PIECE, &p, NULL), 0);
    const size_t room = 2 * mem_page_size() + PIECE;
    for (int i = 0; i < 4; i++) {
        const uint64_t before = mem_now();
        struct bench_drive_row row;
        struct bench_drive_spec spec = {.engine = i == 2 ? "plain" : "threads",
                                        .in_flight = 2,
                                        .seconds = 0.1,
                                        .seed = 5,
                                        .memory = i == 0   ? 1
                                                  : i == 3 ? UINT64_MAX
                                                           : 40 * room};
        forget_reads();
        assert_int_equal(bench_measure_drive(&p, &spec, &row, NULL), 0);
        assert_true(n_submitted >= 2 * spec.in_flight && row.reads == (uint64_t)n_submitted);
        if (i == 0)
            assert_int_equal(n_buffers, 2 * spec.in_flight);
        else
            assert_true(n_buffers == n_submitted || n_buffers >= 40);
        assert_true(memory_then - before <= SIZE + ((uint64_t)4 << 20));
        for (int a = 0; a < n_buffers; a++)
            for (int b = 0; b < a; b++)
                assert_true((size_t)llabs(buffer[a] - buffer[b]) >= longest);
    }
    bench_free_places(&p);
    io_file_close(&f);
}

/* Pages that are cached are dropped before a buffered read, or the place is left out. */
static void test_cached_pages(void **state)
{
    (void)state;
    static uint8_t all[SIZE];
    struct io_file *f;
    struct bench_places p;
    struct bench_drive_row row;
    struct sl_err err = {0};
    struct bench_drive_spec spec = {.engine = "threads", .in_flight = 2, .seed = 3};
    assert_int_equal(io_file_open(path, false, &f, NULL), 0);
    assert_int_equal(io_file_read_any(f, all, 0, SIZE, NULL), 0); /* now they are cached */
    assert_int_equal(bench_list_file(f, PIECE, &p, NULL), 0);
    int rc = bench_measure_drive(&p, &spec, &row, &err);
    if (rc != 0) /* a file system that is memory */
        assert_non_null(strstr(err.msg, "page cache"));
    else
        assert_true(row.cached > 0 && !row.direct);
    bench_free_places(&p);
    io_file_close(&f);
}

/* Those that lie between the pages which are looked up, too. */
static void test_partly_cached(void **state)
{
    (void)state;
    struct io_file *f;
    struct bench_places p;
    struct bench_drive_row row;
    struct bench_drive_spec spec = {.engine = "plain", .in_flight = 2, .seed = 3};
    int fd = open(path, O_RDONLY | O_CLOEXEC), cached = 0, stayed = 0;
    assert_true(fd >= 0 && fsync(fd) == 0);
    assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM), 0);
    assert_int_equal(io_file_open(path, false, &f, NULL), 0);
    assert_int_equal(bench_list_file(f, PIECE, &p, NULL), 0);
    for (int64_t i = 0; i < p.n; i++) {
        const uint64_t at = p.slice[i].offset;
        char byte;
        stayed += io_file_cached(f, at, PIECE, 2) > 0;
        assert_int_equal(pread(fd, &byte, 1, (off_t)(at + PIECE / 2)), 1);
        cached += io_file_cached(f, at + PIECE / 2, 1, 1) > 0;
    }
    if (!stayed && cached) { /* no file system that is memory */
        forget_reads();
        assert_int_equal(bench_measure_drive(&p, &spec, &row, NULL), 0);
        assert_true(n_submitted > 0);
        assert_int_equal(n_middles_cached, 0);
    }
    bench_free_places(&p);
    io_file_close(&f);
    close(fd);
    if (stayed || !cached)
        skip();
}

static uint64_t stays; /* the first so many bytes of the file */

static int cached_begin(int fd, uint64_t offset, bool by_map)
{
    (void)fd;
    (void)by_map;
    return offset < stays;
}

/* Places whose pages stay are left out, are no reads, and are counted. */
static void test_pages_that_stay(void **state)
{
    (void)state;
    struct io_syscalls sys = io_real_syscalls;
    struct io_file *f;
    struct bench_places p;
    struct bench_drive_row row;
    struct sl_err err = {0};
    struct bench_drive_spec spec = {.engine = "plain", .in_flight = 8};
    sys.cached = cached_begin;
    io_syscalls_replace(&sys);
    assert_int_equal(io_file_open(path, false, &f, NULL), 0);
    assert_int_equal(bench_list_file(f, SIZE / 16 / 4096 * 4096, &p, NULL), 0);
    for (int n = 0; n <= 16; n += 4) {
        stays = (uint64_t)n * p.bytes_most;
        spec.seed = (uint64_t)n;
        forget_reads();
        int rc = bench_measure_drive(&p, &spec, &row, &err);
        assert_int_equal(rc, n == 16 ? SL_E_UNSUPPORTED : 0);
        for (int i = 0; i < n_submitted; i++)
            assert_true(begins[i] >= stays);
        assert_int_equal(row.groups, n_submitted);
        assert_int_equal(row.reads, n_submitted);
        assert_true((row.skipped > 0) == (n > 0) && (row.cached > 0) == (n > 0));
    }
    bench_free_places(&p);
    io_file_close(&f);
    io_syscalls_replace(NULL);
}

static void test_failing_file(void **state)
{
    (void)state;
    char other[256];
    struct io_file *f;
    struct bench_places p;
    struct bench_drive_row row;
    struct sl_err err = {0};
    double gb_s = 0;
    struct bench_drive_spec spec = {.engine = "auto", .in_flight = 4, .seconds = 5, .seed = 3};
    uint64_t before = mem_now();
    assert_int_equal(temp_create(".", SIZE, other), 0);
    assert_int_equal(io_file_open(other, true, &f, NULL), 0);
    assert_int_equal(bench_probe_drive(f, PIECE, 4, 0.01, &gb_s, &err), 0);
    assert_true(gb_s > 0);
    assert_int_equal(bench_list_file(f, PIECE, &p, NULL), 0);
    assert_int_equal(truncate(other, 0), 0);
    assert_int_equal(bench_measure_drive(&p, &spec, &row, &err), SL_E_IO);
    assert_non_null(strstr(err.where, other));
    spec.engine = "none";
    assert_int_equal(bench_measure_drive(&p, &spec, &row, &err), SL_E_ARG);
    bench_free_places(&p);
    io_file_close(&f);
    assert_int_equal(mem_now(), before);
    assert_int_equal(unlink(other), 0);
}

static int set_up(void **state)
{
    (void)state;
    return temp_create(".", SIZE, path);
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places_of_a_file),
        cmocka_unit_test(test_places_of_experts),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_direct_of_all_files),
        cmocka_unit_test(test_rate),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_cached_pages),
        cmocka_unit_test(test_partly_cached),
        cmocka_unit_test(test_pages_that_stay),
        cmocka_unit_test(test_failing_file),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
