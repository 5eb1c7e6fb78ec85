/* pass.c: one layer's experts, from the ids to their views. */
#include "cache/impl.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static int check_ids(const struct cache *c, int layer, const int32_t *ids, int n,
                     struct sl_err *err)
{
    if (c->pass.open)
        return err_set(err, SL_E_INTERNAL, "cache", "a pass begins while another is open");
    if (layer < 0 || layer >= c->cfg.n_layers || c->layers[layer].n_parts == 0)
        return err_set(err, SL_E_INTERNAL, "cache", "layer %d has no routed experts", layer);
    int n_experts = c->layers[layer].n_experts;
    if (n < 0 || n > n_experts)
        return err_set(err, SL_E_INTERNAL, "cache", "%d of %d experts are asked for", n, n_experts);
    for (int i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= n_experts || (i && ids[i] <= ids[i - 1]))
            return err_set(err, SL_E_INTERNAL, "cache",
                           "expert ids are not distinct, ascending and below %d", n_experts);
    return 0;
}

/* ---- Reads ----------------------------------------------------------------------------------- */

static int take_transit(struct cache *c)
{
    struct slot_pool *t = cache_transit(c);
    if (t->n_free == 0)
        cache_reclaim_slot(c, t);
    return cache_pop_slot(t);
}

/* Submit what has a slot, in rising id. In ascending order reads run ahead no further than the
 * transit slots reach, so that an early id never waits behind a long queue of later ones. */
static void issue_reads(struct cache *c)
{
    struct pass *p = &c->pass;
    struct req_chain q, last;
    cache_init_chain(&q);
    cache_init_chain(&last);
    bool dry = false; /* no transit slot is left */
    int window = p->order == CACHE_ASCENDING ? cache_transit(c)->n : INT32_MAX;
    int i = p->issue_from, first = -1; /* first: stays planned */
    for (int left = p->n_planned; left > 0 && p->n_reading < window; i++) {
        struct pass_item *it = &p->item[i];
        if (it->state != ITEM_PLANNED)
            continue;
        left--;
        if (it->slot < 0 && !dry) {
            it->slot = take_transit(c);
            dry = it->slot < 0;
        }
        if (it->slot < 0) {
            first = first < 0 ? i : first;
            continue;
        }
        cache_start_load(c, it->slot, p->layer, it->expert, &q, c->cfg.two_wave ? &last : &q);
        c->slot[it->slot].item = i;
        it->state = ITEM_READING;
        p->n_planned--;
        p->n_reading++;
    }
    p->issue_from = first < 0 ? i : first;
    cache_submit_chain(c, &q);
    cache_submit_chain(c, &last);
}

void cache_land_item(struct cache *c, int item, const struct io_req *bad)
{
    struct pass *p = &c->pass;
    struct pass_item *it = &p->item[item];
    p->n_reading--;
    if (!bad) {
        if (it->early)
            c->stats.spec_useful_bytes += c->slot[it->slot].read_bytes;
        if (it->state == ITEM_READING) { /* else its first parts were enough for that */
            it->state = ITEM_READY;
            cache_push_ready(p, item);
        }
        return;
    }
    if (it->state != ITEM_HELD)
        it->state = ITEM_DONE;
    it->slot = -1;
    if (p->err.code)
        return;
    char where[sizeof p->err.where];
    snprintf(where, sizeof where, "layer %d, expert %d", p->layer, it->expert);
    err_set(&p->err, bad->err.code, where, "%s: %s", where, bad->err.msg);
}

void cache_land_first(struct cache *c, int item)
{
    struct pass_item *it = &c->pass.item[item];
    if (it->state != ITEM_READING || it->early)
        return;
    it->state = ITEM_READY;
    cache_push_ready(&c->pass, item);
}

static void drain_reads(struct cache *c)
{
    while (c->pass.n_reading > 0 && cache_reap_loads(c, true))
        ;
}

void cache_note_routing(struct cache *c, int layer, const int32_t *ids, int n_tokens, int k)
{
    c->noted = (struct cache_routing){.layer = layer, .n_tokens = n_tokens, .k = k, .ids = ids};
}

