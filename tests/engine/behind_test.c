/* Weights that are loaded while the first tokens are evaluated: whatever the drive does, the bytes
 * of a model that was loaded first, or the error of the read that failed; and nothing left behind,
 * however early the engine is closed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/start.h"
#include "engine/engine.h"
#include "io/fake.h"
#include "io/syscalls.h"
#include "model/loading.h"
#include "support/drives.h"
#include "support/fixtures.h"
#include "support/ggufsplit.h"
#include "support/pack.h"
#include "support/run.h"

#define N_PROMPT 12
#define N_ALL    16

static struct fixture *set, *model;
static int n_set;
static struct run_result first; /* loaded first, everything in memory */
static char split[512];         /* first of three shards */
static char packed[512];        /* a tree of the experts */

static struct sl_engine_options options(bool streamed)
{
    struct sl_engine_options o;
    sl_engine_options_init(&o);
    o.threads = 2;
    o.n_ctx = 64;
    o.ubatch = 5;
    o.stream = streamed ? SL_STREAM_ON : SL_STREAM_OFF;
    o.cache_slots = streamed ? model->topk + 1 : SL_CACHE_UNSET;
    o.cache_floor_mb = 0;
    o.load_behind = true;
    return o;
}

/* Readers come from scripts: the loader's is the last that is made. */
struct drive {
    struct io_fake_script load;
    bool streamed;
    int n_made;
};

static int make_fake(void *user, int in_flight, struct io_reader **out, struct sl_err *err)
{
    struct drive *d = user;
    static const struct io_fake_script well = {.fail_at = -1, .short_at = -1};
    bool loads = d->n_made++ == (d->streamed ? 1 : 0);
    return io_fake_create(loads ? &d->load : &well, in_flight, out, err);
}

static struct drive drive_of(bool streamed, struct io_fake_script load)
{
    return (struct drive){.load = load, .streamed = streamed};
}

/* The next tokens: the prompt's rest or one more. */
static int step(struct sl_session *s, struct sl_err *err)
{
    int at = sl_session_length(s), n = at < N_PROMPT ? N_PROMPT - at : 1;
    size_t width = (size_t)model->n_vocab;
    int rc = sl_session_eval(s, model->tokens + at, (size_t)n, n > 1 ? SL_PROMPT : SL_DECODE, err);
    if (rc == 0)
        assert_memory_equal(sl_session_logits(s),
                            first.logits + (size_t)(sl_session_length(s) - 1) * width,
                            width * sizeof(float));
    else
        assert_null(sl_session_logits(s));
    return rc;
}

static void evaluate_all(struct sl_session *s)
{
    struct sl_err err;
    while (sl_session_length(s) < N_ALL)
        if (step(s, &err) != 0)
            fail_msg("%s", err.msg);
}

static void open_both(const char *path, const struct sl_engine_options *o, struct drive *d,
                      struct sl_engine **e, struct sl_session **s)
{
    struct sl_err err;
    const struct engine_reader source = {make_fake, d};
    if (engine_open_with(path, o, d ? &source : NULL, e, &err) != 0 ||
        sl_session_open(*e, s, &err) != 0)
        fail_msg("%s", err.msg);
}

/* Told by the thread that evaluates, never going back. */
static struct progress {
    uint64_t done, total;
    pthread_t by;
    struct sl_session *cancel; /* and nobody goes on before that is seen */
    sem_t *held;               /* who waits to be told */
    int bad, n;
} progress;

static void on_load(void *user, uint64_t done, uint64_t total)
{
    struct progress *p = user;
    p->bad += done <= p->done || done > total || (p->total != 0 && total != p->total) ||
              !pthread_equal(pthread_self(), p->by);
    p->done = done;
    p->total = total;
    p->n++;
    if (p->cancel)
        sl_session_cancel(p->cancel);
    else if (p->held)
        sem_post(p->held);
}

/* After its first read the loader waits until somebody waits for it: for a block, or its end. Step
 * by step: before each read, which then takes its time. */
#define STEP_S 1e-3
static struct hold {
    bool on;
    atomic_bool steps;
    bool waits;   /* an evaluation does, for the loader */
    int n_reaped; /* by the loader */
    sem_t told;
} hold;

int __wrap_pthread_join(pthread_t thread, void **result);
int __real_pthread_join(pthread_t thread, void **result);

