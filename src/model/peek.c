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
    f->peek.guess_layer = f->peek.counts_layer = -1;
    if (f->route.ahead)
        memset(f->peek.ahead_used, 0, (size_t)f->m->cfg.n_layer * sizeof *f->peek.ahead_used);
}

/* Scores of layer il's router if its FFN began with the residual as it is; of n of the batch's
 * tokens, evenly spread. */
static int score(struct forward *f, int il, int n, struct sl_err *err)
{
    const struct layer *l = &f->m->layers[il];
    const struct model_config *c = &f->m->cfg;
    size_t width = (size_t)c->n_embd;
    int rc = forward_need_block(f, il, err);
    if (rc < 0)
        return rc;
    for (int i = 0; i < n; i++)
        f->k->rms_norm(f->x + (size_t)((int64_t)i * f->n_tok / n) * width, l->ffn_norm, c->n_embd,
                       c->rms_eps, f->peek.norm + (size_t)i * width);
    f->packed_src = NULL;
    rc = forward_pack(f, l->router.kernel->act, f->peek.norm, width, c->n_embd, n, il,
                      "input of a router that is asked early", err);
    if (rc < 0)
        return rc;
    struct product p = {&l->router, f->peek.scores, (size_t)c->n_expert};
    forward_products(f, &p, 1, f->packed, f->packed_stride, n);
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
    int rc = score(f, to, 1, err);
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
    int n = f->m->cfg.n_expert, rc = score(f, il, 1, err);
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

/* Tokens that are expected at an expert for it to be read ahead. */
#define EXPECT_TOKENS 2

/* What a guess comes to grief on is no error: the layer itself will tell. */
void peek_count_next(struct forward *f, int il)
{
    struct peek *p = &f->peek;
    int n = f->n_tok < PEEK_SAMPLE ? f->n_tok : PEEK_SAMPLE, k = f->m->cfg.n_expert_used;
    int n_expert = f->m->cfg.n_expert;
    int32_t ids[MODEL_MAX_TOPK];
    p->counts_layer = -1;
    if (!f->prompt || !f->cache || f->load_all || f->n_tok < EXPECT_TOKENS || !routes(f, il + 1) ||
        !model_has_block(f->m, il + 1) || score(f, il + 1, n, NULL) < 0)
        return;
    memset(p->counts, 0, (size_t)n_expert * sizeof *p->counts);
    for (int t = 0; t < n; t++) {
        float *s = p->scores + (size_t)t * (size_t)n_expert;
        if (!f->k->softmax(s, n_expert))
            return;
        kern_topk(s, n_expert, k, ids);
        for (int i = 0; i < k; i++)
            p->counts[ids[i]]++;
    }
    for (int e = 0; e < n_expert; e++) {
        int64_t tokens = (int64_t)p->counts[e] * f->n_tok / n;
        p->counts[e] = tokens < EXPECT_TOKENS ? 0 : (int32_t)tokens;
    }
    p->counts_layer = il + 1;
}

void peek_tell_cache(struct forward *f, int il)
{
    const struct peek *p = &f->peek;
    int k = f->m->cfg.n_expert_used, to = il + f->route.ahead;
    if (f->prompt && routes(f, il + 1) && (f->load_all || p->counts_layer == il + 1))
        cache_read_ahead(f->cache, il + 1, f->load_all ? NULL : p->counts);
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
