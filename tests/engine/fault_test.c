/* Drives that fail and memory that runs out, through the whole engine: each failure is one clear
 * error, everything can be closed or used again, and what comes after it has the right bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "io/fake.h"
#include "support/fixtures.h"
#include "support/run.h"

#ifdef SLUICE_URING
#include <liburing.h>

#include "io/uring.h"
#endif

#define N_PROMPT 12
#define N_ALL    16

static struct fixture *set, *model;
static int n_set;
static struct run_result resident;
static const float *expected; /* [N_ALL][n_vocab], of resident */
static int64_t n_load;        /* reads that load the dense weights: load_test's to break */

static int make_fake(void *user, int in_flight, struct io_reader **out, struct sl_err *err)
{
    return io_fake_create(user, in_flight, out, err);
}

/* How reads are issued in the tests to come. */
static struct {
    int split;
    bool two_wave, no_overlap;
} knobs;

static struct sl_engine_options options(int slots, int ubatch)
{
    struct sl_engine_options o;
    sl_engine_options_init(&o);
    o.threads = 2;
    o.n_ctx = 64;
    o.ubatch = ubatch;
    o.stream = SL_STREAM_ON;
    o.cache_slots = slots;
    o.cache_floor_mb = 0;
    o.io_split = knobs.split ? knobs.split : 1;
    o.two_wave = knobs.two_wave;
    o.overlap = !knobs.no_overlap;
    o.direct = false; /* so many reads, of a drive that others may use */
    return o;
}

static bool same_row(const struct sl_session *s)
{
    size_t n = (size_t)model->n_vocab;
    const float *want = expected + (size_t)(sl_session_length(s) - 1) * n;
    return memcmp(sl_session_logits(s), want, n * sizeof *want) == 0;
}

/* Evaluate what is missing of the fixture's tokens. *failed counts failures; each names the layer,
 * the expert and the file in its message, and the session goes on where it stood. */
static void go_on(struct sl_session *s, int *failed, int most)
{
    struct sl_err err;
    for (int at; (at = sl_session_length(s)) < N_ALL;) {
        int n = at < N_PROMPT ? N_PROMPT - at : 1;
        int rc = sl_session_eval(s, model->tokens + at, (size_t)n, n > 1 ? SL_PROMPT : SL_DECODE,
                                 &err);
        if (rc == 0) {
            assert_true(same_row(s));
            continue;
        }
        assert_int_equal(rc, SL_E_IO);
        assert_int_equal(err.code, rc);
        assert_null(sl_session_logits(s));
        assert_non_null(strstr(err.msg, "layer "));
        assert_non_null(strstr(err.msg, "expert "));
        assert_non_null(strstr(err.msg, model->path + strlen(model->path) - 20));
        assert_non_null(strstr(err.msg, "bytes at offset "));
        assert_true(++*failed <= most);
    }
}

/* One engine over a misbehaving reader: a session that meets the failure, then a second one.
 * Returns the failures; *n_reads, if wanted: the reads of both. */
static int run_script(struct io_fake_script *script, int slots, int ubatch, int most,
                      int64_t *n_reads)
{
    struct sl_engine *e;
    struct sl_session *s;
    struct sl_err err;
    int failed = 0;
    const struct engine_reader source = {make_fake, script};
    struct sl_engine_options o = options(slots, ubatch);
    assert_int_equal(engine_open_with(model->path, &o, &source, &e, &err), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sl_session_open(e, &s, &err), 0);
        go_on(s, &failed, most);
        sl_session_close(&s);
    }
    if (n_reads)
        *n_reads = (int64_t)e->reader->n_reads - n_load;
    sl_engine_close(&e);
    return failed;
}

/* The first reads one by one, then a sample of all. */
static void check_reads(bool is_short, int slots, int ubatch)
{
    uint64_t before = mem_now();
    int failures = 0;
    int64_t n_reads = 1;
    for (int64_t at = 0; at < n_reads; at += at < 6 ? 1 : n_reads / 16 + 1) {
        struct io_fake_script script = {.order = 2,
                                        .seed = (uint64_t)at,
                                        .first = n_load,
                                        .fail_at = is_short ? -1 : at,
                                        .short_at = is_short ? at : -1};
        failures += run_script(&script, slots, ubatch, 1, &n_reads);
    }
    assert_true(failures > 10); /* not all: a read ahead may fail without anybody missing it */
    assert_int_equal(mem_now(), before);
}

static void test_reads_fail(void **state)
{
    (void)state;
    check_reads(false, 0, 5);
    check_reads(false, model->topk, 64);
    check_reads(false, model->topk + 2, 1);
}

static void test_reads_are_short(void **state)
{
    (void)state;
    check_reads(true, 0, 64);
    check_reads(true, model->topk, 7);
}