int __wrap_pthread_join(pthread_t thread, void **result)
{
    static const pthread_t none;
    assert_memory_not_equal(&thread, &none, sizeof none);
    hold.steps = false;
    if (hold.on)
        sem_post(&hold.told);
    return __real_pthread_join(thread, result);
}

int __wrap_loading_wait(struct loading *ld, int block, const _Atomic int *cancel,
                        struct sl_err *err);
int __real_loading_wait(struct loading *ld, int block, const _Atomic int *cancel,
                        struct sl_err *err);

int __wrap_loading_wait(struct loading *ld, int block, const _Atomic int *cancel,
                        struct sl_err *err)
{
    hold.waits = true;
    int rc = __real_loading_wait(ld, block, cancel, err);
    hold.waits = false;
    return rc;
}

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock);
int __real_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock);

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock)
{
    if (hold.steps && pthread_equal(pthread_self(), progress.by) && hold.waits)
        sem_post(&hold.told);
    return __real_pthread_cond_wait(cond, lock);
}

/* What came from a reader after the first read that failed. */
static struct broken {
    const struct io_reader *reader;
    int after;
} broken;
static pthread_mutex_t watching = PTHREAD_MUTEX_INITIALIZER;

static void watch_failures(const struct io_reader *reader, const struct io_req *r)
{
    for (; r; r = r->next) {
        if (broken.reader == reader)
            broken.after++;
        else if (r->err.code != 0 && !broken.reader)
            broken.reader = reader;
    }
}

struct io_req *__wrap_io_reader_reap(struct io_reader *r, bool wait);
struct io_req *__real_io_reader_reap(struct io_reader *r, bool wait);

struct io_req *__wrap_io_reader_reap(struct io_reader *r, bool wait)
{
    bool held = hold.on && !pthread_equal(pthread_self(), progress.by);
    if (held && (hold.n_reaped++ == 1 || hold.steps))
        while (sem_wait(&hold.told) != 0)
            ;
    if (held && hold.steps)
        clock_sleep(STEP_S);
    struct io_req *list = __real_io_reader_reap(r, wait);
    pthread_mutex_lock(&watching);
    watch_failures(r, list);
    pthread_mutex_unlock(&watching);
    return list;
}

static void begin_hold(void)
{
    progress = (struct progress){.by = pthread_self(), .held = &hold.told};
    hold = (struct hold){.on = true};
    sem_init(&hold.told, 0, 0);
}

static void end_hold(void)
{
    hold.on = false;
    sem_destroy(&hold.told);
}

static void test_any_order(void **state)
{
    (void)state;
    for (int i = 0; i < 3 * 2 * 2; i++) {
        struct drive d = drive_of(i % 2 == 1, (struct io_fake_script){.delay_s = 50e-6,
                                                                      .order = i % 3,
                                                                      .seed = (uint64_t)i,
                                                                      .fail_at = -1,
                                                                      .short_at = -1});
        struct sl_engine_options o = options(d.streamed);
        struct sl_engine *e;
        struct sl_session *s;
        struct sl_stats stats;
        uint64_t before = mem_now();
        begin_hold();
        o.on_load = on_load;
        o.user = &progress;
        drives_pretend(i < 6 ? 0 : 2);
        open_both(i < 6 ? model->path : split, &o, &d, &e, &s);
        assert_int_equal(progress.n, 0);
        evaluate_all(s);
        assert_true(progress.n > 1 && progress.bad == 0 && progress.done == progress.total);
        sl_session_stats(s, &stats);
        if (d.load.order == 1) /* what is needed first does not come first */
            assert_true(stats.prompt.load_wait_s > 0);
        assert_true(stats.prompt.load_wait_s <= stats.prompt.stall_s);
        assert_true(stats.decode.load_wait_s == 0);
        assert_true(mem_now() - before <= e->plan.total_bytes);
        sl_session_close(&s);
        sl_engine_close(&e);
        drives_pretend(0);
        end_hold();
        assert_int_equal(mem_now(), before);
    }
}

static void on_op(void *user, const struct sl_op_event *e)
{
    if (e->op == SL_OP_STALL)
        *(double *)user += e->wall_s;
}

