/* policy.c: the table of policies, and LRU. */
#include "cache/policy.h"

#include "base/mem.h"

#include <string.h>

/* ---- LRU: per pool a ring of slots, least recently used first after the sentinel, which is number
 * n_slots + pool ---- */

struct lru {
    struct cache_policy base;
    int n_slots;
    int32_t *next, *prev; /* slots, then sentinels */
    int32_t *pool_of;     /* of a slot */
};

static uint64_t lru_measure(const struct cache_shape *s)
{
    uint64_t n_slots = (uint64_t)s->pool_first[s->n_pools];
    return sizeof(struct lru) + (3 * n_slots + 2 * (uint64_t)s->n_pools) * sizeof(int32_t);
}

static int lru_create(const struct cache_shape *s, struct cache_policy **out, struct sl_err *err)
{
    int n_slots = s->pool_first[s->n_pools], n = n_slots + s->n_pools;
    struct lru *p = mem_calloc(1, sizeof *p);
    int32_t *links = mem_calloc(2 * (size_t)n + (size_t)n_slots, sizeof *links);
    if (!p || !links) {
        mem_free(p);
        mem_free(links);
        return err_set(err, SL_E_MEM, "cache", "no memory for the replacement policy");
    }
    p->base.ops = &cache_policy_lru;
    p->n_slots = n_slots;
    p->next = links;
    p->prev = links + n;
    p->pool_of = links + 2 * n;
    for (int i = 0; i < s->n_pools; i++) {
        p->next[n_slots + i] = p->prev[n_slots + i] = n_slots + i;
        for (int slot = s->pool_first[i]; slot < s->pool_first[i + 1]; slot++)
            p->pool_of[slot] = i;
    }
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

static void lru_append(struct lru *p, int slot)
{
    int end = p->n_slots + p->pool_of[slot], last = p->prev[end];
    p->next[last] = slot;
    p->prev[slot] = last;
    p->next[slot] = end;
    p->prev[end] = slot;
}

static void lru_insert(struct cache_policy *base, int slot, int32_t key)
{
    (void)key;
    lru_append((struct lru *)base, slot);
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
    lru_append((struct lru *)base, slot);
}

static int lru_victim(const struct cache_policy *base, const struct cache_wish *w)
{
    const struct lru *p = (const struct lru *)base;
    int best = -1, end = p->n_slots + w->pool;
    uint32_t lowest = CACHE_COST_NEVER;
    for (int s = p->next[end]; s != end && lowest > 0; s = p->next[s]) {
        uint32_t c = w->cost(w->ctx, s);
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
    .measure = lru_measure,
    .insert = lru_insert,
    .touch = lru_touch,
    .remove = lru_remove,
    .victim = lru_victim,
};

/* ---- The table ---- */

const struct cache_policy_ops *const cache_policies[] = {&cache_policy_echo, &cache_policy_lfu,
                                                         &cache_policy_lru, NULL};

const struct cache_policy_ops *cache_find_policy(const char *name)
{
    if (!name)
        return cache_policies[0];
    for (int i = 0; cache_policies[i]; i++)
        if (strcmp(cache_policies[i]->name, name) == 0)
            return cache_policies[i];
    return NULL;
}
