/* policy_belady.c: the optimum of a recorded routing: L. A. Belady, "A study of replacement
 * algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966; here with the choice
 * not to keep what was read. */
#include "cache/policy.h"

#include "base/mem.h"

#include <string.h>

struct belady {
    struct cache_policy base;
    const struct cache_future *future;
    int n_pools;
    int *pool_first;
    int32_t *key_of; /* of a slot, -1 */
    int64_t *cursor; /* of a key: no pass before it in the future's list is still to come */
    int32_t now;     /* number of the running pass */
};

static uint64_t belady_measure(const struct cache_shape *s)
{
    return sizeof(struct belady) + ((uint64_t)s->n_pools + 1) * sizeof(int) +
           (uint64_t)s->pool_first[s->n_pools] * sizeof(int32_t) +
           (uint64_t)s->n_keys * sizeof(int64_t);
}

static void belady_destroy(struct cache_policy *base)
{
    struct belady *p = (struct belady *)base;
    if (p) {
        mem_free(p->pool_first);
        mem_free(p->key_of);
        mem_free(p->cursor);
        mem_free(p);
    }
}

static int belady_create(const struct cache_shape *s, struct cache_policy **out, struct sl_err *err)
{
    if (!s->future)
        return err_set(err, SL_E_INTERNAL, "cache", "the optimum wants to know the future");
    size_t n_slots = (size_t)s->pool_first[s->n_pools];
    struct belady *p = mem_calloc(1, sizeof *p);
    if (p) {
        p->pool_first = mem_calloc((size_t)s->n_pools + 1, sizeof *p->pool_first);
        p->key_of = mem_calloc(n_slots, sizeof *p->key_of);
        p->cursor = mem_calloc((size_t)s->n_keys, sizeof *p->cursor);
    }
    if (!p || !p->pool_first || !p->key_of || !p->cursor) {
        belady_destroy((struct cache_policy *)p);
        return err_set(err, SL_E_MEM, "cache", "no memory for the replacement policy");
    }
    p->base.ops = &cache_policy_belady;
    p->future = s->future;
    p->n_pools = s->n_pools;
    p->now = -1;
    memcpy(p->pool_first, s->pool_first, ((size_t)s->n_pools + 1) * sizeof *p->pool_first);
    for (size_t i = 0; i < n_slots; i++)
        p->key_of[i] = -1;
    for (int i = 0; i < s->n_keys; i++)
        p->cursor[i] = s->future->first[i];
    *out = &p->base;
    return 0;
}

static void belady_observe(struct cache_policy *base, const struct cache_routing *r)
{
    (void)r;
    ((struct belady *)base)->now++;
}

static void belady_insert(struct cache_policy *base, int slot, int32_t key)
{
    ((struct belady *)base)->key_of[slot] = key;
}

static void belady_touch(struct cache_policy *base, int slot)
{
    (void)base;
    (void)slot;
}

static void belady_remove(struct cache_policy *base, int slot)
{
    ((struct belady *)base)->key_of[slot] = -1;
}

/* Larger: needed sooner; 0: never again. The pass that runs is the past. */
static uint32_t belady_rank(const struct cache_policy *base, int32_t key)
{
    const struct belady *p = (const struct belady *)base;
    const struct cache_future *f = p->future;
    int64_t *at = &p->cursor[key];
    while (*at < f->first[key + 1] && f->pass[*at] <= p->now)
        ++*at;
    return *at < f->first[key + 1] ? UINT32_MAX - (uint32_t)f->pass[*at] : 0;
}

static int belady_victim(const struct cache_policy *base, const struct cache_wish *w)
{
    const struct belady *p = (const struct belady *)base;
    int best = -1;
    uint32_t lowest = 0;
    for (int s = p->pool_first[w->pool]; s < p->pool_first[w->pool + 1]; s++) {
        if (p->key_of[s] < 0 || w->cost(w->ctx, s) == CACHE_COST_NEVER)
            continue;
        uint32_t rank = belady_rank(base, p->key_of[s]);
        if (best < 0 || rank < lowest) {
            best = s;
            lowest = rank;
        }
    }
    return best >= 0 && w->may_decline && lowest >= belady_rank(base, w->key) ? -1 : best;
}

const struct cache_policy_ops cache_policy_belady = {
    .name = "belady",
    .create = belady_create,
    .destroy = belady_destroy,
    .measure = belady_measure,
    .observe = belady_observe,
    .insert = belady_insert,
    .touch = belady_touch,
    .remove = belady_remove,
    .victim = belady_victim,
    .rank = belady_rank,
};
