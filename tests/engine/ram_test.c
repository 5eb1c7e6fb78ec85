/* opt.ram holds over a whole conversation: a long prompt, prompts on other topics, many turns, a
 * cache that changes its size. What the process holds is sampled all the time, from opening on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/sys.h"
#include "sluice.h"

#define MODEL SL_SOURCE_DIR "/models/storyteller.gguf"
#define MIB   ((uint64_t)1 << 20)
#define N_CTX 1000

static atomic_bool stop;
static _Atomic uint64_t highest;

static void *sample(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop)) {
        struct sys_rss r;
        sys_rss("", &r);
        if (r.anon + r.shmem > atomic_load(&highest))
            atomic_store(&highest, r.anon + r.shmem);
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    return NULL;
}

static void eval(struct sl_session *s, const int32_t *ids, size_t n, enum sl_phase phase)
{
    struct sl_err err = {0};
    int rc = sl_session_eval(s, ids, n, phase, &err);
    if (rc)
        print_message("%s\n", err.msg);
    assert_int_equal(rc, 0);
}

/* n tokens about topic, then a few as if they were drawn. */
static void turn(struct sl_session *s, int topic, int n)
{
    int32_t ids[N_CTX];
    for (int i = 0; i < n; i++)
        ids[i] = (topic * 613 + i * (7 + topic)) % 4000;
    eval(s, ids, (size_t)n, SL_PROMPT);
    for (int i = 0; i < 6; i++)
        eval(s, ids + i, 1, SL_DECODE);
}

static void converse(struct sl_engine *e, struct sl_session *s)
{
    struct sl_engine_plan p;
    struct sl_err err;
    sl_engine_get_plan(e, &p);
    turn(s, 0, 900);
    sl_session_truncate(s, 0);
    turn(s, 5, 400);
    for (int i = 0; i < 12; i++)
        turn(s, i % 5, 20);
    assert_int_equal(sl_engine_set_cache_budget(e, p.cache_min_bytes, &err), 0);
    turn(s, 3, 20);
    assert_int_equal(sl_engine_set_cache_budget(e, p.cache_bytes, &err), 0);
    sl_session_truncate(s, 50);
    turn(s, 1, 700);
    for (int i = 0; i < 12; i++)
        turn(s, i % 7, 10);
}

static void hold(uint64_t ram)
{
    struct sl_engine_options o;
    struct sl_engine *e;
    struct sl_session *s;
    struct sl_err err = {0};
    struct sl_engine_plan p;
    struct sys_rss before;
    sys_rss("", &before);
    sl_engine_options_init(&o);
    o.ram = ram;
    o.n_ctx = N_CTX;
    o.stream = SL_STREAM_ON;
    o.threads = 2;
    atomic_store(&highest, 0);
    int rc = sl_engine_open(MODEL, &o, &e, &err);
    if (rc)
        print_message("%s\n", err.msg);
    assert_int_equal(rc, 0);
    assert_int_equal(sl_session_open(e, &s, &err), 0);
    sl_engine_get_plan(e, &p);
    assert_true(p.total_bytes <= ram && p.cache_bytes > 0);
    converse(e, s);
    sl_session_close(&s);
    sl_engine_close(&e);
    print_message("limit %.1f MiB: plan %.1f, cache %.1f of %.1f, held %.1f\n", (double)ram / MIB,
                  (double)p.total_bytes / MIB, (double)p.cache_bytes / MIB,
                  (double)p.cache_max_bytes / MIB, (double)atomic_load(&highest) / MIB);
    assert_true(atomic_load(&highest) <= ram);
    /* The reserve is for other things: the parts alone hold what came since. 3 MiB: stacks, libc's
     * arenas. */
    uint64_t parts = p.dense_bytes + p.kv_bytes + p.compute_bytes + p.transit_bytes + p.cache_bytes;
    assert_true(atomic_load(&highest) <= before.anon + before.shmem + parts + 3 * MIB);
    assert_true(mem_peak() <= ram);
}

/* From the smallest legal cache to a large one. */
static void test_conversations(void **state)
{
    (void)state;
    struct sl_engine_options o;
    struct sl_engine *e;
    struct sl_err err;
    struct sl_engine_plan p;
    sl_engine_options_init(&o);
    o.n_ctx = N_CTX;
    o.stream = SL_STREAM_ON;
    o.threads = 2;
    o.ubatch = 32;
    o.cache_mb = 0;
    assert_int_equal(sl_engine_open(MODEL, &o, &e, &err), 0);
    sl_engine_get_plan(e, &p);
    sl_engine_close(&e);
    uint64_t least = p.total_bytes + p.cache_min_bytes + 2 * MIB;
    for (int i = 0; i < 3; i++)
        hold(least + (uint64_t)i * p.cache_max_bytes / 3);
}

int main(void)
{
    struct sys_rss r;
    pthread_t thread;
    sys_rss("", &r);
    if (r.anon == 0) {
        print_message("this system does not say what a process holds\n");
        return 77;
    }
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    print_message("a sanitizer's own memory would be counted\n");
    return 77;
#endif
    if (pthread_create(&thread, NULL, sample, NULL) != 0)
        return 77;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_conversations)};
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    return rc;
}
