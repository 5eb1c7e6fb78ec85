/* scorer_test.c: negative log-likelihoods of distributions that are known exactly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "sample/scorer.h"

static struct kernels kernels;

static struct scorer *open_scorer(int n)
{
    struct scorer *s;
    struct sl_err err;
    assert_int_equal(scorer_open(n, &kernels, &s, &err), 0);
    return s;
}

static void test_uniform(void **state)
{
    (void)state;
    float logits[1000];
    for (int i = 0; i < 1000; i++)
        logits[i] = -3.5f;
    struct scorer *s = open_scorer(1000);
    struct sl_scores got;
    scorer_get(s, &got);
    assert_true(got.tokens == 0 && got.nll == 0 && got.ppl == 0);
    for (int id = 0; id < 10; id++)
        assert_int_equal(scorer_add(s, logits, id, NULL), 0);
    scorer_get(s, &got);
    assert_int_equal(got.tokens, 10);
    assert_int_equal(got.hits, 1); /* of equal logits the lowest id is the choice */
    assert_true(fabs(got.nll - log(1000)) < 1e-6);
    assert_true(fabs(got.ppl - 1000) < 1e-3);
    scorer_close(&s);
    assert_null(s);
}

/* A token that the model holds for impossible: its probability is no binary32 number. */
static void test_far_below(void **state)
{
    (void)state;
    float logits[16] = {0};
    logits[3] = 1000;
    struct scorer *s = open_scorer(16);
    struct sl_scores got;
    assert_int_equal(scorer_add(s, logits, 5, NULL), 0);
    assert_int_equal(scorer_add(s, logits, 3, NULL), 0);
    scorer_get(s, &got);
    assert_true(got.nll == 500);
    assert_int_equal(got.hits, 1);
    scorer_close(&s);
}

static void test_refused(void **state)
{
    (void)state;
    float logits[16] = {0};
    struct scorer *s = open_scorer(16);
    struct sl_scores got;
    struct sl_err err;
    assert_int_equal(scorer_add(s, logits, 16, &err), SL_E_ARG);
    assert_int_equal(scorer_add(s, logits, -1, &err), SL_E_ARG);
    logits[7] = NAN;
    assert_int_equal(scorer_add(s, logits, 0, &err), SL_E_NUMERIC);
    logits[7] = INFINITY;
    assert_int_equal(scorer_add(s, logits, 0, &err), SL_E_NUMERIC);
    scorer_get(s, &got);
    assert_int_equal(got.tokens, 0);
    scorer_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_far_below),
        cmocka_unit_test(test_refused),
    };
    kernels_init(&kernels, KL_COUNT);
    return cmocka_run_group_tests_name("scorer", tests, NULL, NULL);
}
