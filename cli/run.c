/* run.c: `sluice run`: one prompt, one answer. */
#include "cli/run.h"

#include "cli/commands.h"
#include "cli/open.h"
#include "cli/report.h"
#include "cli/rss.h"
#include "cli/stop.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct run {
    const struct run_args *args;
    struct sl_engine *engine;
    struct sl_session *session;
    struct sl_sampler *sampler;
    struct sl_detok *detok; /* NULL: the model has no vocabulary, ids are printed */
    struct run_out *out;
    struct rss_sampler *rss;
    struct prompt prompt;
    int32_t *ids; /* prompt, then answer */
    size_t n_ids;
    double t_request;
    bool text_open; /* the answer so far does not end with a newline */
    struct run_report report;
};

/* ---- Standard output ------------------------------------------------------------------------ */

/* Everything at once: a token is seen when it is made, and a closed pipe is noticed. */
static int put_text(struct run *r, const char *text, size_t n, struct sl_err *err)
{
    if (n == 0)
        return SL_OK;
    r->text_open = text[n - 1] != '\n';
    while (n > 0) {
        ssize_t w = write(STDOUT_FILENO, text, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return err_sys(err, SL_E_IO, "standard output", w < 0 ? errno : EIO,
                           "cannot write to standard output");
        text += w;
        n -= (size_t)w;
    }
    return SL_OK;
}

static int put_token(struct run *r, int32_t id, struct sl_err *err)
{
    if (r->detok == NULL) {
        char num[24];
        int n = snprintf(num, sizeof num, "%s%d", r->report.n_generated > 0 ? " " : "", id);
        return put_text(r, num, (size_t)n, err);
    }
    const char *text;
    size_t n;
    int rc = sl_detok_feed(r->detok, id, &text, &n, err);
    return rc < 0 ? rc : put_text(r, text, n, err);
}

static int put_rest(struct run *r, struct sl_err *err)
{
    const char *text;
    size_t n;
    if (r->detok == NULL)
        return SL_OK;
    sl_detok_flush(r->detok, &text, &n);
    return put_text(r, text, n, err);
}

/* Where text and report meet, on a terminal or in one log, the report starts on a line of its own.
 * A file or pipe that gets the text alone gets nothing added. */
static void end_line(struct run *r)
{
    struct stat out, err;
    if (!r->text_open)
        return;
    if (fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 &&
        out.st_dev == err.st_dev && out.st_ino == err.st_ino)
        fputc('\n', stderr);
    else if (isatty(STDOUT_FILENO))
        (void)!write(STDOUT_FILENO, "\n", 1);
    r->text_open = false;
}

/* ---- Loading -------------------------------------------------------------------------------- */

/* A model smaller than its context holds far fewer steps than -n allows. */
static size_t max_ids(const struct run *r)
{
    size_t n = r->prompt.n_ids + (size_t)r->args->n_predict;
    size_t ctx = (size_t)r->report.plan.n_ctx;
    if (n > ctx && ctx >= r->prompt.n_ids)
        n = ctx;
    return n;
}

static int open_session(struct run *r, struct sl_err *err)
{
    struct sl_sampling sampling;
    run_opts_sampling(r->args, &sampling);
    sl_engine_info(r->engine, &r->report.info);
    sl_engine_get_plan(r->engine, &r->report.plan);
    report_mode(&r->report.plan);
    int rc = prompt_encode(&r->prompt, r->engine, r->report.plan.n_ctx, r->args->chatml != 0, err);
    if (rc == SL_OK)
        rc = sl_session_open(r->engine, &r->session, err);
    if (rc == SL_OK)
        rc = sl_sampler_open(r->engine, &sampling, &r->sampler, err);
    if (rc == SL_OK && r->report.info.has_vocab)
        rc = sl_detok_open(r->engine, &r->detok, err);
    if (rc < 0)
        return rc;
    run_out_observe(r->out, r->session, r->report.info.n_vocab);
    size_t n = max_ids(r);
    r->ids = mem_calloc(n, sizeof *r->ids);
    r->report.step_s = mem_calloc(n - r->prompt.n_ids + 1, sizeof *r->report.step_s);
    if (r->ids == NULL || r->report.step_s == NULL)
        return err_set(err, SL_E_MEM, NULL, "no memory for %zu token ids", n);
    return SL_OK;
}

/* ---- The run -------------------------------------------------------------------------------- */

static int eval(struct run *r, const int32_t *ids, size_t n, enum sl_phase phase,
                struct sl_err *err)
{
    int rc = sl_session_eval(r->session, ids, n, phase, err);
    if (rc < 0)
        return rc;
    return run_out_step(r->out, err);
}

static int eval_prompt(struct run *r, struct sl_err *err)
{
    const struct prompt *p = &r->prompt;
    r->report.n_prompt = p->n_ids;
    stop_set_phase(STOP_CANCEL, r->session);
    double t = clock_now();
    int rc = eval(r, p->ids, p->n_ids, SL_PROMPT, err);
    r->report.prompt_s = clock_now() - t;
    stop_set_phase(STOP_FINISH, NULL);
    if (rc < 0)
        return rc;
    memcpy(r->ids, p->ids, p->n_ids * sizeof *p->ids);
    r->n_ids = p->n_ids;
    for (size_t i = 0; i < p->n_ids; i++)
        sl_sampler_accept(r->sampler, p->ids[i]);
    return SL_OK;
}

/* Draw one token, show it, evaluate it. *end: it was the model's end token. */
static int step(struct run *r, bool *end, struct sl_err *err)
{
    int32_t id;
    int rc = sl_sampler_draw(r->sampler, sl_session_logits(r->session), &id, err);
    if (rc < 0)
        return rc;
    sl_sampler_accept(r->sampler, id);
    *end = sl_is_eog(r->engine, id) && !r->args->ignore_eos;
    if (!*end)
        rc = put_token(r, id, err);
    if (rc < 0)
        return rc;
    if (r->report.n_generated == 0)
        r->report.first_s = clock_now() - r->t_request;
    r->ids[r->n_ids++] = id;
    return eval(r, &id, 1, SL_DECODE, err);
}

static int generate(struct run *r, struct sl_err *err)
{
    struct run_report *rep = &r->report;
    size_t limit = max_ids(r);
    bool end = false;
    int rc = SL_OK;
    double start = clock_now(), t = start;
    while (!end && r->n_ids < limit && stop_signal() == 0) {
        rc = step(r, &end, err);
        if (rc < 0)
            break;
        double now = clock_now();
        rep->step_s[rep->n_generated++] = now - t;
        t = now;
    }
    rep->loop_s = t - start;
    if (rc == SL_OK)
        rc = put_rest(r, err);
    end_line(r);
    if (rc == SL_OK && !end && stop_signal() == 0 && rep->n_generated < (size_t)r->args->n_predict)
        fprintf(stderr, "note: the context of %d tokens is full; -c sets a larger one\n",
                rep->plan.n_ctx);
    return rc;
}

static void print_report(struct run *r)
{
    struct run_report *rep = &r->report;
    sl_session_stats(r->session, &rep->stats);
    rep->rss_known = rss_peak(r->rss, &rep->rss_peak);
    report_print(rep);
}

static int run_all(struct run *r, struct sl_err *err)
{
    int rc = prompt_read(r->args, &r->prompt, err);
    if (rc == SL_OK)
        rc = run_out_open(r->args, &r->out, err);
    if (rc == SL_OK)
        rc = open_engine(r->args, &r->engine, err);
    r->t_request = clock_now();
    if (rc == SL_OK)
        rc = open_session(r, err);
    if (rc < 0)
        return rc;
    rc = eval_prompt(r, err);
    if (rc == SL_OK) {
        rc = generate(r, err);
        if (rc == SL_OK)
            rc = run_out_commit(r->out, r->ids, r->n_ids, err);
    }
    if (rc == SL_OK || rc == SL_E_CANCELLED)
        print_report(r);
    return rc;
}

static void close_all(struct run *r)
{
    stop_set_phase(STOP_QUIT, NULL);
    run_out_close(&r->out);
    sl_detok_close(&r->detok);
    sl_sampler_close(&r->sampler);
    sl_session_close(&r->session);
    sl_engine_close(&r->engine);
    prompt_free(&r->prompt);
    mem_free(r->ids);
    mem_free(r->report.step_s);
    rss_stop(&r->rss);
}

int cmd_run(int argc, char **argv)
{
    struct run_args args;
    struct sl_err err;
    int rc = run_opts_parse(argc, argv, &args);
    if (rc != OPTS_GO)
        return rc;
    struct run r = {.args = &args};
    stop_install();
    r.rss = rss_start();
    rc = run_all(&r, &err);
    close_all(&r);
    if (rc < 0 && rc != SL_E_CANCELLED) {
        opts_fail(&err);
        return rc == SL_E_ARG ? EXIT_USAGE : EXIT_FAILED;
    }
    return stop_signal() != 0 ? 128 + stop_signal() : 0;
}
