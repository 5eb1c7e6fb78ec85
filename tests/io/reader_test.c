/* reader_test.c: every engine gives every request back once, with the right bytes or the reason. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/size.h"
#include "io/fake.h"
#include "io/reader.h"
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

#define SIZE     ((uint64_t)(4 << 20) + 777)
#define N_REQS   48
#define LEN_MOST ((size_t)128 << 10)

static char path[256];
static struct io_file *file;
static uint8_t *arena; /* N_REQS windows of LEN_MOST + 2 pages */
static size_t window;

struct slot {
    struct io_req req;
    uint64_t from;
    size_t n;
    bool open;
};
static struct slot slots[N_REQS];

static const struct io_fake_script calm = {.fail_at = -1, .short_at = -1};

/* What every engine must do, the fake one too. Where io_uring is forbidden "uring" is another
 * engine's second turn, and the note says why. */
static const char *const engines[] = {"auto", "uring", "threads", "plain", "fake"};
#define N_ENGINES 5

static struct io_reader *open_engine(const char *name, int in_flight)
{
    struct io_reader *r;
    const char *note = "";
    int rc = strcmp(name, "fake") == 0 ? io_fake_create(&calm, in_flight, &r, NULL)
                                       : io_reader_create(name, in_flight, 1, &r, &note, NULL);
    assert_int_equal(rc, 0);
    if (*note)
        print_message("%s\n", note);
    else if (strcmp(name, "auto") != 0)
        assert_string_equal(r->ops->name, name);
    return r;
}

static struct io_req *fill_slot(int i, uint64_t from, size_t n)
{
    size_t a = io_file_align(file);
    uint64_t start = size_down(from, a);
    struct slot *s = &slots[i];
    s->from = from;
    s->n = n;
    s->open = true;
    s->req = (struct io_req){.file = file,
                             .buf = arena + (size_t)i * window,
                             .offset = start,
                             .len = (size_t)size_up(from - start + n, a),
                             .need = (size_t)(from - start) + n,
                             .user = s};
    return &s->req;
}

static struct io_req *random_slot(int i, uint64_t *rng)
{
    size_t n = 1 + (size_t)(temp_random(rng) % LEN_MOST);
    return fill_slot(i, temp_random(rng) % (SIZE - n + 1), n);
}

static void check_done(const struct io_req *req)
{
    struct slot *s = req->user;
    assert_true(s->open);
    s->open = false;
    if (req->err.code != 0)
        fail_msg("%s: %s", req->err.where, req->err.msg);
    const uint8_t *p = (const uint8_t *)req->buf + (s->from - req->offset);
    assert_int_equal(temp_first_wrong(p, s->from, s->n), s->n);
}

/* Keeps random numbers of requests open until rounds of them have come back. */
static void stress(struct io_reader *r, uint64_t *rng, int rounds)
{
    int done = 0, open = 0;
    while (done < rounds || open > 0) {
        struct io_req *list = NULL;
        int n = 0, want = done < rounds ? 1 + (int)(temp_random(rng) % 8) : 0;
        for (int i = 0; i < N_REQS && n < want; i++) {
            if (slots[i].open)
                continue;
            struct io_req *req = random_slot(i, rng);
            req->next = list;
            list = req;
            n++;
        }
        io_reader_submit(r, list, n);
        open += n;
        assert_int_equal(r->open, open);
        struct io_req *next;
        for (list = io_reader_reap(r, open > 24 || n == 0); list; list = next) {
            next = list->next;
            check_done(list);
            done++;
            open--;
        }
        assert_int_equal(r->open, open);
    }
    assert_null(io_reader_reap(r, true));
    assert_null(io_reader_reap(r, false));
    assert_int_equal(r->n_reads, done);
    assert_true(r->bytes > 0);
    assert_true(r->busy_s > 0);
    assert_true(io_reader_busy(r) >= r->busy_s * 0.999);
}

static void test_stress(void **state)
{
    (void)state;
    uint64_t rng = temp_seed();
    static const int in_flight[] = {1, 2, 3, 16, 64};
    for (size_t e = 0; e < N_ENGINES; e++)
        for (size_t k = 0; k < sizeof in_flight / sizeof *in_flight; k++) {
            struct io_reader *r = open_engine(engines[e], in_flight[k]);
            stress(r, &rng, 200);
            io_reader_destroy(&r);
            assert_null(r);
        }
    for (int order = 0; order < 3; order++) {
        struct io_reader *r;
        struct io_fake_script s = calm;
        s.order = order;
        s.seed = rng;
        assert_int_equal(io_fake_create(&s, 4, &r, NULL), 0);
        stress(r, &rng, 200);
        io_reader_destroy(&r);
    }
}

