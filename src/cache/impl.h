/* impl.h: what the files of the cache share.
 *
 *     begin (plan.c)  every miss of the pass is given a cache slot or marked for transit, by the
 *                     policy and the counts alone: no clock and no drive decides what stays, but
 *                     for what was read ahead
 *     issue (pass.c)  reads go out in rising id: at once where a slot is there, else when a transit
 *                     slot comes free
 *     reap (load.c)   a slot whose requests have all arrived is published
 *     ahead.c         speculative reads for a prompt's next layer
 *     expect.c        speculative reads of expected experts
 *
 * A slot's life:  FREE -> RESERVED (promised to a miss) -> READING -> READY -> FREE. Slots that the
 * budget does not reach are CLOSED: they have no memory (resize.c). */
#ifndef CACHE_IMPL_H
#define CACHE_IMPL_H

#include "cache/policy.h"
#include "cache/slots.h"

#include "base/clock.h"

enum slot_state { SLOT_FREE = 0, SLOT_RESERVED, SLOT_READING, SLOT_READY, SLOT_CLOSED };

struct cache_slot {
    uint8_t *base;
    uint64_t read_bytes; /* that went over the drive for what it holds */
    int32_t pool;        /* its home: a class, or n_classes for transit */
    int32_t layer, key;  /* what it holds or will hold; -1: nothing */
    int32_t item;        /* the open pass's item that needs it, -1: none */
    uint8_t state;       /* enum slot_state */
    bool spec;           /* read ahead, and no pass has asked for it yet */
    bool expected;       /* spec, and named by cache_expect */
    bool doomed;         /* spec and in flight, already known to be useless: freed when it lands */
    bool ruled;          /* the policy knows it */
};

/* The slots of one class, or the transit slots: [first, first + n) of the cache's slots, of which
 * n_open are not closed. */
struct slot_pool {
    int first, n, n_open;
    uint64_t slot_bytes;
    int n_free, n_spec; /* n_spec: slots with spec set */
    int32_t *free;      /* a stack; the lowest slot on top at first */
};

/* The requests of one expert that is being read. */
struct load {
    struct load *next; /* free list */
    struct io_req *req;
    const struct io_req *bad; /* the first that failed */
    int n_left;
    int n_first, first_left; /* of all parts but the last */
    int slot;
    int tag;   /* of the cache when its reads were submitted */
    bool spec; /* nobody had asked for the expert then */
};

enum item_state { ITEM_PLANNED = 0, ITEM_READING, ITEM_READY, ITEM_HELD, ITEM_DONE };

struct pass_item {
    int32_t expert;
    int32_t slot;   /* -1: waits for a transit slot, or done with it */
    uint32_t count; /* tokens that chose it */
    uint8_t state;
    bool early; /* was read ahead */
};

struct pass {
    bool open;
    enum cache_order order;
    int layer, n;
    int n_planned;  /* items not yet submitted */
    int n_reading;  /* items in flight */
    int n_handed;   /* items that next has given out; in ascending order also the cursor */
    int n_held;     /* handed out and not released */
    int issue_from; /* no planned item before it */
    struct pass_item *item;
    int32_t *ready; /* FIFO of items for CACHE_AS_READY */
    int ready_head, ready_tail;
    struct pass_rank {
        uint32_t count;
        int32_t item;
    } * rank; /* scratch: misses by falling count */
    struct sl_err err;
};

#define CACHE_MAX_EXPECTED 512

struct expected {
    int32_t layer, expert;
    bool sure;
};

struct ahead {
    struct expected queue[CACHE_MAX_EXPECTED]; /* not begun, in this order */
    int n_queue;
    int layer;       /* -1: none */
    int next_expert; /* all before it were considered */
    int32_t *counts; /* of the layer's experts: tokens that will choose them, about */
    bool counted;    /* else all are read, into what is free */
    int n_open;      /* experts in flight that no pass has asked for */
};

struct cache {
    struct cache_config cfg; /* its layers are ours */
    struct cache_layer *layers;
    struct cache_geometry geo;
    struct cache_sizes sizes;
    struct cache_arena arena;
    struct io_reader *reader;    /* borrowed; NULL when dry */
    struct cache_policy *policy; /* NULL when there are no cache slots */

    struct cache_slot *slot;
    int n_slots;
    struct slot_pool *pool; /* n_classes + 1 */
    int32_t *free_stacks;   /* the pools' */

    /* Experts have keys: first_key[layer] + id. */
    int32_t *first_key;
    int32_t *where;   /* key -> slot, -1 */
    uint32_t *routed; /* key -> tokens of this prompt that chose it */
    uint32_t *used;   /* key -> tokens that chose it */
    uint8_t *known;   /* key -> 1: was in a cache slot once */

    struct load *load;
    struct io_req *req; /* the loads' */
    struct load *free_load;
    struct load *dry_load; /* reads of a dry cache that have not been reaped */
    int n_loads, n_open;   /* open: in flight */
    int n_expected_open;   /* loads that are kept for what is sure to be asked for */
    int reqs_per_load;
    uint32_t *drives; /* of each layer: those that its experts lie on, as bits */

