#include "cache/policy.h"

#include "base/mem.h"

#include <string.h>

/* ---- LRU: a ring of slots, least recently used first after the sentinel, which is number n ----
 */

struct lru {
    struct cache_policy base;
    int n;
    int32_t *next, *prev; /* n + 1 each */
};

static int lru_create(int n_slots, int n_keys, struct cache_policy **out, struct sl_err *err)
{
    (void)n_keys;
    struct lru *p = mem_calloc(1, sizeof *p);
    int32_t *links = mem_calloc(2 * ((size_t)n_slots + 1), sizeof *links);
    if (!p || !links) {
        mem_free(p);
        mem_free(links);
        return err_set(err, SL_E_MEM, "cache", "no memory for the replacement policy");
    }
    p->base.ops = &cache_policy_lru;
    p->n = n_slots;
    p->next = links;
    p->prev = links + n_slots + 1;
    p->next[n_slots] = p->prev[n_slots] = n_slots;
    *out = &p->base;
    return 0;
}

static void lru_destroy(struct cache_policy *base)
{
    struct lru *p = (struct lru *)base;
    if (p) {
        mem_free(p->next);
        mem_free(p);
    }
}

static void lru_insert(struct cache_policy *base, int slot, int32_t key)
{
    struct lru *p = (struct lru *)base;
    (void)key;
    int last = p->prev[p->n];
    p->next[last] = slot;
    p->prev[slot] = last;
    p->next[slot] = p->n;
    p->prev[p->n] = slot;
}

static void lru_remove(struct cache_policy *base, int slot)
{
    struct lru *p = (struct lru *)base;
    p->next[p->prev[slot]] = p->next[slot];
    p->prev[p->next[slot]] = p->prev[slot];
}

static void lru_touch(struct cache_policy *base, int slot)
{
    lru_remove(base, slot);
    lru_insert(base, slot, 0);
}

static int lru_victim(const struct cache_policy *base, cache_cost_fn *cost, const void *ctx)
{
    const struct lru *p = (const struct lru *)base;
    int best = -1;
    uint32_t lowest = CACHE_COST_NEVER;
    for (int s = p->next[p->n]; s != p->n && lowest > 0; s = p->next[s]) {
        uint32_t c = cost(ctx, s);
        if (c < lowest) {
            lowest = c;
            best = s;
        }
    }
    return best;
}

const struct cache_policy_ops cache_policy_lru = {
    .name = "lru",
    .create = lru_create,
    .destroy = lru_destroy,
    .insert = lru_insert,
    .touch = lru_touch,
    .remove = lru_remove,
    .victim = lru_victim,
};

const struct cache_policy_ops *cache_find_policy(const char *name)
{
    static const struct cache_policy_ops *const all[] = {&cache_policy_lru};
    if (!name)
        return all[0];
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i]->name, name) == 0)
            return all[i];
    return NULL;
}
