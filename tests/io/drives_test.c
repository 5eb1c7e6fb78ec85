/* drives_test.c: each drive has its own reads in flight, and reads of one never wait for reads of
 * another. */
#include "io/drives.h"

#include "base/mem.h"
#include "io/reader.h"
#include "io/syscalls.h"
#include "io/temp_file.h"
#include "support/drives.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef SLUICE_URING
#include <liburing.h>

#include "io/uring.h"
#endif

#define DRIVES   2
#define LEN      ((size_t)16 << 10)
#define N_SLOW   20 /* reads of drive 0, submitted first */
#define N_FAST   7  /* then those of drive 1 */
#define N_REQS   (N_SLOW + N_FAST)
#define SIZE     (N_SLOW * LEN)
#define EACH     3
#define PATIENCE 30 /* seconds until a read that is held back is let go, and the test fails */

static char paths[DRIVES][256];
static struct io_file *files[DRIVES];
static uint8_t *arena;
static struct io_req reqs[N_REQS];

/* What the simulated drives see; under lock. Reads of drive 0 end when hold ones of drive 1 have.
 */
static struct {
    int open[DRIVES], most[DRIVES], ended[DRIVES];
    int hold;
    bool impatient;
} seen;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;

static void count_begun(int d)
{
    if (++seen.open[d] > seen.most[d])
        seen.most[d] = seen.open[d];
}

static ssize_t slow_pread(int fd, void *buf, size_t n, off_t offset)
{
    struct stat st;
    if (io_syscalls_get()->fstat(fd, &st) != 0)
        return -1;
    const int d = drives_claimed(&st);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE;
    pthread_mutex_lock(&lock);
    count_begun(d);
    while (d == 0 && seen.ended[1] < seen.hold && !seen.impatient)
        if (pthread_cond_timedwait(&ended, &lock, &until) == ETIMEDOUT)
            seen.impatient = true;
    pthread_mutex_unlock(&lock);
    ssize_t got = io_real_syscalls.pread(fd, buf, n, offset);
    pthread_mutex_lock(&lock);
    seen.open[d]--;
    seen.ended[d]++;
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&lock);
    return got;
}

static void open_files(bool slow)
{
    static struct io_syscalls calls;
    drives_pretend(DRIVES);
    for (int d = 0; d < DRIVES; d++)
        assert_int_equal(io_file_open(paths[d], true, &files[d], NULL), 0);
    assert_true(io_file_drive(files[0]) != io_file_drive(files[1]));
    memset(&seen, 0, sizeof seen); /* without the probes of opening */
    if (!slow)
        return;
    for (int d = 0; d < DRIVES; d++)
        io_file_close(&files[d]);
    calls = *io_syscalls_get();
    calls.pread = slow_pread;
    io_syscalls_replace(&calls);
    for (int d = 0; d < DRIVES; d++)
        assert_int_equal(io_file_open(paths[d], true, &files[d], NULL), 0);
    memset(&seen, 0, sizeof seen);
    seen.hold = N_FAST;
}

static void close_files(void)
{
    for (int d = 0; d < DRIVES; d++)
        io_file_close(&files[d]);
    drives_pretend(0);
}

static void submit_all(struct io_reader *r)
{
    for (int i = 0; i < N_REQS; i++) {
        const int d = i >= N_SLOW;
        reqs[i] = (struct io_req){.file = files[d],
                                  .buf = arena + (size_t)i * LEN,
                                  .offset = (uint64_t)(d ? i - N_SLOW : i) * LEN,
                                  .len = LEN,
                                  .need = LEN,
                                  .next = i + 1 < N_REQS ? &reqs[i + 1] : NULL};
    }
    memset(arena, 0xee, N_REQS * LEN);
    io_reader_submit(r, reqs, N_REQS);
}

static void reap_all(struct io_reader *r)
{
    int n = 0;
    for (struct io_req *list; (list = io_reader_reap(r, true));)
        for (; list; list = list->next, n++) {
            assert_int_equal(list->err.code, 0);
            size_t right = temp_first_wrong(list->buf, list->offset, list->need);
            assert_int_equal(right, list->need);
        }
    assert_int_equal(n, N_REQS);
}

static void test_numbers(void **state)
{
    (void)state;
    open_files(false);
    struct io_drives d = {0}, one = {0};
    for (int round = 0; round < 2; round++) {
        assert_int_equal(io_drives_find(&d, IO_DRIVES_MAX, files[0]), 0);
        assert_int_equal(io_drives_find(&d, IO_DRIVES_MAX, files[1]), 1);
        assert_int_equal(io_drives_find(&one, 1, files[1]), 0);
        assert_int_equal(io_drives_find(&one, 1, files[0]), 0); /* more than were told of */
    }
    assert_int_equal(d.n, 2);
    assert_int_equal(one.n, 1);
    close_files();
    struct io_file *again;
    assert_int_equal(io_file_open(paths[0], true, &files[0], NULL), 0);
    assert_int_equal(io_file_open(paths[1], true, &again, NULL), 0);
    assert_true(io_file_drive(files[0]) == io_file_drive(again)); /* the truth */
    io_file_close(&again);
    io_file_close(&files[0]);
}

