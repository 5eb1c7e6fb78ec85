/* slots.h: how experts are laid out in memory: classes of slots, their sizes, and the one mapping
 * that they are cut from. */
#ifndef CACHE_SLOTS_H
#define CACHE_SLOTS_H

#include "cache/cache.h"

#include "base/touch.h"

/* Layers whose slices have the same lengths share slots of one layout. */
struct cache_class {
    int n_parts;
    int n_layers;                        /* that use it */
    int top_k;                           /* the largest of its layers */
    uint64_t bank;                       /* experts of all its layers */
    uint64_t bytes[CACHE_MAX_PARTS];     /* of a slice */
    uint64_t worst_r[CACHE_MAX_PARTS];   /* largest slice offset modulo the alignment */
    uint64_t part_at[CACHE_MAX_PARTS];   /* where a part starts in the slot, aligned */
    uint64_t part_room[CACHE_MAX_PARTS]; /* align_up(worst_r + bytes) */
    uint64_t slot_bytes;                 /* sum of part_room */
    uint64_t n_slots;                    /* cache slots, set by cache_divide_budget */
    uint64_t most_slots; /* that it may have later, set by cache_reserve_slots; >= n_slots */
};

struct cache_geometry {
    int n_classes;
    struct cache_class *cls;
    int *layer_class;   /* per layer; -1: no routed experts */
    int max_experts;    /* the largest layer's */
    int64_t n_experts;  /* all layers', below 2^30 */
    uint64_t n_transit; /* transit slots */
};

/* Check cfg and find the classes. Free g with cache_free_geometry, also after a failure. */
int cache_plan_geometry(const struct cache_config *cfg, struct cache_geometry *g,
                        struct sl_err *err);
void cache_free_geometry(struct cache_geometry *g);

/* Set every class's n_slots from cfg's budget or slots. */
int cache_divide_budget(const struct cache_config *cfg, struct cache_geometry *g,
                        struct sl_err *err);
void cache_sum_sizes(const struct cache_config *cfg, const struct cache_geometry *g,
                     struct cache_sizes *out);

/* The file window that holds expert's slice of a part, and where the slice lies in it. */
struct cache_window {
    uint64_t offset; /* aligned */
    uint64_t len;    /* aligned; may reach past the end of the file */
    uint64_t skip;   /* bytes of the window before the slice */
    uint64_t need;   /* bytes of the window up to the slice's end */
};
struct cache_window cache_get_window(const struct cache_part *p, int expert, size_t align);

/* How many slots each class may have one day, by cfg's most; after cache_divide_budget. */
void cache_reserve_slots(const struct cache_config *cfg, struct cache_geometry *g);
/* Is this budget legal? */
int cache_check_budget(uint64_t budget, const struct cache_geometry *g, struct sl_err *err);

/* Address space for all slots: class 0's, class 1's, ..., then the transit slots. Slots that are
 * open have memory. Their pages are touched in the background, ahead of the reads. */
struct cache_arena {
    uint8_t *base;
    size_t bytes, open_bytes;
    bool *touched; /* of a slot: it has its pages */
    struct cache_piece {
        int first, n;           /* slots, neighbours */
        double when;            /* the least is touched first */
    } * piece;                  /* while touching: what is touched, */
    struct touch_piece *memory; /* and where it lies */
    int n_pieces;
    struct touch touch;
};

#endif
