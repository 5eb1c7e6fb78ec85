/* load.c: slots that are taken and given back, and the reads that fill them. */
#include "cache/impl.h"

#include <assert.h>

int cache_pop_slot(struct slot_pool *p)
{
    return p->n_free ? p->free[--p->n_free] : -1;
}

void cache_free_slot(struct cache *c, int slot)
{
    struct cache_slot *s = &c->slot[slot];
    struct slot_pool *p = &c->pool[s->pool];
    assert(s->state != SLOT_FREE && s->state != SLOT_READING);
    bool transit = s->pool == c->geo.n_classes;
    if (s->state == SLOT_READY && !transit)
        c->stats.resident_bytes -= c->geo.cls[s->pool].slot_bytes;
    if (s->ruled)
        c->policy->ops->remove(c->policy, slot);
    if (s->spec)
        p->n_spec--;
    if (s->key >= 0 && c->where[s->key] == slot)
        c->where[s->key] = -1;
    *s = (struct cache_slot){.base = s->base, .pool = s->pool, .layer = -1, .key = -1, .item = -1};
    p->free[p->n_free++] = slot;
}

void cache_waste_slot(struct cache *c, int slot)
{
    struct cache_slot *s = &c->slot[slot];
    assert(s->spec);
    if (s->state == SLOT_READING) {
        s->doomed = true;
        return;
    }
    c->stats.spec_wasted_bytes += s->read_bytes;
    cache_free_slot(c, slot);
}

bool cache_reclaim_slot(struct cache *c, struct slot_pool *p)
{
    if (p->n_spec == 0)
        return false;
    bool all = c->in_prompt || p == cache_transit(c);
    for (int i = p->first; i < p->first + p->n; i++)
        if (c->slot[i].spec && c->slot[i].state == SLOT_READY && (all || !c->slot[i].expected)) {
            cache_waste_slot(c, i);
            return true;
        }
    return false;
}

/* Cuts one part's window into at most cfg.split pieces of whole alignment blocks. */
static void add_part(struct cache *c, struct load *l, const struct cache_part *part, int expert,
                     uint8_t *buf, struct req_chain *q)
{
    size_t align = c->cfg.align;
    struct cache_window w = cache_get_window(part, expert, align);
    uint64_t blocks = w.len / align, split = (uint64_t)c->cfg.split;
    uint64_t n = split < blocks ? split : blocks;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t from = blocks * i / n * align, to = blocks * (i + 1) / n * align;
        struct io_req *r = &l->req[l->n_left++];
        r->file = part->file;
        r->buf = buf + from;
        r->offset = w.offset + from;
        r->len = (size_t)(to - from);
        r->need = (size_t)((to < w.need ? to : w.need) - from);
        r->user = l;
        r->err.code = 0;
        r->submit_s = 0;
        r->next = NULL;
        *q->tail = r;
        q->tail = &r->next;
        q->n++;
    }
}

void cache_start_load(struct cache *c, int slot, int layer, int expert, struct req_chain *q,
                      struct req_chain *last)
{
    struct cache_slot *s = &c->slot[slot];
    const struct cache_layer *ly = &c->layers[layer];
    const struct cache_class *k = &c->geo.cls[c->geo.layer_class[layer]];
    struct load *l = c->free_load;
    assert(l && (s->state == SLOT_FREE || s->state == SLOT_RESERVED));
    c->free_load = l->next;
    c->n_open++;
    l->slot = slot;
    l->n_left = 0;
    l->bad = NULL;
    l->n_first = 0;
    for (int j = 0; j < ly->n_parts && !c->cfg.dry; j++) {
        bool first = j + 1 < ly->n_parts;
        add_part(c, l, &ly->part[j], expert, s->base + k->part_at[j], first ? q : last);
        if (first)
            l->n_first = l->n_left;
    }
    l->first_left = l->n_first;
    if (c->cfg.dry) {
        l->next = c->dry_load;
        c->dry_load = l;
    }
    s->state = SLOT_READING;
    s->layer = layer;
    s->key = c->first_key[layer] + expert;
    c->where[s->key] = slot;
}

/* For whoever watches reads. */
static void stamp(const struct cache *c, struct req_chain *q)
{
    double now = clock_now();
    for (struct io_req *r = q->head; r; r = r->next) {
        struct load *l = r->user;
        r->submit_s = now;
        r->done_s = 0;
        l->tag = c->tag;
        l->spec = c->slot[l->slot].spec;
    }
}

