#include "model/peek.h"

#include <string.h>

#include "model/forward.h"

/* Decoding one token, and somebody wants to know. */
static bool alone(const struct forward *f)
{
    return f->n_tok == 1 && !f->prompt;
}

static bool routes(const struct forward *f, int il)
{
    return il < f->m->cfg.n_layer && f->m->layers[il].router.tensor != NULL;
}

void peek_begin(struct forward *f)
{
    f->peek.guess_layer = -1;
    if (f->route.ahead)
        memset(f->peek.ahead_used, 0, (size_t)f->m->cfg.n_layer * sizeof *f->peek.ahead_used);
}

/* Scores of layer il's router if its FFN began with the residual as it is. */
static int score(struct forward *f, int il, struct sl_err *err)
{
    const struct layer *l = &f->m->layers[il];
    const struct model_config *c = &f->m->cfg;
    f->k->rms_norm(f->x, l->ffn_norm, c->n_embd, c->rms_eps, f->peek.norm);
    f->packed_src = NULL;
    int rc = forward_pack(f, l->router.kernel->act, f->peek.norm, (size_t)c->n_embd, c->n_embd, 1,
                          il, "input of a router that is asked early", err);
    if (rc < 0)
        return rc;
    struct product p = {&l->router, f->peek.scores, (size_t)c->n_expert};
    forward_products(f, &p, 1, f->packed, f->packed_stride, 1);
    f->packed_src = NULL;
    return 0;
}

/* ---- Routing ahead ---- */

bool peek_take_ahead(struct forward *f, int il)
{
    const struct peek *p = &f->peek;
    size_t k = (size_t)f->m->cfg.n_expert_used, at = (size_t)il * k;
    if (!f->route.ahead || !alone(f) || !p->ahead_used[il])
        return false;
    memcpy(f->ids, p->ahead_ids + at, k * sizeof *f->ids);
    memcpy(f->weights, p->ahead_weights + at, k * sizeof *f->weights);
    f->used[0] = p->ahead_used[il];
    f->route_counts.ahead += k;
    return true;
}

int peek_route_ahead(struct forward *f, int il, struct sl_err *err)
{
    struct peek *p = &f->peek;
    int to = il + f->route.ahead, k = f->m->cfg.n_expert_used;
    if (!f->route.ahead || !alone(f) || !routes(f, to))
        return 0;
    int rc = score(f, to, err);
    if (rc < 0)
        return rc;
    struct route_choice out = {p->ahead_ids + (size_t)to * (size_t)k,
                               p->ahead_weights + (size_t)to * (size_t)k, p->ahead_used + to};
    if (!route_choose(f, to, 0, p->scores, f->ranked, out, &f->route_counts))
        return forward_numeric(err, to, "router's scores");
    return 0;
}

/* ---- Guesses ---- */

/* The k best by layer il's router on the residual as it is. */
static int rank(struct forward *f, int il, int32_t *ids, struct sl_err *err)
{
    int n = f->m->cfg.n_expert, rc = score(f, il, err);
    if (rc < 0)
        return rc;
    if (!f->k->softmax(f->peek.scores, n))
        return forward_numeric(err, il, "router's scores");
    kern_topk(f->peek.scores, n, f->m->cfg.n_expert_used, ids);
    return 0;
}

/* How many of the token's choices are among the guesses. */
static uint64_t count_hits(const struct forward *f, const int32_t *guess)
{
    uint64_t n = 0;
    for (int i = 0; i < f->used[0]; i++)
        for (int j = 0; j < f->m->cfg.n_expert_used; j++)
            n += guess[j] == f->ids[i];
    return n;
}

int peek_score_layer(struct forward *f, int il, struct sl_err *err)
{
    struct peek *p = &f->peek;
    if (!f->route.predict || !alone(f))
        return 0;
    struct peek_score *s = &p->score[il];
    const int32_t *previous = p->previous + (size_t)il * (size_t)f->m->cfg.n_expert_used;
    uint64_t n = (uint64_t)f->used[0];
    int rc = rank(f, il, p->control, err);
    if (rc < 0)
        return rc;
    s->control_asked += n;
    s->control_hit += count_hits(f, p->control);
    if (p->guess_layer == il) {
        s->router_asked += n;
        s->router_hit += count_hits(f, p->guess);
    }
    if (previous[0] >= 0) {
        s->previous_asked += n;
        s->previous_hit += count_hits(f, previous);
    }
    return 0;
}

int peek_guess_next(struct forward *f, int il, struct sl_err *err)
{
    f->peek.guess_layer = -1;
    if ((!f->route.predict && !f->route.guess) || !alone(f) || !routes(f, il + 1))
        return 0;
    int rc = rank(f, il + 1, f->peek.guess, err);
    if (rc == 0)
        f->peek.guess_layer = il + 1;
    return rc;
}

void peek_tell_cache(struct forward *f, int il)
{
    const struct peek *p = &f->peek;
    int k = f->m->cfg.n_expert_used, to = il + f->route.ahead;
    if (!alone(f))
        return;
    if (f->route.ahead && routes(f, to))
        cache_expect(f->cache, to, p->ahead_ids + (size_t)to * (size_t)k, p->ahead_used[to], true);
    if (f->route.prefetch) { /* the last layers look at the next token's first ones */
        to = (il + f->route.prefetch) % f->m->cfg.n_layer;
        if (routes(f, to) && to != il)
            cache_expect(f->cache, to, p->previous + (size_t)to * (size_t)k, k, false);
    }
    if (f->route.guess && p->guess_layer == il + 1)
        cache_expect(f->cache, il + 1, p->guess, f->route.guess < k ? f->route.guess : k, false);
}

void peek_remember(struct forward *f, int il)
{
    size_t k = (size_t)f->m->cfg.n_expert_used, last = (size_t)(f->n_tok - 1);
    memcpy(f->peek.previous + (size_t)il * k, f->ids + last * k, k * sizeof *f->ids);
}
