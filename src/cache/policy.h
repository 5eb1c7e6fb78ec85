/* policy.h: which resident expert goes when room is needed, and whether a newcomer is worth it.
 *
 * A policy serves all slots of a cache and sees the history of what was routed, in order. What it
 * answers is a function of that history alone: no clock, no addresses, no randomness, so that a
 * recorded routing replays exactly, and floating-point arithmetic in a fixed order, so that all
 * machines agree. docs/cache-policy.md compares the policies. */
#ifndef CACHE_POLICY_H
#define CACHE_POLICY_H

#include "base/err.h"

#include <stdint.h>

struct cache_policy;
struct cache_future;

/* Experts are named by keys: first_key + id. */
struct cache_policy_layer {
    int32_t first_key;
    int n_experts, top_k;
    int pool; /* whose slots its experts use; -1: a layer without routed experts */
};

/* What a policy has to manage. Pools are the classes of slots: an expert fits only into its own
 * layer's. */
struct cache_shape {
    int n_layers, n_keys, n_pools;
    const struct cache_policy_layer *layer; /* read during create only */
    const int *pool_first; /* n_pools + 1; pool i has slots [pool_first[i], pool_first[i + 1]) */
    const struct cache_future *future; /* what will be asked for, in a replay; else NULL */
};

/* What a layer's router chose, token by token. */
struct cache_routing {
    int layer;
    int n_tokens, k;
    const int32_t *ids; /* n_tokens rows of k distinct ids in any order; -1 fills up short rows */
    bool prompt;        /* these tokens were given, not generated */
};

#define CACHE_PRIME_TOKENS 25 /* what earlier runs say weighs as much as so many tokens */

#define CACHE_COST_NEVER UINT32_MAX
/* What giving up this slot costs beside the policy's own view; CACHE_COST_NEVER: it must stay. */
typedef uint32_t cache_cost_fn(const void *ctx, int slot);

/* A missing expert wants a slot of a pool in which none is free. */
struct cache_wish {
    int pool;
    int32_t key;
    bool may_decline; /* the policy may say that what is there is worth more */
    cache_cost_fn *cost;
    const void *ctx;
};

struct cache_policy_ops {
    const char *name;
    int (*create)(const struct cache_shape *shape, struct cache_policy **out, struct sl_err *err);
    void (*destroy)(struct cache_policy *p); /* NULL is fine */
    /* Bytes that create takes, at most. */
    uint64_t (*measure)(const struct cache_shape *shape);
    /* A layer's routing is known: called once per pass, before its victims are chosen. May be NULL.
     */
    void (*observe)(struct cache_policy *p, const struct cache_routing *r);
    /* Before anything was observed: earlier runs used this expert for such a share of their tokens.
     * May be NULL. */
    void (*prime)(struct cache_policy *p, int32_t key, float share);
    void (*insert)(struct cache_policy *p, int slot, int32_t key); /* slot was not held */
    void (*touch)(struct cache_policy *p, int slot);               /* a hit */
    void (*remove)(struct cache_policy *p, int slot);              /* evicted or failed */
    /* The held slot of the pool with the lowest cost, the policy's preference among equals; -1 when
     * all costs are CACHE_COST_NEVER, or when it declines. Does not remove it. */
    int (*victim)(const struct cache_policy *p, const struct cache_wish *w);
    /* For the optimum only, which is not bound by the prompt's counts: misses are served in falling
     * rank, and victims cost nothing in a prompt either. Else NULL. */
    uint32_t (*rank)(const struct cache_policy *p, int32_t key);
};

/* Every policy's struct starts with this. */
struct cache_policy {
    const struct cache_policy_ops *ops;
};

extern const struct cache_policy_ops cache_policy_echo, cache_policy_lfu, cache_policy_lru;

/* The policies that need no future, NULL behind the last; the first is the default. */
extern const struct cache_policy_ops *const cache_policies[];
/* By name; NULL name: the default. NULL when there is none of that name. */
const struct cache_policy_ops *cache_find_policy(const char *name);

/* Belady's choice: what is needed again last goes, and what is needed later than all that is there
 * does not stay. The most hits that are possible where passes ask for one expert; where they ask
 * for more, those that a pass uses can't give up their slots during it, and a hit may be lost now
 * and then. */
extern const struct cache_policy_ops cache_policy_belady;

/* When each key will be asked for: the numbers of the passes (calls of observe), rising, are
 * pass[first[key]] .. pass[first[key + 1] - 1]. */
struct cache_future {
    const int64_t *first; /* n_keys + 1 */
    const int32_t *pass;
};

#endif
