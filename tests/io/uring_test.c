/* uring_test.c: a kernel that forbids io_uring, is too busy, interrupts, cancels, cuts reads short;
 * offsets that take more than 32 bits. */
#include "io/uring.h"

#include "base/mem.h"
#include "base/size.h"
#include "io/reader.h"
#include "io/temp_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SIZE     ((uint64_t)(2 << 20) + 1234)
#define LEN_MOST ((size_t)96 << 10)
#define N_REQS   32
#define SKIP     77

static char path[256];
static uint8_t *arena;
static size_t window;

/* What the kernel under test does; counted over all calls. */
static struct {
    int open_rc;     /* of ring setup, if below 0 */
    int submit_rc;   /* of the next submit_busy submissions */
    int submit_busy; /* -1: of all */
    int wait_rc;     /* of the next wait_fails waits */
    int wait_fails;
    int result; /* of every result_every-th completion; 1: half of what was read */
    int result_every, results_left;
    int n_seen, n_changed;
} kernel;

static int test_open(struct io_uring *ring, unsigned n)
{
    return kernel.open_rc < 0 ? kernel.open_rc : io_real_ring_calls.open(ring, n);
}

static int test_submit(struct io_uring *ring)
{
    if (kernel.submit_busy != 0) {
        kernel.submit_busy -= kernel.submit_busy > 0;
        return kernel.submit_rc;
    }
    return io_real_ring_calls.submit(ring);
}

static void change(struct io_uring_cqe *cqe)
{
    if (!kernel.result_every || ++kernel.n_seen % kernel.result_every || kernel.results_left == 0 ||
        cqe->res <= 0)
        return;
    kernel.results_left -= kernel.results_left > 0;
    kernel.n_changed++;
    cqe->res = kernel.result == 1 ? (cqe->res + 1) / 2 : kernel.result;
}

static int test_peek(struct io_uring *ring, struct io_uring_cqe **cqe)
{
    int rc = io_real_ring_calls.peek(ring, cqe);
    if (rc == 0)
        change(*cqe);
    return rc;
}

static int test_wait(struct io_uring *ring, struct io_uring_cqe **cqe)
{
    if (kernel.wait_fails > 0) {
        kernel.wait_fails--;
        return kernel.wait_rc;
    }
    return io_real_ring_calls.wait(ring, cqe);
}

static const struct io_ring_calls test_calls = {
    .open = test_open, .submit = test_submit, .peek = test_peek, .wait = test_wait};

/* Reads N_REQS random places of f; returns how many failed. Those that came back right are
 * compared. */
static int read_all(struct io_reader *r, struct io_file *f, uint64_t *rng, struct sl_err *last)
{
    static struct io_req req[N_REQS];
    size_t a = io_file_align(f);
    struct io_req *list = NULL;
    for (int i = 0; i < N_REQS; i++) {
        size_t n = 1 + (size_t)(temp_random(rng) % LEN_MOST);
        uint64_t from = temp_random(rng) % (SIZE - n + 1);
        if (i == 0) /* the unaligned end */
            from = SIZE - n;
        uint64_t start = size_down(from, a);
        req[i] = (struct io_req){.file = f,
                                 .buf = arena + (size_t)i * window,
                                 .offset = start,
                                 .len = (size_t)size_up(from - start + n, a),
                                 .need = (size_t)(from - start) + n,
                                 .next = list};
        list = &req[i];
    }
    memset(arena, 0xee, N_REQS * window);
    io_reader_submit(r, list, N_REQS);
    int n = 0, failed = 0;
    for (struct io_req *next; (list = io_reader_reap(r, true));)
        for (; list; list = next, n++) {
            next = list->next;
            if (list->err.code) {
                failed++;
                *last = list->err;
                continue;
            }
            size_t wrong = temp_first_wrong(list->buf, list->offset, list->need);
            assert_int_equal(wrong, list->need);
        }
    assert_int_equal(n, N_REQS);
    assert_int_equal(r->open, 0);
    return failed;
}

static int run_kernel(bool direct, struct sl_err *last)
{
    struct io_file *f;
    struct io_reader *r;
    const char *note;
    uint64_t rng = 42;
    kernel.n_seen = kernel.n_changed = 0;
    assert_int_equal(io_file_open(path, direct, &f, NULL), 0);
    io_file_drop_behind(f, !direct);
    assert_int_equal(io_reader_create("uring", 4, 1, &r, &note, NULL), 0);
    assert_string_equal(note, "");
    int failed = read_all(r, f, &rng, last);
    io_reader_destroy(&r);
    io_file_close(&f);
    return failed;
}

