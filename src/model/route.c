/* route.c: scores, choice and weights of each token, then the batch's entries.
 *
 * An entry is one (token, expert) pair. Entries are sorted by expert, then token, so that an
 * expert's tokens are neighbours in every buffer. */
#include "model/route.h"

#include <string.h>

#include "model/forward.h"
#include "model/peek.h"
#include "model/watch.h"

/* ---- One token ---- */

/* The script's choice for token t of the batch, k ids; NULL: the router decides. */
static const int32_t *recorded(const struct forward *f, int il, int64_t t)
{
    const struct route_script *s = f->route.script;
    if (!s || il >= s->n_layers)
        return NULL;
    int phase = f->prompt ? 0 : 1;
    int64_t n = s->n_tokens[phase], i = f->prompt ? f->pos0 + t : f->n_decoded + t;
    if (n == 0 || (f->prompt && i >= n))
        return NULL;
    const int32_t *ids = s->ids[phase] + ((i % n) * s->n_layers + il) * s->k;
    return ids[0] < 0 ? NULL : ids;
}

/* Leave out what would have to be read and weighs little; w: the choice's normalised weights. The
 * highest weight stays. Returns how many are left, in the same order. */
static int drop_cold(const struct forward *f, int il, int32_t *ids, float *w, int k)
{
    float least = f->route.drop / (float)k, sum = 0;
    int top = 0, used = 0;
    for (int i = 1; i < k; i++)
        top = w[i] > w[top] ? i : top;
    for (int i = 0; i < k; i++) {
        if (i != top && w[i] < least && !cache_holds_expert(f->cache, il, ids[i]))
            continue;
        ids[used] = ids[i];
        w[used++] = w[i];
    }
    for (int i = used; i < k; i++)
        ids[i] = -1;
    if (used == k || !f->route.drop_renorm)
        return used;
    for (int i = 0; i < used; i++)
        sum = i ? sum + w[i] : w[0];
    for (int i = 0; i < used; i++)
        w[i] = w[i] / sum;
    return used;
}

/* Weights of the chosen: their probabilities divided by their sum in order of choice, then scaled.
 * Choices that the router did not make may all have probability 0: they weigh the same then.
 * Returns how many are left. */
static int weigh(const struct forward *f, int il, const float *s, int32_t *ids, float *w)
{
    const struct model_config *c = &f->m->cfg;
    int k = c->n_expert_used, used = k;
    float sum = s[ids[0]];
    for (int i = 1; i < k; i++)
        sum = sum + s[ids[i]];
    for (int i = 0; i < k; i++)
        w[i] = sum > 0 ? s[ids[i]] / sum : 1.0f / (float)k;
    if (f->route.drop > 0 && f->cache && (!f->prompt || f->route.drop_in_prompt))
        used = drop_cold(f, il, ids, w, k);
    for (int i = 0; i < used && c->expert_scale != 1.0f; i++)
        w[i] = w[i] * c->expert_scale;
    return used;
}

/* The k best when experts in the cache have an advantage; counts those that owe it their place. */
static uint64_t choose_near(const struct forward *f, int il, const float *s, float *scratch,
                            int32_t *ids)
{
    int n = f->m->cfg.n_expert, k = f->m->cfg.n_expert_used;
    float low = s[0], high = s[0];
    for (int i = 1; i < n; i++) {
        low = s[i] < low ? s[i] : low;
        high = s[i] > high ? s[i] : high;
    }
    float bonus = f->route.substitute * (high - low);
    for (int i = 0; i < n; i++)
        scratch[i] = cache_holds_expert(f->cache, il, i) ? s[i] + bonus : s[i];
    int32_t plain[MODEL_MAX_TOPK];
    kern_topk(s, n, k, plain);
    kern_topk(scratch, n, k, ids);
    uint64_t n_other = (uint64_t)k;
    for (int i = 0; i < k; i++)
        for (int j = 0; j < k; j++)
            n_other -= ids[i] == plain[j];
    return n_other;
}

bool route_choose(const struct forward *f, int il, int64_t t, float *scores, float *scratch,
                  struct route_choice out, struct route_counts *c)
{
    int n = f->m->cfg.n_expert, k = f->m->cfg.n_expert_used;
    if (!f->k->softmax(scores, n))
        return false;
    const int32_t *script = recorded(f, il, t);
    if (script) {
        memcpy(out.ids, script, (size_t)k * sizeof *out.ids);
        c->replayed += (uint64_t)k;
    } else if (f->route.substitute > 0 && f->cache && !f->prompt) {
        c->substituted += choose_near(f, il, scores, scratch, out.ids);
    } else {
        kern_topk(scores, n, k, out.ids);
    }
    *out.used = weigh(f, il, scores, out.ids, out.weights);
    c->routed += (uint64_t)k;
    c->dropped += (uint64_t)(k - *out.used);
    return true;
}

/* ---- The batch ---- */