static void test_create_refusals(void **state)
{
    (void)state;
    struct io_reader *r = (struct io_reader *)path;
    struct sl_err e;
    assert_int_equal(io_reader_create("magic", 4, 1, &r, NULL, &e), SL_E_ARG);
    assert_null(r);
    assert_non_null(strstr(e.msg, "threads"));
    assert_int_equal(io_reader_create("auto", 0, 1, &r, NULL, &e), SL_E_ARG);
    assert_int_equal(io_reader_create("auto", 1 << 20, 1, &r, NULL, &e), SL_E_ARG);
    struct io_fake_script s = calm;
    s.order = 3;
    assert_int_equal(io_fake_create(&s, 1, &r, &e), SL_E_ARG);
    uint64_t before = mem_now();
    for (int n = 0; n < 2; n++) {
        mem_fail_after(n);
        assert_int_equal(io_reader_create("threads", 4, 1, &r, NULL, &e), SL_E_MEM);
        mem_fail_after(n);
        assert_int_equal(io_fake_create(&calm, 4, &r, &e), SL_E_MEM);
        mem_fail_after(-1);
        assert_int_equal(mem_now(), before);
    }
    io_reader_destroy(&r);
    io_reader_destroy(NULL);
}

struct turn {
    struct io_reader *r;
    uint64_t rng;
};

static void *take_turn(void *arg)
{
    struct turn *t = arg;
    struct io_req *list = NULL;
    for (int i = 0; i < 16; i++) {
        struct io_req *req = random_slot(i, &t->rng);
        req->next = list;
        list = req;
    }
    io_reader_submit(t->r, list, 16);
    return NULL;
}

/* A thread may end while what it submitted is open; another one reaps it. */
static void test_threads_take_turns(void **state)
{
    (void)state;
    for (int e = 0; e < N_ENGINES; e++) {
        struct turn t = {.r = open_engine(engines[e], 4), .rng = 5};
        for (int round = 0; round < 20; round++) {
            pthread_t thread;
            assert_int_equal(pthread_create(&thread, NULL, take_turn, &t), 0);
            assert_int_equal(pthread_join(thread, NULL), 0);
            int n = 0;
            for (struct io_req *list, *next; (list = io_reader_reap(t.r, true));)
                for (; list; list = next, n++) {
                    next = list->next;
                    check_done(list);
                }
            assert_int_equal(n, 16);
        }
        io_reader_destroy(&t.r);
    }
}

/* A request that cannot be met fails alone. */
static void test_error_per_request(void **state)
{
    (void)state;
    for (int e = 0; e < N_ENGINES; e++) {
        struct io_reader *r = open_engine(engines[e], 3);
        struct io_req *a = fill_slot(0, 5000, 100), *b = fill_slot(1, SIZE - 10, 20);
        struct io_req *c = fill_slot(2, SIZE - 100, 100);
        a->next = b;
        b->next = c;
        b->err.code = 77; /* left over from an earlier use */
        io_reader_submit(r, a, 3);
        int failed = 0, n = 0;
        for (struct io_req *list, *next; (list = io_reader_reap(r, true));)
            for (; list; list = next, n++) {
                next = list->next;
                if (list == b) {
                    failed++;
                    assert_int_equal(b->err.code, SL_E_IO);
                    assert_string_equal(b->err.where, path);
                    slots[1].open = false;
                } else {
                    check_done(list);
                }
            }
        assert_int_equal(n, 3);
        assert_int_equal(failed, 1);
        io_reader_destroy(&r);
    }
}

/* Destroy with reads open: nothing touches the requests or buffers afterwards. */
static void test_destroy_with_open_reads(void **state)
{
    (void)state;
    uint64_t rng = 11;
    for (int round = 0; round < 10 * N_ENGINES; round++) {
        struct io_reader *r = open_engine(engines[round % N_ENGINES], 2);
        struct io_req *list = NULL;
        for (int i = 0; i < N_REQS; i++) {
            struct io_req *req = random_slot(i, &rng);
            req->next = list;
            list = req;
        }
        io_reader_submit(r, list, N_REQS);
        io_reader_destroy(&r);
        memset(arena, 0, N_REQS * window); /* a late write is for TSan to find */
        for (int i = 0; i < N_REQS; i++) {
            int code = slots[i].req.err.code;
            assert_true(code == 0 || code == SL_E_CANCELLED);
            slots[i].open = false;
        }
    }
}

static int order_of(const struct io_fake_script *script, int n, int *order)
{
    struct io_reader *r;
    assert_int_equal(io_fake_create(script, 4, &r, NULL), 0);
    struct io_req *list = NULL;
    for (int i = n - 1; i >= 0; i--) {
        struct io_req *req = fill_slot(i, (uint64_t)i * 1000, 500);
        req->next = list;
        list = req;
    }
    io_reader_submit(r, list, n);
    int k = 0;
    for (struct io_req *req; (req = io_reader_reap(r, true));) {
        assert_null(req->next);
        order[k++] = (int)((struct slot *)req->user - slots);
        check_done(req);
    }
    io_reader_destroy(&r);
    return k;
}