/* When a block is used no more is there than was waited for, which is told as waiting. */
static void test_step_by_step(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct drive d = drive_of(i == 1, (struct io_fake_script){.fail_at = -1, .short_at = -1});
        struct sl_engine_options o = options(d.streamed);
        struct sl_engine *e;
        struct sl_session *s;
        struct sl_stats stats;
        struct sl_err err;
        double stall = 0;
        const struct sl_watch watch = {.on_op = on_op, .user = &stall};
        if (i == 2) {
            o.packed = SL_PACKED_LOSSLESS;
            o.packed_dir = packed;
        }
        begin_hold();
        hold.steps = true;
        open_both(model->path, &o, &d, &e, &s);
        assert_int_equal(sl_session_watch(s, &watch, &err), 0);
        assert_true(e->touch_cache == d.streamed);
        evaluate_all(s);
        assert_false(e->touch_cache);
        sl_session_stats(s, &stats);
        assert_true(hold.n_reaped > 10);
        assert_true(stats.prompt.load_wait_s >= STEP_S * hold.n_reaped);
        assert_true(stall >= stats.prompt.load_wait_s);
        sl_session_close(&s);
        sl_engine_close(&e);
        end_hold();
    }
}

static void test_any_engine(void **state)
{
    (void)state;
    static const enum sl_io_engine engines[] = {SL_IO_URING, SL_IO_THREADS, SL_IO_PLAIN};
    for (int i = 0; i < 3 * 2 * 3; i++) {
        struct sl_engine_options o = options(i % 2 == 1);
        struct sl_engine *e;
        struct sl_session *s;
        o.io_engine = engines[i % 3];
        o.dense_mode = (enum sl_dense_mode)(i / 6); /* mapped weights have no use for it */
        o.row_stream = i == 1;
        open_both(model->path, &o, NULL, &e, &s);
        assert_true(e->plan.load_behind == (o.dense_mode == SL_DENSE_ANON));
        evaluate_all(s);
        sl_session_close(&s);
        sl_engine_close(&e);
    }
}

/* Drives that want direct reads aligned differently, one of them coarsely. */
static int n_opened;

static void claim_align(int fd, struct io_dio_info *out)
{
    io_real_syscalls.dio_info(fd, out);
    if (n_opened++ % 2 == 1) {
        out->known = true;
        out->mem = out->offset = (uint32_t)64 << 10;
    }
}

static void test_alignments(void **state)
{
    (void)state;
    struct io_syscalls calls = io_real_syscalls;
    calls.dio_info = claim_align;
    io_syscalls_replace(&calls);
    for (int i = 0; i < 2 * 2; i++) {
        struct sl_engine_options o = options(i % 2 == 1);
        struct sl_engine *e;
        struct sl_session *s;
        uint64_t before = mem_now();
        n_opened = 0;
        o.load_behind = i >= 2;
        open_both(split, &o, NULL, &e, &s);
        evaluate_all(s);
        assert_true(mem_now() - before <= e->plan.total_bytes);
        sl_session_close(&s);
        sl_engine_close(&e);
    }
    io_syscalls_replace(NULL);
}

/* No threads for the loader, or for anybody who could do without: weights are loaded by the call
 * that opens, which also tells what goes wrong. */
static bool no_loader, no_touch;

int __wrap_start_thread(pthread_t *out, const char *name, void *(*f)(void *), void *arg);
int __real_start_thread(pthread_t *out, const char *name, void *(*f)(void *), void *arg);

int __wrap_start_thread(pthread_t *out, const char *name, void *(*f)(void *), void *arg)
{
    if ((no_loader && strcmp(name, "sluice-load") == 0) ||
        (no_touch && strcmp(name, "sluice-touch") == 0))
        return EAGAIN;
    return __real_start_thread(out, name, f, arg);
}

static void test_no_threads(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * 2 * 2; i++) {
        bool streamed = i % 2 == 1, fails = i / 2 % 2 == 1;
        struct drive d = drive_of(
            streamed, (struct io_fake_script){
                          .order = 2, .seed = 1, .fail_at = fails ? 25 : -1, .short_at = -1});
        const struct engine_reader source = {make_fake, &d};
        struct sl_engine_options o = options(streamed);
        struct sl_engine *e;
        struct sl_session *s;
        struct sl_stats stats;
        struct sl_err err;
        uint64_t before = mem_now();
        progress = (struct progress){.by = pthread_self()};
        o.on_load = on_load;
        o.user = &progress;
        no_loader = true;
        no_touch = i >= 4;
        int rc = engine_open_with(model->path, &o, &source, &e, &err);
        assert_int_equal(rc, fails ? SL_E_IO : 0);
        assert_true(progress.n > 1 && progress.bad == 0);
        if (fails) {
            assert_null(e);
        } else {
            assert_int_equal(progress.done, progress.total);
            assert_int_equal(sl_session_open(e, &s, &err), 0);
            evaluate_all(s);
            sl_session_stats(s, &stats);
            assert_true(stats.prompt.load_wait_s == 0);
            sl_session_close(&s);
            sl_engine_close(&e);
        }
        no_loader = no_touch = false;
        assert_int_equal(mem_now(), before);
    }
}

