#include "engine/routing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "telemetry/trace.h"

#define SCRIPT_MAX ((uint64_t)1 << 30) /* bytes of the table that a recorded routing becomes */

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ---- A recorded routing ---- */

/* Tokens of a phase have the numbers of their (turn, step) among those of the phase, rising. */
struct token {
    int32_t turn, step;
};

static int compare_tokens(const struct token *a, const struct token *b)
{
    if (a->turn != b->turn)
        return a->turn < b->turn ? -1 : 1;
    return (a->step > b->step) - (a->step < b->step);
}

static int by_token(const void *a, const void *b)
{
    return compare_tokens(a, b);
}

/* The distinct tokens of a phase, sorted, into list (room for all visits); returns their number. */
static int64_t list_tokens(const struct trace *t, int phase, struct token *list)
{
    size_t n = 0;
    int64_t m = 0;
    for (size_t i = 0; i < t->n_visits; i++)
        if (t->visit[i].phase == phase)
            list[n++] = (struct token){t->visit[i].turn, t->visit[i].step};
    qsort(list, n, sizeof *list, by_token);
    for (size_t i = 0; i < n; i++)
        if (m == 0 || compare_tokens(&list[m - 1], &list[i]) != 0)
            list[m++] = list[i];
    return m;
}

static int fill_phase(const struct trace *t, int phase, struct token *list, struct route_script *s,
                      struct sl_err *err)
{
    int64_t n = list_tokens(t, phase, list);
    uint64_t ids = (uint64_t)n * (uint64_t)s->n_layers, bytes;
    if (!size_mul(ids, (uint64_t)s->k * sizeof(int32_t), &bytes) || bytes > SCRIPT_MAX)
        return err_set(err, SL_E_UNSUPPORTED, "--route-replay",
                       "the recorded routing needs more than %llu MiB as a table",
                       (unsigned long long)(SCRIPT_MAX >> 20));
    if (n == 0)
        return 0;
    s->ids[phase] = mem_alloc((size_t)bytes);
    if (!s->ids[phase])
        return err_set(err, SL_E_MEM, "--route-replay", "no memory for the recorded routing");
    s->n_tokens[phase] = n;
    for (uint64_t i = 0; i < ids; i++)
        s->ids[phase][i * (uint64_t)s->k] = -1;
    for (size_t i = 0; i < t->n_visits; i++) {
        const struct trace_visit *v = &t->visit[i];
        if (v->phase != phase ||
            v->k != s->k) /* a token with fewer choices is left to the router */
            continue;
        struct token key = {v->turn, v->step};
        const struct token *at = bsearch(&key, list, (size_t)n, sizeof *list, by_token);
        memcpy(s->ids[phase] + ((at - list) * s->n_layers + v->layer) * s->k, t->expert + v->first,
               (size_t)s->k * sizeof(int32_t));
    }
    return 0;
}

/* Does the trace fit the model? */
static int check_trace(const struct sl_engine *e, const struct trace *t, const char *path,
                       struct sl_err *err)
{
    const struct model_config *c = &e->model->cfg;
    if (t->n_layers > c->n_layer || t->n_experts > c->n_expert)
        return err_set(err, SL_E_ARG, path,
                       "%s: recorded from %d layers of %d experts, the model has %d of %d",
                       file_name(path), t->n_layers, t->n_experts, c->n_layer, c->n_expert);
    if (t->top_k > MODEL_MAX_TOPK)
        return err_set(err, SL_E_UNSUPPORTED, path, "%s: %d experts per token; %d are supported",
                       file_name(path), t->top_k, MODEL_MAX_TOPK);
    for (size_t i = 0; i < t->n_visits; i++)
        if (!e->model->layers[t->visit[i].layer].router.tensor)
            return err_set(err, SL_E_ARG, path,
                           "%s: layer %d was recorded, and the model routes nothing there",
                           file_name(path), t->visit[i].layer);
    return 0;
}

static int make_script(struct sl_engine *e, const struct trace *t, const char *path,
                       struct sl_err *err)
{
    struct route_script *s = &e->script;
    int rc = check_trace(e, t, path, err);
    if (rc < 0)
        return rc;
    struct token *list = mem_alloc(t->n_visits * sizeof *list);
    if (!list)
        return err_set(err, SL_E_MEM, path, "no memory for the recorded routing");
    s->k = t->top_k;
    s->n_layers = t->n_layers;
    for (int phase = 0; phase < 2 && rc == 0; phase++)
        rc = fill_phase(t, phase, list, s, err);
    mem_free(list);
    e->model->cfg.n_expert_used = s->k;
    e->route.script = s;
    e->plan.replay = true;
    engine_mark(
        e,
        "route-replay %s (recorded from %s: %lld prompt and %lld decoded tokens, %d experts per "
        "token)",
        file_name(path), t->model[0] ? t->model : "an unnamed model", (long long)s->n_tokens[0],
        (long long)s->n_tokens[1], s->k);
    return rc;
}

