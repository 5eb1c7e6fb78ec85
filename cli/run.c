/* run.c: `sluice run`: one prompt, one answer. */
#include "cli/run.h"

#include "cli/commands.h"
#include "cli/hot.h"
#include "cli/open.h"
#include "cli/report.h"
#include "cli/rss.h"
#include "cli/run_csv.h"
#include "cli/run_events.h"
#include "cli/run_gen.h"
#include "cli/run_session.h"
#include "cli/run_watch.h"
#include "cli/stop.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

struct run {
    const struct run_args *args;
    struct sl_engine *engine;
    struct sl_session *session;
    struct sl_sampler *sampler;
    struct sl_detok *detok; /* NULL: the model has no vocabulary, ids are printed */
    struct run_out *out;
    struct run_csv *csv;     /* NULL: none is wanted */
    struct run_watch *watch; /* likewise */
    struct hot_file *hot;    /* likewise */
    struct events *events;   /* likewise: of --progress, or of --session */
    struct events events_here;
    struct serve serve;  /* of --session */
    struct emit pending; /* text since the last token's event */
    struct rss_sampler *rss;
    struct prompt prompt;
    struct gen gen;
    run_end_fn *on_end; /* may be NULL */
    void *end_user;
    double t_request;
    bool text_open; /* the answer so far does not end with a newline */
    struct run_report report;
};

/* ---- Standard output ------------------------------------------------------------------------ */

