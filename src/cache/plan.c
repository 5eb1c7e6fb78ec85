/* plan.c: what a pass finds, and where the rest will go. */
#include "cache/impl.h"

#include <stdlib.h>

static int32_t item_key(const struct cache *c, int i)
{
    return c->first_key[c->pass.layer] + c->pass.item[i].expert;
}

/* Lease what is resident or on its way; count the prompt's routing. */
void cache_look_up_items(struct cache *c, const int32_t *ids, const int32_t *counts)
{
    struct pass *p = &c->pass;
    for (int i = 0; i < p->n; i++) {
        struct pass_item *it = &p->item[i];
        uint32_t tokens = counts && counts[i] > 0 ? (uint32_t)counts[i] : 1;
        *it = (struct pass_item){.expert = ids[i], .slot = -1, .count = tokens};
        int32_t key = item_key(c, i);
        if (c->in_prompt && __builtin_add_overflow(c->routed[key], tokens, &c->routed[key]))
            c->routed[key] = UINT32_MAX - 1;
        if (__builtin_add_overflow(c->used[key], tokens, &c->used[key]))
            c->used[key] = UINT32_MAX;
        it->slot = c->where[key];
        it->early = it->slot >= 0 && c->slot[it->slot].spec;
        if (it->slot >= 0 && !it->early) {
            c->stats.hits++;
        } else {
            c->stats.misses++;
            c->stats.rereads += c->known[key];
        }
        if (it->slot < 0) {
            p->n_planned++;
            continue;
        }
        c->slot[it->slot].item = i;
        cache_adopt_ahead(c, it->slot);
        if (c->slot[it->slot].state == SLOT_READY) {
            it->state = ITEM_READY;
            if (it->early)
                c->stats.spec_useful_bytes += c->slot[it->slot].read_bytes;
            cache_push_ready(p, i);
        } else {
            it->state = ITEM_READING;
            p->n_reading++;
        }
    }
}

/* The policy learns what was routed before it is asked for victims. */
void cache_tell_routing(struct cache *c, const int32_t *ids)
{
    struct cache_routing r = c->noted;
    if (r.layer != c->pass.layer || r.n_tokens < 1 || r.k < 1)
        r = (struct cache_routing){
            .layer = c->pass.layer, .n_tokens = 1, .k = c->pass.n, .ids = ids};
    c->noted.n_tokens = 0;
    r.prompt = c->in_prompt;
    if (c->policy && c->policy->ops->observe)
        c->policy->ops->observe(c->policy, &r);
}

struct victim_query {
    const struct cache *c;
    uint32_t candidate; /* how often this prompt routed the expert that wants room; 0: any may go */
    int layer;          /* whose counted experts stay; -1: none */
};

/* In a prompt only experts that it routed less often give way, the least routed first; in decode
 * the policy alone chooses. What this pass asked for stays. */
static uint32_t victim_cost(const void *ctx, int slot)
{
    const struct victim_query *q = ctx;
    const struct cache_slot *s = &q->c->slot[slot];
    if (s->item >= 0)
        return CACHE_COST_NEVER;
    if (s->layer == q->layer && q->c->ahead.counts[s->key - q->c->first_key[q->layer]] > 0)
        return CACHE_COST_NEVER;
    if (q->candidate == 0)
        return 0;
    uint32_t count = q->c->routed[s->key];
    return count < q->candidate ? count : CACHE_COST_NEVER;
}

/* A slot of the pool whose expert gives way to that of key; -1: none does. count: only to what this
 * prompt routed so often, more often than it; 0: as the policy has it. */
static int find_victim(struct cache *c, int pool, int32_t key, uint32_t count)
{
    struct victim_query q = {
        .c = c, .candidate = count, .layer = c->ahead.counted ? c->ahead.layer : -1};
    struct cache_wish w = {
        .pool = pool, .key = key, .may_decline = count == 0, .cost = victim_cost, .ctx = &q};
    return c->policy->ops->victim(c->policy, &w);
}

static void evict(struct cache *c, int slot)
{
    c->stats.evictions++;
    c->known[c->slot[slot].key] = 1;
    cache_free_slot(c, slot);
}

bool cache_make_room(struct cache *c, int pool, int32_t key, uint32_t count)
{
    int slot = c->pool[pool].n > 0 ? find_victim(c, pool, key, count) : -1;
    if (slot >= 0)
        evict(c, slot);
    return slot >= 0;
}

/* A cache slot for item i, promised to it; -1: it goes through transit. */
static int find_room(struct cache *c, int i)
{
    int pool = c->geo.layer_class[c->pass.layer];
    struct slot_pool *p = &c->pool[pool];
    if (p->n == 0)
        return -1;
    int slot = cache_pop_slot(p);
    if (slot < 0 && cache_reclaim_slot(c, p))
        slot = cache_pop_slot(p);
    if (slot < 0) {
        int32_t key = item_key(c, i);
        bool bound = c->in_prompt && !c->policy->ops->rank;
        int v = find_victim(c, pool, key, bound ? c->routed[key] : 0);
        if (v < 0)
            return -1;
        evict(c, v);
        slot = cache_pop_slot(p);
    }
    struct cache_slot *s = &c->slot[slot];
    s->state = SLOT_RESERVED;
    s->layer = c->pass.layer;
    s->key = item_key(c, i);
    s->item = i;
    return slot;
}

/* More often routed first, then lower id. */
static int compare_ranks(const void *a, const void *b)
{
    const struct pass_rank *x = a, *y = b;
    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

/* Room is given out in this order; within equals by rising id. */
static uint32_t rank_miss(const struct cache *c, int32_t key)
{
    if (c->policy && c->policy->ops->rank)
        return c->policy->ops->rank(c->policy, key);
    return c->in_prompt ? c->routed[key] : 0;
}

/* Which misses stay is settled here, by counts and policy alone; cache slots go to the most routed
 * of a prompt's batch. */
void cache_plan_misses(struct cache *c)
{
    struct pass *p = &c->pass;
    int n = 0;
    for (int i = 0; i < p->n; i++)
        if (p->item[i].state == ITEM_PLANNED)
            p->rank[n++] = (struct pass_rank){rank_miss(c, item_key(c, i)), i};
    if (c->in_prompt || (c->policy && c->policy->ops->rank))
        qsort(p->rank, (size_t)n, sizeof *p->rank, compare_ranks);
    for (int j = 0; j < n; j++)
        p->item[p->rank[j].item].slot = find_room(c, p->rank[j].item);
}

/* Tell the policy, in rising id. */
void cache_tell_policy(struct cache *c)
{
    struct slot_pool *pool = &c->pool[c->geo.layer_class[c->pass.layer]];
    struct cache_policy *pol = c->policy;
    for (int i = 0; pol && i < c->pass.n; i++) {
        int slot = c->pass.item[i].slot;
        if (slot < pool->first || slot >= pool->first + pool->n)
            continue; /* in transit */
        if (c->slot[slot].ruled)
            pol->ops->touch(pol, slot);
        else
            pol->ops->insert(pol, slot, item_key(c, i));
        c->slot[slot].ruled = true;
    }
}
