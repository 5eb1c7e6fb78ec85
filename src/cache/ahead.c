/* ahead.c: reads for a layer whose pass has not begun, into slots that nobody needs. */
#include "cache/impl.h"

#include <string.h>

void cache_adopt_ahead(struct cache *c, int slot)
{
    struct cache_slot *s = &c->slot[slot];
    if (!s->spec)
        return;
    s->spec = s->expected = s->doomed = false;
    c->pool[s->pool].n_spec--;
    if (s->state == SLOT_READING)
        c->ahead.n_open--;
}

void cache_drop_ahead(struct cache *c, int layer)
{
    if (c->ahead.layer == layer)
        c->ahead.layer = -1;
    cache_forget_expected(c, layer);
    for (int i = 0; i <= c->geo.n_classes; i++) {
        const struct slot_pool *p = &c->pool[i];
        for (int s = p->first; p->n_spec && s < p->first + p->n; s++)
            if (c->slot[s].spec && c->slot[s].layer == layer)
                cache_waste_slot(c, s);
    }
}

/* How often the prompt will have routed the expert, about; at least once. */
static uint32_t expected_count(const struct cache *c, int32_t key, int32_t more)
{
    uint32_t count;
    return __builtin_add_overflow(c->routed[key], (uint32_t)more, &count) ? UINT32_MAX - 1 : count;
}

/* A free cache slot of the layer's class, or one that gives way in a prompt, else a free transit
 * slot; one of these stays free for the next demand. */
static int pick_slot(struct cache *c)
{
    const struct ahead *a = &c->ahead;
    int pool = c->geo.layer_class[a->layer];
    int32_t key = c->first_key[a->layer] + a->next_expert;
    int slot = cache_pop_slot(&c->pool[pool]);
    if (slot < 0 && a->counted && c->in_prompt &&
        cache_make_room(c, pool, key, expected_count(c, key, a->counts[a->next_expert])))
        slot = cache_pop_slot(&c->pool[pool]);
    if (slot < 0 && cache_transit(c)->n_free > 1)
        slot = cache_pop_slot(cache_transit(c));
    return slot;
}

/* At most in_flight experts are open: what a pass then asks for waits behind few reads. */
void cache_top_up_ahead(struct cache *c)
{
    struct ahead *a = &c->ahead;
    struct req_chain q;
    cache_init_chain(&q);
    if (a->n_queue > 0)
        cache_read_expected(c);
    if (!c->cfg.overlap || c->pass.n_planned > 0 || c->pass.err.code)
        return;
    while (a->layer >= 0 && a->n_open < c->cfg.in_flight) {
        if (a->next_expert == c->layers[a->layer].n_experts) {
            a->layer = -1;
            break;
        }
        if (c->where[c->first_key[a->layer] + a->next_expert] >= 0 ||
            (a->counted && a->counts[a->next_expert] <= 0)) {
            a->next_expert++;
            continue;
        }
        int slot = pick_slot(c);
        if (slot < 0)
            break;
        cache_start_load(c, slot, a->layer, a->next_expert++, &q, &q);
        c->slot[slot].spec = true;
        c->pool[c->slot[slot].pool].n_spec++;
        a->n_open++;
    }
    cache_submit_chain(c, &q);
}

void cache_read_ahead(struct cache *c, int layer, const int32_t *counts)
{
    struct cache_span span = cache_begin_span(c);
    bool ok = layer >= 0 && layer < c->cfg.n_layers && c->layers[layer].n_parts > 0 &&
              !(c->pass.open && c->pass.layer == layer) &&
              (c->cfg.dry || c->reader->ops != &io_plain_ops);
    cache_poll_loads(c);
    if (ok && c->ahead.layer != layer) {
        c->ahead.layer = layer;
        c->ahead.next_expert = 0;
        c->ahead.counted = counts != NULL;
        if (counts)
            memcpy(c->ahead.counts, counts,
                   (size_t)c->layers[layer].n_experts * sizeof *c->ahead.counts);
    }
    if (ok)
        cache_top_up_ahead(c);
    cache_end_span(c, span);
}