struct route_args {
    struct forward *f;
    int il;
    _Atomic bool bad;
    _Atomic uint64_t routed, replayed, dropped, substituted;
};

static void route_range(void *arg, int64_t begin, int64_t end, int tid)
{
    struct route_args *a = arg;
    struct forward *f = a->f;
    int n = f->m->cfg.n_expert, k = f->m->cfg.n_expert_used;
    struct route_counts c = {0};
    for (int64_t t = begin; t < end; t++) {
        struct route_choice out = {f->ids + t * k, f->weights + t * k, f->used + t};
        if (!route_choose(f, a->il, t, f->router + t * n, f->ranked + (size_t)tid * (size_t)n, out,
                          &c))
            atomic_store_explicit(&a->bad, true, memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&a->routed, c.routed, memory_order_relaxed);
    atomic_fetch_add_explicit(&a->replayed, c.replayed, memory_order_relaxed);
    atomic_fetch_add_explicit(&a->dropped, c.dropped, memory_order_relaxed);
    atomic_fetch_add_explicit(&a->substituted, c.substituted, memory_order_relaxed);
}

static int route_usual(struct forward *f, int il, struct sl_err *err)
{
    const struct layer *l = &f->m->layers[il];
    const struct model_config *c = &f->m->cfg;
    int rc = forward_pack(f, l->router.kernel->act, f->h, (size_t)c->n_embd, c->n_embd, f->n_tok,
                          il, "router input", err);
    if (rc < 0)
        return rc;
    struct product p = {&l->router, f->router, (size_t)c->n_expert};
    forward_products(f, &p, 1, f->packed, f->packed_stride, f->n_tok);
    struct route_args a = {.f = f, .il = il};
    pool_for(f->pool, f->n_tok, 8, route_range, &a);
    f->route_counts.routed += a.routed;
    f->route_counts.replayed += a.replayed;
    f->route_counts.dropped += a.dropped;
    f->route_counts.substituted += a.substituted;
    return a.bad ? forward_numeric(err, il, "router's scores") : 0;
}

/* Sort this batch's entries by expert; returns the number of distinct experts, or of all with
 * load_all: those that were not chosen have no entry. */
static int build_entries(struct forward *f)
{
    int n = f->m->cfg.n_expert, k = f->m->cfg.n_expert_used, n_union = 0;
    memset(f->count, 0, (size_t)n * sizeof *f->count);
    for (int t = 0; t < f->n_tok; t++)
        for (int i = 0; i < f->used[t]; i++)
            f->count[f->ids[t * k + i]]++;
    int at = 0;
    for (int e = 0; e < n; e++) {
        f->first[e] = at;
        at += f->count[e];
        if (f->count[e] || f->load_all) {
            f->union_ids[n_union] = e;
            f->union_counts[n_union++] = f->count[e];
        }
    }
    f->first[n] = at;
    memset(f->count, 0, (size_t)n * sizeof *f->count);
    for (int t = 0; t < f->n_tok; t++)
        for (int i = 0; i < f->used[t]; i++) {
            int e = f->ids[t * k + i], entry = f->first[e] + f->count[e]++;
            f->entry_tok[entry] = t;
            f->entry_w[entry] = f->weights[t * k + i];
        }
    return n_union;
}

static void sort_token(int32_t *v, int k)
{
    for (int i = 1; i < k; i++) {
        int32_t x = v[i];
        int j = i - 1;
        for (; j >= 0 && v[j] > x; j--)
            v[j + 1] = v[j];
        v[j + 1] = x;
    }
}

/* ids of each token ascending, entries likewise. */
static void sort_tokens(struct forward *f, int il)
{
    int k = f->m->cfg.n_expert_used;
    memset(f->count, 0, (size_t)f->m->cfg.n_expert * sizeof *f->count);
    for (int t = 0; t < f->n_tok; t++) {
        int32_t *ids = f->ids + (size_t)t * (size_t)k;
        sort_token(ids, f->used[t]);
        for (int i = 0; i < f->used[t]; i++)
            f->tok_entry[t * k + i] = f->first[ids[i]] + f->count[ids[i]]++;
        if (f->on_experts)
            f->on_experts(f->user, f->pos0 + t, il, ids, f->used[t]);
    }
}

int route_batch(struct forward *f, int il, int *n_union, struct sl_err *err)
{
    bool early = peek_take_ahead(f, il);
    int rc = early ? 0 : route_usual(f, il, err);
    if (rc == 0)
        rc = peek_route_ahead(f, il, err);
    if (rc == 0)
        rc = peek_score_layer(f, il, err);
    if (rc == 0)
        rc = peek_guess_next(f, il, err);
    if (rc < 0)
        return rc;
    peek_count_next(f, il);
    watch_routes(f);
    *n_union = build_entries(f);
    sort_tokens(f, il);
    peek_remember(f, il);
    return 0;
}
