/* route.c: scores, choice and weights of each token, then the batch's entries.
 *
 * An entry is one (token, expert) pair. Entries are sorted by expert, then token, so that an
 * expert's tokens are neighbours in every buffer. */
#include "model/route.h"

#include <string.h>

#include "model/forward.h"
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

/* Weights of the chosen: their probabilities divided by their sum in order of choice, then scaled.
 * Choices that the router did not make may all have probability 0: they weigh the same then. */
static void weigh(const struct model_config *c, const float *s, const int32_t *ids, int k, float *w)
{
    float sum = s[ids[0]];
    for (int i = 1; i < k; i++)
        sum = sum + s[ids[i]];
    for (int i = 0; i < k; i++) {
        w[i] = sum > 0 ? s[ids[i]] / sum : 1.0f / (float)k;
        if (c->expert_scale != 1.0f)
            w[i] = w[i] * c->expert_scale;
    }
}

struct route_args {
    struct forward *f;
    int il;
    _Atomic bool bad;
};

static void route_range(void *arg, int64_t begin, int64_t end, int tid)
{
    (void)tid;
    struct route_args *a = arg;
    struct forward *f = a->f;
    const struct model_config *c = &f->m->cfg;
    int n = c->n_expert, k = c->n_expert_used;
    for (int64_t t = begin; t < end; t++) {
        float *s = f->router + t * n;
        int32_t *ids = f->ids + t * k;
        if (!f->k->softmax(s, n)) {
            atomic_store_explicit(&a->bad, true, memory_order_relaxed);
            continue;
        }
        const int32_t *script = recorded(f, a->il, t);
        if (script)
            memcpy(ids, script, (size_t)k * sizeof *ids);
        else
            kern_topk(s, n, k, ids);
        weigh(c, s, ids, k, f->weights + t * k);
    }
}

/* ---- The batch ---- */

/* Sort this batch's entries by expert; returns the number of distinct experts. */
static int build_entries(struct forward *f)
{
    const struct model_config *c = &f->m->cfg;
    int n = c->n_expert, k = c->n_expert_used, n_entry = f->n_tok * k, n_union = 0;
    memset(f->count, 0, (size_t)n * sizeof *f->count);
    for (int i = 0; i < n_entry; i++)
        f->count[f->ids[i]]++;
    int at = 0;
    for (int e = 0; e < n; e++) {
        f->first[e] = at;
        at += f->count[e];
        if (f->count[e]) {
            f->union_ids[n_union] = e;
            f->union_counts[n_union++] = f->count[e];
        }
    }
    f->first[n] = at;
    memset(f->count, 0, (size_t)n * sizeof *f->count);
    for (int t = 0; t < f->n_tok; t++)
        for (int i = 0; i < k; i++) {
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
        sort_token(ids, k);
        for (int i = 0; i < k; i++)
            f->tok_entry[t * k + i] = f->first[ids[i]] + f->count[ids[i]]++;
        if (f->on_experts)
            f->on_experts(f->user, f->pos0 + t, il, ids, k);
    }
}

static void count_choices(struct forward *f, int il)
{
    uint64_t k = (uint64_t)f->m->cfg.n_expert_used;
    f->route_counts.routed += (uint64_t)f->n_tok * k;
    for (int t = 0; f->route.script && t < f->n_tok; t++)
        if (recorded(f, il, t))
            f->route_counts.replayed += k;
}

int route_batch(struct forward *f, int il, int *n_union, struct sl_err *err)
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
    if (a.bad)
        return forward_numeric(err, il, "router's scores");
    count_choices(f, il);
    watch_routes(f);
    *n_union = build_entries(f);
    sort_tokens(f, il);
    return 0;
}
