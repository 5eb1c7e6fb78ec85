#include "cli/run_gen.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

/* A context holds far fewer steps than -n allows. */
static size_t max_ids(const struct gen *g, size_t n_prompt)
{
    size_t n = n_prompt + g->n_predict, ctx = (size_t)g->n_ctx;
    return n > ctx && ctx >= n_prompt ? ctx : n;
}

int gen_prepare(struct gen *g, const int32_t *prompt, size_t n_prompt, struct sl_err *err)
{
    size_t n = max_ids(g, n_prompt);
    g->t_request = clock_now();
    g->ids = mem_calloc(n + 1, sizeof *g->ids);
    g->step_s = mem_calloc(n - n_prompt + 1, sizeof *g->step_s);
    if (g->ids == NULL || g->step_s == NULL)
        return err_set(err, SL_E_MEM, NULL, "no memory for %zu token ids", n);
    memcpy(g->ids, prompt, n_prompt * sizeof *prompt);
    g->n_prompt = n_prompt;
    return SL_OK;
}

void gen_free(struct gen *g)
{
    mem_free(g->ids);
    mem_free(g->step_s);
    g->ids = NULL;
    g->step_s = NULL;
}

static int eval(struct gen *g, const int32_t *ids, size_t n, enum sl_phase phase,
                struct sl_err *err)
{
    int rc = sl_session_eval(g->session, ids, n, phase, err);
    if (rc < 0 || g->on_eval == NULL)
        return rc;
    return g->on_eval(g->user, err);
}

int gen_eval_prompt(struct gen *g, size_t n_known, struct sl_err *err)
{
    double t = clock_now();
    int rc = eval(g, g->ids + n_known, g->n_prompt - n_known, SL_PROMPT, err);
    g->prompt_s = clock_now() - t;
    if (rc < 0)
        return rc;
    g->n_ids = g->n_prompt;
    for (size_t i = 0; i < g->n_prompt; i++)
        sl_sampler_accept(g->sampler, g->ids[i]);
    return SL_OK;
}

static int put_text(struct gen *g, const char *text, size_t n, struct sl_err *err)
{
    return n > 0 && g->on_text != NULL ? g->on_text(g->user, text, n, err) : SL_OK;
}

static int put_token(struct gen *g, int32_t id, struct sl_err *err)
{
    const char *text;
    size_t n;
    char num[24];
    if (g->detok == NULL) {
        int len = snprintf(num, sizeof num, "%s%d", g->n_generated > 0 ? " " : "", id);
        return put_text(g, num, (size_t)len, err);
    }
    int rc = sl_detok_feed(g->detok, id, &text, &n, err);
    return rc < 0 ? rc : put_text(g, text, n, err);
}

static int put_rest(struct gen *g, struct sl_err *err)
{
    const char *text;
    size_t n;
    if (g->detok == NULL)
        return SL_OK;
    sl_detok_flush(g->detok, &text, &n);
    return put_text(g, text, n, err);
}

/* Draw one token, show it, evaluate it. *end: it was the model's end token. */
static int step(struct gen *g, bool *end, int32_t *id, struct sl_err *err)
{
    int rc = sl_sampler_draw(g->sampler, sl_session_logits(g->session), id, err);
    if (rc < 0)
        return rc;
    sl_sampler_accept(g->sampler, *id);
    *end = sl_is_eog(g->engine, *id) && !g->ignore_eos;
    if (!*end)
        rc = put_token(g, *id, err);
    if (rc < 0)
        return rc;
    if (g->n_generated == 0)
        g->first_s = clock_now() - g->t_request;
    g->ids[g->n_ids++] = *id;
    return eval(g, id, 1, SL_DECODE, err);
}

static void difference(const struct sl_phase_stats *a, const struct sl_phase_stats *b,
                       struct sl_phase_stats *d)
{
    *d = (struct sl_phase_stats){
        .tokens = b->tokens - a->tokens,
        .wall_s = b->wall_s - a->wall_s,
        .compute_s = b->compute_s - a->compute_s,
        .mgmt_s = b->mgmt_s - a->mgmt_s,
        .stall_s = b->stall_s - a->stall_s,
        .load_wait_s = b->load_wait_s - a->load_wait_s,
        .read_busy_s = b->read_busy_s - a->read_busy_s,
        .cpu_s = b->cpu_s - a->cpu_s,
        .majflt = b->majflt - a->majflt,
        .bytes_read = b->bytes_read - a->bytes_read,
        .reads = b->reads - a->reads,
        .hits = b->hits - a->hits,
        .misses = b->misses - a->misses,
        .evictions = b->evictions - a->evictions,
        .rereads = b->rereads - a->rereads,
        .rows_read = b->rows_read - a->rows_read,
        .row_bytes = b->row_bytes - a->row_bytes,
        .expected_reads = b->expected_reads - a->expected_reads,
        .spec_useful_bytes = b->spec_useful_bytes - a->spec_useful_bytes,
        .spec_wasted_bytes = b->spec_wasted_bytes - a->spec_wasted_bytes,
        .experts_routed = b->experts_routed - a->experts_routed,
        .experts_replayed = b->experts_replayed - a->experts_replayed,
        .experts_dropped = b->experts_dropped - a->experts_dropped,
        .experts_substituted = b->experts_substituted - a->experts_substituted,
        .experts_ahead = b->experts_ahead - a->experts_ahead,
    };
}

static enum gen_end end_of(const struct gen *g, bool end, bool stopped)
{
    return stopped                         ? GEN_STOPPED
           : end                           ? GEN_EOG
           : g->n_generated < g->n_predict ? GEN_CONTEXT
                                           : GEN_LENGTH;
}

int gen_run(struct gen *g, struct sl_err *err)
{
    size_t limit = max_ids(g, g->n_prompt);
    bool end = false, stopped = false;
    struct sl_stats before, after;
    int rc = SL_OK;
    sl_session_stats(g->session, &before);
    double start = clock_now(), t = start;
    while (!end && g->n_ids < limit && rc == SL_OK) {
        stopped = g->stop != NULL && g->stop(g->user);
        if (stopped)
            break;
        struct gen_step s = {.step = g->n_generated};
        rc = step(g, &end, &s.id, err);
        if (rc < 0)
            break;
        double now = clock_now();
        s.loop_s = g->step_s[g->n_generated++] = now - t;
        t = now;
        if (g->on_step == NULL)
            continue;
        sl_session_stats(g->session, &after);
        difference(&before.decode, &after.decode, &s.d);
        before = after;
        rc = g->on_step(g->user, &s, err);
    }
    g->loop_s = t - start;
    g->end = end_of(g, end, stopped);
    return rc == SL_OK ? put_rest(g, err) : rc;
}