/* Every n-th read fails: no eval of a whole prompt may get through, but each says so. */
static void test_a_dying_drive(void **state)
{
    (void)state;
    for (int every = 1; every < 40; every += 13) {
        struct io_fake_script script = {.order = 2,
                                        .seed = 3,
                                        .first = n_load,
                                        .fail_at = -1,
                                        .short_at = -1,
                                        .fail_every = every};
        struct sl_engine *e;
        struct sl_session *s;
        struct sl_err err;
        const struct engine_reader source = {make_fake, &script};
        struct sl_engine_options o = options(model->topk, 4);
        assert_int_equal(engine_open_with(model->path, &o, &source, &e, &err), 0);
        assert_int_equal(sl_session_open(e, &s, &err), 0);
        int failed = 0;
        for (int i = 0; i < 50 && sl_session_length(s) < N_PROMPT; i++) {
            int at = sl_session_length(s);
            int rc = sl_session_eval(s, model->tokens + at, (size_t)(N_PROMPT - at), SL_PROMPT,
                                     &err);
            assert_true(rc == 0 || rc == SL_E_IO);
            failed += rc != 0;
        }
        assert_true(failed > 0);
        if (sl_session_length(s) == N_PROMPT)
            assert_true(same_row(s));
        sl_session_close(&s);
        sl_engine_close(&e);
    }
}

/* Late and out of order, but whole: nothing fails and the bytes are the same. */
static void test_a_slow_drive(void **state)
{
    (void)state;
    for (int order = 0; order < 3; order++) {
        struct io_fake_script script = {
            .delay_s = 20e-6, .order = order, .seed = 5, .fail_at = -1, .short_at = -1};
        assert_int_equal(run_script(&script, order * model->topk, 7, 0, NULL), 0);
    }
}

static void on_experts(void *user, int pos, int block, const int32_t *ids, int k)
{
    (void)pos;
    (void)ids;
    (void)k;
    if (block == 1)
        sl_session_cancel(user);
}

/* Cancelled between two layers, with reads ahead under way; then the same tokens again. */
static void test_cancel(void **state)
{
    (void)state;
    struct io_fake_script script = {.delay_s = 20e-6, .order = 2, .fail_at = -1, .short_at = -1};
    const struct engine_reader source = {make_fake, &script};
    for (int slots = 0; slots <= model->topk; slots += model->topk) {
        struct sl_engine *e;
        struct sl_session *s;
        struct sl_err err;
        struct sl_engine_options o = options(slots, 4);
        assert_int_equal(engine_open_with(model->path, &o, &source, &e, &err), 0);
        assert_int_equal(sl_session_open(e, &s, &err), 0);
        struct sl_observer obs = {.on_experts = on_experts, .user = s};
        for (int i = 0; i < 3; i++) {
            sl_session_observe(s, &obs);
            assert_int_equal(sl_session_eval(s, model->tokens, N_PROMPT, SL_PROMPT, &err),
                             SL_E_CANCELLED);
            assert_int_equal(sl_session_length(s), 0);
        }
        int failed = 0;
        sl_session_observe(s, NULL);
        go_on(s, &failed, 0);
        sl_session_close(&s);
        sl_engine_close(&e);
    }
}

/* With chunks, waves and without overlap. */
static void test_knobs(void **state)
{
    (void)state;
    knobs.two_wave = true;
    check_reads(false, 0, 5);
    check_reads(false, model->topk + 2, 1);
    knobs.split = 3;
    check_reads(false, model->topk, 64);
    check_reads(true, 0, 7);
    knobs.no_overlap = true;
    check_reads(false, model->topk, 5);
    test_a_slow_drive(state);
    test_cancel(state);
    memset(&knobs, 0, sizeof knobs);
}

#ifdef SLUICE_URING
/* The kernel reports an error for one completion, or cuts it short, in prompt and decode. */
static struct {
    int64_t at, n;
    int res; /* 1: half of what was read */
} kernel;

static int peek_badly(struct io_uring *ring, struct io_uring_cqe **cqe)
{
    int rc = io_real_ring_calls.peek(ring, cqe);
    if (rc == 0 && kernel.n++ == kernel.at)
        (*cqe)->res = kernel.res == 1 ? (*cqe)->res / 2 : kernel.res;
    return rc;
}

static int run_uring(void)
{
    struct sl_engine *e;
    struct sl_session *s;
    struct sl_err err;
    int failed = 0;
    struct sl_engine_options o = options(model->topk, 5);
    o.io_engine = SL_IO_URING;
    o.direct = true;
    kernel.n = INT64_MIN; /* not while loading */
    assert_int_equal(engine_open_with(model->path, &o, NULL, &e, &err), 0);
    kernel.n = 0;
    if (strcmp(e->reader->ops->name, "uring") != 0)
        print_message("io_uring is not to be had here\n");
    assert_int_equal(sl_session_open(e, &s, &err), 0);
    go_on(s, &failed, 1);
    sl_session_close(&s);
    sl_engine_close(&e);
    return failed;
}

