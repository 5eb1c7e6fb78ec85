/* Lists of hot experts: from one engine into the next, of this model only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/hot.h"
#include "sluice.h"
#include "support/fixtures.h"

#define N_ALL 16

static struct fixture *set, *model, *other;
static int n_set;

static struct sl_engine *open_engine(const struct fixture *f)
{
    struct sl_engine_options o;
    struct sl_engine *e;
    struct sl_err err;
    sl_engine_options_init(&o);
    o.threads = 1;
    o.n_ctx = 64;
    o.stream = SL_STREAM_ON;
    o.cache_floor_mb = 0;
    assert_int_equal(sl_engine_open(f->path, &o, &e, &err), 0);
    return e;
}

/* All tokens one by one; the last row of logits, to be freed. */
static float *run(struct sl_engine *e, struct sl_stats *st)
{
    struct sl_session *s;
    struct sl_err err;
    size_t n = (size_t)model->n_vocab * sizeof(float);
    float *row = malloc(n);
    assert_non_null(row);
    assert_int_equal(sl_session_open(e, &s, &err), 0);
    for (int i = 0; i < N_ALL; i++)
        assert_int_equal(sl_session_eval(s, model->tokens + i, 1, SL_DECODE, &err), 0);
    memcpy(row, sl_session_logits(s), n);
    sl_session_stats(s, st);
    sl_session_close(&s);
    return row;
}

static uint64_t sum_uses(const char *text, size_t n)
{
    uint64_t sum = 0;
    for (const char *p = text, *end = text + n; p < end; p = strchr(p, '\n') + 1)
        if (*p >= '0' && *p <= '9')
            sum += strtoull(strchr(strchr(p, ',') + 1, ',') + 1, NULL, 10);
    return sum;
}

static void test_from_run_to_run(void **state)
{
    (void)state;
    struct sl_stats cold, warm;
    struct sl_err err;
    char *text, *text2;
    size_t n, n2;
    int n_read;
    struct sl_engine *e = open_engine(model);
    float *a = run(e, &cold);
    assert_int_equal(sl_engine_get_hot_experts(e, &text, &n, &err), 0);
    sl_engine_close(&e);
    assert_true(cold.decode.misses > 0);
    assert_int_equal(sum_uses(text, n), cold.decode.hits + cold.decode.misses);
    e = open_engine(model);
    assert_int_equal(sl_engine_set_hot_experts(e, text, n, "hot.csv", &n_read, &err), 0);
    assert_int_equal(n_read, cold.decode.misses); /* the cache holds all that were used */
    float *b = run(e, &warm);
    assert_memory_equal(a, b, (size_t)model->n_vocab * sizeof *a);
    assert_int_equal(warm.decode.misses, 0);
    assert_int_equal(sl_engine_get_hot_experts(e, &text2, &n2, &err), 0);
    uint64_t old = sum_uses(text, n), sum = sum_uses(text2, n2);
    assert_true(sum >= old + old / 2 - (uint64_t)n_read && sum <= old + old / 2);
    sl_engine_close(&e);
    sl_free(text);
    sl_free(text2);
    free(a);
    free(b);
}

static void test_no_cache(void **state)
{
    (void)state;
    struct sl_engine_options o;
    struct sl_engine *e;
    struct sl_err err;
    char *text;
    size_t n;
    int n_read = 7;
    sl_engine_options_init(&o);
    o.stream = SL_STREAM_OFF;
    o.n_ctx = 64;
    assert_int_equal(sl_engine_open(model->path, &o, &e, &err), 0);
    assert_int_equal(sl_engine_set_hot_experts(e, "x", 1, "hot.csv", &n_read, &err), 0);
    assert_int_equal(n_read, 0);
    assert_int_equal(sl_engine_get_hot_experts(e, &text, &n, &err), 0);
    assert_null(text);
    assert_int_equal(n, 0);
    sl_engine_close(&e);
}

static void test_another_models_list(void **state)
{
    (void)state;
    struct sl_err err;
    char *text;
    size_t n;
    int n_read;
    struct sl_engine *e = open_engine(other);
    assert_int_equal(sl_engine_get_hot_experts(e, &text, &n, &err), 0);
    sl_engine_close(&e);
    e = open_engine(model);
    assert_int_equal(sl_engine_set_hot_experts(e, text, n, "hot.csv", &n_read, &err), SL_E_FORMAT);
    assert_non_null(strstr(err.msg, "hot.csv: line 2: this list belongs to another model"));
    assert_int_equal(sl_engine_set_hot_experts(e, NULL, 0, "hot.csv", &n_read, &err), 0);
    sl_engine_close(&e);
    sl_free(text);
}

static void test_damaged_lists(void **state)
{
    (void)state;
    static const struct hot_shape shape = {"0000000000000abc", 2, 3};
    static const char head[] = "# hot_experts v1\n# model=0000000000000abc n_layer=2 n_expert=3\n"
                               "layer,expert,uses\n";
    static const struct {
        const char *rows, *message; /* NULL: it is good */
    } cases[] = {
        {"", NULL},
        {"1,2,9\n0,0,9\n0,1,0", NULL},
        {"1,2,9\r\n0,0,4294967295\r\n", "line 5: uses rise"},
        {"1,2,9\n\n", "line 5: not layer, expert and uses of this model"},
        {"2,0,1\n", "line 4: not layer"},
        {"0,3,1\n", "line 4: not layer"},
        {"0,-1,1\n", "line 4: not layer"},
        {"0,1,4294967296\n", "line 4: not layer"},
        {"0,1,99999999999999999999\n", "line 4: not layer"},
        {"0,1\n", "line 4: not layer"},
        {"0,1,1,1\n", "line 4: not layer"},
        {"0,1,1 \n", "line 4: not layer"},
        {"0,1,3\n1,1,2\n0,1,1\n", "line 6: an expert twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        struct hot_row *rows;
        size_t n;
        struct sl_err err = {0};
        int len = snprintf(text, sizeof text, "%s%s", head, cases[i].rows);
        int rc = hot_parse(text, (size_t)len, "f", &shape, &rows, &n, &err);
        assert_int_equal(rc, cases[i].message ? SL_E_FORMAT : 0);
        if (rc)
            assert_non_null(strstr(err.msg, cases[i].message));
        if (rc == 0 && rows)
            sl_free(rows);
    }
    struct hot_row *rows;
    size_t n;
    struct sl_err err;
    for (size_t len = 0; len < sizeof head - 2; len++)
        assert_int_equal(hot_parse(head, len, "f", &shape, &rows, &n, &err), SL_E_FORMAT);
}

static int set_up(void **state)
{
    (void)state;
    set = fixture_load_set("arch", &n_set);
    for (int i = 0; i < n_set; i++)
        if (set[i].n_tokens >= N_ALL && set[i].topk > 0) {
            if (!model)
                model = &set[i];
            else if (!other)
                other = &set[i];
        }
    return model && other ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    fixture_free_set(set, n_set);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_from_run_to_run),
        cmocka_unit_test(test_no_cache),
        cmocka_unit_test(test_another_models_list),
        cmocka_unit_test(test_damaged_lists),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
