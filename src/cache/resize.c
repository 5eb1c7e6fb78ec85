/* resize.c: a cache that changes its size between passes. */
#include "cache/impl.h"

static uint32_t any_cost(const void *ctx, int slot)
{
    (void)ctx;
    (void)slot;
    return 0;
}

/* A slot of the pool that holds nothing any more; -1: there is none. */
static int vacate_slot(struct cache *c, int pool)
{
    struct slot_pool *p = &c->pool[pool];
    if (p->n_free == 0 && !cache_reclaim_slot(c, p)) {
        struct cache_wish w = {.pool = pool, .key = -1, .cost = any_cost};
        int v = c->policy->ops->victim(c->policy, &w);
        if (v < 0)
            return -1;
        c->stats.evictions++;
        c->known[c->slot[v].key] = 1;
        cache_free_slot(c, v);
    }
    return cache_pop_slot(p);
}

static void shrink_pool(struct cache *c, int pool, int n)
{
    struct slot_pool *p = &c->pool[pool];
    while (p->n_open > n) {
        int slot = vacate_slot(c, pool);
        if (slot < 0)
            return;
        cache_close_slot(c, slot);
        c->slot[slot].state = SLOT_CLOSED;
        p->n_open--;
    }
}

/* From the last on, so that the first is handed out first. */
static void grow_pool(struct cache *c, int pool, int n)
{
    struct slot_pool *p = &c->pool[pool];
    for (int s = p->first + p->n - 1; s >= p->first && p->n_open < n; s--) {
        if (c->slot[s].state != SLOT_CLOSED)
            continue;
        if (!cache_open_slots(c, s, 1))
            return;
        c->slot[s].state = SLOT_FREE;
        p->free[p->n_free++] = s;
        p->n_open++;
    }
}

/* Speculative reads that are still under way come to their end. */
static int settle_reads(struct cache *c, struct sl_err *err)
{
    c->ahead.layer = -1;
    while (cache_reap_loads(c, true))
        ;
    cache_drop_expected(c);
    return c->n_open == 0
               ? 0
               : err_set(err, SL_E_INTERNAL, "cache", "the reader lost %d reads", c->n_open);
}

int cache_set_budget(struct cache *c, uint64_t bytes, uint64_t *now, struct sl_err *err)
{
    struct cache_span span = cache_begin_span(c);
    if (c->pass.open)
        return err_set(err, SL_E_INTERNAL, "cache", "its size changes while a pass is open");
    int rc = cache_check_budget(bytes, &c->geo, err);
    if (rc == 0)
        rc = settle_reads(c, err);
    if (rc)
        return rc;
    c->cfg.slots = -1;
    c->cfg.budget = bytes < INT64_MAX ? (int64_t)bytes : INT64_MAX;
    cache_divide_budget(&c->cfg, &c->geo, NULL);
    cache_stop_touching(c);
    for (int i = 0; i < c->geo.n_classes; i++) /* first what gives, then what takes */
        shrink_pool(c, i, (int)c->geo.cls[i].n_slots);
    for (int i = 0; i < c->geo.n_classes; i++) {
        grow_pool(c, i, (int)c->geo.cls[i].n_slots);
        c->geo.cls[i].n_slots = (uint64_t)c->pool[i].n_open;
    }
    cache_sum_sizes(&c->cfg, &c->geo, &c->sizes);
    cache_start_touching(c);
    if (now)
        *now = c->sizes.cache_bytes;
    cache_end_span(c, span);
    return 0;
}