static void test_uring_errors(void **state)
{
    (void)state;
    struct io_ring_calls calls = io_real_ring_calls;
    calls.peek = peek_badly;
    io_ring_calls_replace(&calls);
    kernel.at = -1;
    assert_int_equal(run_uring(), 0);
    int64_t n = kernel.n, tries = 0;
    int failed = 0;
    for (kernel.at = 0; kernel.at < n; kernel.at += n / 12 + 1, tries++) {
        kernel.res = -EIO;
        failed += run_uring();
        kernel.res = 1;
        assert_int_equal(run_uring(), 0);
        kernel.res = -ECANCELED;
        assert_int_equal(run_uring(), 0);
    }
    if (n > 0) /* a read ahead may fail without anybody missing it */
        assert_true(failed > 0 && failed <= tries);
    io_ring_calls_replace(NULL);
}
#endif

/* Open, evaluate and close with the n-th allocation refused; 0 or the first error. */
static int run_without_memory(int64_t n, const struct sl_engine_options *o)
{
    struct sl_engine *e = NULL;
    struct sl_session *s = NULL;
    struct sl_err err = {0};
    int32_t *ids = NULL;
    size_t n_ids;
    mem_fail_after(n);
    int rc = sl_engine_open(model->path, o, &e, &err);
    if (rc == 0)
        rc = sl_session_open(e, &s, &err);
    if (rc == 0)
        rc = sl_session_eval(s, model->tokens, N_PROMPT, SL_PROMPT, &err);
    if (rc == 0 && sl_tokenize(e, "abc", 3, 0, &ids, &n_ids, &err) == SL_E_MEM)
        rc = SL_E_MEM;
    mem_fail_after(-1);
    if (rc == 0)
        assert_memory_equal(sl_session_logits(s),
                            expected + (size_t)(N_PROMPT - 1) * (size_t)model->n_vocab,
                            (size_t)model->n_vocab * sizeof(float));
    else if (rc != SL_E_MEM || err.msg[0] == 0)
        fail_msg("allocation %d: %s: %s", (int)n, sl_code_name(rc), err.msg);
    sl_free(ids);
    sl_session_close(&s);
    sl_engine_close(&e);
    return rc;
}

static void test_no_memory(void **state)
{
    (void)state;
    uint64_t before = mem_now();
    for (int i = 0; i < 4; i++) {
        struct sl_engine_options o = options(model->topk, 4);
        o.load_behind = i >= 2;
        if (i % 2 == 0) {
            o.stream = SL_STREAM_OFF;
            o.cache_slots = SL_CACHE_UNSET;
        }
        int n = 0, rc;
        do {
            rc = run_without_memory(n++, &o);
            assert_int_equal(mem_now(), before);
            assert_true(n < 10000);
        } while (rc != 0);
        assert_true(n > 20);
    }
}

static void test_opening_and_closing_leaves_nothing(void **state)
{
    (void)state;
    uint64_t before = mem_now();
    struct sl_engine *e;
    struct sl_err err;
    struct sl_engine_options o = options(model->topk, 8);
    assert_int_equal(sl_engine_open(model->path, &o, &e, &err), 0);
    uint64_t opened = mem_now();
    for (int i = 0; i < 20; i++) {
        struct sl_session *s;
        assert_int_equal(sl_session_open(e, &s, &err), 0);
        assert_int_equal(sl_session_eval(s, model->tokens, N_PROMPT, SL_PROMPT, &err), 0);
        assert_true(same_row(s));
        sl_session_close(&s);
        assert_int_equal(mem_now(), opened);
    }
    sl_engine_close(&e);
    assert_int_equal(mem_now(), before);
}

static int set_up(void **state)
{
    (void)state;
    set = fixture_load_set("arch", &n_set);
    for (int i = 0; i < n_set; i++)
        if (strcmp(set[i].name, "arch/qwen3moe") == 0)
            model = &set[i];
    if (!model || model->n_tokens < N_ALL)
        return -1;
    struct run_spec spec = {.path = model->path,
                            .opt = options(SL_CACHE_UNSET, 16),
                            .ids = model->tokens,
                            .n_prompt = N_ALL};
    spec.opt.stream = SL_STREAM_OFF;
    struct sl_err err;
    int rc = run_model(&spec, &resident, &err);
    expected = resident.logits;
    if (rc != 0)
        return rc;
    struct sl_engine *e;
    struct sl_engine_options o = options(model->topk, 4);
    rc = sl_engine_open(model->path, &o, &e, &err);
    n_load = rc == 0 ? (int64_t)e->reader->n_reads : 0;
    sl_engine_close(&e);
    return rc;
}

static int tear_down(void **state)
{
    (void)state;
    run_free(&resident);
    fixture_free_set(set, n_set);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_fail),
        cmocka_unit_test(test_reads_are_short),
        cmocka_unit_test(test_a_dying_drive),
        cmocka_unit_test(test_a_slow_drive),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_knobs),
#ifdef SLUICE_URING
        cmocka_unit_test(test_uring_errors),
#endif
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_opening_and_closing_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
