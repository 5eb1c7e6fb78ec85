/* expect.c: reads of experts that a later pass is expected to ask for. */
#include "cache/impl.h"

void cache_forget_expected(struct cache *c, int layer)
{
    struct ahead *a = &c->ahead;
    int n = 0;
    for (int i = 0; i < a->n_queue; i++)
        if (layer >= 0 && a->queue[i].layer != layer)
            a->queue[n++] = a->queue[i];
    a->n_queue = n;
}

void cache_drop_expected(struct cache *c)
{
    cache_forget_expected(c, -1);
    for (int i = 0; i < c->n_slots; i++)
        if (c->slot[i].expected)
            cache_waste_slot(c, i);
}

/* Reads that go on beside computing, and a policy that knows what the slots are worth. */
static bool can_read_ahead(const struct cache *c)
{
    return c->cfg.overlap && c->policy && !c->in_prompt && !c->cfg.dry &&
           c->reader->ops != &io_plain_ops;
}

/* Is anything that a pass asked for being read from a drive that layer's experts lie on? */
static bool demand_is_open(const struct cache *c, int layer)
{
    if (c->n_open == c->ahead.n_open)
        return false;
    for (int i = 0; i < c->n_loads; i++) {
        const struct load *l = &c->load[i];
        if (l->n_left > 0 && !c->slot[l->slot].spec &&
            (c->drives[c->slot[l->slot].layer] & c->drives[layer]))
            return true;
    }
    return false;
}

/* What is certain may be as many as a token needs; guesses wait until their drive has nothing to
 * do, so that what a pass asks for waits behind few of them. */
static bool may_begin(const struct cache *c, const struct expected *e)
{
    const struct ahead *a = &c->ahead;
    if (c->pass.n_planned > 0 || c->pass.err.code)
        return false;
    if (e->sure)
        return a->n_open < c->n_expected_open;
    int most = c->cfg.guesses_open > 0 ? c->cfg.guesses_open : 1;
    return a->n_open < most && !demand_is_open(c, e->layer);
}

/* A free slot of the layer's class, or one that is worth less, or one in transit as long as another
 * stays free for the next demand. */
static int pick_slot(struct cache *c, const struct expected *e)
{
    int pool = c->geo.layer_class[e->layer];
    int slot = cache_pop_slot(&c->pool[pool]);
    if (slot < 0 && cache_make_room(c, pool, c->first_key[e->layer] + e->expert, 0))
        slot = cache_pop_slot(&c->pool[pool]);
    if (slot < 0 && cache_transit(c)->n_free > 1)
        slot = cache_pop_slot(cache_transit(c));
    return slot;
}

void cache_read_expected(struct cache *c)
{
    struct ahead *a = &c->ahead;
    struct req_chain q;
    cache_init_chain(&q);
    int done = 0;
    for (; done < a->n_queue && may_begin(c, &a->queue[done]); done++) {
        const struct expected *e = &a->queue[done];
        if (c->where[c->first_key[e->layer] + e->expert] >= 0)
            continue;
        int slot = pick_slot(c, e);
        if (slot < 0)
            break;
        c->slot[slot].spec = c->slot[slot].expected = true;
        c->pool[c->slot[slot].pool].n_spec++;
        cache_start_load(c, slot, e->layer, e->expert, &q, &q);
        a->n_open++;
        c->stats.expected_reads++;
    }
    a->n_queue -= done;
    for (int i = 0; i < a->n_queue; i++)
        a->queue[i] = a->queue[i + done];
    cache_submit_chain(c, &q);
}

void cache_expect(struct cache *c, int layer, const int32_t *ids, int n, bool sure)
{
    struct cache_span span = cache_begin_span(c);
    struct ahead *a = &c->ahead;
    bool ok = layer >= 0 && layer < c->cfg.n_layers && c->layers[layer].n_parts > 0 &&
              !(c->pass.open && c->pass.layer == layer) && can_read_ahead(c);
    if (ok)
        cache_forget_expected(c, layer);
    for (int i = 0; ok && i < n && a->n_queue < CACHE_MAX_EXPECTED; i++)
        if (ids[i] >= 0 && ids[i] < c->layers[layer].n_experts &&
            c->where[c->first_key[layer] + ids[i]] < 0)
            a->queue[a->n_queue++] = (struct expected){
                .layer = layer, .expert = ids[i], .sure = sure};
    if (ok) {
        cache_poll_loads(c);
        cache_read_expected(c);
    }
    cache_end_span(c, span);
}
