/* policy.h: which resident expert goes when room is needed.
 *
 * A policy serves the slots of one class, numbered 0..n_slots-1, and sees the history of what was
 * asked for, in order. What it answers is a function of that history alone: no clock, no addresses,
 * no randomness, so that a recorded routing replays exactly. */
#ifndef CACHE_POLICY_H
#define CACHE_POLICY_H

#include "base/err.h"

#include <stdint.h>

struct cache_policy;

#define CACHE_COST_NEVER UINT32_MAX
/* What giving up this slot costs beside the policy's own view; CACHE_COST_NEVER: it must stay. */
typedef uint32_t cache_cost_fn(const void *ctx, int slot);

struct cache_policy_ops {
    const char *name;
    /* n_keys: experts are named by numbers 0..n_keys-1 (for policies that keep counts). */
    int (*create)(int n_slots, int n_keys, struct cache_policy **out, struct sl_err *err);
    void (*destroy)(struct cache_policy *p);
    /* A pass asked for key, routed by `tokens` tokens; called for residents and others alike,
     * before touch or insert. May be NULL. */
    void (*ask)(struct cache_policy *p, int32_t key, uint32_t tokens);
    void (*insert)(struct cache_policy *p, int slot, int32_t key); /* slot was not held */
    void (*touch)(struct cache_policy *p, int slot);               /* a hit */
    void (*remove)(struct cache_policy *p, int slot);              /* evicted or failed */
    /* The held slot with the lowest cost, the policy's preference among equals; -1 when all costs
     * are CACHE_COST_NEVER. Does not remove it. */
    int (*victim)(const struct cache_policy *p, cache_cost_fn *cost, const void *ctx);
};

/* Every policy's struct starts with this. */
struct cache_policy {
    const struct cache_policy_ops *ops;
};

extern const struct cache_policy_ops cache_policy_lru;

/* By name; NULL name: the default. NULL when there is none of that name. */
const struct cache_policy_ops *cache_find_policy(const char *name);

#endif
