/* routing_test.c: options that change which experts a token gets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "support/fixtures.h"
#include "support/run.h"

#define MODEL    SL_SOURCE_DIR "/models/storyteller.gguf"
#define N_LAYER  6
#define N_EXPERT 16
#define TOP_K    2
#define N_PROMPT 5
#define N_STEP   7
#define N_ALL    (N_PROMPT + N_STEP)

static const int32_t ids[N_ALL] = {11, 250, 31, 4, 705, 66, 1201, 8, 93, 10, 3, 77};

static struct run_spec spec(void)
{
    struct run_spec s = {.path = MODEL, .ids = ids, .n_prompt = N_PROMPT, .n_step = N_STEP};
    sl_engine_options_init(&s.opt);
    s.opt.threads = 2;
    s.opt.n_ctx = 64;
    s.opt.stream = SL_STREAM_ON;
    s.opt.cache_slots = 20;
    s.opt.cache_floor_mb = 0;
    return s;
}

static struct run_result run(const struct run_spec *s)
{
    struct run_result r;
    struct sl_err err;
    if (run_model(s, &r, &err) != 0)
        fail_msg("%s", err.msg);
    assert_int_equal(r.bad_calls, 0);
    return r;
}

static const int32_t *chosen(const struct run_result *r, int pos, int block)
{
    return r->experts + (pos * r->n_layer + block) * r->k;
}

static uint64_t routed(const struct run_result *r)
{
    return r->stats.prompt.experts_routed + r->stats.decode.experts_routed;
}

static uint64_t replayed(const struct run_result *r)
{
    return r->stats.prompt.experts_replayed + r->stats.decode.experts_replayed;
}

/* ---- A recorded routing ---- */

static FILE *trace_begin(char path[600], const char *name, int layers, int experts, int k)
{
    snprintf(path, 600, "%s/%s", fixture_temp_dir(), name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "# route_trace v1\n# model=a.gguf arch=x n_layer=%d n_expert=%d n_expert_used=%d\n",
            layers, experts, k);
    for (int l = 0; l < layers; l++)
        fprintf(f, "# layer=%d expert_bytes=4096 dense_bytes=1\n", l);
    fputs("turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n", f);
    return f;
}

static void trace_row(FILE *f, int phase, int step, int layer, const int32_t *experts, int k)
{
    for (int i = 0; i < k; i++)
        fprintf(f, "0,%d,%d,%d,%d,%d,0.5,0,4096\n", phase, step, layer, i, experts[i]);
}

/* The choice of three experts that the test's recording makes. */
static void made_up(int phase, int token, int layer, int32_t out[3])
{
    int a = (5 * phase + 3 * token + 7 * layer) % N_EXPERT;
    out[0] = (a + 9) % N_EXPERT; /* not ascending: the order of choice is no order of ids */
    out[1] = a;
    out[2] = (a + 4) % N_EXPERT;
}

static void expect_made_up(const struct run_result *r, int pos, int phase, int token, int layer)
{
    int32_t want[3];
    made_up(phase, token, layer, want);
    const int32_t *got = chosen(r, pos, layer);
    for (int i = 0; i < 3; i++)
        assert_true(got[i] == want[0] || got[i] == want[1] || got[i] == want[2]);
}

/* Prompt tokens by position, decoded ones in order and round again; what was not recorded is the
 * router's choice of as many experts. */
static void test_replay_follows(void **state)
{
    (void)state;
    char path[600];
    int32_t e[3];
    FILE *f = trace_begin(path, "made-up.csv", N_LAYER, N_EXPERT, 3);
    for (int t = 0; t < 4; t++) /* not the last prompt token, layer 3 not at all */
        for (int l = 0; l < N_LAYER; l++)
            if (made_up(0, t, l, e), l != 3)
                trace_row(f, 0, t, l, e, 3);
    for (int t = 0; t < 3; t++)
        for (int l = 0; l < N_LAYER; l++)
            if (made_up(1, t, l, e), l != 3)
                trace_row(f, 1, 40 + t, l, e, 3);
    fclose(f);
    struct run_spec s = spec();
    s.opt.route_replay = path;
    struct run_result r = run(&s);
    assert_int_equal(r.k, 3);
    assert_int_equal(r.info.n_expert_used, TOP_K);
    assert_true(r.plan.replay);
    assert_non_null(strstr(r.plan.marks, "route-replay made-up.csv"));
    for (int l = 0; l < N_LAYER; l++) {
        for (int pos = 0; pos < 4 && l != 3; pos++)
            expect_made_up(&r, pos, 0, pos, l);
        for (int pos = N_PROMPT; pos < N_ALL && l != 3; pos++)
            expect_made_up(&r, pos, 1, (pos - N_PROMPT) % 3, l);
    }
    assert_int_equal(routed(&r), N_ALL * N_LAYER * 3);
    assert_int_equal(replayed(&r), (4 + N_STEP) * (N_LAYER - 1) * 3);
    assert_int_equal(r.stats.replay_rounds, N_STEP / 3);

    /* In chunks, resident, with one thread: the same bytes. */
    struct run_spec other = s;
    other.opt.ubatch = 2;
    other.opt.threads = 1;
    other.opt.stream = SL_STREAM_OFF;
    other.opt.cache_slots = SL_CACHE_UNSET;
    struct run_result r2 = run(&other);
    assert_int_equal(run_differs(&r, &r2, 0), -1);
    run_free(&r2);
    run_free(&r);
}