/* Everything at once: a token is seen when it is made, and a closed pipe is noticed. */
static int put_text(void *user, const char *text, size_t n, struct sl_err *err)
{
    struct run *r = user;
    if (r->events != NULL)
        emit_add_bytes(&r->pending, text, n);
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

static int open_text(struct run *r, struct sl_err *err)
{
    struct sl_sampling sampling;
    run_opts_sampling(r->args, &sampling);
    int rc = prompt_encode(&r->prompt, r->engine, r->report.plan.n_ctx, r->args->chatml != 0, err);
    if (rc == SL_OK)
        rc = sl_sampler_open(r->engine, &sampling, &r->sampler, err);
    if (rc == SL_OK && r->report.info.has_vocab)
        rc = sl_detok_open(r->engine, &r->detok, err);
    return rc;
}

static int open_session(struct run *r, struct sl_err *err)
{
    sl_engine_info(r->engine, &r->report.info);
    sl_engine_get_plan(r->engine, &r->report.plan);
    report_mode(&r->report.plan, run_watch_names(r->watch));
    int rc = sl_session_open(r->engine, &r->session, err);
    if (rc == SL_OK && !r->args->session)
        rc = open_text(r, err);
    if (rc < 0)
        return rc;
    if (r->csv != NULL)
        rc = run_csv_begin(r->csv, r->args, &r->report.info, &r->report.plan, err);
    if (rc == SL_OK)
        rc = run_watch_begin(r->watch, r->engine, r->session, err);
    run_out_observe(r->out, r->session, &r->report.info);
    return rc;
}

/* ---- The run -------------------------------------------------------------------------------- */

static int on_eval(void *user, struct sl_err *err)
{
    struct run *r = user;
    int rc = run_out_step(r->out, err);
    return rc == SL_OK ? run_watch_step(r->watch, err) : rc;
}

static int on_step(void *user, const struct gen_step *step, struct sl_err *err)
{
    struct run *r = user;
    if (r->events == NULL)
        return run_csv_step(r->csv, r->engine, r->session, step, err);
    events_tell_token(r->events, NULL, step, r->pending.text, r->pending.n,
                      r->report.plan.streamed);
    emit_clear(&r->pending);
    int rc = events_check(r->events, err);
    return rc == SL_OK ? run_csv_step(r->csv, r->engine, r->session, step, err) : rc;
}

static bool stop_asked(void *user)
{
    (void)user;
    return stop_signal() != 0;
}

static int generate(struct run *r, struct sl_err *err)
{
    struct gen *g = &r->gen;
    *g = (struct gen){.engine = r->engine,
                      .session = r->session,
                      .sampler = r->sampler,
                      .detok = r->detok,
                      .n_ctx = r->report.plan.n_ctx,
                      .n_predict = (size_t)r->args->n_predict,
                      .ignore_eos = r->args->ignore_eos != 0,
                      .on_text = r->on_end == NULL ? put_text : NULL,
                      .on_eval = on_eval,
                      .on_step = r->csv != NULL || r->events != NULL ? on_step : NULL,
                      .stop = stop_asked,
                      .user = r};
    int rc = gen_prepare(g, r->prompt.ids, r->prompt.n_ids, err);
    if (rc < 0)
        return rc;
    g->t_request = r->t_request;
    stop_set_phase(STOP_CANCEL, r->session);
    rc = gen_eval_prompt(g, 0, err);
    stop_set_phase(STOP_FINISH, NULL);
    if (rc < 0)
        return rc;
    if (r->events != NULL)
        events_tell_prompt(r->events, NULL, g->n_prompt, g->prompt_s);
    rc = gen_run(g, err);
    if (r->events != NULL && rc == SL_OK)
        events_tell_done(r->events, NULL, events_end_name(g->end), g->n_generated, r->pending.text,
                         r->pending.n);
    end_line(r);
    if (rc == SL_OK && g->end == GEN_CONTEXT)
        fprintf(stderr, "note: the context of %d tokens is full; -c sets a larger one\n", g->n_ctx);
    return rc;
}

static int serve(struct run *r, struct sl_err *err)
{
    r->serve = (struct serve){.args = r->args,
                              .engine = r->engine,
                              .session = r->session,
                              .csv = r->csv,
                              .watch = r->watch,
                              .events = r->events,
                              .about = &r->report};
    return serve_requests(&r->serve, err);
}

static void take_results(struct run *r)
{
    struct run_report *rep = &r->report;
    const struct gen *g = &r->gen;
    const struct serve *s = &r->serve;
    bool many = r->args->session != 0;
    rep->n_prompt = many ? s->n_prompt : g->n_prompt;
    rep->prompt_s = many ? s->prompt_s : g->prompt_s;
    rep->first_s = many ? s->first_s : g->first_s;
    rep->n_generated = many ? s->n_generated : g->n_generated;
    rep->loop_s = many ? s->loop_s : g->loop_s;
    rep->step_s = many ? s->step_s : g->step_s;
    sl_session_stats(r->session, &rep->stats);
    if (rep->plan.predict_log)
        rep->predictions = mem_calloc((size_t)rep->info.n_layer, sizeof *rep->predictions);
    if (rep->predictions != NULL)
        sl_session_predictions(r->session, rep->predictions);
    rep->rss_known = rss_peak(r->rss, &rep->rss_peak);
}

static int print_report(struct run *r, struct sl_err *err)
{
    take_results(r);
    report_print(&r->report);
    run_watch_print(r->watch, &r->report);
    int rc = run_watch_commit(&r->watch, err);
    if (rc == SL_OK)
        rc = run_csv_commit(&r->csv, &r->report, err);
    if (rc == SL_OK && r->on_end != NULL) {
        struct run_end end = {r->gen.ids, r->gen.n_prompt, r->gen.n_ids, &r->report};
        rc = r->on_end(r->end_user, &end, err);
    }
    if (rc == SL_OK && r->events != NULL) {
        events_tell_summary(r->events, &r->report);
        rc = events_check(r->events, err);
    }
    return rc;
}

static int open_outputs(struct run *r, struct sl_err *err)
{
    int rc = run_out_open(r->args, &r->out, err);
    if (rc == SL_OK)
        rc = run_csv_open(r->args, &r->csv, err);
    if (rc == SL_OK)
        rc = run_watch_open(r->args, &r->watch, err);
    if (r->args->session)
        events_open(&r->events_here, STDOUT_FILENO, "standard output");
    else if (r->args->progress)
        events_open(&r->events_here, STDERR_FILENO, "standard error");
    r->events = r->events_here.name != NULL ? &r->events_here : NULL;
    return rc;
}

/* The lines that end the program well; they may fail themselves. */
static int finish(struct run *r, int rc, struct sl_err *err)
{
    struct sl_err late;
    if (rc == SL_OK)
        rc = hot_save(&r->hot, r->engine, err);
    if (rc == SL_OK)
        rc = run_out_commit(r->out, r->gen.ids, r->gen.n_ids, err);
    if (rc != SL_OK && rc != SL_E_CANCELLED)
        return rc;
    open_end_bar(); /* cancelled while weights were loaded */
    int rc2 = print_report(r, &late);
    if (rc != SL_OK || rc2 == SL_OK)
        return rc;
    *err = late;
    return rc2;
}

static int run_all(struct run *r, struct sl_err *err)
{
    int rc = r->args->session ? SL_OK : prompt_read(r->args, &r->prompt, err);
    if (rc == SL_OK)
        rc = open_outputs(r, err);
    if (rc == SL_OK)
        rc = hot_open(r->args->hot_experts, &r->hot, err);
    if (rc == SL_OK)
        rc = open_engine(r->args, r->events, &r->engine, err);
    if (rc == SL_OK)
        rc = hot_load(r->hot, r->engine, err);
    r->t_request = clock_now();
    if (rc == SL_OK)
        rc = open_session(r, err);
    if (rc < 0)
        return rc;
    if (r->args->session)
        return finish(r, serve(r, err), err);
    if (r->events != NULL)
        events_tell_mode(r->events, &r->report.plan, &r->report.info);
    return finish(r, generate(r, err), err);
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
    mem_free(r->report.predictions);
    run_csv_close(&r->csv);
    run_watch_close(&r->watch);
    hot_close(&r->hot);
    gen_free(&r->gen);
    sl_free(r->serve.step_s);
    emit_free(&r->pending);
    rss_stop(&r->rss);
}

int run_execute(const struct run_args *a, run_end_fn *on_end, void *user)
{
    struct sl_err err;
    struct run r = {.args = a, .on_end = on_end, .end_user = user};
    stop_install();
    r.rss = rss_start();
    int rc = run_all(&r, &err);
    open_end_bar();
    close_all(&r);
    if (rc < 0 && rc != SL_E_CANCELLED && r.events != NULL)
        events_tell_error(r.events, NULL, &err);
    events_close(&r.events_here);
    if (rc < 0 && rc != SL_E_CANCELLED) {
        opts_fail(&err);
        return rc == SL_E_ARG ? EXIT_USAGE : EXIT_FAILED;
    }
    return stop_signal() != 0 ? 128 + stop_signal() : 0;
}

int cmd_run(int argc, char **argv)
{
    struct run_args args;
    int rc = run_opts_parse(argc, argv, &args);
    return rc == OPTS_GO ? run_execute(&args, NULL, NULL) : rc;
}
