/* How many experts the turns of a recording reach, against counts done by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "telemetry/reach.h"

/* Two turns, two layers of four experts, two a token. Layer 1 always takes the same. */
static const char text[] = "# route_trace v1\n"
                           "# model=m n_layer=3 n_expert=4 n_expert_used=2\n"
                           "# layer=0 expert_bytes=10\n"
                           "# layer=1 expert_bytes=10\n"
                           "turn,phase,step,layer,slot,expert,weight\n"
                           "0,0,0,0,0,0,.6\n0,0,0,0,1,1,.4\n0,0,0,1,0,3,.6\n0,0,0,1,1,2,.4\n"
                           "0,0,1,0,0,0,.6\n0,0,1,0,1,1,.4\n0,0,1,1,0,3,.6\n0,0,1,1,1,2,.4\n"
                           "0,1,2,0,0,0,.6\n0,1,2,0,1,2,.4\n0,1,2,1,0,3,.6\n0,1,2,1,1,2,.4\n"
                           "1,0,0,0,0,3,.6\n1,0,0,0,1,1,.4\n1,0,0,1,0,3,.6\n1,0,0,1,1,2,.4\n";

static double reach(const struct trace *t, int n, int want_got)
{
    double share = -1;
    int got = -1;
    struct sl_err err;
    assert_int_equal(trace_find_reach(t, n, &share, &got, &err), 0);
    assert_int_equal(got, want_got);
    return share;
}

static void test_by_hand(void **state)
{
    (void)state;
    struct trace *t;
    struct sl_err err;
    if (trace_parse(text, sizeof text - 1, "text", &t, &err) != 0)
        fail_msg("%s", err.msg);
    assert_true(fabs(reach(t, 1, 1) - 0.5) < 1e-12);
    /* The second turn has one token; the first begins with experts 0 and 1 twice. */
    assert_true(fabs(reach(t, 2, 2) - (2 + 2) / 2.0 / 4) < 1e-12);
    assert_true(fabs(reach(t, 3, 3) - (3 + 2) / 2.0 / 4) < 1e-12);
    /* No turn is so long: the longest one. */
    assert_true(fabs(reach(t, 9, 3) - (3 + 2) / 2.0 / 4) < 1e-12);
    trace_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_by_hand)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
