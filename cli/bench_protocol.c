/* bench_protocol.c: `sluice bench MODEL`: one run by the fixed protocol. */
#include "cli/bench.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A change of it makes results incomparable: then the number of the protocol (bench_result.c) rises
 * too. */
static const char PROMPT[] =
    "The old lighthouse stood at the end of a long pier. Every evening its keeper climbed the "
    "stairs, cleaned the glass of the lamp and wrote into a book what ships had passed, how the "
    "wind blew and how high the water stood. One night the lamp went out in the middle of a storm, "
    "while a fishing boat was still at sea. Tell what the keeper did then, and explain step by "
    "step how the boat found its way into the harbour.";

/* For models without a vocabulary: as many ids, spread over it. */
#define N_IDS 96

struct protocol {
    struct bench_args *args;
    char ids[N_IDS * 12];
    char changed[1024];
    size_t n_changed;
    const struct opt_cmd *cmd;
    const struct opt_seen *seen;
    size_t row; /* of note_row */
};

/* ---- What was changed ----------------------------------------------------------------------- */

/* Where results go and which model it is are no changes. */
static bool is_neutral(const char *name)
{
    static const char *const neutral[] = {"model", "csv", "ids-out", "json", "seed"};
    for (size_t i = 0; i < sizeof neutral / sizeof *neutral; i++)
        if (strcmp(name, neutral[i]) == 0)
            return true;
    return false;
}

/* As it could be typed; what is the default anyway is no change. A prompt may be longer than what
 * is kept. */
static void note_row(void *user, const char *name, const char *value)
{
    struct protocol *p = user;
    const struct opt_row *row = &p->cmd->rows[p->row];
    const bool given = p->seen->given[p->row++],
               plain = row->type == OPT_FLAG || row->type == OPT_SWITCH;
    const size_t room = sizeof p->changed - p->n_changed;
    const bool same = row->def != NULL && strcmp(row->def, value) == 0;
    if (!given || same || is_neutral(name) || room <= 1)
        return;
    const int n = snprintf(p->changed + p->n_changed, room, "%s--%s%s%s%.60s",
                           p->n_changed > 0 ? " " : "",
                           plain && strcmp(value, "off") == 0 ? "no-" : "", name, plain ? "" : "=",
                           plain ? "" : value);
    p->n_changed += n > 0 ? ((size_t)n < room ? (size_t)n : room - 1) : 0;
}

/* ---- Repeats -------------------------------------------------------------------------------- */

#define GRAM         4
#define LEAST_TOKENS 16

static int by_gram(const void *a, const void *b)
{
    const int32_t *const *x = a, *const *y = b;
    return memcmp(*x, *y, GRAM * sizeof **x);
}

double bench_find_repeats(const int32_t *ids, size_t n)
{
    if (n < LEAST_TOKENS)
        return (double)NAN;
    size_t n_grams = n - GRAM + 1, repeated = 0;
    const int32_t **grams = mem_calloc(n_grams, sizeof *grams);
    if (grams == NULL)
        return (double)NAN;
    for (size_t i = 0; i < n_grams; i++)
        grams[i] = ids + i;
    qsort(grams, n_grams, sizeof *grams, by_gram);
    for (size_t i = 1; i < n_grams; i++)
        repeated += by_gram(&grams[i - 1], &grams[i]) == 0;
    mem_free(grams);
    return 100 * (double)repeated / (double)n_grams;
}

/* ---- The run -------------------------------------------------------------------------------- */

static void set_ids(struct protocol *p, int n_vocab)
{
    size_t at = 0;
    for (int i = 0; i < N_IDS; i++)
        at += (size_t)snprintf(p->ids + at, sizeof p->ids - at, "%s%d", i > 0 ? "," : "",
                               (1000 + 7 * i) % n_vocab);
    p->args->run.token_ids = p->ids;
}

/* What depends on the model, whatever its options. A refusal is left to the run, which says more.
 */
static int set_defaults(struct protocol *p, struct sl_err *err)
{
    struct run_args *a = &p->args->run;
    struct sl_engine_options opt;
    struct sl_model_info info = {0};
    struct sl_engine_plan plan;
    sl_engine_options_init(&opt);
    int rc = sl_plan(a->model, &opt, &info, &plan, err);
    if (rc < 0 && rc != SL_E_BUDGET)
        return rc;
    if (!opts_given(p->cmd, p->seen, "--moe-stream"))
        a->stream = info.n_layer_routed > 0;
    a->ignore_eos = 1;
    if (a->prompt != NULL || a->file != NULL || a->token_ids != NULL)
        return SL_OK;
    if (info.has_vocab)
        a->prompt = PROMPT;
    else if (info.n_vocab > 0)
        set_ids(p, info.n_vocab);
    return SL_OK;
}

static int on_end(void *user, const struct run_end *end, struct sl_err *err)
{
    struct protocol *p = user;
    const struct run_args *a = &p->args->run;
    const size_t n = end->n_ids - end->n_prompt;
    struct bench_outcome o = {.args = p->args,
                              .report = end->report,
                              .changed = p->changed,
                              .fixed_prompt = a->prompt == PROMPT || a->token_ids == p->ids,
                              .n_tokens = n,
                              .repeat_pct = bench_find_repeats(end->ids + end->n_prompt, n)};
    if (p->args->json ? bench_print_outcome_json(&o) : bench_print_outcome(&o))
        return SL_OK;
    return err_set(err, SL_E_IO, "standard output", "standard output: can't write");
}

int bench_run_protocol(const struct opt_cmd *cmd, const struct opt_seen *seen, struct bench_args *a)
{
    static struct protocol p;
    struct sl_err err;
    p = (struct protocol){.args = a, .cmd = cmd, .seen = seen};
    opts_each_value(cmd, a, note_row, &p);
    int rc = set_defaults(&p, &err);
    if (rc < 0) {
        opts_fail(&err);
        return rc == SL_E_ARG ? EXIT_USAGE : EXIT_FAILED;
    }
    return run_execute(&a->run, on_end, &p);
}