static void test_fake_order(void **state)
{
    (void)state;
    enum { N = 12 };
    int first[N], again[N], moved = 0;
    struct io_fake_script s = calm;
    assert_int_equal(order_of(&s, N, first), N);
    for (int i = 0; i < N; i++)
        assert_int_equal(first[i], i);
    s.order = 1;
    assert_int_equal(order_of(&s, N, first), N);
    for (int i = 0; i < N; i++)
        assert_int_equal(first[i], N - 1 - i);
    s.order = 2;
    s.seed = 3;
    assert_int_equal(order_of(&s, N, first), N);
    assert_int_equal(order_of(&s, N, again), N);
    assert_memory_equal(first, again, sizeof first);
    for (int i = 0; i < N; i++)
        moved += first[i] != i;
    assert_true(moved > 2);
}

static void test_fake_errors(void **state)
{
    (void)state;
    struct io_reader *r;
    struct io_fake_script s = calm;
    s.fail_at = 2;
    s.fail_errno = ENXIO;
    s.short_at = 4;
    s.fail_every = 7;
    assert_int_equal(io_fake_create(&s, 4, &r, NULL), 0);
    for (int i = 0; i < 21; i++) {
        struct io_req *req = fill_slot(i, 10000, 3000);
        req->next = NULL;
        io_reader_submit(r, req, 1);
        assert_int_equal(((uint8_t *)req->buf)[0], 0xee); /* nothing there before completion */
        assert_ptr_equal(io_reader_reap(r, true), req);
        if (i == 2 || i % 7 == 6) {
            assert_int_equal(req->err.code, SL_E_IO);
            assert_non_null(strstr(req->err.msg, strerror(ENXIO)));
            slots[i].open = false;
        } else if (i == 4) {
            assert_int_equal(req->err.code, SL_E_IO);
            assert_non_null(strstr(req->err.msg, "ends after"));
            slots[i].open = false;
        } else {
            check_done(req);
        }
    }
    io_reader_destroy(&r);
}

static void test_fake_delay(void **state)
{
    (void)state;
    struct io_reader *r;
    struct io_fake_script s = calm;
    s.delay_s = 0.02;
    assert_int_equal(io_fake_create(&s, 2, &r, NULL), 0);
    double t = clock_now();
    struct io_req *list = NULL;
    for (int i = 0; i < 4; i++) {
        struct io_req *req = fill_slot(i, 0, 100);
        req->next = list;
        list = req;
    }
    io_reader_submit(r, list, 4);
    struct io_req *req = io_reader_reap(r, false);
    assert_true(!req || clock_now() - t >= s.delay_s); /* not yet */
    assert_true(io_reader_busy(r) > 0);
    int n = 0;
    for (req = req ? req : io_reader_reap(r, true); req; req = io_reader_reap(r, true), n++)
        check_done(req);
    t = clock_now() - t;
    assert_int_equal(n, 4);
    assert_true(t >= 0.04); /* four reads on two lanes */
    assert_true(r->busy_s >= 0.04 && r->busy_s <= t * 1.001);
    io_reader_destroy(&r);
}

/* Time without an open read is not busy time, whether or not somebody reaps: the engine that has
 * threads sees the end itself, the others when they are asked. */
static void test_busy_time(void **state)
{
    (void)state;
    struct io_reader *r;
    assert_int_equal(io_reader_create("threads", 2, 1, &r, NULL, NULL), 0);
    assert_true(io_reader_busy(r) == 0);
    struct io_req *req = fill_slot(0, 0, LEN_MOST);
    req->next = NULL;
    io_reader_submit(r, req, 1);
    double busy = -1, limit = clock_now() + 60;
    while (busy != io_reader_busy(r) && clock_now() < limit) { /* until the read has ended */
        busy = io_reader_busy(r);
        clock_sleep(0.002);
    }
    assert_true(busy > 0);
    check_done(io_reader_reap(r, true));
    clock_sleep(0.02);
    assert_true(io_reader_busy(r) == busy);
    assert_true(r->busy_s == busy);
    assert_int_equal(r->bytes, slots[0].req.len);
    io_reader_destroy(&r);
}

static int set_up(void **state)
{
    (void)state;
    if (temp_create(".", SIZE, path) != 0 || io_file_open(path, true, &file, NULL) != 0)
        return -1;
    printf("direct: %d %s\n", io_file_direct(file), io_file_note(file));
    window = LEN_MOST + 2 * io_file_align(file);
    arena = mem_map(N_REQS * window, 0);
    return arena ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    mem_unmap(arena, N_REQS * window);
    io_file_close(&file);
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stress),
        cmocka_unit_test(test_create_refusals),
        cmocka_unit_test(test_error_per_request),
        cmocka_unit_test(test_threads_take_turns),
        cmocka_unit_test(test_destroy_with_open_reads),
        cmocka_unit_test(test_fake_order),
        cmocka_unit_test(test_fake_errors),
        cmocka_unit_test(test_fake_delay),
        cmocka_unit_test(test_busy_time),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