int cache_pass_begin(struct cache *c, int layer, const int32_t *ids, const int32_t *counts, int n,
                     enum cache_order order, struct sl_err *err)
{
    struct cache_span span = cache_begin_span(c);
    int rc = check_ids(c, layer, ids, n, err);
    if (rc)
        return rc;
    cache_poll_loads(c);
    struct pass *p = &c->pass;
    p->open = true;
    p->order = order;
    p->layer = layer;
    p->n = n;
    p->n_planned = p->n_reading = p->n_handed = p->n_held = p->issue_from = 0;
    p->ready_head = p->ready_tail = 0;
    p->err.code = 0;
    cache_look_up_items(c, ids, counts);
    cache_drop_ahead(c, layer);
    cache_tell_routing(c, ids);
    cache_plan_misses(c);
    cache_tell_policy(c);
    issue_reads(c);
    cache_end_span(c, span);
    return 0;
}

/* ---- Handing out ----------------------------------------------------------------------------- */

/* Put what came through transit first among what is ready: its slot serves the next read. */
static void bring_transit_forward(struct cache *c)
{
    struct pass *p = &c->pass;
    int first = cache_transit(c)->first, j = p->ready_head;
    while (j < p->ready_tail && p->item[p->ready[j]].slot < first)
        j++;
    if (j == p->ready_tail)
        return;
    int32_t item = p->ready[j];
    memmove(&p->ready[p->ready_head + 1], &p->ready[p->ready_head],
            (size_t)(j - p->ready_head) * sizeof *p->ready);
    p->ready[p->ready_head] = item;
}

/* The item that is handed out next if it is there and at most max_count tokens chose it; -1. */
static int take_ready(struct cache *c, uint32_t max_count)
{
    struct pass *p = &c->pass;
    int i = -1;
    if (p->order == CACHE_AS_READY && p->n_planned > 0)
        bring_transit_forward(c);
    if (p->order == CACHE_AS_READY && p->ready_head < p->ready_tail)
        i = p->ready[p->ready_head];
    else if (p->order == CACHE_ASCENDING && p->n_handed < p->n)
        i = p->item[p->n_handed].state == ITEM_READY ? p->n_handed : -1;
    if (i < 0 || p->item[i].count > max_count)
        return -1;
    p->ready_head += p->order == CACHE_AS_READY;
    return i;
}

/* Nothing is ready, nothing is being read, and the next read finds no transit slot. When later
 * items that were read ahead hold such slots, the last of them gives its own back and is read
 * again; else the caller holds them all. */
static bool take_back(struct cache *c)
{
    struct pass *p = &c->pass;
    for (int i = p->n; i-- > p->n_handed;) {
        struct pass_item *it = &p->item[i];
        if (it->state != ITEM_READY || !it->early || it->slot < cache_transit(c)->first)
            continue;
        uint64_t bytes = c->slot[it->slot].read_bytes;
        it->early = false;
        c->stats.spec_useful_bytes -= bytes;
        c->stats.spec_wasted_bytes += bytes;
        cache_free_slot(c, it->slot);
        it->slot = -1;
        it->state = ITEM_PLANNED;
        p->n_planned++;
        if (i < p->issue_from)
            p->issue_from = i;
        return true;
    }
    return false;
}

static bool wait_for_read(struct cache *c)
{
    double t0 = clock_now();
    bool got = cache_reap_loads(c, true);
    c->stats.stall_s += clock_now() - t0;
    return got;
}

/* As cache_pass_next and, without wait, cache_pass_try. Without overlap the pass alternates between
 * reading all it has slots for and handing all of that out. */
static int next_item(struct cache *c, uint32_t max_count, bool wait, int *index)
{
    struct pass *p = &c->pass;
    bool overlap = c->cfg.overlap;
    cache_poll_loads(c);
    for (;;) {
        if (p->err.code)
            return p->err.code;
        if (p->n_handed == p->n)
            return 0;
        if (overlap)
            issue_reads(c);
        int i = overlap || p->n_reading == 0 ? take_ready(c, max_count) : -1;
        if (i >= 0) {
            *index = i;
            return 1;
        }
        if (!wait)
            return CACHE_NOT_READY;
        if (!overlap && p->n_reading == 0)
            issue_reads(c);
        if (c->n_open > 0 ? wait_for_read(c) : take_back(c))
            continue;
        return err_set(&p->err, SL_E_INTERNAL, "cache",
                       c->n_open ? "the reader lost %d reads"
                                 : "%d experts are held and no slot is left for the next",
                       c->n_open ? c->n_open : p->n_held);
    }
}

static void fill_view(const struct cache *c, const struct pass_item *it, struct expert_view *view)
{
    const struct cache_layer *ly = &c->layers[c->pass.layer];
    const struct cache_class *k = &c->geo.cls[c->geo.layer_class[c->pass.layer]];
    *view = (struct expert_view){0};
    if (c->cfg.dry)
        return;
    for (int j = 0; j < ly->n_parts; j++)
        view->part[j] = c->slot[it->slot].base + k->part_at[j] +
                        cache_get_window(&ly->part[j], it->expert, c->cfg.align).skip;
    for (int j = ly->n_views - 1; j >= 0; j--)
        view->part[j] = view->part[0] + ly->view_at[j];
}

