/* An expert cache that changes its size while an engine runs: when asked, and with the memory that
 * a made-up system says it has. The logits are those of a resident run at every step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "engine/engine.h"
#include "support/fixtures.h"
#include "support/run.h"

#define N_ALL 16
#define MIB   ((uint64_t)1 << 20)

static struct fixture *set, *model;
static int n_set;
static struct run_result resident;
static const float *expected; /* [N_ALL][n_vocab], of resident */

struct log {
    struct sl_cache_change change[64];
    int n;
};

static void on_change(void *user, const struct sl_cache_change *ch)
{
    struct log *l = user;
    assert_true(l->n < 64);
    assert_true(ch->from_bytes != ch->to_bytes);
    l->change[l->n++] = *ch;
}

static struct sl_engine_options options(struct log *l)
{
    struct sl_engine_options o;
    sl_engine_options_init(&o);
    o.threads = 2;
    o.n_ctx = 64;
    o.stream = SL_STREAM_ON;
    o.cache_floor_mb = 0;
    o.user = l;
    o.on_cache_change = on_change;
    return o;
}

static void check_logits(const struct sl_session *s)
{
    size_t n = (size_t)model->n_vocab;
    assert_memory_equal(sl_session_logits(s), expected + (size_t)(sl_session_length(s) - 1) * n,
                        n * sizeof(float));
}

static struct sl_engine_plan plan_of(const struct sl_engine *e)
{
    struct sl_engine_plan p;
    sl_engine_get_plan(e, &p);
    return p;
}

static void test_sizes_between_tokens(void **state)
{
    (void)state;
    struct log l = {.n = 0};
    struct sl_engine_options o = options(&l);
    struct sl_engine *e;
    struct sl_session *s;
    struct sl_stats st;
    struct sl_err err;
    assert_int_equal(sl_engine_open(model->path, &o, &e, &err), 0);
    assert_int_equal(sl_session_open(e, &s, &err), 0);
    struct sl_engine_plan p = plan_of(e);
    assert_int_equal(p.cache_bytes, p.cache_max_bytes); /* all that a small model can use */
    uint64_t sizes[] = {p.cache_min_bytes, 0, p.cache_max_bytes / 2, UINT64_MAX};
    uint64_t rest = p.total_bytes - p.cache_bytes;
    for (int i = 0; i < N_ALL; i++) {
        assert_int_equal(sl_engine_set_cache_budget(e, sizes[i % 4], &err), 0);
        struct sl_engine_plan q = plan_of(e);
        assert_true(q.cache_bytes <= sizes[i % 4] && q.cache_bytes <= p.cache_max_bytes);
        assert_int_equal(q.total_bytes, rest + q.cache_bytes);
        assert_false(q.cache_auto);
        assert_int_equal(sl_session_eval(s, model->tokens + i, 1, SL_DECODE, &err), 0);
        check_logits(s);
        sl_session_stats(s, &st);
        assert_true(st.cache_resident_bytes <= q.cache_bytes);
    }
    assert_int_equal(plan_of(e).cache_bytes, p.cache_max_bytes);
    assert_int_equal(l.n, N_ALL);
    assert_int_equal(l.change[0].why, SL_CACHE_ASKED);
    assert_int_equal(st.cache_changes, N_ALL);
    assert_int_equal(st.cache_least_bytes, 0);
    assert_int_equal(sl_engine_set_cache_budget(e, p.cache_min_bytes - 1, &err), SL_E_BUDGET);
    assert_int_equal(plan_of(e).cache_bytes, p.cache_max_bytes);
    sl_session_close(&s);
    sl_engine_close(&e);
}

/* A context in which the widest batch that --ram allows fits, and memory beyond the plan of an
 * engine that was closed: emulators keep some megabytes for the threads that it had. */
#define WIDE  (1 << 17)
#define EXTRA (16 * MIB)

