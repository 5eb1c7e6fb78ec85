/* fpenv_test.c: a caller with another rounding mode and flushed subnormals gets the same bytes, and
 * finds its own floating-point environment unchanged after every public call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gates/subjects.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define HOSTILE (UINT64_C(1) << 15 | UINT64_C(1) << 6 | UINT64_C(2) << 13) /* FTZ, DAZ, upward */
#define CONTROL UINT64_C(0xffc0) /* all but the sticky exception flags */

static uint64_t get_state(void)
{
    return _mm_getcsr() & CONTROL;
}

static void set_hostile(void)
{
    _mm_setcsr((_mm_getcsr() & 0x1f80u) | (uint32_t)HOSTILE);
}

static void set_default(void)
{
    _mm_setcsr(0x1f80);
}
#elif defined(__aarch64__)
#define HOSTILE (UINT64_C(1) << 24 | UINT64_C(1) << 22) /* FZ, upward */

static uint64_t get_state(void)
{
    uint64_t v;
    __asm__ volatile("mrs %0, fpcr" : "=r"(v));
    return v;
}

static void set_state(uint64_t v)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(v));
}

static void set_hostile(void)
{
    set_state(HOSTILE);
}

static void set_default(void)
{
    set_state(0);
}
#else
#error "no floating-point environment known for this CPU"
#endif

#define N_DRAWS 16

struct outcome {
    float *logits;
    size_t n_floats;
    int32_t draws[N_DRAWS];
    int32_t *ids;
    size_t n_ids;
    int changed_states; /* calls that did not restore the state */
};

/* Call and check that the state is as before. */
#define KEEP(o, call)                                                                              \
    do {                                                                                           \
        uint64_t before_ = get_state();                                                            \
        call;                                                                                      \
        (o)->changed_states += get_state() != before_;                                             \
    } while (0)

static void collect(void *user, int pos, const float *logits)
{
    struct outcome *o = user;
    size_t n = o->n_floats / SUBJECT_HASH_POS;
    memcpy(o->logits + (size_t)pos * n, logits, n * sizeof *logits);
}

/* Everything that computes, in the caller's present environment. */
static void use_engine(const struct subject *s, struct outcome *o)
{
    static const char text[] = "Once upon a time there was a Fox, \xc3\xa9t\xc3\xa9.";
    struct run_spec spec;
    struct way w = {{0}};
    struct sl_err err = {0};
    struct sl_engine *e = NULL;
    struct sl_session *session = NULL;
    struct sl_sampler *sampler = NULL;
    struct sl_sampling sampling;
    struct sl_model_info info;
    int rc;
    w.level[AX_THREADS] = 2;
    way_spec(s, &w, SL_KV_F16, &spec);
    KEEP(o, rc = sl_engine_open(spec.path, &spec.opt, &e, &err));
    if (rc != 0)
        fail_msg("%s", err.msg);
    KEEP(o, sl_engine_info(e, &info));
    o->n_floats = (size_t)info.n_vocab * SUBJECT_HASH_POS;
    o->logits = calloc(o->n_floats, sizeof *o->logits);
    struct sl_observer obs = {.on_logits = collect, .user = o};
    KEEP(o, rc = sl_session_open(e, &session, &err));
    assert_int_equal(rc, 0);
    KEEP(o, sl_session_observe(session, &obs));
    KEEP(o, rc = sl_session_eval(session, s->ids, (size_t)s->n_prompt, SL_PROMPT, &err));
    assert_int_equal(rc, 0);
    sl_sampling_init(&sampling);
    sampling.temp = 1.3f;
    sampling.top_k = 100;
    sampling.top_p = 0.95f;
    sampling.min_p = 0.01f;
    sampling.repeat_penalty = 1.1f;
    sampling.seed = 7;
    KEEP(o, rc = sl_sampler_open(e, &sampling, &sampler, &err));
    assert_int_equal(rc, 0);
    for (int i = 0; i < s->n_step; i++) {
        const int32_t *id = s->ids + s->n_prompt + i;
        KEEP(o, rc = sl_session_eval(session, id, 1, SL_DECODE, &err));
        assert_int_equal(rc, 0);
        KEEP(o, sl_sampler_accept(sampler, *id));
    }
    for (int i = 0; i < N_DRAWS; i++) {
        KEEP(o, rc = sl_sampler_draw(sampler, sl_session_logits(session), &o->draws[i], &err));
        assert_int_equal(rc, 0);
        KEEP(o, sl_sampler_accept(sampler, o->draws[i]));
    }
    if (info.has_vocab) {
        KEEP(o, rc = sl_tokenize(e, text, sizeof text - 1, 0, &o->ids, &o->n_ids, &err));
        assert_int_equal(rc, 0);
    }
    KEEP(o, sl_sampler_close(&sampler));
    KEEP(o, sl_session_close(&session));
    KEEP(o, sl_engine_close(&e));
}

static void free_outcome(struct outcome *o)
{
    free(o->logits);
    sl_free(o->ids);
}

static void test_same_bytes(void **state)
{
    (void)state;
    struct subjects all;
    subjects_load(&all, false);
    for (const struct subject *s = all.list; s < subjects_long(&all); s++) {
        struct outcome plain = {0}, hostile = {0};
        set_default();
        use_engine(s, &plain);
        set_hostile();
        use_engine(s, &hostile);
        uint64_t after = get_state();
        set_default();
        assert_int_equal(plain.changed_states, 0);
        assert_int_equal(hostile.changed_states, 0);
        assert_true((after & HOSTILE) == HOSTILE);
        assert_int_equal(plain.n_floats, hostile.n_floats);
        if (memcmp(plain.logits, hostile.logits, plain.n_floats * sizeof(float)) != 0)
            fail_msg("%s: other logits", s->name);
        assert_memory_equal(plain.draws, hostile.draws, sizeof plain.draws);
        assert_int_equal(plain.n_ids, hostile.n_ids);
        if (plain.n_ids > 0)
            assert_memory_equal(plain.ids, hostile.ids, plain.n_ids * sizeof *plain.ids);
        free_outcome(&plain);
        free_outcome(&hostile);
    }
    subjects_free(&all);
}

/* The environment set here does change results: without it the test above would show nothing. */
static void test_hostile_matters(void **state)
{
    (void)state;
    volatile float one = 1.0f, dust = 0x1p-30f, tiny = 0x1p-130f, half = 0.5f;
    set_hostile();
    volatile float up = one + dust, flushed = tiny * half;
    set_default();
    volatile float nearest = one + dust, kept = tiny * half;
    assert_true(up > nearest);
    assert_true(flushed == 0.0f && kept != 0.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hostile_matters),
        cmocka_unit_test(test_same_bytes),
    };
    return cmocka_run_group_tests_name("floating-point environment", tests, NULL, NULL);
}
