/* Recorded routing: what is read, and that broken files are refused with their line. */
#include "base/mem.h"
#include "cache/kit.h"
#include "telemetry/trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEAD                                                                                       \
    "# route_trace v1\n"                                                                           \
    "# model=some.gguf arch=some n_layer=3 n_expert=8 n_expert_used=2 news=1\n"                    \
    "# layer=0 expert_bytes=4096 dense_bytes=5\n"                                                  \
    "# layer=2 expert_bytes=8192\n"
#define COLUMNS "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n"

static int parse(const char *text, struct trace **t, struct sl_err *err)
{
    return trace_parse(text, strlen(text), "file", t, err);
}

static void test_a_trace(void **state)
{
    (void)state;
    struct trace *t;
    struct sl_err err;
    assert_int_equal(parse(HEAD COLUMNS "0,0,0,0,0,7,0.75,0,4096\n"
                                        "0,0,0,0,1,3,2.5e-1,0,4096\n"
                                        "0,0,1,0,0,1,1,0,4096\r\n"
                                        "\n"
                                        "0,0,1,2,0,0,-.5,1,0\n"
                                        "1,1,2,0,0,5,1e+2,0,4096\n"
                                        "# summary of some kind\n",
                           &t, &err),
                     0);
    assert_string_equal(t->model, "some.gguf");
    assert_string_equal(t->arch, "some");
    assert_int_equal(t->n_layers, 3);
    assert_int_equal(t->n_experts, 8);
    assert_int_equal(t->top_k, 2);
    assert_int_equal(t->expert_bytes[0], 4096);
    assert_int_equal(t->expert_bytes[1], 0);
    assert_int_equal(t->expert_bytes[2], 8192);
    assert_int_equal(t->n_visits, 4);
    assert_int_equal(t->n_choices, 5);
    const struct trace_visit *v = t->visit;
    assert_true(v[0].k == 2 && v[0].first == 0 && v[0].phase == TRACE_PROMPT);
    assert_true(v[1].k == 1 && v[1].step == 1 && v[1].layer == 0);
    assert_true(v[2].k == 1 && v[2].step == 1 && v[2].layer == 2);
    assert_true(v[3].turn == 1 && v[3].step == 2 && v[3].phase == TRACE_DECODE);
    static const int32_t expert[] = {7, 3, 1, 0, 5};
    static const float weight[] = {0.75f, 0.25f, 1, -0.5f, 100};
    assert_memory_equal(t->expert, expert, sizeof expert);
    for (int i = 0; i < 5; i++)
        assert_true(fabs((double)t->weight[i] - (double)weight[i]) < 1e-6);
    trace_free(&t);
    assert_null(t);
}

/* By name, in any order, with strangers among them. */
static void test_columns_have_names(void **state)
{
    (void)state;
    struct trace *t;
    struct sl_err err;
    assert_int_equal(parse(HEAD "new,weight,expert,slot,layer,step,phase,turn,score\n"
                                "what,0.5,6,0,2,9,1,4,-\n",
                           &t, &err),
                     0);
    assert_int_equal(t->expert[0], 6);
    assert_true(t->visit[0].turn == 4 && t->visit[0].step == 9 && t->visit[0].layer == 2);
    trace_free(&t);
}

