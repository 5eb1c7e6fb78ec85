/* policy_lfu.c: frequency with exponential decay, weighted by how soon the layer comes round again.
 *
 * Each use of an expert adds 1 to its count (a prompt's batch counts as one use, as in a drive's
 * eyes it is), and counts lose 1 / 5000 with every use of any expert.
 * An expert whose layer was just visited has to wait for a whole token until it can be of use, one
 * of the next layer hardly at all: worth = count * (2 - distance / layers). */
#include "cache/ranks.h"

#include "base/mem.h"

/* Instead of shrinking all counts, later uses count for more; when a use reaches LIMIT, all counts
 * are divided by it. */
#define GROWTH (1.0f / 0.9998f)
#define LIMIT  1e20f

struct lfu {
    struct cache_policy base;
    struct cache_ranks ranks; /* score: count */
    float one;                /* what a use adds now */
    int now;                  /* the layer that was visited last */
    uint32_t visit;           /* number of the pass */
    uint32_t *counted;        /* of a key: the last pass that counted it */
};

static uint64_t lfu_measure(const struct cache_shape *s)
{
    return sizeof(struct lfu) + cache_ranks_measure(s) + (uint64_t)s->n_keys * sizeof(uint32_t);
}

static void lfu_destroy(struct cache_policy *base)
{
    struct lfu *p = (struct lfu *)base;
    if (p) {
        cache_ranks_free(&p->ranks);
        mem_free(p->counted);
        mem_free(p);
    }
}

static int lfu_create(const struct cache_shape *s, struct cache_policy **out, struct sl_err *err)
{
    struct lfu *p = mem_calloc(1, sizeof *p);
    if (!p)
        return err_set(err, SL_E_MEM, "cache", "no memory for the replacement policy");
    p->base.ops = &cache_policy_lfu;
    p->one = 1;
    int rc = cache_ranks_init(&p->ranks, s, err);
    p->counted = mem_calloc((size_t)s->n_keys, sizeof *p->counted);
    if (rc == 0 && !p->counted)
        rc = err_set(err, SL_E_MEM, "cache", "no memory for the replacement policy");
    if (rc < 0)
        lfu_destroy(&p->base);
    else
        *out = &p->base;
    return rc;
}

/* A common factor: the order stays, but where small counts become equal. */
static void rescale(struct lfu *p)
{
    struct cache_ranks *r = &p->ranks;
    for (int l = 0; l < r->n_layers; l++) {
        if (r->layer[l].pool < 0)
            continue;
        for (int e = 0; e < r->layer[l].n_experts; e++)
            r->score[r->layer[l].first_key + e] /= p->one;
        cache_ranks_sort(r, l);
    }
    p->one = 1;
}

static void lfu_observe(struct cache_policy *base, const struct cache_routing *o)
{
    struct lfu *p = (struct lfu *)base;
    int32_t first = p->ranks.layer[o->layer].first_key;
    p->visit++;
    for (int64_t i = 0; i < (int64_t)o->n_tokens * o->k; i++) {
        int32_t key = first + o->ids[i];
        if (o->ids[i] < 0 || (o->prompt && p->counted[key] == p->visit))
            continue;
        p->counted[key] = p->visit;
        p->one = p->one * GROWTH;
        if (p->one > LIMIT)
            rescale(p);
        p->ranks.score[key] = p->ranks.score[key] + p->one;
    }
    p->now = o->layer;
    cache_ranks_sort(&p->ranks, o->layer);
}

static void lfu_prime(struct cache_policy *base, int32_t key, float share)
{
    struct lfu *p = (struct lfu *)base;
    p->ranks.score[key] = share * CACHE_PRIME_TOKENS * p->one;
}

static void lfu_insert(struct cache_policy *base, int slot, int32_t key)
{
    cache_ranks_insert(&((struct lfu *)base)->ranks, slot, key);
}

static void lfu_touch(struct cache_policy *base, int slot)
{
    (void)base;
    (void)slot;
}

static void lfu_remove(struct cache_policy *base, int slot)
{
    cache_ranks_remove(&((struct lfu *)base)->ranks, slot);
}

static float weigh(const void *ctx, int layer, float score)
{
    const struct lfu *p = ctx;
    int d = layer - p->now, n = p->ranks.n_layers;
    d = d > 0 ? d : d + n;
    return score * (2.0f - (float)d / (float)n);
}

static float weigh_key(const void *ctx, int layer, int32_t key)
{
    return weigh(ctx, layer, ((const struct lfu *)ctx)->ranks.score[key]);
}

static int lfu_victim(const struct cache_policy *base, const struct cache_wish *w)
{
    const struct lfu *p = (const struct lfu *)base;
    struct cache_valuer v = {.low = weigh, .worth = weigh_key, .ctx = p};
    float worth;
    int slot = cache_ranks_worst(&p->ranks, w, &v, &worth);
    if (slot >= 0 && w->may_decline && worth >= weigh_key(p, p->ranks.layer_of[w->key], w->key))
        return -1;
    return slot;
}

const struct cache_policy_ops cache_policy_lfu = {
    .name = "lfu-decay",
    .create = lfu_create,
    .destroy = lfu_destroy,
    .measure = lfu_measure,
    .observe = lfu_observe,
    .prime = lfu_prime,
    .insert = lfu_insert,
    .touch = lfu_touch,
    .remove = lfu_remove,
    .victim = lfu_victim,
};
