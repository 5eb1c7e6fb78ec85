#include "cli/run_session.h"

#include "cli/run_input.h"
#include "cli/stop.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* One generate request on its way. */
struct answer {
    struct serve *serve;
    struct input *input;
    const char *id;
    struct gen gen;
    struct emit text; /* since the last token's event */
    int fatal;        /* a failure of what the program writes: it ends the program */
};

/* ---- While it runs -------------------------------------------------------------------------- */

static int on_text(void *user, const char *text, size_t n, struct sl_err *err)
{
    struct answer *a = user;
    emit_add_bytes(&a->text, text, n);
    return a->text.failed ? err_set(err, SL_E_MEM, NULL, "no memory for text") : SL_OK;
}

static int on_eval(void *user, struct sl_err *err)
{
    struct answer *a = user;
    return a->fatal = run_watch_step(a->serve->watch, err);
}

static int keep_time(struct serve *s, double loop_s, struct sl_err *err)
{
    if ((s->n_generated & (s->n_generated - 1)) == 0) { /* full at powers of two */
        size_t cap = s->n_generated > 0 ? 2 * s->n_generated : 1;
        double *p = mem_realloc(s->step_s, cap * sizeof *p);
        if (p == NULL)
            return err_set(err, SL_E_MEM, NULL, "no memory for the times of %zu tokens", cap);
        s->step_s = p;
    }
    s->step_s[s->n_generated++] = loop_s;
    return SL_OK;
}

static int on_step(void *user, const struct gen_step *step, struct sl_err *err)
{
    struct answer *a = user;
    struct serve *s = a->serve;
    events_tell_token(s->events, a->id, step, a->text.text, a->text.n, s->about->plan.streamed);
    emit_clear(&a->text);
    a->fatal = events_check(s->events, err);
    if (a->fatal == SL_OK)
        a->fatal = run_csv_step(s->csv, s->engine, s->session, step, err);
    return a->fatal == SL_OK ? keep_time(s, step->loop_s, err) : a->fatal;
}

static bool stop_now(void *user)
{
    struct answer *a = user;
    return stop_signal() != 0 || input_cancelled(a->input);
}

/* ---- One request ---------------------------------------------------------------------------- */

/* Ids of the request's prompt; *ids is the caller's. */
static int encode(struct serve *s, const struct request *r, int32_t **ids, size_t *n,
                  struct sl_err *err)
{
    const struct sl_model_info *info = &s->about->info;
    int length = sl_session_length(s->session);
    size_t room = (size_t)(s->about->plan.n_ctx - length);
    if (r->ids != NULL) {
        *n = r->n_ids;
        *ids = mem_calloc(r->n_ids, sizeof **ids);
        if (*ids == NULL)
            return err_set(err, SL_E_MEM, "ids", "no memory for the token ids");
        memcpy(*ids, r->ids, r->n_ids * sizeof **ids);
        return SL_OK;
    }
    /* Before time and memory go into tokens that cannot fit. */
    if (info->token_text_bytes > 0 && r->n_prompt / info->token_text_bytes > room)
        return err_set(err, SL_E_CONTEXT, "context",
                       "the prompt's %zu bytes are more than the %zu tokens that are left can hold",
                       r->n_prompt, room);
    if (r->chat)
        return sl_chat_tokenize(s->engine, r->prompt, r->n_prompt, ids, n, err);
    return sl_tokenize(s->engine, r->prompt, r->n_prompt, length == 0 ? SL_TOK_ADD_SPECIAL : 0, ids,
                       n, err);
}

static void add_up(struct serve *s, const struct gen *g)
{
    s->n_prompt += g->n_prompt;
    s->prompt_s += g->prompt_s;
    s->loop_s += g->loop_s;
    if (s->first_s == 0)
        s->first_s = g->first_s;
}

static int run_answer(struct answer *a, const int32_t *ids, size_t n, struct sl_err *err)
{
    struct serve *s = a->serve;
    struct gen *g = &a->gen;
    g->n_ctx = s->about->plan.n_ctx - sl_session_length(s->session);
    if (n == 0)
        return err_set(err, SL_E_ARG, "prompt", "the prompt is empty; it needs at least one token");
    int rc = gen_prepare(g, ids, n, err);
    if (rc < 0)
        return rc;
    if (stop_now(a))
        return err_set(err, SL_E_CANCELLED, NULL, "cancelled");
    stop_set_phase(STOP_CANCEL, s->session);
    rc = gen_eval_prompt(g, 0, err);
    stop_set_phase(STOP_FINISH, NULL);
    if (rc < 0)
        return rc;
    events_tell_prompt(s->events, a->id, n, g->prompt_s);
    return gen_run(g, err);
}