static int hand_out(struct cache *c, uint32_t max_count, bool wait, int *index,
                    struct expert_view *view, struct sl_err *err)
{
    struct cache_span span = cache_begin_span(c);
    struct pass *p = &c->pass;
    if (!p->open)
        return err_set(err, SL_E_INTERNAL, "cache", "no pass is open");
    int rc = next_item(c, max_count, wait, index);
    if (rc == 1) {
        struct pass_item *it = &p->item[*index];
        it->state = ITEM_HELD;
        p->n_handed++;
        p->n_held++;
        fill_view(c, it, view);
    } else if (rc < 0) {
        drain_reads(c);
        if (err)
            *err = p->err;
    }
    if (rc >= 0)
        cache_top_up_ahead(c);
    cache_end_span(c, span);
    return rc;
}

int cache_pass_next(struct cache *c, int *index, struct expert_view *view, struct sl_err *err)
{
    return hand_out(c, UINT32_MAX, true, index, view, err);
}

int cache_pass_try(struct cache *c, int max_count, int *index, struct expert_view *view,
                   struct sl_err *err)
{
    return hand_out(c, max_count < 0 ? 0 : (uint32_t)max_count, false, index, view, err);
}

int cache_pass_await(struct cache *c, int index, struct sl_err *err)
{
    struct pass *p = &c->pass;
    const struct pass_item *it = &p->item[index];
    assert(p->open && index >= 0 && index < p->n && it->state == ITEM_HELD);
    if (!p->err.code && c->slot[it->slot].state == SLOT_READY)
        return 0;
    struct cache_span span = cache_begin_span(c);
    while (!p->err.code && c->slot[it->slot].state == SLOT_READING && wait_for_read(c))
        if (c->cfg.overlap && !p->err.code)
            issue_reads(c);
    if (!p->err.code && c->slot[it->slot].state != SLOT_READY)
        err_set(&p->err, SL_E_INTERNAL, "cache", "the reader lost %d reads", c->n_open);
    int rc = p->err.code;
    if (rc) {
        drain_reads(c);
        if (err)
            *err = p->err;
    }
    cache_end_span(c, span);
    return rc;
}

void cache_pass_release(struct cache *c, int index)
{
    struct cache_span span = cache_begin_span(c);
    struct pass *p = &c->pass;
    assert(p->open && index >= 0 && index < p->n && p->item[index].state == ITEM_HELD);
    struct pass_item *it = &p->item[index];
    it->state = ITEM_DONE;
    p->n_held--;
    /* a slot whose last part is still being read goes back at the pass's end */
    if (it->slot >= 0 && c->slot[it->slot].pool == c->geo.n_classes &&
        c->slot[it->slot].state == SLOT_READY) {
        cache_free_slot(c, it->slot);
        it->slot = -1;
    }
    cache_poll_loads(c);
    if (c->cfg.overlap && !p->err.code)
        issue_reads(c);
    cache_top_up_ahead(c);
    cache_end_span(c, span);
}

int cache_hold_most(const struct cache *c)
{
    int n = c->pool[c->geo.n_classes].n / 2;
    return n > 1 ? n : 1;
}

void cache_keep_reading(struct cache *c)
{
    if (c->n_open == 0 || c->reader->ops == &io_plain_ops || !cache_reap_loads(c, false))
        return;
    if (c->pass.open && c->cfg.overlap && !c->pass.err.code)
        issue_reads(c);
    cache_top_up_ahead(c);
}

void cache_pass_end(struct cache *c)
{
    struct cache_span span = cache_begin_span(c);
    struct pass *p = &c->pass;
    if (!p->open)
        return;
    drain_reads(c);
    for (int i = 0; i < p->n; i++) {
        int slot = p->item[i].slot;
        if (slot < 0 || c->slot[slot].state == SLOT_READING) /* the latter: the reader lost it */
            continue;
        c->slot[slot].item = -1;
        if (c->slot[slot].pool == c->geo.n_classes || c->slot[slot].state == SLOT_RESERVED)
            cache_free_slot(c, slot);
    }
    p->n = p->n_planned = p->n_held = p->n_handed = 0;
    p->err.code = 0;
    p->open = false;
    cache_top_up_ahead(c);
    cache_end_span(c, span);
}
