/* Random histories of a session: prompts of several batches, tokens, cancels, failing reads,
 * forgotten tokens, caches of changing size, in whatever way the model is read. What an eval gives
 * are the bytes of the resident model at that position, whatever came before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "io/fake.h"
#include "support/fixtures.h"
#include "support/run.h"

#define EMBEDDED  SL_SOURCE_DIR "/models/storyteller.gguf"
#define N_ALL     64
#define N_ACTIONS 24
#define MODELS    3

static struct subject {
    const char *path;
    int n_vocab, n_layer, top_k;
    int32_t ids[N_ALL];
    struct run_result resident;
} subjects[MODELS];

static struct fixture *set;
static int n_set;

/* ---- Chance ---- */

static uint64_t seed, rng; /* seed: where a debugger finds it */

static uint64_t draw(void)
{
    uint64_t z = (rng += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static int below(int n)
{
    return (int)(draw() % (uint64_t)n);
}

#define ONE_OF(...)                                                                                \
    ((const int[]){__VA_ARGS__})[below(sizeof((const int[]){__VA_ARGS__}) / sizeof(int))]

static struct sl_engine_options draw_options(const struct subject *m)
{
    static const char *const policies[] = {"echo", "lfu-decay", "lru"};
    struct sl_engine_options o;
    sl_engine_options_init(&o);
    o.threads = 1 + below(4);
    o.n_ctx = N_ALL;
    o.ubatch = ONE_OF(1, 2, 3, 5, 8, 16, N_ALL);
    o.stream = SL_STREAM_ON;
    o.cache_slots = ONE_OF(0, m->top_k, m->top_k + 1, 2 * m->top_k + 1, 1000);
    o.cache_floor_mb = 0;
    o.cache_policy = policies[below(3)];
    o.cache_adapt = below(4) == 0;
    o.io_engine = (enum sl_io_engine)ONE_OF(SL_IO_AUTO, SL_IO_URING, SL_IO_THREADS, SL_IO_PLAIN);
    o.io_threads = ONE_OF(1, 1, 2, 4, 16);
    o.io_split = ONE_OF(1, 1, 3);
    o.direct = below(2);
    o.overlap = below(5) != 0;
    o.two_wave = below(3) == 0;
    o.load_all = below(5) == 0;
    o.row_stream = below(3) == 0;
    o.load_behind = below(2);
    if (o.overlap && o.io_engine != SL_IO_PLAIN && o.cache_slots > 0 && !o.load_all) {
        o.prefetch = below(3);
        o.predict_prefetch = below(2);
    }
    return o;
}

/* ---- One history ---- */

struct history {
    const struct subject *m;
    struct sl_engine *e;
    struct sl_session *s;
    int cancel_layer, cancel_pos; /* -1: none */
    bool fails;                   /* reads do, now and then */
    int n_cancelled, n_failed, n_good;
};

static const float *expected(const struct subject *m, int pos)
{
    return m->resident.logits + (size_t)pos * (size_t)m->n_vocab;
}

static void on_experts(void *user, int pos, int block, const int32_t *ids, int k)
{
    const struct history *h = user;
    (void)ids;
    (void)k;
    if (block == h->cancel_layer && pos >= h->cancel_pos)
        sl_session_cancel(h->s);
}

static void on_logits(void *user, int pos, const float *logits)
{
    const struct history *h = user;
    assert_memory_equal(logits, expected(h->m, pos), (size_t)h->m->n_vocab * sizeof *logits);
}

static void eval(struct history *h, int n, enum sl_phase phase)
{
    int at = sl_session_length(h->s);
    struct sl_err err = {0};
    h->cancel_layer = below(6) ? -1 : below(h->m->n_layer);
    h->cancel_pos = at + below(n);
    struct sl_observer obs = {.on_experts = on_experts, .on_logits = on_logits, .user = h};
    if (below(3) == 0)
        obs.on_logits = NULL;
    sl_session_observe(h->s, &obs);
    int rc = sl_session_eval(h->s, h->m->ids + at, (size_t)n, phase, &err);
    if (rc == 0) {
        assert_int_equal(sl_session_length(h->s), at + n);
        on_logits(h, at + n - 1, sl_session_logits(h->s));
        sl_session_forget_cancel(h->s); /* in the last layer it came too late */
        h->n_good++;
        return;
    }
    if (rc != SL_E_CANCELLED && !(h->fails && rc == SL_E_IO))
        fail_msg("%s: %s: %s", sl_code_name(rc), err.where, err.msg);
    sl_session_forget_cancel(h->s);
    h->n_cancelled += rc == SL_E_CANCELLED;
    h->n_failed += rc == SL_E_IO;
}

static void resize(struct history *h)
{
    struct sl_engine_plan p;
    struct sl_err err;
    sl_engine_get_plan(h->e, &p);
    uint64_t least = p.cache_min_bytes, most = p.cache_max_bytes;
    uint64_t sizes[] = {0, least, most, least + draw() % (most - least + 1)};
    int rc = sl_engine_set_cache_budget(h->e, sizes[below(4)], &err);
    if (rc != 0)
        fail_msg("%s", err.msg);
}

static void act(struct history *h)
{
    struct sl_err err;
    int length = sl_session_length(h->s), left = N_ALL - length;
    int what = below(10);
    if (left == 0 || what == 0) {
        sl_session_truncate(h->s, below(length + 1));
    } else if (what <= 4) {
        eval(h, 1 + below(left < 40 ? left : 40), SL_PROMPT);
    } else if (what <= 7) {
        eval(h, 1, SL_DECODE);
    } else if (what == 8) {
        resize(h);
    } else {
        sl_session_close(&h->s);
        assert_int_equal(sl_session_open(h->e, &h->s, &err), 0);
    }
}

/* Reads of weights do not fail here: nothing comes after that. They are the first of the reader, or
 * come from the second that is made. */
struct drive {
    struct io_fake_script experts;
    int n_made;
};

static int make_fake(void *user, int in_flight, struct io_reader **out, struct sl_err *err)
{
    struct drive *d = user;
    struct io_fake_script script = d->experts;
    if (d->n_made++ > 0)
        script.fail_every = 0;
    return io_fake_create(&script, in_flight, out, err);
}

static int64_t count_load(const struct subject *m, const struct sl_engine_options *o)
{
    struct sl_engine *e;
    struct sl_err err;
    int rc = sl_engine_open(m->path, o, &e, &err);
    if (rc != 0)
        fail_msg("%s", err.msg);
    int64_t n = (int64_t)e->reader->n_reads;
    sl_engine_close(&e);
    return n;
}

static void run_history(struct history *sum)
{
    struct history h = {.m = &subjects[below(MODELS)]};
    struct sl_engine_options o = draw_options(h.m);
    struct drive d = {{.order = below(3), .seed = seed, .fail_at = -1, .short_at = -1}, 0};
    struct io_fake_script *script = &d.experts;
    const struct engine_reader source = {make_fake, &d};
    bool fake = below(2);
    struct sl_err err;
    uint64_t before = mem_now();
    if (fake) {
        script->delay_s = below(3) ? 0 : 1e-5;
        script->fail_every = below(2) ? 0 : 5 + below(60);
        script->first = script->fail_every ? count_load(h.m, &o) : 0;
        h.fails = script->fail_every > 0;
    }
    int rc = engine_open_with(h.m->path, &o, fake ? &source : NULL, &h.e, &err);
    if (rc != 0)
        fail_msg("%s", err.msg);
    assert_int_equal(sl_session_open(h.e, &h.s, &err), 0);
    for (int i = 0; i < N_ACTIONS; i++)
        act(&h);
    sl_session_close(&h.s);
    sl_engine_close(&h.e);
    assert_int_equal(mem_now(), before);
    sum->n_good += h.n_good;
    sum->n_failed += h.n_failed;
    sum->n_cancelled += h.n_cancelled;
}

static void test_histories(void **state)
{
    (void)state;
    const char *env = getenv("SLUICE_HISTORIES"); /* more of them */
    const uint64_t first = 1, n = env ? strtoull(env, NULL, 10) : 60;
    struct history sum = {0};
    print_message("seeds %llu to %llu\n", (unsigned long long)first,
                  (unsigned long long)(first + n - 1));
    for (seed = first; seed < first + n; seed++) {
        rng = seed;
        run_history(&sum);
    }
    assert_true(sum.n_good > 0 && sum.n_failed > 0 && sum.n_cancelled > 0);
}

/* ---- What there is to read ---- */

static int set_up(void **state)
{
    (void)state;
    set = fixture_load_set("arch", &n_set);
    const char *names[MODELS] = {"arch/qwen3moe", "arch/mixtral", "embedded"};
    for (int i = 0; i < MODELS; i++) {
        struct subject *m = &subjects[i];
        m->path = EMBEDDED;
        for (int j = 0; j < n_set; j++)
            if (strcmp(set[j].name, names[i]) == 0)
                m->path = set[j].path;
        for (int j = 0; j < N_ALL; j++)
            m->ids[j] = 3 + (int)(((uint32_t)j * 2654435761u) >> 8) % 250;
        struct run_spec spec = {.path = m->path, .ids = m->ids, .n_prompt = N_ALL};
        struct sl_err err;
        sl_engine_options_init(&spec.opt);
        spec.opt.stream = SL_STREAM_OFF;
        spec.opt.threads = 1;
        spec.opt.n_ctx = N_ALL;
        if (run_model(&spec, &m->resident, &err) != 0)
            return -1;
        m->n_vocab = m->resident.n_vocab;
        m->n_layer = m->resident.n_layer;
        m->top_k = m->resident.k;
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i++)
        run_free(&subjects[i].resident);
    fixture_free_set(set, n_set);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_histories)};
    return cmocka_run_group_tests_name("history", tests, set_up, tear_down);
}