void cache_submit_chain(struct cache *c, struct req_chain *q)
{
    if (c->on_read)
        stamp(c, q);
    if (q->n == 0)
        return;
    double t0 = clock_now();
    io_reader_submit(c->reader, q->head, q->n);
    c->handing_s += clock_now() - t0;
}

/* All requests of l are back: publish the slot, or free it. */
static void finish_load(struct cache *c, struct load *l)
{
    struct cache_slot *s = &c->slot[l->slot];
    int item = s->item;
    s->state = SLOT_READY;
    if (s->pool != c->geo.n_classes)
        c->stats.resident_bytes += c->geo.cls[s->pool].slot_bytes;
    if (s->spec)
        c->ahead.n_open--;
    if (l->bad && s->spec) { /* whoever needs the expert will hear of it */
        c->ahead.layer = -1;
        cache_forget_expected(c, -1);
    }
    if (s->spec && (l->bad || s->doomed))
        cache_waste_slot(c, l->slot);
    else if (l->bad)
        cache_free_slot(c, l->slot);
    if (item >= 0)
        cache_land_item(c, item, l->bad);
    l->next = c->free_load;
    c->free_load = l;
    c->n_open--;
}

/* Bytes that a request moved: its window, which the end of the file may cut. */
static uint64_t moved_bytes(const struct io_req *r)
{
    uint64_t size = io_file_size(r->file), left = size > r->offset ? size - r->offset : 0;
    return left < r->len ? left : r->len;
}

/* A dry cache's reads arrive when they are asked for; each counts as one of what its expert's
 * windows hold. */
static bool reap_dry(struct cache *c)
{
    bool any = c->dry_load != NULL;
    while (c->dry_load) {
        struct load *l = c->dry_load;
        struct cache_slot *s = &c->slot[l->slot];
        const struct cache_layer *ly = &c->layers[s->layer];
        c->dry_load = l->next;
        for (int j = 0; j < ly->n_parts; j++)
            s->read_bytes +=
                cache_get_window(&ly->part[j], s->key - c->first_key[s->layer], c->cfg.align).len;
        c->stats.bytes_read += s->read_bytes;
        c->stats.reads++;
        finish_load(c, l);
    }
    return any;
}

static void tell_read(const struct cache *c, const struct io_req *r, double now)
{
    const struct load *l = r->user;
    const struct cache_slot *s = &c->slot[l->slot];
    if (r->submit_s == 0) /* from before the watch */
        return;
    struct cache_read e = {.layer = s->layer,
                           .expert = s->key - c->first_key[s->layer],
                           .tag = l->tag,
                           .file = r->file,
                           .offset = r->offset,
                           .bytes = moved_bytes(r),
                           .submit_s = r->submit_s,
                           .done_s = r->done_s > 0 ? r->done_s : now,
                           .spec = l->spec,
                           .failed = r->err.code != 0};
    c->on_read(c->read_user, &e);
}

bool cache_reap_loads(struct cache *c, bool wait)
{
    if (c->n_open == 0)
        return false;
    if (c->cfg.dry)
        return reap_dry(c);
    struct io_req *r = io_reader_reap(c->reader, wait);
    bool any = r != NULL;
    double now = any && c->on_read ? clock_now() : 0;
    while (r) {
        struct io_req *next = r->next;
        struct load *l = r->user;
        if (c->on_read)
            tell_read(c, r, now);
        c->stats.reads++;
        if (r->err.code == 0) {
            uint64_t n = moved_bytes(r);
            c->stats.bytes_read += n;
            c->slot[l->slot].read_bytes += n;
        } else if (!l->bad) {
            l->bad = r;
        }
        bool first = r - l->req < l->n_first && --l->first_left == 0;
        if (--l->n_left == 0)
            finish_load(c, l);
        else if (first && c->cfg.two_wave && !l->bad && c->slot[l->slot].item >= 0)
            cache_land_first(c, c->slot[l->slot].item);
        r = next;
    }
    return any;
}

/* The plain reader reads inside reap: only a wait that is counted as one may do that. */
void cache_poll_loads(struct cache *c)
{
    if (c->cfg.dry || c->reader->ops != &io_plain_ops)
        cache_reap_loads(c, false);
}