static void test_broken_ones(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "line 1: not a recorded routing"},
        {"# route_trace v2\n", "line 1: not a recorded routing"},
        {"# route_trace v1\n", "line 1: the trace ends without a row"},
        {"# route_trace v1\n" COLUMNS, "line 2: n_layer, n_expert and n_expert_used must come"},
        {"# route_trace v1\n# layer=0 expert_bytes=1\n", "line 2: n_layer, n_expert and"},
        {"# route_trace v1\n# n_layer=0\n", "line 2: n_layer is not a number from 1 to 4096"},
        {"# route_trace v1\n# n_layer=5000\n", "line 2: n_layer is not a number"},
        {"# route_trace v1\n# n_layer=3 n_layer=3\n", "line 2: n_layer is given again"},
        {"# route_trace v1\n# n_layer=4096 n_expert=65536 n_expert_used=1\n" COLUMNS,
         "line 3: 4096 layers of 65536 experts are more"},
        {"# route_trace v1\n# n_layer=1 n_expert=4 n_expert_used=5\n" COLUMNS,
         "line 3: 5 of 4 experts per token"},
        {HEAD "# layer=3 expert_bytes=1\n", "line 5: there is no layer 3"},
        {HEAD "# layer=1\n", "line 5: layer 1 has no expert_bytes"},
        {HEAD "# layer=x expert_bytes=1\n", "line 5: layer is not a number"},
        {HEAD "# layer=1 expert_bytes=99999999999999999999\n", "line 5: expert_bytes is not"},
        {HEAD "turn,phase,step,layer,slot,expert\n", "line 5: there is no column 'weight'"},
        {HEAD COLUMNS, "line 5: the trace ends without a row"},
        {HEAD COLUMNS "0,0,0,0,0,1,0.5\n", "line 6: 7 fields, the header has 9"},
        {HEAD COLUMNS "0,0,0,0,0,8,0.5,0,0\n", "line 6: expert is not a number from 0 to 7"},
        {HEAD COLUMNS "0,0,0,0,0,-1,0.5,0,0\n", "line 6: expert is not"},
        {HEAD COLUMNS "0,0,0,0,0,1x,0.5,0,0\n", "line 6: expert is not"},
        {HEAD COLUMNS "0,2,0,0,0,1,0.5,0,0\n", "line 6: phase is not a number from 0 to 1"},
        {HEAD COLUMNS "0,0,9999999999,0,0,1,0.5,0,0\n", "line 6: step is not a number"},
        {HEAD COLUMNS "0,0,0,3,0,1,0.5,0,0\n", "line 6: layer is not a number from 0 to 2"},
        {HEAD COLUMNS "0,0,0,1,0,1,0.5,0,0\n", "line 6: the preamble gives layer 1 no"},
        {HEAD COLUMNS "0,0,0,0,1,1,0.5,0,0\n", "line 6: slot 1 comes where slot 0"},
        {HEAD COLUMNS "0,0,0,0,2,1,0.5,0,0\n", "line 6: slot is not a number from 0 to 1"},
        {HEAD COLUMNS "0,0,0,0,0,1,.5,0,0\n0,0,0,0,1,1,.5,0,0\n",
         "line 7: expert 1 is chosen twice"},
        {HEAD COLUMNS "0,0,0,0,0,1,.5,0,0\n0,0,1,0,1,2,.5,0,0\n",
         "line 7: slot 1 comes where slot 0"},
        {HEAD COLUMNS "0,0,0,0,0,1,nan,0,0\n", "line 6: weight is not a finite number"},
        {HEAD COLUMNS "0,0,0,0,0,1,1e39,0,0\n", "line 6: weight is not a finite number"},
        {HEAD COLUMNS "0,0,0,0,0,1,1e400,0,0\n", "line 6: weight is not"},
        {HEAD COLUMNS "0,0,0,0,0,1,,0,0\n", "line 6: weight is not"},
        {HEAD COLUMNS "0,0,0,0,0,1,1.2.3,0,0\n", "line 6: weight is not"},
        {HEAD COLUMNS "0,0,0,0,0,1,-,0,0\n", "line 6: weight is not"},
        {HEAD COLUMNS "0,0,0,0,0,1,1e,0,0\n", "line 6: weight is not"},
    };
    uint64_t before = mem_now();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct trace *t = (struct trace *)&t;
        struct sl_err err = {0};
        int rc = parse(cases[i].text, &t, &err);
        if (rc != SL_E_FORMAT || !strstr(err.msg, cases[i].says))
            print_message("case %zu: %s\n", i, err.msg);
        assert_int_equal(rc, SL_E_FORMAT);
        assert_non_null(strstr(err.msg, cases[i].says));
        assert_string_equal(err.where, "file");
        assert_null(t);
    }
    assert_int_equal(mem_now(), before);
}

static void test_long_lines(void **state)
{
    (void)state;
    size_t n = 5000;
    char *text = malloc(n);
    struct trace *t;
    struct sl_err err;
    assert_non_null(text);
    memset(text, ',', n);
    memcpy(text, HEAD, sizeof HEAD - 1);
    assert_int_equal(trace_parse(text, n, "file", &t, &err), SL_E_FORMAT);
    assert_non_null(strstr(err.msg, "line 5: longer than"));
    n = sizeof HEAD - 1 + 300; /* more columns than are looked at */
    assert_int_equal(trace_parse(text, n, "file", &t, &err), SL_E_FORMAT);
    free(text);
}

static void test_no_memory(void **state)
{
    (void)state;
    uint64_t before = mem_now();
    int rc, n = 0;
    do {
        struct trace *t;
        struct sl_err err;
        mem_fail_after(n++);
        rc = parse(HEAD COLUMNS "0,0,0,0,0,7,0.75,0,4096\n", &t, &err);
        mem_fail_after(-1);
        assert_true(rc == 0 || rc == SL_E_MEM);
        trace_free(&t);
        assert_int_equal(mem_now(), before);
    } while (rc);
    assert_true(n > 4);
}

static void test_files(void **state)
{
    (void)state;
    struct trace *t;
    struct sl_err err;
    char path[] = "/tmp/sluice-trace-XXXXXX";
    assert_int_equal(trace_read("/nonexistent/trace", &t, &err), SL_E_IO);
    assert_null(t);
    assert_int_equal(trace_read("/tmp", &t, &err), SL_E_IO);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(trace_read(path, &t, &err), SL_E_FORMAT); /* empty */
    static const char text[] = HEAD COLUMNS "0,0,0,0,0,7,0.75,0,4096";
    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    close(fd);
    assert_int_equal(trace_read(path, &t, &err), 0);
    assert_int_equal(t->n_choices, 1);
    trace_free(&t);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_trace),     cmocka_unit_test(test_columns_have_names),
        cmocka_unit_test(test_broken_ones), cmocka_unit_test(test_long_lines),
        cmocka_unit_test(test_no_memory),   cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
