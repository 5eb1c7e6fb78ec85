/* identity_test.c: streamed equals resident, byte for byte, in every way to run.
 *
 *   identity_test            each axis alone, for every model; committed hashes
 *   identity_test --subset   base, smallest cache, chunk 7, three threads: for emulated CPUs
 *   identity_test --pairs    all pairs of levels, embedded model, a long prompt; --pairs 2/5: the
 *                            second of five parts of that, for builds in which it takes long
 *   identity_test --record   rewrite tests/data/own.json (after a wanted change of arithmetic) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gates/pairs.h"
#include "gates/subjects.h"

#define MAX_WAYS     128
#define LONG_CONTEXT 1130 /* tokens: five chunks of keys */
#define RESIDENT     5    /* level of AX_CACHE */

static struct subjects subjects;
static int pairs_part = 1, pairs_parts = 1;

static bool run_way(const struct subject *s, const struct way *w, enum sl_kv_type kv,
                    struct run_result *r)
{
    struct run_spec spec;
    struct sl_err err;
    char text[256];
    way_spec(s, w, kv, &spec);
    int rc = run_model(&spec, r, &err);
    const char *trouble = rc == 0 ? way_check(s, w, r) : err.msg;
    if (trouble) {
        way_describe(w, text, sizeof text);
        print_error("%s, %s: %s\n", s->name, text, trouble);
    }
    return trouble == NULL;
}

/* The base run: resident, one thread, the prompt at once. */
static bool run_base(const struct subject *s, enum sl_kv_type kv, struct run_result *r)
{
    struct way w = {{0}};
    if (s->k > 0)
        w.level[AX_CACHE] = RESIDENT;
    return run_way(s, &w, kv, r);
}

/* 0, or 1 when the run failed or gave other bytes. */
static int compare_way(const struct subject *s, const struct way *w, enum sl_kv_type kv,
                       const struct run_result *base)
{
    struct run_result r;
    char text[256];
    bool good = run_way(s, w, kv, &r);
    if (good) {
        int pos = run_differs(base, &r, w->level[AX_CALLS] == 3 ? s->n_prompt - 1 : 0);
        if (pos >= 0) {
            way_describe(w, text, sizeof text);
            print_error("%s, %s: logits or experts differ from position %d on\n", s->name, text,
                        pos);
            good = false;
        }
    }
    run_free(&r);
    return good ? 0 : 1;
}

static int compare_hash(const struct subject *s, const char *kv, const struct run_result *base)
{
    char got[32];
    const char *want = subjects_hash(s->name, kv);
    snprintf(got, sizeof got, "%016llx", (unsigned long long)run_hash(base, SUBJECT_HASH_POS));
    if (want && strcmp(want, got) == 0)
        return 0;
    print_error("%s, %s: hash of the logits is %s, committed: %s\n", s->name, kv, got,
                want ? want : "none");
    return 1;
}

/* Each level of each axis alone. */
static int compare_singles(const struct subject *s, enum sl_kv_type kv,
                           const struct run_result *base)
{
    int bad = 0;
    for (int a = 0; a < AX_COUNT; a++)
        for (int level = a == 0 ? 0 : 1; level < axis_levels((enum axis)a); level++) {
            struct way w = {{0}};
            w.level[a] = level;
            if (axis_applies(s, (enum axis)a, level))
                bad += compare_way(s, &w, kv, base);
        }
    return bad;
}

static void test_singles(void **state)
{
    (void)state;
    int bad = 0;
    for (const struct subject *s = subjects.list; s < subjects_long(&subjects); s++) {
        struct run_result base;
        bool good = run_base(s, SL_KV_F16, &base);
        bad += good ? compare_hash(s, "f16", &base) + compare_singles(s, SL_KV_F16, &base) : 1;
        run_free(&base);
    }
    assert_int_equal(bad, 0);
}

/* A prompt that fills more than one chunk of keys, in wide and odd chunks. */
static void test_long_prompt(void **state)
{
    (void)state;
    const struct subject *s = subjects_long(&subjects);
    struct run_result base;
    bool good = run_base(s, SL_KV_F16, &base);
    int bad = good ? 0 : 1;
    for (int level = 2; good && level < axis_levels(AX_CHUNK); level++) {
        struct way w = {{0}};
        w.level[AX_CHUNK] = level;
        w.level[AX_THREADS] = level % 3;
        bad += compare_way(s, &w, SL_KV_F16, &base);
    }
    run_free(&base);
    assert_int_equal(bad, 0);
}

/* Keys of several chunks, of every type: threads share a token's attention in pieces, and a
 * prompt's tokens share the keys that they read. */
static void test_long_context(void **state)
{
    (void)state;
    static const struct way ways[] = {
        {.level = {[AX_THREADS] = 2}},
        {.level = {[AX_CHUNK] = 4, [AX_THREADS] = 1}},
    };
    static int32_t ids[LONG_CONTEXT];
    struct subject s = *subjects_long(&subjects);
    for (int i = 0; i < LONG_CONTEXT; i++)
        ids[i] = s.ids[i % (s.n_prompt + s.n_step)];
    s.ids = ids;
    s.n_ctx = LONG_CONTEXT;
    s.n_prompt = LONG_CONTEXT - s.n_step;
    int bad = 0;
    for (int kv = SL_KV_F32; kv <= SL_KV_Q8_0; kv++) {
        struct run_result base;
        bool good = run_base(&s, (enum sl_kv_type)kv, &base);
        bad += !good;
        for (size_t i = 0; good && i < sizeof ways / sizeof *ways; i++)
            bad += compare_way(&s, ways + i, (enum sl_kv_type)kv, &base);
        run_free(&base);
    }
    assert_int_equal(bad, 0);
}

