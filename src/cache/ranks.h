/* ranks.h: for policies that score experts: what is resident, layer by layer, worst first.
 *
 * Scores of a layer change only when it is visited, and what changes with every step is the same
 * for a whole layer or small. So a victim is found by looking at the first few of each layer,
 * instead of at every slot. */
#ifndef CACHE_RANKS_H
#define CACHE_RANKS_H

#include "cache/policy.h"

struct cache_ranks {
    int n_layers;
    struct cache_policy_layer *layer; /* a copy */
    int32_t *layer_of;                /* of a key */
    float *score;                     /* of a key; change with cache_ranks_sort after it */
    int32_t *slot_of;                 /* of a key, -1: not resident */
    int32_t *key_of;                  /* of a slot */
    int32_t *order; /* from first_key: a layer's resident keys, score then key rising */
    int *n;         /* per layer: how many are resident */
};

/* Zeroed before; on failure cache_ranks_free still wants calling. */
int cache_ranks_init(struct cache_ranks *r, const struct cache_shape *s, struct sl_err *err);
void cache_ranks_free(struct cache_ranks *r);
uint64_t cache_ranks_measure(const struct cache_shape *s);

void cache_ranks_insert(struct cache_ranks *r, int slot, int32_t key);
void cache_ranks_remove(struct cache_ranks *r, int slot);
void cache_ranks_sort(struct cache_ranks *r, int layer); /* its scores have changed */

/* What a resident is worth now: at least `low`, which rises with the score; exactly `worth`. */
struct cache_valuer {
    float (*low)(const void *ctx, int layer, float score);
    float (*worth)(const void *ctx, int layer, int32_t key);
    const void *ctx;
};
/* Of the lowest cost the one of least worth; equal: lower layer, then as in the layer's order. -1:
 * there is none. Its worth in *worth. */
int cache_ranks_worst(const struct cache_ranks *r, const struct cache_wish *w,
                      const struct cache_valuer *v, float *worth);

#endif
