/* arena.c: the memory of slots. All of them have addresses from the beginning, one mapping; memory
 * only those that are open. */
#include "cache/impl.h"

#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define TOUCH_PIECE ((size_t)32 << 20) /* of neighbouring slots, in the order of their use */
#define MAP_FLAGS   (MEM_HUGE | MEM_DONTFORK)

static size_t count_bytes(const struct cache *c)
{
    size_t n = (size_t)c->sizes.transit_bytes;
    for (int i = 0; i < c->geo.n_classes; i++)
        n += c->geo.cls[i].most_slots * c->geo.cls[i].slot_bytes;
    return n;
}

int cache_map_arena(struct cache *c, struct sl_err *err)
{
    struct cache_arena *a = &c->arena;
    memset(a, 0, sizeof *a);
    a->bytes = count_bytes(c);
    a->base = mem_reserve(a->bytes, MAP_FLAGS);
    if (!a->base) { /* address space may be bounded: then the cache cannot grow */
        for (int i = 0; i < c->geo.n_classes; i++)
            c->geo.cls[i].most_slots = c->geo.cls[i].n_slots;
        a->bytes = count_bytes(c);
        a->base = mem_reserve(a->bytes, MAP_FLAGS);
    }
    if (!a->base)
        return err_set(err, SL_E_MEM, "cache", "the system gave no %llu bytes for the expert cache",
                       (unsigned long long)a->bytes);
    return 0;
}

int cache_fill_arena(struct cache *c, struct sl_err *err)
{
    uint8_t *at = c->arena.base;
    c->arena.touched = mem_calloc((size_t)c->n_slots, sizeof *c->arena.touched);
    if (!c->arena.touched)
        return err_set(err, SL_E_MEM, "cache", "no memory for the table of %d slots", c->n_slots);
    for (int i = 0; i <= c->geo.n_classes; i++) {
        const struct slot_pool *p = &c->pool[i];
        for (int s = p->first; s < p->first + p->n; s++, at += p->slot_bytes)
            c->slot[s].base = at;
        if (p->n_open && !cache_open_slots(c, p->first, p->n_open))
            return err_set(err, SL_E_MEM, "cache",
                           "the system gave no %llu bytes for the expert cache",
                           (unsigned long long)p->slot_bytes * (unsigned)p->n_open);
    }
    if (!c->cfg.touch_later)
        cache_start_touching(c);
    return 0;
}

void cache_unmap_arena(struct cache *c)
{
    struct cache_arena *a = &c->arena;
    cache_stop_touching(c);
    mem_release(a->base, a->bytes, a->open_bytes);
    mem_free(a->touched);
    memset(a, 0, sizeof *a);
}

bool cache_open_slots(struct cache *c, int first, int n)
{
    size_t bytes = (size_t)n * c->pool[c->slot[first].pool].slot_bytes;
    if (c->cfg.dry)
        return true;
    if (!mem_open(c->slot[first].base, bytes))
        return false;
    c->arena.open_bytes += bytes;
    return true;
}

void cache_close_slot(struct cache *c, int slot)
{
    size_t bytes = c->pool[c->slot[slot].pool].slot_bytes;
    assert(!c->arena.piece);
    if (c->cfg.dry)
        return;
    mem_close(c->slot[slot].base, bytes);
    c->arena.open_bytes -= bytes;
    c->arena.touched[slot] = false;
}

/* ---- Touching -------------------------------------------------------------------------------- */

/* Classes fill side by side, because the layers that use them take turns; transit slots are handed
 * out once no cache slot is free. */
static int compare_pieces(const void *a, const void *b)
{
    const struct cache_piece *x = a, *y = b;
    if (x->when != y->when)
        return x->when < y->when ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Runs of neighbours that are open and untouched, cut to size. */
static void list_pieces(struct cache *c)
{
    struct cache_arena *a = &c->arena;
    struct cache_piece *last = NULL;
    a->n_pieces = 0;
    for (int s = 0; s < c->n_slots; s++) {
        const struct slot_pool *p = &c->pool[c->slot[s].pool];
        if (c->slot[s].state == SLOT_CLOSED || a->touched[s])
            continue;
        if (last && last->first + last->n == s && s > p->first &&
            (size_t)(last->n + 1) * p->slot_bytes <= TOUCH_PIECE) {
            last->n++;
            continue;
        }
        last = &a->piece[a->n_pieces++];
        *last = (struct cache_piece){
            .first = s,
            .n = 1,
            .when = p == cache_transit(c) ? 2 : (double)(s - p->first) / (double)p->n_open,
        };
    }
    qsort(a->piece, (size_t)a->n_pieces, sizeof *a->piece, compare_pieces);
    for (int i = 0; i < a->n_pieces; i++) {
        const struct cache_slot *s = &c->slot[a->piece[i].first];
        a->memory[i] = (struct touch_piece){s->base, (size_t)a->piece[i].n *
                                                         (size_t)c->pool[s->pool].slot_bytes};
    }
}

static void forget_pieces(struct cache_arena *a)
{
    mem_free(a->piece);
    mem_free(a->memory);
    a->piece = NULL;
    a->memory = NULL;
}

/* Only a convenience: without it pages come when the reads touch them. */
void cache_start_touching(struct cache *c)
{
    struct cache_arena *a = &c->arena;
    if (c->cfg.dry)
        return;
    a->piece = mem_calloc((size_t)c->n_slots, sizeof *a->piece);
    a->memory = mem_calloc((size_t)c->n_slots, sizeof *a->memory);
    if (!a->piece || !a->memory) {
        forget_pieces(a);
        return;
    }
    list_pieces(c);
    touch_begin(&a->touch, a->memory, a->n_pieces, NULL, NULL);
}

void cache_touch(struct cache *c)
{
    if (c->cfg.touch_later && !c->arena.piece) /* another size has begun it, too */
        cache_start_touching(c);
}

void cache_stop_touching(struct cache *c)
{
    struct cache_arena *a = &c->arena;
    if (!a->piece)
        return;
    int n = touch_end(&a->touch);
    for (int i = 0; i < n; i++)
        memset(a->touched + a->piece[i].first, 1, (size_t)a->piece[i].n);
    forget_pieces(a);
}