/* No prompt: tokens one by one from the first, by a session that asks routers ahead of their
 * layers, of which no more is there than was waited for. */
static void test_routers_ahead(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        float *logits[2];
        struct sl_prediction rows[2][64];
        for (int behind = 0; behind < 2; behind++) {
            struct drive d = drive_of(true, (struct io_fake_script){.fail_at = -1, .short_at = -1});
            struct sl_engine_options o = options(true);
            struct sl_engine *e;
            struct sl_session *s;
            struct sl_err err;
            size_t n = (size_t)model->n_vocab;
            o.load_behind = behind == 1;
            o.route_ahead = i == 0 ? 1 : 0;
            o.predict_log = i == 1;
            o.predict_prefetch = i == 2;
            begin_hold();
            hold.steps = true;
            open_both(model->path, &o, behind ? &d : NULL, &e, &s);
            logits[behind] = mem_calloc(N_ALL * n, sizeof(float));
            for (int at = 0; at < N_ALL; at++) {
                if (sl_session_eval(s, model->tokens + at, 1, SL_DECODE, &err) != 0)
                    fail_msg("%s", err.msg);
                memcpy(logits[behind] + (size_t)at * n, sl_session_logits(s), n * sizeof(float));
            }
            assert_true(e->model->cfg.n_layer <= 64);
            memset(rows[behind], 0, sizeof rows[behind]);
            assert_true(sl_session_predictions(s, rows[behind]) == (i == 1));
            sl_session_close(&s);
            sl_engine_close(&e);
            end_hold();
        }
        assert_memory_equal(logits[0], logits[1], N_ALL * (size_t)model->n_vocab * sizeof(float));
        assert_memory_equal(rows[0], rows[1], sizeof rows[0]);
        mem_free(logits[0]);
        mem_free(logits[1]);
    }
}

/* The n-th read fails or stops short. Vectors are read before sl_engine_open returns; what fails
 * behind is told by every evaluation. Returns how many reads there are. */
static int64_t break_each(const char *path, int n_drives, bool streamed, bool is_short,
                          int *n_behind)
{
    int64_t at = 0;
    uint64_t before = mem_now();
    for (int rc = -1; rc != 0; at++) {
        struct drive d = drive_of(streamed,
                                  (struct io_fake_script){.order = 2,
                                                          .seed = (uint64_t)at,
                                                          .fail_at = is_short ? -1 : at,
                                                          .short_at = is_short ? at : -1});
        const struct engine_reader source = {make_fake, &d};
        struct sl_engine_options o = options(streamed);
        o.direct = false; /* so many reads, of a drive that others may use */
        struct sl_engine *e;
        struct sl_session *s = NULL;
        struct sl_err err = {0}, again = {0};
        bool behind = false;
        broken = (struct broken){0};
        rc = engine_open_with(path, &o, &source, &e, &err);
        if (rc == 0) {
            assert_int_equal(sl_session_open(e, &s, &err), 0);
            rc = step(s, &err);
            behind = rc != 0;
        }
        if (behind) {
            assert_int_equal(step(s, &again), rc);
            assert_string_equal(again.msg, err.msg);
            assert_true(sl_session_length(s) < N_PROMPT);
        }
        if (rc != 0) {
            assert_int_equal(rc, SL_E_IO);
            assert_int_equal(err.code, rc);
            assert_non_null(strstr(err.msg, "bytes at offset "));
            assert_non_null(strstr(err.msg, ".gguf"));
            assert_non_null(strstr(err.msg, is_short ? "the file ends after" : "Input/output"));
        } else {
            evaluate_all(s);
        }
        *n_behind += behind;
        sl_session_close(&s);
        sl_engine_close(&e);
        /* what was with the reader, and no more */
        assert_true(broken.after < 2 * o.io_threads * n_drives);
        assert_int_equal(mem_now(), before);
        assert_true(at < 10000);
    }
    return at - 1;
}

