/* preload.c: filling the cache before it is asked for anything. */
#include "cache/impl.h"

static bool is_expert(const struct cache *c, const struct cache_hint *h)
{
    return h->layer >= 0 && h->layer < c->cfg.n_layers && c->layers[h->layer].n_parts > 0 &&
           h->expert >= 0 && h->expert < c->layers[h->layer].n_experts;
}

/* A load is free and not too much is under way. */
static bool wait_for_load(struct cache *c)
{
    while (!c->free_load || c->n_open >= c->cfg.in_flight)
        if (!cache_reap_loads(c, true))
            return false;
    return true;
}

static void tell_policy(struct cache *c)
{
    for (int s = 0; s < cache_transit(c)->first; s++) {
        struct cache_slot *slot = &c->slot[s];
        if (slot->state != SLOT_READY || slot->ruled || slot->spec)
            continue;
        c->policy->ops->insert(c->policy, s, slot->key);
        slot->ruled = true;
    }
}

static int read_hints(struct cache *c, const struct cache_hint *hint, size_t n)
{
    int n_read = 0;
    for (size_t i = 0; i < n; i++) {
        const struct cache_hint *h = &hint[i];
        if (!is_expert(c, h) || c->where[c->first_key[h->layer] + h->expert] >= 0)
            continue;
        struct slot_pool *p = &c->pool[c->geo.layer_class[h->layer]];
        if (p->n_free == 0)
            continue;
        if (!wait_for_load(c))
            break;
        struct req_chain q;
        cache_init_chain(&q);
        cache_start_load(c, cache_pop_slot(p), h->layer, h->expert, &q, &q);
        cache_submit_chain(c, &q);
        n_read++;
    }
    while (cache_reap_loads(c, true))
        ;
    return n_read;
}

int cache_preload(struct cache *c, const struct cache_hint *hint, size_t n)
{
    if (c->pass.open || !c->policy)
        return 0;
    for (size_t i = 0; c->policy->ops->prime && i < n; i++)
        if (is_expert(c, &hint[i]))
            c->policy->ops->prime(c->policy, c->first_key[hint[i].layer] + hint[i].expert,
                                  hint[i].share);
    int n_read = read_hints(c, hint, n);
    tell_policy(c);
    return n_read;
}

const uint32_t *cache_get_uses(const struct cache *c, int layer)
{
    return c->layers[layer].n_parts ? c->used + c->first_key[layer] : NULL;
}
