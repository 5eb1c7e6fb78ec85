/* oracle_test.c: logits and chosen experts against the recorded ones of tests/data/arch (float32
 * truth) and tests/data/qmodels (the same weights with float32 activations; ours are rounded to 8
 * bits there). F32 keys and values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/fixtures.h"
#include "support/run.h"

#define ARCH_TOLERANCE 1e-3 /* largest difference of a logit; the recorded ones agree to 2e-5 */
#define STEP_ROWS      16
/* Rounded activations: noise against the other engine's, per model and on average. Two experts'
 * scores may be closer than that noise: so many (block, position) pairs of a model may choose
 * otherwise. What they then compute is another function; those positions are left out. */
#define CLOSE_CALLS      1
#define NMSE_FACTOR      2.0
#define NMSE_MEAN_FACTOR 1.15

/* 0 and the result, or 1 after a message. n_step of the tokens are evaluated one by one. */
static int run_fixture(const struct fixture *f, int n_step, enum sl_stream_mode stream,
                       struct run_result *r)
{
    struct run_spec spec = {
        .path = f->path, .ids = f->tokens, .n_prompt = f->n_tokens - n_step, .n_step = n_step};
    struct sl_err err;
    sl_engine_options_init(&spec.opt);
    spec.opt.k_type = spec.opt.v_type = SL_KV_F32;
    spec.opt.stream = stream;
    spec.opt.threads = 2;
    spec.opt.n_ctx = f->n_tokens;
    if (stream == SL_STREAM_ON)
        spec.opt.cache_slots = f->topk;
    int rc = run_model(&spec, r, &err);
    if (rc != 0)
        print_error("%s: %s\n", f->name, err.msg);
    else if (r->n_vocab != f->n_vocab || r->k != f->topk || r->bad_calls != 0)
        print_error("%s: vocabulary %d, %d experts used, %d wrong observer calls\n", f->name,
                    r->n_vocab, r->k, r->bad_calls);
    else
        return 0;
    return 1;
}

static int compare_logits(const char *name, const char *what, const float *got, const float *want,
                          int rows, int n_vocab)
{
    double worst = 0;
    int at = 0;
    for (int i = 0; i < rows * n_vocab; i++) {
        double d = fabs((double)got[i] - (double)want[i]);
        if (!(d <= worst)) {
            worst = d;
            at = i;
        }
    }
    if (worst <= ARCH_TOLERANCE)
        return 0;
    print_error("%s, %s: logit %d of row %d is off by %g\n", name, what, at % n_vocab, at / n_vocab,
                worst);
    return 1;
}

static int compare_ids(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* (block, position) pairs whose expert sets are not the recorded ones. at (may be NULL) says for
 * each position whether it is among them. */
static int changed_sets(const struct fixture *f, const struct run_result *r, bool loud, bool *at)
{
    int changed = 0;
    size_t k = (size_t)f->topk;
    for (int l = 0; l < f->n_topk_layers; l++)
        for (int pos = 0; pos < f->n_tokens; pos++) {
            int32_t want[64];
            assert_true(k <= sizeof want / sizeof *want && f->topk_layers[l] < r->n_layer);
            memcpy(want, f->topk_ids + ((size_t)l * (size_t)f->n_tokens + (size_t)pos) * k,
                   k * sizeof *want);
            qsort(want, k, sizeof *want, compare_ids);
            const int32_t *got = r->experts +
                                 ((size_t)pos * (size_t)r->n_layer + (size_t)f->topk_layers[l]) * k;
            if (memcmp(got, want, k * sizeof *want) == 0)
                continue;
            changed++;
            if (at)
                at[pos] = true;
            if (loud)
                print_error("%s: other experts in block %d at position %d\n", f->name,
                            f->topk_layers[l], pos);
        }
    return changed;
}

static int check_arch(const struct fixture *f, enum sl_stream_mode stream)
{
    struct run_result batch, step;
    int v = f->n_vocab, bad = 0;
    if (run_fixture(f, 0, stream, &batch) != 0)
        return 1;
    if (run_fixture(f, STEP_ROWS, stream, &step) != 0) {
        run_free(&batch);
        return 1;
    }
    bad += compare_logits(f->name, "batch", batch.logits, f->logits, f->n_tokens, v);
    bad += compare_logits(f->name, "steps", step.logits + (f->n_tokens - STEP_ROWS) * v,
                          f->logits_step, STEP_ROWS, v);
    bad += run_differs(&batch, &step, 0) >= 0;
    bad += changed_sets(f, &batch, true, NULL);
    run_free(&batch);
    run_free(&step);
    return bad;
}

static void test_arch(void **state)
{
    (void)state;
    int n, bad = 0;
    struct fixture *list = fixture_load_set("arch", &n);
    for (int i = 0; i < n; i++) {
        assert_non_null(list[i].logits_step);
        bad += check_arch(list + i, SL_STREAM_OFF);
        if (list[i].topk > 0)
            bad += check_arch(list + i, SL_STREAM_ON);
    }
    fixture_free_set(list, n);
    assert_int_equal(bad, 0);
}

/* Over the positions that are not left out. */
static double nmse(const struct fixture *f, const float *got, const bool *leave_out)
{
    double error = 0, power = 0;
    for (int i = 0; i < f->n_tokens * f->n_vocab; i++) {
        double want = (double)f->logits[i], d = (double)got[i] - want;
        if (leave_out[i / f->n_vocab])
            continue;
        error += d * d;
        power += want * want;
    }
    return error / power;
}

static void test_qmodels(void **state)
{
    (void)state;
    int n, bad = 0;
    double mean = 0;
    struct fixture *list = fixture_load_set("qmodels", &n);
    for (int i = 0; i < n; i++) {
        const struct fixture *f = list + i;
        struct run_result r;
        if (run_fixture(f, 0, SL_STREAM_OFF, &r) != 0) {
            bad++;
            continue;
        }
        bool other[256] = {false};
        assert_true(f->n_tokens <= 256);
        int changed = changed_sets(f, &r, false, other);
        double e = nmse(f, r.logits, other);
        print_message("%s: nmse %.3g, %.2f of the reference's; %d expert sets changed\n", f->name,
                      e, e / f->ref_nmse, changed);
        if (!(e <= NMSE_FACTOR * f->ref_nmse) || changed > f->ref_sets_changed + CLOSE_CALLS) {
            print_error("%s: too far from the truth\n", f->name);
            bad++;
        }
        mean += e / f->ref_nmse / n;
        run_free(&r);
    }
    print_message("mean %.2f of the reference's\n", mean);
    fixture_free_set(list, n);
    assert_int_equal(bad, 0);
    assert_true(mean <= NMSE_MEAN_FACTOR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arch),
        cmocka_unit_test(test_qmodels),
    };
    return cmocka_run_group_tests_name("oracle", tests, NULL, NULL);
}