/* The widest batches that fit leave room for the least of caches, and none for it to grow into. */
static void test_growth_beyond_ram(void **state)
{
    (void)state;
    struct log l = {.n = 0};
    struct sl_engine_options o = options(&l);
    struct sl_engine *e;
    struct sl_err err;
    o.n_ctx = WIDE;
    o.ubatch = 1;
    assert_int_equal(sl_engine_open(model->path, &o, &e, &err), 0);
    struct sl_engine_plan p = plan_of(e);
    sl_engine_close(&e);
    o.ubatch = 0;
    o.ram = p.total_bytes + EXTRA;
    assert_true(o.ram / 8 > EXTRA + p.cache_bytes); /* what one batch may take */
    assert_int_equal(sl_engine_open(model->path, &o, &e, &err), 0);
    p = plan_of(e);
    assert_true(p.ubatch > 1 && p.ubatch < WIDE);
    assert_true(p.cache_bytes >= p.cache_min_bytes && p.cache_bytes < p.cache_max_bytes);
    assert_int_equal(sl_engine_set_cache_budget(e, p.cache_max_bytes, &err), SL_E_BUDGET);
    assert_non_null(strstr(err.msg, "--ram leaves"));
    assert_int_equal(plan_of(e).cache_bytes, p.cache_bytes);
    assert_int_equal(sl_engine_set_cache_budget(e, 0, &err), 0);
    assert_int_equal(sl_engine_set_cache_budget(e, p.cache_max_bytes, &err), SL_E_BUDGET);
    assert_int_equal(sl_engine_set_cache_budget(e, p.cache_bytes, &err), 0);
    assert_int_equal(plan_of(e).total_bytes, p.total_bytes);
    sl_engine_close(&e);
}

static void test_no_cache_to_change(void **state)
{
    (void)state;
    struct log l = {.n = 0};
    struct sl_engine_options o = options(&l);
    struct sl_engine *e;
    struct sl_err err;
    o.stream = SL_STREAM_OFF;
    assert_int_equal(sl_engine_open(model->path, &o, &e, &err), 0);
    assert_int_equal(sl_engine_set_cache_budget(e, MIB, &err), SL_E_ARG);
    sl_engine_close(&e);
}

/* ---- A system that runs short ---------------------------------------------------------------- */

static char root[512];

static void put_file(const char *name, const char *text)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void put_memory(uint64_t available)
{
    char text[128];
    snprintf(text, sizeof text, "MemTotal: 16316416 kB\nMemAvailable: %llu kB\n",
             (unsigned long long)available / 1024);
    put_file("proc/meminfo", text);
}

static void put_usage(uint64_t usage)
{
    char text[32];
    snprintf(text, sizeof text, "%llu\n", (unsigned long long)usage);
    put_file("group/app/memory.current", text);
}

static void put_pressure(const char *name, uint64_t us)
{
    char text[160];
    snprintf(text, sizeof text,
             "some avg10=0.00 avg60=0.00 avg300=0.00 total=%llu\n"
             "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
             (unsigned long long)us);
    put_file(name, text);
}

static void make_system(void)
{
    static const char *const folders[] = {"",      "proc",     "proc/self", "proc/pressure",
                                          "group", "group/app"};
    snprintf(root, sizeof root, "%s/sys", fixture_temp_dir());
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", root, folders[i]);
        mkdir(path, 0700);
    }
    put_file("proc/self/status", "Cpus_allowed_list:\t0-1\n");
    put_file("proc/self/cgroup", "0::/app\n");
    put_file("proc/self/mountinfo", "31 23 0:26 / /group rw - cgroup2 cgroup2 rw\n");
    put_file("group/app/memory.max", "8589934592\n");
    put_usage(MIB);
    put_memory(4096 * MIB);
    put_pressure("proc/pressure/memory", 1000);
    put_pressure("group/app/memory.pressure", 1000);
}

struct adapting {
    struct log log;
    struct sl_engine *e;
    struct sl_session *s;
};

/* The engine looks at the system four times a second at most. */
static void let_pass(const struct adapting *a)
{
    clock_sleep(a->e->adapt_at - clock_now());
}

static void open_adapting(struct adapting *a)
{
    struct sl_engine_options o = options(&a->log);
    struct sl_err err;
    make_system();
    a->log.n = 0;
    o.cache_adapt = true;
    o.cache_floor_mb = 1024;
    o.sys_root = root;
    assert_int_equal(sl_engine_open(model->path, &o, &a->e, &err), 0);
    assert_int_equal(sl_session_open(a->e, &a->s, &err), 0);
}

static void step(struct adapting *a)
{
    struct sl_err err;
    int at = sl_session_length(a->s);
    assert_int_equal(sl_session_eval(a->s, model->tokens + at, 1, SL_DECODE, &err), 0);
    check_logits(a->s);
}

static void close_adapting(struct adapting *a)
{
    sl_session_close(&a->s);
    sl_engine_close(&a->e);
}

