/* ppl.c: `sluice ppl`: how well a model foretells a text that is given to it. */
#include "cli/commands.h"
#include "cli/json_text.h"
#include "cli/open.h"
#include "cli/report.h"
#include "cli/stop.h"

#include "base/clock.h"
#include "base/err.h"

#include <jansson.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct ppl_args {
    struct run_args run; /* first: run_opts_model_rows */
    int64_t step, json;
};

static struct opt_row rows[OPTS_MAX_ROWS];

static const struct opt_row OWN_ROWS[] = {
    {"--step", OPT_FLAG, offsetof(struct ppl_args, step), NULL, 0, 0, NULL, NULL, NULL,
     "Evaluate the tokens one by one, as generation does, instead of a window at once", "Measuring",
     NULL},
    {"--token-ids", OPT_LIST, offsetof(struct ppl_args, run.token_ids), "LIST|@FILE", 0,
     2147483647.0, NULL, NULL, NULL,
     "Token ids instead of a text: 1,2,3 or a file of little-endian int32", "Measuring", NULL},
    {"--json", OPT_FLAG, offsetof(struct ppl_args, json), NULL, 0, 0, NULL, NULL, NULL,
     "Print one JSON object: tokens (scored), nll (mean, nats), ppl, hit (fraction), windows, "
     "ctx, step; with lossy options also marks, which names them",
     "Measuring", NULL},
};

static struct opt_cmd ppl_cmd = {
    .name = "ppl",
    .summary = "perplexity of a text",
    .operands = "[FILE]",
    .max_operands = 1,
    .about =
        "Feeds a text (FILE, or - for standard input) to a model and says how well the model "
        "foretold each token: the mean negative log-likelihood, its exponential (the perplexity) "
        "and how often the model's first choice was right.\n\n"
        "The text is cut into windows of -c tokens that do not overlap; a window's first token is "
        "not scored. Nothing is added to the text but what the model's vocabulary itself asks for "
        "at its beginning. Where the experts are and how many threads compute does not change a "
        "byte of the result, and neither does --step; lossy options do, and the result says so.",
    .rows = rows,
    .examples = "sluice ppl -m model.gguf tale.txt\n"
                "sluice ppl -m model.gguf -c 512 --moe-stream --ram 8G --json - < tale.txt\n",
};

struct ppl {
    const struct ppl_args *args;
    struct sl_engine *engine;
    struct sl_session *session;
    struct sl_scorer *scorer;
    struct sl_engine_plan plan;
    struct prompt text;
    const int32_t *window;
    int n_window; /* tokens of the running window */
    int rc;       /* first failure inside the observer */
    struct sl_err err;
    size_t n_windows; /* that were scored */
};

static void on_logits(void *user, int pos, const float *logits)
{
    struct ppl *p = user;
    if (p->rc == SL_OK && pos + 1 < p->n_window)
        p->rc = sl_scorer_add(p->scorer, logits, p->window[pos + 1], &p->err);
}

static void show_progress(const struct ppl *p, size_t done)
{
    struct sl_scores s;
    sl_scorer_get(p->scorer, &s);
    if (isatty(STDERR_FILENO) && s.tokens > 0)
        fprintf(stderr, "\r%3.0f%%  perplexity so far %.4f\033[K",
                100 * (double)done / (double)p->text.n_ids, s.ppl);
}

static int score_window(struct ppl *p, struct sl_err *err)
{
    /* What comes after the last token is not known. */
    size_t n = (size_t)p->n_window - 1, width = p->args->step ? 1 : n;
    enum sl_phase phase = p->args->step ? SL_DECODE : SL_PROMPT;
    int rc = SL_OK;
    sl_session_truncate(p->session, 0);
    for (size_t at = 0; at < n && rc == SL_OK && p->rc == SL_OK; at += width)
        rc = stop_signal() != 0 ? err_set(err, SL_E_CANCELLED, NULL, "stopped")
                                : sl_session_eval(p->session, p->window + at, width, phase, err);
    if (rc == SL_OK && p->rc < 0) {
        *err = p->err;
        rc = p->rc;
    }
    return rc;
}

static int score_all(struct ppl *p, struct sl_err *err)
{
    size_t ctx = (size_t)p->plan.n_ctx, n = p->text.n_ids;
    int rc = SL_OK;
    stop_set_phase(STOP_CANCEL, p->session);
    for (size_t at = 0; at + 1 < n && rc == SL_OK; at += ctx) {
        p->window = p->text.ids + at;
        p->n_window = (int)(n - at < ctx ? n - at : ctx);
        rc = p->n_window > 1 ? score_window(p, err) : SL_OK;
        p->n_windows += p->n_window > 1;
        show_progress(p, at + (size_t)p->n_window);
    }
    stop_set_phase(STOP_QUIT, NULL);
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K");
    return rc;
}

