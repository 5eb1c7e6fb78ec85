/* rows_test.c: embedding rows read one by one (row_stream). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/fixtures.h"
#include "support/run.h"

static struct fixture *set;
static int n_set;

static struct run_spec spec(const struct fixture *m, bool rows)
{
    struct run_spec s = {
        .path = m->path, .ids = m->tokens, .n_prompt = m->n_tokens - 4, .n_step = 4};
    sl_engine_options_init(&s.opt);
    s.opt.threads = 2;
    s.opt.n_ctx = m->n_tokens + 32;
    s.opt.cache_floor_mb = 0;
    s.opt.row_stream = rows;
    return s;
}

static struct run_result run(const struct run_spec *s)
{
    struct run_result r;
    struct sl_err err;
    if (run_model(s, &r, &err) != 0)
        fail_msg("%s", err.msg);
    return r;
}

static int distinct(const int32_t *ids, int n)
{
    int m = 0;
    for (int i = 0; i < n; i++) {
        int j = 0;
        while (j < i && ids[j] != ids[i])
            j++;
        m += j == i;
    }
    return m;
}

/* The same bytes, the table is not in the plan, and every row of a batch is read once; models whose
 * head is the same matrix hold it. */
static void test_same_bytes(void **state)
{
    (void)state;
    int streamed = 0, held = 0;
    for (int i = 0; i < n_set; i++) {
        struct run_spec a = spec(&set[i], false), b = spec(&set[i], true);
        struct run_result whole = run(&a), rows = run(&b);
        assert_int_equal(run_differs(&whole, &rows, 0), -1);
        const struct sl_phase_stats *p = &rows.stats.prompt;
        if (rows.plan.row_stream) {
            uint64_t least = (uint64_t)whole.n_vocab * 2; /* bytes: a quarter bit per value, say */
            assert_true(whole.plan.dense_bytes >= rows.plan.dense_bytes + least);
            assert_int_equal(p->rows_read, distinct(a.ids, a.n_prompt));
            assert_int_equal(rows.stats.decode.rows_read, 4);
            assert_true(p->row_bytes >= p->rows_read);
            assert_true(whole.stats.mem_now > rows.stats.mem_now);
            streamed++;
        } else {
            assert_int_equal(whole.plan.dense_bytes, rows.plan.dense_bytes);
            assert_int_equal(p->rows_read, 0);
            held++;
        }
        assert_int_equal(whole.stats.prompt.rows_read, 0);
        run_free(&whole);
        run_free(&rows);
    }
    print_message("%d models with a table of their own, %d without\n", streamed, held);
    assert_true(streamed > 0 && held > 0);
}

static const struct fixture *untied(void)
{
    for (int i = 0; i < n_set; i++) {
        struct run_spec s = spec(&set[i], true);
        struct run_result r = run(&s);
        bool good = r.plan.row_stream;
        run_free(&r);
        if (good)
            return &set[i];
    }
    fail_msg("no model has a table of its own");
    return NULL;
}

/* A file that was cut: one error that says what could not be read, and a session that goes on once
 * the bytes are back. */
static void test_lost_rows(void **state)
{
    (void)state;
    const struct fixture *m = untied();
    char path[600];
    size_t n;
    void *bytes = fixture_read_file(m->path, &n);
    assert_non_null(bytes);
    snprintf(path, sizeof path, "%s/cut.gguf", fixture_temp_dir());
    FILE *f = fopen(path, "wb");
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
    struct run_spec s = spec(m, true);
    struct sl_engine *e;
    struct sl_session *session;
    struct sl_err err;
    assert_int_equal(sl_engine_open(path, &s.opt, &e, &err), 0);
    assert_int_equal(sl_session_open(e, &session, &err), 0);
    assert_int_equal(sl_session_eval(session, m->tokens, 2, SL_PROMPT, &err), 0);
    assert_int_equal(truncate(path, 64), 0);
    assert_int_equal(sl_session_eval(session, m->tokens + 2, 1, SL_DECODE, &err), SL_E_IO);
    assert_non_null(strstr(err.msg, "cut.gguf"));
    assert_non_null(strstr(err.msg, "at offset"));
    assert_int_equal(sl_session_length(session), 2);
    f = fopen(path, "r+b");
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
    free(bytes);
    assert_int_equal(sl_session_eval(session, m->tokens + 2, 1, SL_DECODE, &err), 0);
    sl_session_close(&session);
    sl_engine_close(&e);
}

static void test_mapped_rows_are_refused(void **state)
{
    (void)state;
    struct run_spec s = spec(&set[0], true);
    struct sl_engine *e;
    struct sl_err err;
    for (int mode = SL_DENSE_MMAP; mode <= SL_DENSE_WARM; mode++) {
        s.opt.dense_mode = (enum sl_dense_mode)mode;
        assert_int_equal(sl_engine_open(s.path, &s.opt, &e, &err), SL_E_ARG);
        assert_non_null(strstr(err.msg, "--row-stream is for --dense-weights anon"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bytes),
        cmocka_unit_test(test_lost_rows),
        cmocka_unit_test(test_mapped_rows_are_refused),
    };
    set = fixture_load_set("arch", &n_set);
    int rc = cmocka_run_group_tests_name("rows", tests, NULL, NULL);
    fixture_free_set(set, n_set);
    return rc;
}