static void reset(void **state)
{
    (void)state;
    memset(&kernel, 0, sizeof kernel);
}

static void test_fallbacks(void **state)
{
    static const struct {
        int rc;
        const char *word;
    } cases[] = {{-EPERM, "forbidden"},
                 {-EACCES, "forbidden"},
                 {-ENOSYS, "no io_uring"},
                 {-ENOMEM, "set up"}};
    static const char *const names[] = {"auto", "uring"};
    for (int i = 0; i < 8; i++) {
        struct io_reader *r;
        const char *note;
        struct sl_err err;
        reset(state);
        kernel.open_rc = cases[i / 2].rc;
        assert_int_equal(io_reader_create(names[i % 2], 4, 1, &r, &note, &err), 0);
        assert_string_equal(r->ops->name, "threads");
        assert_non_null(strstr(note, cases[i / 2].word));
        assert_non_null(strstr(note, "threads instead of uring"));
        assert_null(strchr(note, '\n'));
        io_reader_destroy(&r);
    }
    uint64_t before = mem_now();
    for (int n = 0; n < 2; n++) {
        struct io_reader *r;
        struct sl_err err;
        reset(state);
        mem_fail_after(n);
        assert_int_equal(io_reader_create("uring", 4, 1, &r, NULL, &err), SL_E_MEM);
        mem_fail_after(-1);
        assert_null(r);
        assert_int_equal(mem_now(), before);
    }
}

/* Short, interrupted and cancelled reads go on where they were. */
static void test_reads_go_on(void **state)
{
    static const int results[] = {1, -EINTR, -EAGAIN, -ECANCELED, -EINVAL, -EOPNOTSUPP};
    struct sl_err err = {0};
    for (int i = 0; i < 12; i++) {
        reset(state);
        kernel.result = results[i / 2];
        kernel.result_every = 3;
        kernel.results_left = -1;
        if (run_kernel(i % 2 == 0, &err) != 0)
            fail_msg("result %d: %s", kernel.result, err.msg);
        assert_true(kernel.n_changed > 5);
    }
    /* every completion: without end, but for the bound on tries */
    for (int i = 0; i < 12; i++) {
        reset(state);
        kernel.result = results[i / 2];
        kernel.result_every = 1;
        kernel.results_left = -1;
        if (run_kernel(i % 2 == 0, &err) != 0)
            fail_msg("result %d always: %s", kernel.result, err.msg);
    }
}

static void test_errors_fail_alone(void **state)
{
    struct sl_err err = {0};
    reset(state);
    kernel.result = -EIO;
    kernel.result_every = 4;
    kernel.results_left = 3;
    assert_int_equal(run_kernel(true, &err), 3);
    assert_int_equal(err.code, SL_E_IO);
    assert_string_equal(err.where, path);
    assert_non_null(strstr(err.msg, strerror(EIO)));
    assert_non_null(strstr(err.msg, "offset"));
}

/* A kernel that is short of memory for a while, and one that never takes a submission. */
static void test_busy_kernel(void **state)
{
    struct sl_err err = {0};
    reset(state);
    kernel.submit_rc = -EAGAIN;
    kernel.submit_busy = 7;
    assert_int_equal(run_kernel(true, &err), 0);
    reset(state);
    kernel.wait_rc = -EINTR;
    kernel.wait_fails = 5;
    assert_int_equal(run_kernel(true, &err), 0);
    reset(state);
    kernel.wait_rc = -ENOMEM;
    kernel.wait_fails = 3;
    assert_int_equal(run_kernel(false, &err), 0);
    reset(state);
    kernel.submit_rc = -EBUSY;
    kernel.submit_busy = -1;
    assert_int_equal(run_kernel(true, &err), 0);
}

/* Reader destroyed while the kernel refuses, or has all in hand. */
static void test_destroy(void **state)
{
    for (int busy = 0; busy < 2; busy++) {
        struct io_file *f;
        struct io_reader *r;
        static struct io_req req[N_REQS];
        reset(state);
        kernel.submit_rc = -EBUSY;
        kernel.submit_busy = -busy;
        assert_int_equal(io_file_open(path, true, &f, NULL), 0);
        assert_int_equal(io_reader_create("uring", 8, 1, &r, NULL, NULL), 0);
        for (int i = 0; i < N_REQS; i++)
            req[i] = (struct io_req){.file = f,
                                     .buf = arena + (size_t)i * window,
                                     .len = window,
                                     .need = window,
                                     .next = i + 1 < N_REQS ? &req[i + 1] : NULL};
        io_reader_submit(r, req, N_REQS);
        io_reader_destroy(&r);
        memset(arena, 0, N_REQS * window);
        for (int i = 0; i < N_REQS; i++)
            assert_true(req[i].err.code == SL_E_CANCELLED || (!busy && req[i].err.code == 0));
        io_file_close(&f);
    }
}