static int open_script(struct sl_engine *e, const char *path, struct sl_err *err)
{
    struct trace *t;
    int rc = trace_read(path, &t, err);
    if (rc == 0)
        rc = make_script(e, t, path, err);
    trace_free(&t);
    return rc;
}

/* ---- Lossy options ---- */

static int set_top_k(struct sl_engine *e, int k, struct sl_err *err)
{
    struct model_config *c = &e->model->cfg;
    if (k > c->n_expert)
        return err_set(err, SL_E_ARG, "--n-expert-used",
                       "--n-expert-used is %d, but a layer has %d experts", k, c->n_expert);
    if (k != c->n_expert_used)
        engine_mark(e, "lossy: %d experts per token (the model's: %d)", k, c->n_expert_used);
    c->n_expert_used = k;
    return 0;
}

static int check_prefetch(const struct sl_engine *e, struct sl_err *err)
{
    int n = e->model->cfg.n_layer;
    if (e->opt.prefetch < n)
        return 0;
    return err_set(err, SL_E_ARG, "--prefetch", "--prefetch is %d, but the model has %d layers",
                   e->opt.prefetch, n);
}

static int set_ahead(struct sl_engine *e, int layers, struct sl_err *err)
{
    if (layers >= e->model->cfg.n_layer)
        return err_set(err, SL_E_ARG, "--route-ahead",
                       "--route-ahead is %d, but the model has %d layers", layers,
                       e->model->cfg.n_layer);
    e->route.ahead = layers;
    engine_mark(e, "lossy: routed %d layers ahead in decode", layers);
    return 0;
}

static int set_lossy(struct sl_engine *e, struct sl_err *err)
{
    const struct sl_engine_options *o = &e->opt;
    int rc = o->n_expert_used ? set_top_k(e, o->n_expert_used, err) : 0;
    if (rc == 0 && o->route_ahead)
        rc = set_ahead(e, o->route_ahead, err);
    if (o->drop_cold > 0)
        engine_mark(e, "lossy: drops cold experts below %g x uniform%s%s", o->drop_cold,
                    o->drop_in_prefill ? ", in prompts too" : "",
                    o->drop_no_renorm ? ", not renormalised" : "");
    if (o->substitute > 0)
        engine_mark(e, "lossy: prefers cached experts by %g of the score range", o->substitute);
    e->plan.guesses = o->prefetch || o->predict_prefetch;
    e->plan.predict_log = o->predict_log;
    e->route.prefetch = o->prefetch;
    e->route.guess = !o->predict_prefetch  ? 0
                     : o->predict_spec_max ? o->predict_spec_max
                                           : e->model->cfg.n_expert_used;
    e->route.predict = o->predict_log;
    e->plan.drop_cold = o->drop_cold;
    e->plan.drop_in_prefill = o->drop_in_prefill;
    e->plan.substitute = o->substitute;
    e->plan.route_ahead = o->route_ahead;
    e->route.drop = (float)o->drop_cold;
    e->route.drop_renorm = !o->drop_no_renorm;
    e->route.drop_in_prompt = o->drop_in_prefill;
    e->route.substitute = (float)o->substitute;
    return rc;
}

/* The name of an option that only models with experts have a use for; NULL: none was given. */
static const char *routed_option(const struct sl_engine_options *o)
{
    return o->route_replay       ? "--route-replay"
           : o->n_expert_used    ? "--n-expert-used"
           : o->drop_cold > 0    ? "--drop-cold-experts"
           : o->substitute > 0   ? "--expert-substitute"
           : o->route_ahead      ? "--route-ahead"
           : o->prefetch         ? "--prefetch"
           : o->predict_prefetch ? "--predict-prefetch"
           : o->predict_log      ? "--predict-log"
                                 : NULL;
}

int routing_open(struct sl_engine *e, struct sl_err *err)
{
    const struct sl_engine_options *o = &e->opt;
    const char *name = routed_option(o);
    if (name && e->model->cfg.n_expert == 0)
        return err_set(err, SL_E_ARG, name, "%s: the model has no routed experts", name);
    int rc = o->route_replay ? open_script(e, o->route_replay, err) : 0;
    if (rc == 0)
        rc = check_prefetch(e, err);
    return rc == 0 ? set_lossy(e, err) : rc;
}

int routing_check(const struct sl_engine *e, struct sl_err *err)
{
    const struct sl_engine_options *o = &e->opt;
    const char *name = o->drop_cold > 0      ? "--drop-cold-experts"
                       : o->substitute > 0   ? "--expert-substitute"
                       : o->prefetch         ? "--prefetch"
                       : o->predict_prefetch ? "--predict-prefetch"
                                             : NULL;
    if (name && !e->plan.streamed)
        return err_set(
            err, SL_E_ARG, name,
            "%s needs streamed experts, and the model fits into memory; add --moe-stream", name);
    if (name && e->plan.cache_bytes == 0)
        return err_set(err, SL_E_ARG, name,
                       "%s needs an expert cache, and there is no room for one", name);
    return 0;
}

void routing_close(struct sl_engine *e)
{
    mem_free(e->script.ids[0]);
    mem_free(e->script.ids[1]);
    e->script = (struct route_script){0};
}