/* The model's own choices, recorded: the bytes of a run without a recording. */
static void test_replay_of_itself(void **state)
{
    (void)state;
    struct run_spec s = spec();
    struct run_result own = run(&s);
    char path[600];
    FILE *f = trace_begin(path, "own.csv", N_LAYER, N_EXPERT, TOP_K);
    for (int pos = 0; pos < N_ALL; pos++)
        for (int l = 0; l < N_LAYER; l++)
            trace_row(f, pos >= N_PROMPT, pos, l, chosen(&own, pos, l), TOP_K);
    fclose(f);
    s.opt.route_replay = path;
    struct run_result r = run(&s);
    assert_int_equal(run_differs(&own, &r, 0), -1);
    assert_int_equal(replayed(&r), routed(&r));
    assert_int_equal(replayed(&own), 0);
    assert_string_equal(own.plan.marks, "");
    run_free(&own);
    run_free(&r);
}

static void expect_refused(const struct run_spec *s, int code, const char *say)
{
    struct run_result r;
    struct sl_err err;
    assert_int_equal(run_model(s, &r, &err), code);
    if (!strstr(err.msg, say))
        fail_msg("'%s' does not say '%s'", err.msg, say);
    run_free(&r);
}

static void test_replay_must_fit(void **state)
{
    (void)state;
    static const int32_t one[1] = {0};
    static const struct {
        int layers, experts, k, code;
        const char *say;
    } cases[] = {
        {N_LAYER + 1, N_EXPERT, 1, SL_E_ARG,
         "recorded from 7 layers of 16 experts, the model has 6"},
        {N_LAYER, N_EXPERT + 1, 1, SL_E_ARG, "recorded from 6 layers of 17 experts"},
    };
    char path[600];
    struct run_spec s = spec();
    s.opt.route_replay = path;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FILE *f = trace_begin(path, "bad.csv", cases[i].layers, cases[i].experts, cases[i].k);
        trace_row(f, 1, 0, 0, one, 1);
        fclose(f);
        expect_refused(&s, cases[i].code, cases[i].say);
    }
    s.opt.route_replay = "no-such-trace.csv";
    expect_refused(&s, SL_E_IO, "no-such-trace.csv");
    s.opt.route_replay = MODEL;
    expect_refused(&s, SL_E_FORMAT, "line 1");
}

/* A recording may have fewer layers and experts than the model. */
static void test_replay_of_less(void **state)
{
    (void)state;
    char path[600];
    static const int32_t e[1] = {3};
    FILE *f = trace_begin(path, "less.csv", 2, 8, 1);
    trace_row(f, 1, 0, 1, e, 1);
    fclose(f);
    struct run_spec s = spec();
    s.opt.route_replay = path;
    struct run_result r = run(&s);
    assert_int_equal(r.k, 1);
    for (int pos = N_PROMPT; pos < N_ALL; pos++)
        assert_int_equal(chosen(&r, pos, 1)[0], 3);
    assert_int_equal(replayed(&r), N_STEP);
    run_free(&r);
}

/* ---- Lossy options ---- */

static void make_resident(struct run_spec *s)
{
    s->opt.stream = SL_STREAM_OFF;
    s->opt.cache_slots = SL_CACHE_UNSET;
    s->opt.threads = 1;
}

static void test_fewer_experts(void **state)
{
    (void)state;
    struct run_spec s = spec();
    struct run_result own = run(&s);
    s.opt.n_expert_used = TOP_K;
    struct run_result same = run(&s);
    assert_int_equal(run_differs(&own, &same, 0), -1);
    assert_string_equal(same.plan.marks, "");
    run_free(&same);
    for (int k = 1; k <= 5; k += 4) { /* less and more than the model's */
        s.opt.n_expert_used = k;
        struct run_spec other = s;
        make_resident(&other);
        struct run_result a = run(&s), b = run(&other);
        assert_int_equal(a.k, k);
        assert_int_equal(run_differs(&a, &b, 0), -1);
        assert_non_null(strstr(a.plan.marks, "lossy"));
        assert_int_equal(routed(&a), N_ALL * N_LAYER * k);
        run_free(&a);
        run_free(&b);
    }
    run_free(&own);
}