/* Base, smallest cache, chunk 7 and three threads, alone and together, F32 keys and values too. */
static void test_subset(void **state)
{
    (void)state;
    static const struct way ways[] = {
        {.level = {[AX_CACHE] = 1}},
        {.level = {[AX_CHUNK] = 2}},
        {.level = {[AX_THREADS] = 2}},
        {.level = {[AX_CACHE] = 2, [AX_CHUNK] = 2, [AX_THREADS] = 2}},
    };
    int bad = 0;
    for (const struct subject *s = subjects.list; s < subjects_long(&subjects); s++)
        for (int kv = 0; kv < 2; kv++) {
            struct run_result base;
            enum sl_kv_type type = kv == 0 ? SL_KV_F16 : SL_KV_F32;
            bool good = run_base(s, type, &base);
            bad += good ? compare_hash(s, kv == 0 ? "f16" : "f32", &base) : 1;
            for (size_t i = 0; good && i < sizeof ways / sizeof *ways; i++)
                if (s->k > 0 || ways[i].level[AX_CACHE] == 0)
                    bad += compare_way(s, ways + i, type, &base);
            run_free(&base);
        }
    assert_int_equal(bad, 0);
}

static void test_pairs(void **state)
{
    (void)state;
    const struct subject *s = subjects_long(&subjects);
    struct way ways[MAX_WAYS];
    int n_levels[AX_COUNT];
    for (int a = 0; a < AX_COUNT; a++)
        n_levels[a] = axis_levels((enum axis)a) - (a == AX_CACHE); /* resident is the base */
    n_levels[AX_READER] -= !axis_applies(s, AX_READER, n_levels[AX_READER] - 1);
    int n = pairs_cover(n_levels, ways, MAX_WAYS);
    assert_true(n > 0);
    struct run_result base;
    bool good = run_base(s, SL_KV_F16, &base);
    int bad = good ? 0 : 1;
    int ran = 0;
    for (int i = pairs_part - 1; good && i < n; i += pairs_parts, ran++)
        bad += compare_way(s, ways + i, SL_KV_F16, &base);
    run_free(&base);
    print_message("%d of the %d ways that cover all pairs\n", ran, n);
    assert_int_equal(bad, 0);
}

/* The gate can fail: another model's, a shifted or a changed result is not "equal". */
static void test_gate_fails(void **state)
{
    (void)state;
    struct run_result a, b;
    const struct subject *s = subjects.list;
    assert_true(run_base(s, SL_KV_F16, &a));
    assert_true(run_base(s, SL_KV_F16, &b));
    assert_int_equal(run_differs(&a, &b, 0), -1);
    uint64_t h = run_hash(&a, SUBJECT_HASH_POS);
    size_t last = (size_t)b.n_pos * (size_t)b.n_vocab - 1;
    ((unsigned char *)(b.logits + last))[0] ^= 1; /* the last bit of the last logit */
    assert_int_equal(run_differs(&a, &b, 0), b.n_pos - 1);
    assert_true(run_hash(&b, SUBJECT_HASH_POS) != h);
    run_free(&b);
    assert_true(run_base(s, SL_KV_F32, &b)); /* other rounding of keys and values */
    assert_true(run_differs(&a, &b, 0) >= 0);
    run_free(&a);
    run_free(&b);
}

static int record(void)
{
    struct subject_hash *h = calloc((size_t)subjects.n, sizeof *h);
    int n = 0;
    for (const struct subject *s = subjects.list; h && s < subjects_long(&subjects); s++, n++) {
        struct run_result f16, f32;
        if (!run_base(s, SL_KV_F16, &f16) || !run_base(s, SL_KV_F32, &f32))
            return 1;
        snprintf(h[n].name, sizeof h[n].name, "%s", s->name);
        h[n].f16 = run_hash(&f16, SUBJECT_HASH_POS);
        h[n].f32 = run_hash(&f32, SUBJECT_HASH_POS);
        run_free(&f16);
        run_free(&f32);
    }
    bool good = h && subjects_record(h, n);
    free(h);
    return good ? 0 : 1;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    const struct CMUnitTest full[] = {
        cmocka_unit_test(test_gate_fails),
        cmocka_unit_test(test_singles),
        cmocka_unit_test(test_long_prompt),
        cmocka_unit_test(test_long_context),
    };
    const struct CMUnitTest subset[] = {
        cmocka_unit_test(test_gate_fails),
        cmocka_unit_test(test_subset),
    };
    const struct CMUnitTest pairs[] = {cmocka_unit_test(test_pairs)};
    int rc;
    if (argc > 2 && (sscanf(argv[2], "%d/%d", &pairs_part, &pairs_parts) != 2 || pairs_part < 1 ||
                     pairs_part > pairs_parts))
        return 2;
    subjects_load(&subjects, strcmp(mode, "") == 0 || strcmp(mode, "--pairs") == 0);
    if (strcmp(mode, "--record") == 0)
        rc = record();
    else if (strcmp(mode, "--subset") == 0)
        rc = cmocka_run_group_tests_name("identity, subset", subset, NULL, NULL);
    else if (strcmp(mode, "--pairs") == 0)
        rc = cmocka_run_group_tests_name("identity, pairs", pairs, NULL, NULL);
    else
        rc = cmocka_run_group_tests_name("identity", full, NULL, NULL);
    subjects_free(&subjects);
    return rc;
}