static int open_answer(struct answer *a, const struct request *r, struct sl_err *err)
{
    struct serve *s = a->serve;
    struct gen *g = &a->gen;
    *g = (struct gen){.engine = s->engine,
                      .session = s->session,
                      .n_predict = r->n_predict,
                      .ignore_eos = r->ignore_eos,
                      .on_text = on_text,
                      .on_eval = on_eval,
                      .on_step = on_step,
                      .stop = stop_now,
                      .user = a};
    int rc = sl_sampler_open(s->engine, &r->sampling, &g->sampler, err);
    if (rc == SL_OK && s->about->info.has_vocab)
        rc = sl_detok_open(s->engine, &g->detok, err);
    return rc;
}

/* Negative: the program cannot go on. What is wrong with the request alone is an event. */
static int generate(struct serve *s, struct input *in, const struct request *r, struct sl_err *err)
{
    struct answer a = {.serve = s, .input = in, .id = r->has_id ? r->id : NULL};
    int32_t *ids = NULL;
    size_t n = 0;
    if (!r->keep)
        sl_session_truncate(s->session, 0);
    int rc = open_answer(&a, r, err);
    if (rc == SL_OK)
        rc = encode(s, r, &ids, &n, err);
    if (rc == SL_OK)
        rc = run_answer(&a, ids, n, err);
    bool cancelled = rc == SL_E_CANCELLED || (rc == SL_OK && a.gen.end == GEN_STOPPED);
    if (a.fatal == SL_OK && (rc == SL_OK || cancelled))
        events_tell_done(s->events, a.id, cancelled ? "cancelled" : events_end_name(a.gen.end),
                         a.gen.n_generated, a.text.text, a.text.n);
    else if (a.fatal == SL_OK)
        events_tell_error(s->events, a.id, err);
    add_up(s, &a.gen);
    sl_sampler_close(&a.gen.sampler);
    sl_detok_close(&a.gen.detok);
    gen_free(&a.gen);
    emit_free(&a.text);
    sl_free(ids);
    return a.fatal;
}

/* ---- All of them ---------------------------------------------------------------------------- */

static void set_budget(struct serve *s, const struct request *r)
{
    struct sl_err err;
    const char *id = r->has_id ? r->id : NULL;
    struct sl_engine_plan plan;
    int rc = sl_engine_set_cache_budget(s->engine, r->cache_mb << 20, &err);
    if (rc < 0) {
        events_tell_error(s->events, id, &err);
        return;
    }
    sl_engine_get_plan(s->engine, &plan);
    emit_put_uint(events_begin(s->events, "budget", id), "cache_bytes", plan.cache_bytes);
    events_end(s->events);
}

int serve_requests(struct serve *s, struct sl_err *err)
{
    struct request defaults = {.n_predict = (size_t)s->args->n_predict,
                               .ignore_eos = s->args->ignore_eos != 0};
    run_opts_sampling(s->args, &defaults.sampling);
    struct input *in;
    stop_set_phase(STOP_FINISH, NULL);
    events_tell_mode(s->events, &s->about->plan, &s->about->info);
    int rc = input_open(STDIN_FILENO, s->events, s->session, &defaults, &in, err);
    if (rc < 0)
        return rc;
    struct request *r;
    for (int turn = 0; rc == SL_OK && (r = input_next(in)) != NULL;) {
        if (r->op == REQUEST_GENERATE) {
            run_csv_turn(s->csv, turn);
            run_watch_turn(s->watch, turn++);
            rc = generate(s, in, r, err);
        } else {
            set_budget(s, r);
        }
        request_free(&r);
    }
    struct sl_err late;
    int rc2 = input_close(&in, &late);
    if (rc == SL_OK && rc2 < 0) {
        *err = late;
        return rc2;
    }
    return rc == SL_OK ? events_check(s->events, err) : rc;
}