static int count_used(const struct run_result *r, int pos)
{
    int n = 0;
    for (int i = 0; i < r->n_layer * r->k; i++)
        n += r->experts[pos * r->n_layer * r->k + i] >= 0;
    return n;
}

/* Below any weight nothing is dropped; at the full threshold some, never all of a layer's; prompts
 * are spared unless asked for. */
static void test_drop(void **state)
{
    (void)state;
    struct run_spec s = spec();
    s.opt.cache_slots = 4;
    s.opt.n_expert_used = 4;
    struct run_result own = run(&s);
    s.opt.drop_cold = 1e-6;
    struct run_result none = run(&s);
    assert_int_equal(run_differs(&own, &none, 0), -1);
    assert_int_equal(none.stats.decode.experts_dropped, 0);
    run_free(&none);

    s.opt.drop_cold = 1;
    struct run_result some = run(&s);
    assert_true(some.stats.decode.experts_dropped > 0);
    assert_int_equal(some.stats.prompt.experts_dropped, 0);
    assert_int_equal(run_differs(&own, &some, 0), N_PROMPT);
    assert_true(some.stats.decode.misses < own.stats.decode.misses);
    uint64_t used = 0;
    for (int pos = N_PROMPT; pos < N_ALL; pos++) {
        used += (uint64_t)count_used(&some, pos);
        for (int l = 0; l < N_LAYER; l++)
            assert_true(chosen(&some, pos, l)[0] >= 0);
    }
    assert_int_equal(used + some.stats.decode.experts_dropped, N_STEP * N_LAYER * 4);

    s.opt.drop_no_renorm = true;
    struct run_result plain = run(&s);
    assert_true(run_differs(&some, &plain, 0) >= N_PROMPT);
    run_free(&plain);
    s.opt.drop_in_prefill = true;
    struct run_result prompt = run(&s);
    assert_true(prompt.stats.prompt.experts_dropped > 0);
    run_free(&prompt);
    run_free(&some);
    run_free(&own);
}

/* The only expert of a token is its top expert. */
static void test_drop_spares_the_top(void **state)
{
    (void)state;
    struct run_spec s = spec();
    s.opt.cache_slots = 4;
    s.opt.n_expert_used = 1;
    struct run_result own = run(&s);
    s.opt.drop_cold = 1;
    s.opt.drop_in_prefill = true;
    struct run_result r = run(&s);
    assert_int_equal(run_differs(&own, &r, 0), -1);
    run_free(&own);
    run_free(&r);
}

/* A cold expert is dropped, the same one in the cache is used: with room for all experts, the
 * second time that the same tokens come nothing is missing. */
static void test_drop_asks_the_cache(void **state)
{
    (void)state;
    static const int32_t again[10] = {11, 250, 31, 4, 11, 11, 11, 11, 11, 11};
    struct run_spec s = spec();
    s.ids = again;
    s.n_prompt = 4;
    s.n_step = 6;
    s.opt.cache_slots = N_LAYER * N_EXPERT;
    s.opt.drop_cold = 1;
    s.opt.n_expert_used = N_EXPERT; /* the prompt reads every expert */
    struct run_result r = run(&s);
    assert_int_equal(r.stats.prompt.experts_dropped, 0);
    assert_int_equal(r.stats.decode.experts_dropped, 0);
    assert_int_equal(r.stats.decode.misses, 0);
    run_free(&r);
}

static void test_substitute(void **state)
{
    (void)state;
    struct run_spec s = spec();
    s.opt.cache_slots = 12;
    struct run_result own = run(&s);
    s.opt.substitute = 1e-30;
    struct run_result none = run(&s);
    assert_int_equal(run_differs(&own, &none, 0), -1);
    assert_int_equal(none.stats.decode.experts_substituted, 0);
    s.opt.substitute = 1;
    struct run_result much = run(&s);
    assert_true(much.stats.decode.experts_substituted > 0);
    assert_int_equal(much.stats.prompt.experts_substituted, 0);
    assert_int_equal(run_differs(&own, &much, 0), N_PROMPT);
    assert_true(much.stats.decode.misses < own.stats.decode.misses);
    run_free(&own);
    run_free(&none);
    run_free(&much);
}