static void test_refusals(void **state)
{
    (void)state;
    struct io_reader *r;
    struct sl_err err;
    assert_int_equal(io_reader_create("threads", 4, 0, &r, NULL, &err), SL_E_ARG);
    assert_int_equal(io_reader_create("threads", 4, IO_DRIVES_MAX + 1, &r, NULL, &err), SL_E_ARG);
    assert_string_equal(err.where, "drives");
    assert_int_equal(io_reader_create("threads", 65, 16, &r, NULL, &err), SL_E_ARG);
    assert_non_null(strstr(err.msg, "64"));
}

/* Reads of drive 0 do not end before all of drive 1 have. */
static void test_threads(void **state)
{
    (void)state;
    struct io_reader *r;
    open_files(true);
    assert_int_equal(io_reader_create("threads", EACH, DRIVES, &r, NULL, NULL), 0);
    submit_all(r);
    reap_all(r);
    io_reader_destroy(&r);
    assert_false(seen.impatient);
    assert_int_equal(seen.most[0], EACH);
    assert_in_range(seen.most[1], 1, EACH);
    close_files();
}

/* A reader made for one drive counts all files as on it. */
static void test_one_drive(void **state)
{
    (void)state;
    struct io_reader *r;
    open_files(true);
    seen.hold = 0;
    assert_int_equal(io_reader_create("threads", EACH, 1, &r, NULL, NULL), 0);
    submit_all(r);
    reap_all(r);
    io_reader_destroy(&r);
    assert_in_range(seen.most[0], 1, EACH);
    assert_in_range(seen.most[1], 1, EACH);
    close_files();
}

/* With reads of both drives open and waiting. */
static void test_destroy(void **state)
{
    (void)state;
    static const char *const engines[] = {"uring", "threads", "plain"};
    for (int e = 0; e < 3; e++) {
        struct io_reader *r;
        open_files(false);
        assert_int_equal(io_reader_create(engines[e], EACH, DRIVES, &r, NULL, NULL), 0);
        submit_all(r);
        io_reader_destroy(&r);
        for (int i = 0; i < N_REQS; i++)
            assert_true(reqs[i].err.code == 0 || reqs[i].err.code == SL_E_CANCELLED);
        close_files();
    }
}

#ifdef SLUICE_URING
/* The drive of each operation in the kernel, by its number. */
static int drive_of[DRIVES * EACH];

static int counting_submit(struct io_uring *ring)
{
    const struct io_uring_sq *sq = &ring->sq;
    for (unsigned i = sq->sqe_head; i != sq->sqe_tail; i++) {
        const struct io_uring_sqe *sqe = &sq->sqes[i & sq->ring_mask];
        const int d = sqe->addr >= (uintptr_t)(arena + N_SLOW * LEN);
        assert_in_range(sqe->user_data, 0, DRIVES * EACH - 1);
        drive_of[sqe->user_data] = d;
        count_begun(d);
    }
    return io_real_ring_calls.submit(ring);
}

static int counting_peek(struct io_uring *ring, struct io_uring_cqe **cqe)
{
    int rc = io_real_ring_calls.peek(ring, cqe);
    if (rc == 0)
        seen.open[drive_of[(*cqe)->user_data]]--;
    return rc;
}

/* Both drives' reads go out with the first submission although drive 0's fill its queue. */
static void test_uring(void **state)
{
    (void)state;
    struct io_ring_calls calls = io_real_ring_calls;
    struct io_reader *r;
    const char *note;
    calls.submit = counting_submit;
    calls.peek = counting_peek;
    io_ring_calls_replace(&calls);
    open_files(false);
    assert_int_equal(io_reader_create("uring", EACH, DRIVES, &r, &note, NULL), 0);
    const bool has_ring = *note == '\0';
    if (has_ring) {
        submit_all(r);
        assert_int_equal(seen.open[0], EACH);
        assert_int_equal(seen.open[1], EACH);
        reap_all(r);
        assert_int_equal(seen.open[0] + seen.open[1], 0);
        assert_int_equal(seen.most[0], EACH);
        assert_int_equal(seen.most[1], EACH);
    } else {
        print_message("%s\n", note);
    }
    io_reader_destroy(&r);
    io_ring_calls_replace(NULL);
    close_files();
    if (!has_ring)
        skip();
}
#endif

static int set_up(void **state)
{
    (void)state;
    for (int d = 0; d < DRIVES; d++)
        if (temp_create(".", SIZE, paths[d]) != 0)
            return -1;
    arena = mem_map(N_REQS * LEN, 0);
    return arena ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    mem_unmap(arena, N_REQS * LEN);
    return unlink(paths[0]) | unlink(paths[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_threads), cmocka_unit_test(test_one_drive),
        cmocka_unit_test(test_destroy),
#ifdef SLUICE_URING
        cmocka_unit_test(test_uring),
#endif
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