/* A descriptor and an address that come again belong to another file now. */
static void test_reopened_file(void **state)
{
    struct io_reader *r;
    struct io_file *f;
    struct sl_err err = {0};
    uint64_t rng = 9;
    char other[256];
    reset(state);
    assert_int_equal(io_reader_create("uring", 4, 1, &r, NULL, NULL), 0);
    assert_int_equal(io_file_open(path, true, &f, NULL), 0);
    assert_int_equal(read_all(r, f, &rng, &err), 0);
    io_file_close(&f);
    assert_int_equal(temp_create(".", 4096, other), 0);
    assert_int_equal(truncate(other, 0), 0);
    assert_int_equal(truncate(other, (off_t)SIZE), 0); /* zeros */
    assert_int_equal(io_file_open(other, true, &f, NULL), 0);
    struct io_req req = {.file = f, .buf = arena, .len = window, .need = window};
    memset(arena, 0xee, window);
    io_reader_submit(r, &req, 1);
    assert_ptr_equal(io_reader_reap(r, true), &req);
    assert_int_equal(req.err.code, 0);
    for (size_t i = 0; i < window; i++)
        assert_int_equal(arena[i], 0);
    io_reader_destroy(&r);
    io_file_close(&f);
    assert_int_equal(unlink(other), 0);
}

/* A sparse file of 5 GiB: bytes behind 2 and 4 GiB. */
static void test_large_offsets(void **state)
{
    static const uint64_t at[] = {((uint64_t)2 << 30) - 3, ((uint64_t)4 << 30) + 5};
    struct io_reader *r;
    struct io_file *f;
    char big[256];
    reset(state);
    assert_int_equal(temp_create(".", 4096, big), 0);
    int fd = open(big, O_WRONLY);
    assert_true(fd >= 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pwrite(fd, "sluice", 6, (off_t)at[i]), 6);
    close(fd);
    assert_int_equal(io_file_open(big, true, &f, NULL), 0);
    assert_int_equal(io_reader_create("uring", 4, 1, &r, NULL, NULL), 0);
    for (int i = 0; i < 2; i++) {
        uint64_t start = size_down(at[i], io_file_align(f));
        size_t skip = (size_t)(at[i] - start);
        struct io_req req = {.file = f,
                             .buf = arena,
                             .offset = start,
                             .len = 2 * io_file_align(f),
                             .need = skip + 6};
        io_reader_submit(r, &req, 1);
        assert_ptr_equal(io_reader_reap(r, true), &req);
        assert_int_equal(req.err.code, 0);
        assert_memory_equal(arena + skip, "sluice", 6);
    }
    io_reader_destroy(&r);
    io_file_close(&f);
    assert_int_equal(unlink(big), 0);
}

static int set_up(void **state)
{
    (void)state;
    struct io_file *f;
    if (temp_create(".", SIZE, path) != 0 || io_file_open(path, true, &f, NULL) != 0)
        return -1;
    printf("direct: %d %s\n", io_file_direct(f), io_file_note(f));
    window = LEN_MOST + 2 * io_file_align(f);
    io_file_close(&f);
    arena = mem_map(N_REQS * window, 0);
    io_ring_calls_replace(&test_calls);
    return arena ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    io_ring_calls_replace(NULL);
    mem_unmap(arena, N_REQS * window);
    return unlink(path);
}

int main(void)
{
    struct io_reader *r;
    const char *note;
    if (io_reader_create("uring", 1, 1, &r, &note, NULL) != 0 || *note) {
        printf("skipped: %s\n", note);
        return SKIP;
    }
    io_reader_destroy(&r);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fallbacks),         cmocka_unit_test(test_reads_go_on),
        cmocka_unit_test(test_errors_fail_alone), cmocka_unit_test(test_busy_kernel),
        cmocka_unit_test(test_destroy),           cmocka_unit_test(test_reopened_file),
        cmocka_unit_test(test_large_offsets),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