static void print_json(const struct ppl *p, const struct sl_scores *s, double hit)
{
    json_t *j = json_pack("{s:I,s:f,s:f,s:f,s:I,s:i,s:b}", "tokens", (json_int_t)s->tokens, "nll",
                          s->nll, "ppl", s->ppl, "hit", hit, "windows", (json_int_t)p->n_windows,
                          "ctx", p->plan.n_ctx, "step", p->args->step != 0);
    if (p->plan.marks[0])
        json_object_set_new(j, "marks", json_text_make(p->plan.marks));
    char *text = json_dumps(j, 0);
    puts(text ? text : "{}");
    free(text);
    json_decref(j);
}

static void print_result(const struct ppl *p, double seconds)
{
    struct sl_scores s;
    sl_scorer_get(p->scorer, &s);
    double hit = (double)s.hits / (double)s.tokens;
    fprintf(stderr, "ppl: %llu tokens in %.2f s (%.1f tok/s)\n", (unsigned long long)s.tokens,
            seconds, seconds > 0 ? (double)s.tokens / seconds : 0);
    const char *marks = p->plan.marks;
    if (p->args->json)
        print_json(p, &s, hit);
    else
        printf("perplexity %.6f (mean NLL %.6f nats), next token hit %.2f%%, %llu tokens scored in "
               "%zu windows of %d%s%s\n",
               s.ppl, s.nll, 100 * hit, (unsigned long long)s.tokens, p->n_windows, p->plan.n_ctx,
               marks[0] ? "; " : "", marks);
}

static int run_all(struct ppl *p, struct sl_err *err)
{
    int rc = prompt_read(&p->args->run, &p->text, err);
    if (rc == SL_OK)
        rc = open_engine(&p->args->run, NULL, &p->engine, err);
    if (rc < 0)
        return rc;
    sl_engine_get_plan(p->engine, &p->plan);
    report_mode(&p->plan, "");
    rc = prompt_encode(&p->text, p->engine, INT_MAX, false, err);
    if (rc == SL_OK && (p->text.n_ids < 2 || p->plan.n_ctx < 2))
        rc = err_set(err, SL_E_ARG, NULL,
                     "nothing to score: it takes a text and a window (-c) of two tokens or more");
    if (rc == SL_OK)
        rc = sl_session_open(p->engine, &p->session, err);
    if (rc == SL_OK)
        rc = sl_scorer_open(p->engine, &p->scorer, err);
    if (rc < 0)
        return rc;
    struct sl_observer obs = {.on_logits = on_logits, .user = p};
    sl_session_observe(p->session, &obs);
    double t = clock_now();
    rc = score_all(p, err);
    if (rc == SL_OK)
        print_result(p, clock_now() - t);
    return rc;
}

/* The model's rows come from `run`, so that both mean the same. */
static void make_table(void)
{
    size_t n_own = sizeof OWN_ROWS / sizeof *OWN_ROWS;
    size_t n = run_opts_model_rows(rows, OPTS_MAX_ROWS - n_own);
    memcpy(rows + n, OWN_ROWS, sizeof OWN_ROWS);
    ppl_cmd.n_rows = n + n_own;
}

static int check_args(const struct ppl_args *a, const struct opt_seen *seen, struct sl_err *err)
{
    if (a->run.file != NULL && a->run.token_ids != NULL)
        return err_set(err, SL_E_ARG, "--token-ids", "--token-ids and a text exclude each other");
    if (a->run.file == NULL && a->run.token_ids == NULL)
        return err_set(err, SL_E_ARG, NULL,
                       "no text: give a FILE, - for standard input, or --token-ids");
    return run_opts_check(&ppl_cmd, seen, &a->run, err);
}

int cmd_ppl(int argc, char **argv)
{
    struct ppl_args args = {0};
    struct opt_seen seen;
    struct sl_err err;
    make_table();
    int rc = opts_begin(&ppl_cmd, argc, argv, &args, &seen);
    if (rc != OPTS_GO)
        return rc;
    args.run.file = seen.n_operands > 0 ? seen.operands[0] : NULL;
    if (check_args(&args, &seen, &err) < 0) {
        opts_fail(&err);
        return EXIT_USAGE;
    }
    struct ppl p = {.args = &args};
    stop_install();
    rc = run_all(&p, &err);
    sl_scorer_close(&p.scorer);
    sl_session_close(&p.session);
    sl_engine_close(&p.engine);
    prompt_free(&p.text);
    if (rc < 0 && rc != SL_E_CANCELLED) {
        opts_fail(&err);
        return rc == SL_E_ARG ? EXIT_USAGE : EXIT_FAILED;
    }
    return stop_signal() != 0 ? 128 + stop_signal() : 0;
}