static void test_short_of_memory(void **state)
{
    (void)state;
    struct adapting a;
    open_adapting(&a);
    struct sl_engine_plan p = plan_of(a.e);
    double t = clock_now();
    step(&a);
    assert_int_equal(a.log.n, 0);
    assert_true(a.e->adapt_at >= t + 0.25);
    put_memory(1024 * MIB - 4096); /* a page under the floor */
    a.e->adapt_at += 3600;
    step(&a); /* too soon to look again */
    assert_int_equal(a.log.n, 0);
    a.e->adapt_at -= 3600;
    let_pass(&a);
    step(&a);
    assert_int_equal(a.log.n, 1);
    assert_int_equal(a.log.change[0].why, SL_CACHE_SHORT);
    assert_int_equal(a.log.change[0].from_bytes, p.cache_bytes);
    assert_int_equal(a.log.change[0].available_bytes, 1024 * MIB - 4096);
    assert_true(a.log.change[0].to_bytes < p.cache_bytes);
    put_memory(16 * MIB);
    let_pass(&a);
    step(&a);
    assert_int_equal(plan_of(a.e).cache_bytes, p.cache_min_bytes);
    let_pass(&a);
    step(&a); /* nothing is left to give */
    assert_int_equal(a.log.n, 2);
    put_memory(4096 * MIB);
    let_pass(&a);
    step(&a); /* over, but not for long enough */
    assert_int_equal(a.log.n, 2);
    close_adapting(&a);
}

static void test_growth_beyond_the_machine(void **state)
{
    (void)state;
    struct adapting a;
    struct sl_err err;
    open_adapting(&a);
    struct sl_engine_plan p = plan_of(a.e);
    assert_int_equal(sl_engine_set_cache_budget(a.e, p.cache_min_bytes, &err), 0);
    put_memory(1024 * MIB); /* the floor */
    assert_int_equal(sl_engine_set_cache_budget(a.e, p.cache_max_bytes, &err), SL_E_BUDGET);
    assert_non_null(strstr(err.msg, "the machine can spare"));
    assert_int_equal(plan_of(a.e).cache_bytes, p.cache_min_bytes);
    put_memory(1024 * MIB + p.cache_max_bytes - p.cache_min_bytes);
    assert_int_equal(sl_engine_set_cache_budget(a.e, p.cache_max_bytes, &err), 0);
    assert_int_equal(plan_of(a.e).cache_bytes, p.cache_max_bytes);
    close_adapting(&a);
}

static void test_short_in_the_group(void **state)
{
    (void)state;
    struct adapting a;
    open_adapting(&a);
    step(&a);
    put_usage(8192 * MIB - 512 * MIB + 4096); /* a sixteenth of the group's 8 GiB is to be left */
    let_pass(&a);
    step(&a);
    assert_int_equal(a.log.n, 1);
    assert_int_equal(a.log.change[0].why, SL_CACHE_SHORT);
    close_adapting(&a);
}

static void test_pressure(void **state)
{
    (void)state;
    static const char *const files[] = {"proc/pressure/memory", "group/app/memory.pressure"};
    for (int i = 0; i < 2; i++) {
        struct adapting a;
        open_adapting(&a);
        struct sl_engine_plan p = plan_of(a.e);
        step(&a);
        put_pressure(files[i], 1000 + 3600 * UINT64_C(1000000));
        let_pass(&a);
        step(&a);
        assert_int_equal(a.log.n, 1);
        assert_int_equal(a.log.change[0].why, SL_CACHE_PRESSURE);
        assert_true(a.log.change[0].to_bytes <= p.cache_bytes - p.cache_bytes / 8 ||
                    a.log.change[0].to_bytes == p.cache_min_bytes);
        close_adapting(&a);
    }
}

/* ---- The group ------------------------------------------------------------------------------- */

static int set_up(void **state)
{
    (void)state;
    set = fixture_load_set("arch", &n_set);
    for (int i = 0; i < n_set && !model; i++)
        if (set[i].n_tokens >= N_ALL && set[i].topk > 0)
            model = &set[i];
    if (!model)
        return -1;
    struct run_spec spec = {
        .path = model->path, .opt = options(NULL), .ids = model->tokens, .n_prompt = N_ALL};
    spec.opt.stream = SL_STREAM_OFF;
    struct sl_err err;
    int rc = run_model(&spec, &resident, &err);
    expected = resident.logits;
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
        cmocka_unit_test(test_sizes_between_tokens),
        cmocka_unit_test(test_growth_beyond_ram),
        cmocka_unit_test(test_no_cache_to_change),
        cmocka_unit_test(test_short_of_memory),
        cmocka_unit_test(test_growth_beyond_the_machine),
        cmocka_unit_test(test_short_in_the_group),
        cmocka_unit_test(test_pressure),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
