/* The layered limit against sums done by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "telemetry/limit.h"
#include "telemetry/times.h"

static void add(struct limit *l, int pos, int n_tok, int block, uint64_t dense, uint64_t hit,
                uint64_t missed, uint64_t expert)
{
    struct sl_block_event e = {.batch = {.pos = pos, .n_tok = n_tok, .prompt = n_tok > 1},
                               .block = block,
                               .dense_bytes = dense,
                               .hit_bytes = hit,
                               .missed_bytes = missed,
                               .expert_bytes = expert};
    limit_add_block(l, &e);
}

static void test_by_hand(void **state)
{
    (void)state;
    struct limit l;
    struct limit_rates rates = {.ram = 100, .kernel = 0, .drive = 10, .threads = 2};
    limit_open(&l, &rates, 2);
    add(&l, 0, 9, 0, 1000, 0, 5000, 50);   /* a prompt: not counted */
    add(&l, 9, 1, 0, 100, 200, 0, 50);     /* 1 + 2 */
    add(&l, 9, 1, 1, 100, 0, 100, 50);     /* 1 + 10 + 0.5 */
    add(&l, 9, 1, 2, 300, 0, 0, 0);        /* head: 3 */
    add(&l, 10, 1, 0, 100, 2000, 100, 50); /* 1 + max(10, 20) + 0.5 */
    add(&l, 10, 1, 1, 0, 0, 0, 50);
    assert_int_equal(l.tokens, 2);
    assert_true(fabs(limit_layered(&l) - (17.5 + 21.5) / 2) < 1e-12);
    /* token 9: io 10, work 1 + 2 + 1 + 1 + 3 = 8; token 10: io 10, work 1 + 20 + 1 = 22 */
    assert_true(fabs(limit_whole(&l) - (10 + 22) / 2.0) < 1e-12);
}

static void test_kernels_slower_than_memory(void **state)
{
    (void)state;
    struct limit l;
    struct limit_rates rates = {.ram = 100, .kernel = 25, .drive = 10, .threads = 2};
    limit_open(&l, &rates, 1);
    add(&l, 0, 1, 0, 100, 0, 0, 0);
    assert_true(fabs(limit_layered(&l) - 2) < 1e-12);
    rates.threads = 8;
    limit_open(&l, &rates, 1);
    add(&l, 0, 1, 0, 100, 0, 0, 0);
    assert_true(fabs(limit_layered(&l) - 1) < 1e-12);
}

static void test_unknown(void **state)
{
    (void)state;
    struct limit l;
    struct limit_rates rates = {.ram = 0, .drive = 10, .threads = 1};
    limit_open(&l, &rates, 1);
    assert_true(isnan(limit_layered(&l)) && isnan(limit_whole(&l)));
    add(&l, 0, 1, 0, 100, 0, 100, 50);
    assert_true(isnan(limit_layered(&l)));
    rates = (struct limit_rates){.ram = 10, .drive = 0, .threads = 1};
    limit_open(&l, &rates, 1);
    add(&l, 0, 1, 0, 100, 0, 100, 50);
    assert_true(isnan(limit_layered(&l)) && isnan(limit_whole(&l)));
}

/* Every operation is in one column, and nothing is lost. */
static void test_columns(void **state)
{
    (void)state;
    struct times t;
    assert_int_equal(times_open(&t, 3, NULL), 0);
    for (int op = 0; op < SL_OP_COUNT; op++) {
        struct sl_op_event e = {.block = op == SL_OP_EMBED  ? -1
                                         : op == SL_OP_HEAD ? 3
                                                            : op % 3,
                                .op = (enum sl_op)op,
                                .wall_s = 1 << op};
        times_add(&t, &e);
        times_add(&t, &e);
    }
    times_add(&t, &(struct sl_op_event){.block = 4, .op = SL_OP_QKV, .wall_s = 1e9});
    double sum = 0;
    for (int block = -1; block <= 3; block++) {
        double column[TIMES_COLUMNS];
        times_sum_columns(times_find_block(&t, block), column);
        for (int c = 0; c < TIMES_COLUMNS; c++)
            sum += column[c];
    }
    assert_true(sum == 2 * ((1 << SL_OP_COUNT) - 1));
    assert_int_equal(t.calls[0][SL_OP_EMBED], 2);
    times_clear(&t);
    assert_true(t.s[0][SL_OP_EMBED] == 0 && t.calls[4][SL_OP_HEAD] == 0);
    times_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_kernels_slower_than_memory),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