    struct pass pass;
    struct cache_routing noted; /* of the next pass; n_tokens 0: not noted */
    struct ahead ahead;
    bool in_prompt;
    struct cache_stats stats;
    double handing_s;       /* inside the reader\'s submit */
    cache_read_fn *on_read; /* NULL: nobody watches */
    void *read_user;
    int tag;
};

/* Requests to be submitted together, in order. */
struct req_chain {
    struct io_req *head, **tail;
    int n;
};
static inline void cache_init_chain(struct req_chain *q)
{
    *q = (struct req_chain){.tail = &q->head};
}

static inline struct slot_pool *cache_transit(struct cache *c)
{
    return &c->pool[c->geo.n_classes];
}

static inline void cache_push_ready(struct pass *p, int i)
{
    if (p->order == CACHE_AS_READY)
        p->ready[p->ready_tail++] = i;
}

/* arena.c: memory for slots. Mapping asks for less address space, and cuts geo's most_slots, where
 * the system does not give it all. */
int cache_map_arena(struct cache *c, struct sl_err *err);
void cache_unmap_arena(struct cache *c); /* half-made or zeroed is fine */
/* The slots' places, memory for those that are open, and the thread. */
int cache_fill_arena(struct cache *c, struct sl_err *err);
bool cache_open_slots(struct cache *c, int first, int n); /* neighbours of one pool */
void cache_close_slot(struct cache *c, int slot);
/* Touch what is open and was not yet, in the background; stop: wait for that. */
void cache_start_touching(struct cache *c);
void cache_stop_touching(struct cache *c);

/* cache.c */
uint64_t cache_count_tables(const struct cache_config *cfg, const struct cache_geometry *g);

/* shape.c: what a policy is told about the cache; free with mem_free. NULL: no memory. */
struct cache_shape *cache_make_shape(const struct cache_config *cfg,
                                     const struct cache_geometry *g);
/* cfg's policy; NULL: there is none of that name. */
const struct cache_policy_ops *cache_choose_policy(const struct cache_config *cfg);

/* load.c: slots and reads */
int cache_pop_slot(struct slot_pool *p); /* -1: none is free */
void cache_free_slot(struct cache *c, int slot);
/* Free a slot of p that was read ahead and not asked for; false: there is none that has landed.
 * Cache slots of expected experts stay in decode, where the policy finds others. */
bool cache_reclaim_slot(struct cache *c, struct slot_pool *p);
/* No pass wants what was read ahead into slot: free it, now or when it lands. */
void cache_waste_slot(struct cache *c, int slot);
/* Append the reads of an expert into slot to q, of its last part to last (may be q); the slot is
 * then READING. */
void cache_start_load(struct cache *c, int slot, int layer, int expert, struct req_chain *q,
                      struct req_chain *last);
void cache_submit_chain(struct cache *c, struct req_chain *q);
/* One call of the cache in its statistics: what is not waiting for reads (wait_for_read) or handing
 * them over is management. Handing over counts as waiting: nobody computes meanwhile, and it is the
 * system's work on the reads, the first touch of their memory included. */
struct cache_span {
    double begin_s, stall_s, handing_s;
};
static inline struct cache_span cache_begin_span(const struct cache *c)
{
    return (struct cache_span){clock_now(), c->stats.stall_s, c->handing_s};
}
static inline void cache_end_span(struct cache *c, struct cache_span s)
{
    const double handing = c->handing_s - s.handing_s;
    c->stats.mgmt_s += clock_now() - s.begin_s - (c->stats.stall_s - s.stall_s) - handing;
    c->stats.stall_s += handing;
}
/* Take what has arrived; wait: block until something has. False: nothing came. */
bool cache_reap_loads(struct cache *c, bool wait);

/* Take what has arrived, without waiting. */
void cache_poll_loads(struct cache *c);

/* plan.c: the steps of a pass's beginning, in this order */
void cache_look_up_items(struct cache *c, const int32_t *ids, const int32_t *counts);
void cache_tell_routing(struct cache *c, const int32_t *ids);
void cache_plan_misses(struct cache *c);
/* Make the least valued slot of the key's pool free, but none that the open pass or the read-ahead
 * needs. count 0: what the policy values less than the key's expert; else what this prompt routed
 * less often than that. False: there is none. */
bool cache_make_room(struct cache *c, int pool, int32_t key, uint32_t count);
void cache_tell_policy(struct cache *c);

/* pass.c: called by load.c when the slot of an item has landed; bad: NULL or the request that
 * failed (the slot is then already free). */
void cache_land_item(struct cache *c, int item, const struct io_req *bad);
/* All but the last part of the item's expert has landed. */
void cache_land_first(struct cache *c, int item);

/* expect.c */
void cache_forget_expected(struct cache *c, int layer); /* not yet begun; -1: of all layers */
void cache_drop_expected(struct cache *c);              /* all of them, read or not */
void cache_read_expected(struct cache *c);              /* as many as may be open now */

/* ahead.c */
void cache_adopt_ahead(struct cache *c, int slot); /* a pass asks for what was read ahead */
void cache_drop_ahead(struct cache *c, int layer); /* what layer's pass did not ask for */
void cache_top_up_ahead(struct cache *c);          /* more reads if the drive has room */

#endif