static void test_reads_fail(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        int n_behind = 0;
        int64_t n = break_each(model->path, 1, i % 2 == 1, i >= 2, &n_behind);
        assert_true(n_behind > 10 && n > n_behind);
        drives_pretend(2);
        assert_int_equal(break_each(split, 2, i % 2 == 1, i >= 2, &n_behind), n);
        drives_pretend(0);
    }
}

/* Without a session, without an evaluation, in the middle of one; by a drive that takes its time.
 */
static void test_closing_early(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        struct drive d = drive_of(
            i % 2 == 1,
            (struct io_fake_script){.delay_s = 1e-3, .order = 1, .fail_at = -1, .short_at = -1});
        struct sl_engine_options o = options(d.streamed);
        struct sl_engine *e;
        struct sl_session *s;
        struct sl_err err;
        uint64_t before = mem_now();
        o.io_threads = 2;
        begin_hold();
        o.on_load = on_load;
        o.user = &progress;
        open_both(model->path, &o, &d, &e, &s);
        if (i >= 4) {
            progress.cancel = s;
            assert_int_equal(step(s, &err), SL_E_CANCELLED);
            assert_int_equal(progress.n, 1); /* in the middle of a wait: what is first comes last */
            assert_true(progress.done < progress.total);
            sem_post(&hold.told);
        }
        progress.cancel = NULL;
        if (i >= 6) /* a cancelled evaluation leaves the session usable */
            evaluate_all(s);
        sl_session_close(&s);
        sl_engine_close(&e);
        if (i < 4) /* what was under way, and no more */
            assert_true(hold.n_reaped <= 2 * o.io_threads + 2);
        end_hold();
        assert_int_equal(mem_now(), before);
    }
}

/* The cache gets another size before anything was evaluated, while the weights come. */
static void test_another_budget_first(void **state)
{
    (void)state;
    struct drive d = drive_of(
        true, (struct io_fake_script){.delay_s = 1e-4, .fail_at = -1, .short_at = -1});
    struct sl_engine_options o = options(true);
    struct sl_engine *e;
    struct sl_session *s;
    struct sl_engine_plan plan;
    struct sl_err err;
    uint64_t before = mem_now();
    open_both(model->path, &o, &d, &e, &s);
    sl_engine_get_plan(e, &plan);
    assert_int_equal(sl_engine_set_cache_budget(e, plan.cache_min_bytes, &err), 0);
    evaluate_all(s);
    sl_session_close(&s);
    sl_engine_close(&e);
    assert_int_equal(mem_now(), before);
}

static int set_up(void **state)
{
    (void)state;
    char prefix[256];
    struct sl_err err;
    set = fixture_load_set("arch", &n_set);
    for (int i = 0; set && i < n_set; i++)
        if (strcmp(set[i].name, "arch/qwen3moe") == 0)
            model = &set[i];
    if (!model)
        return -1;
    struct run_spec spec = {.path = model->path,
                            .ids = model->tokens,
                            .n_prompt = N_PROMPT,
                            .n_step = N_ALL - N_PROMPT};
    spec.opt = options(false);
    spec.opt.load_behind = false;
    if (run_model(&spec, &first, &err) != 0) {
        fprintf(stderr, "%s\n", err.msg);
        return -1;
    }
    snprintf(packed, sizeof packed, "%s/behind-packed", fixture_temp_dir());
    if (!pack_write(model->path, packed, SL_PACKED_LOSSLESS))
        return -1;
    snprintf(prefix, sizeof prefix, "%s/behind", fixture_temp_dir());
    return ggufsplit_write(model->path, prefix, 3, false, split, sizeof split) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    run_free(&first);
    fixture_free_set(set, n_set);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_order),
        cmocka_unit_test(test_step_by_step),
        cmocka_unit_test(test_any_engine),
        cmocka_unit_test(test_alignments),
        cmocka_unit_test(test_no_threads),
        cmocka_unit_test(test_routers_ahead),
        cmocka_unit_test(test_reads_fail),
        cmocka_unit_test(test_closing_early),
        cmocka_unit_test(test_another_budget_first),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
