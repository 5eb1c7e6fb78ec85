/* drive_test.c: what the measurement of a drive reads and says about itself; no speed is judged. */
#include "bench/drive.h"

#include "base/mem.h"
#include "io/temp_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
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

/* The buffers of reads, those used before left out. */
static const void *buffer[512];
static int n_buffers, n_submitted;

void __wrap_io_reader_submit(struct io_reader *r, struct io_req *list, int n);
void __real_io_reader_submit(struct io_reader *r, struct io_req *list, int n);

void __wrap_io_reader_submit(struct io_reader *r, struct io_req *list, int n)
{
    for (const struct io_req *q = list; q; q = q->next, n_submitted++) {
        int i = 0;
        while (i < n_buffers && buffer[i] != q->buf)
            i++;
        if (i == n_buffers && n_buffers < (int)(sizeof buffer / sizeof buffer[0]))
            buffer[n_buffers++] = q->buf;
    }
    __real_io_reader_submit(r, list, n);
}

/* All of the memory is read into before any of it a second time; without room for them, as many
 * buffers as reads may be open. */
static void test_memory(void **state)
{
    (void)state;
    struct io_file *f;
    struct bench_places p;
    assert_int_equal(io_file_open(path, true, &f, NULL), 0);
    assert_int_equal(bench_list_file(f, PIECE, &p, NULL), 0);
    const size_t room = 2 * mem_page_size() + PIECE;
    for (int i = 0; i < 3; i++) {
        struct bench_drive_row row;
        struct bench_drive_spec spec = {.engine = i == 2 ? "plain" : "threads",
                                        .in_flight = 2,
                                        .seconds = 0.1,
                                        .seed = 5,
                                        .memory = i == 0 ? 1 : 40 * room};
        n_buffers = n_submitted = 0;
        assert_int_equal(bench_measure_drive(&p, &spec, &row, NULL), 0);
        assert_true(n_submitted >= 2 * spec.in_flight && row.reads == (uint64_t)n_submitted);
        if (i == 0)
            assert_int_equal(n_buffers, 2 * spec.in_flight);
        else
            assert_true(n_buffers == n_submitted || n_buffers >= 40);
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
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_cached_pages),
        cmocka_unit_test(test_failing_file),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