/* The same text with any cache, with none and resident; layers that nobody can look ahead to are
 * routed as usual. */
static void test_route_ahead(void **state)
{
    (void)state;
    struct run_spec s = spec();
    struct run_result own = run(&s);
    for (int n = 1; n < N_LAYER; n += 2) {
        s = spec();
        s.opt.route_ahead = n;
        struct run_result r = run(&s);
        assert_int_equal(r.stats.decode.experts_ahead, N_STEP * (N_LAYER - n) * TOP_K);
        assert_int_equal(r.stats.prompt.experts_ahead, 0);
        assert_int_equal(routed(&r), N_ALL * N_LAYER * TOP_K);
        assert_int_equal(run_differs(&own, &r, 0), N_PROMPT);
        assert_memory_equal(chosen(&own, N_PROMPT, 0), chosen(&r, N_PROMPT, 0),
                            (size_t)n * TOP_K * sizeof(int32_t));
        static const int slots[] = {0, TOP_K, N_LAYER * N_EXPERT};
        for (int i = 0; i < 4; i++) {
            struct run_spec other = s;
            other.opt.threads = 1 + i % 3;
            if (i == 3)
                make_resident(&other);
            else
                other.opt.cache_slots = slots[i];
            struct run_result r2 = run(&other);
            assert_int_equal(run_differs(&r, &r2, 0), -1);
            run_free(&r2);
        }
        run_free(&r);
    }
    run_free(&own);
}

/* Reads on a guess and their log change no byte, whatever they do to the cache. */
static void test_guesses(void **state)
{
    (void)state;
    struct run_spec s = spec();
    s.opt.cache_slots = 6;
    struct run_result own = run(&s);
    uint64_t reads = 0;
    for (int i = 0; i < 12; i++) {
        struct run_spec g = s;
        g.opt.prefetch = i % 4;
        g.opt.predict_prefetch = i % 3 != 0;
        g.opt.predict_spec_max = i % 3 == 2 ? N_EXPERT : 0;
        g.opt.predict_log = i % 2;
        g.opt.cache_slots = i % 5 == 0 ? TOP_K : 6;
        struct run_result r = run(&g);
        assert_int_equal(run_differs(&own, &r, 0), -1);
        assert_string_equal(r.plan.marks, "");
        assert_int_equal(r.stats.prompt.expected_reads, 0);
        reads += r.stats.decode.expected_reads;
        run_free(&r);
    }
    assert_true(reads > 0);
    run_free(&own);
}

/* A prompt's next layer is read ahead where several tokens will ask for an expert; most of that is
 * used, and it changes no byte. */
static void test_a_prompt_reads_ahead(void **state)
{
    (void)state;
    enum { N = 48 };
    int32_t many[N + 2];
    for (int i = 0; i < N + 2; i++)
        many[i] = 3 + 37 * i % 900;
    struct run_spec s = spec();
    s.ids = many;
    s.n_prompt = N;
    s.n_step = 2;
    s.opt.cache_slots = 6;
    s.opt.overlap = false;
    struct run_result alone = run(&s);
    assert_int_equal(alone.stats.prompt.spec_useful_bytes, 0);
    s.opt.overlap = true;
    struct run_result ahead = run(&s);
    assert_int_equal(run_differs(&alone, &ahead, 0), -1);
    assert_true(ahead.stats.prompt.spec_useful_bytes > 4 * ahead.stats.prompt.spec_wasted_bytes);
    assert_int_equal(ahead.stats.decode.spec_useful_bytes, 0);
    s.opt.load_all = true;
    struct run_result all = run(&s);
    assert_int_equal(run_differs(&alone, &all, 0), -1);
    assert_true(all.stats.prompt.spec_useful_bytes > 0);
    assert_int_equal(all.stats.prompt.spec_wasted_bytes, 0);
    run_free(&alone);
    run_free(&ahead);
    run_free(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replay_follows),
        cmocka_unit_test(test_replay_of_itself),
        cmocka_unit_test(test_replay_must_fit),
        cmocka_unit_test(test_replay_of_less),
        cmocka_unit_test(test_fewer_experts),
        cmocka_unit_test(test_drop),
        cmocka_unit_test(test_drop_spares_the_top),
        cmocka_unit_test(test_drop_asks_the_cache),
        cmocka_unit_test(test_substitute),
        cmocka_unit_test(test_route_ahead),
        cmocka_unit_test(test_guesses),
        cmocka_unit_test(test_a_prompt_reads_ahead),
    };
    return cmocka_run_group_tests_name("routing", tests, NULL, NULL);
}
