/* real_test.c: real models against a float64 forward pass (tests/data/models/README.md says how).
 *
 *   real_test               the embedded model
 *   real_test smollm2
 *   real_test smollm2-moe   a published one and its mixture form, where
 *                                     tools/fetch_smollm2.py has put them: the directory that
 *                                     SLUICE_TEST_MODELS names, or build/test-models */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/fixtures.h"
#include "support/run.h"

#define SKIPPED         77
#define LEAD_MIN        1.0  /* logits: below this another token may come first */
#define NLL_CASE_MAX    0.03 /* relative */
#define NLL_MEAN_MAX    0.01
#define NMSE_MEAN_MAX   2e-3
#define CONTEXT         128
#define MODEL_VOCAB_MAX (1 << 20)

struct target {
    const char *expected; /* NAME of tests/data/models/NAME.json */
    char path[512];
    enum sl_stream_mode stream;
};

static struct target target;

static struct sl_engine *open_engine(struct sl_model_info *info)
{
    struct sl_engine_options opt;
    struct sl_engine *e = NULL;
    struct sl_err err = {0};
    sl_engine_options_init(&opt);
    opt.stream = target.stream;
    opt.n_ctx = CONTEXT;
    opt.k_type = opt.v_type = SL_KV_F32;
    if (sl_engine_open(target.path, &opt, &e, &err) != 0)
        fail_msg("%s", err.msg);
    sl_engine_info(e, info);
    return e;
}

static void check_ids(const struct sl_engine *e, const struct real_case *c)
{
    int32_t *ids = NULL;
    size_t n = 0;
    struct sl_err err = {0};
    if (sl_tokenize(e, c->prompt, strlen(c->prompt), SL_TOK_PARSE_CONTROL, &ids, &n, &err) != 0)
        fail_msg("%s", err.msg);
    assert_int_equal(n, c->n_prompt);
    assert_memory_equal(ids, c->ids, n * sizeof *ids);
    sl_free(ids);
}

struct score {
    const struct real_case *c;
    int n_vocab, wrong, ahead;
    double nll, nmse;
};

/* -log softmax(logits)[id] */
static double surprise(const float *logits, int n, int32_t id)
{
    double max = logits[0], sum = 0;
    for (int i = 1; i < n; i++)
        max = logits[i] > max ? logits[i] : max;
    for (int i = 0; i < n; i++)
        sum += exp((double)logits[i] - max);
    return max + log(sum) - (double)logits[id];
}

static void on_logits(void *user, int pos, const float *logits)
{
    struct score *s = user;
    const struct real_case *c = s->c;
    int best = 0;
    for (int i = 1; i < s->n_vocab; i++)
        best = logits[i] > logits[best] ? i : best;
    if (c->lead[pos] >= LEAD_MIN) {
        s->ahead++;
        s->wrong += best != c->best[pos];
    }
    if (pos + 1 < c->n_all)
        s->nll += surprise(logits, s->n_vocab, c->ids[pos + 1]) / (c->n_all - 1);
    if (pos + 1 == c->n_all) {
        double error = 0, power = 0;
        for (int i = 0; i < s->n_vocab; i++) {
            double d = (double)logits[i] - (double)c->last[i];
            error += d * d;
            power += (double)c->last[i] * (double)c->last[i];
        }
        s->nmse = error / power;
    }
}

static void run_case(struct sl_engine *e, const struct real_case *c, int n_vocab, struct score *s)
{
    struct sl_session *session = NULL;
    struct sl_err err = {0};
    *s = (struct score){.c = c, .n_vocab = n_vocab};
    struct sl_observer obs = {.on_logits = on_logits, .user = s};
    if (sl_session_open(e, &session, &err) != 0)
        fail_msg("%s", err.msg);
    sl_session_observe(session, &obs);
    if (sl_session_eval(session, c->ids, (size_t)c->n_all, SL_PROMPT, &err) != 0)
        fail_msg("%s", err.msg);
    sl_session_close(&session);
}

static void test_cases(void **state)
{
    (void)state;
    struct sl_model_info info;
    struct sl_engine *e = open_engine(&info);
    int n, bad = 0;
    double nll_off = 0, nmse = 0;
    assert_true(info.n_vocab > 0 && info.n_vocab < MODEL_VOCAB_MAX);
    struct real_case *cases = fixture_load_cases(target.expected, info.n_vocab, &n);
    for (int i = 0; i < n; i++) {
        struct score s;
        check_ids(e, cases + i);
        run_case(e, cases + i, info.n_vocab, &s);
        double off = s.nll / cases[i].nll - 1;
        print_message("case %d: nll %.5f (%+.2f %%), nmse %.2g, best token %d of %d\n", i, s.nll,
                      100 * off, s.nmse, s.ahead - s.wrong, s.ahead);
        bad += s.wrong != 0 || !(fabs(off) <= NLL_CASE_MAX);
        nll_off += off / n;
        nmse += s.nmse / n;
    }
    print_message("mean: nll %+.2f %%, nmse %.2g\n", 100 * nll_off, nmse);
    fixture_free_cases(cases, n);
    sl_engine_close(&e);
    assert_int_equal(bad, 0);
    assert_true(fabs(nll_off) <= NLL_MEAN_MAX);
    assert_true(nmse <= NMSE_MEAN_MAX);
}

static bool find_target(const char *name)
{
    const char *dir = getenv("SLUICE_TEST_MODELS");
    if (!dir || dir[0] == '\0')
        dir = SL_SOURCE_DIR "/build/test-models";
    if (strcmp(name, "storyteller") == 0)
        dir = SL_SOURCE_DIR "/models";
    snprintf(target.path, sizeof target.path, "%.400s/%.64s.gguf", dir, name);
    target.expected = strcmp(name, "smollm2-moe") == 0 ? "smollm2" : name;
    target.stream = strcmp(name, "smollm2") == 0 ? SL_STREAM_AUTO : SL_STREAM_ON;
    return access(target.path, R_OK) == 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    const char *name = argc > 1 ? argv[1] : "storyteller";
    if (!find_target(name)) {
        printf("skipped: no %s (tools/fetch_smollm2.py makes it)\n", target.path);
        return strcmp(name, "storyteller") == 0 ? 1 : SKIPPED;
    }
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}
