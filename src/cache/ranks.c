#include "cache/ranks.h"

#include "base/mem.h"

#include <string.h>

uint64_t cache_ranks_measure(const struct cache_shape *s)
{
    return (uint64_t)s->n_layers * (sizeof(struct cache_policy_layer) + sizeof(int)) +
           (uint64_t)s->n_keys * (sizeof(float) + 3 * sizeof(int32_t)) +
           (uint64_t)s->pool_first[s->n_pools] * sizeof(int32_t);
}

int cache_ranks_init(struct cache_ranks *r, const struct cache_shape *s, struct sl_err *err)
{
    size_t n_layers = (size_t)s->n_layers, n_keys = (size_t)s->n_keys;
    r->n_layers = s->n_layers;
    r->layer = mem_calloc(n_layers, sizeof *r->layer);
    r->n = mem_calloc(n_layers, sizeof *r->n);
    r->score = mem_calloc(n_keys, sizeof *r->score);
    r->layer_of = mem_calloc(n_keys, sizeof *r->layer_of);
    r->slot_of = mem_calloc(n_keys, sizeof *r->slot_of);
    r->order = mem_calloc(n_keys, sizeof *r->order);
    r->key_of = mem_calloc((size_t)s->pool_first[s->n_pools], sizeof *r->key_of);
    if (!r->layer || !r->n || !r->score || !r->layer_of || !r->slot_of || !r->order || !r->key_of)
        return err_set(err, SL_E_MEM, "cache", "no memory for the replacement policy");
    memcpy(r->layer, s->layer, n_layers * sizeof *r->layer);
    for (int l = 0; l < s->n_layers; l++)
        for (int e = 0; r->layer[l].pool >= 0 && e < r->layer[l].n_experts; e++) {
            r->layer_of[r->layer[l].first_key + e] = l;
            r->slot_of[r->layer[l].first_key + e] = -1;
        }
    return 0;
}

void cache_ranks_free(struct cache_ranks *r)
{
    mem_free(r->layer);
    mem_free(r->n);
    mem_free(r->score);
    mem_free(r->layer_of);
    mem_free(r->slot_of);
    mem_free(r->order);
    mem_free(r->key_of);
    *r = (struct cache_ranks){0};
}

static bool is_worse(const struct cache_ranks *r, int32_t a, int32_t b)
{
    return r->score[a] != r->score[b] ? r->score[a] < r->score[b] : a < b;
}

/* Put key into the first n of order, which are sorted; there is room behind them. */
static void sort_in(const struct cache_ranks *r, int32_t *order, int n, int32_t key)
{
    while (n > 0 && is_worse(r, key, order[n - 1])) {
        order[n] = order[n - 1];
        n--;
    }
    order[n] = key;
}

void cache_ranks_insert(struct cache_ranks *r, int slot, int32_t key)
{
    int l = r->layer_of[key];
    r->slot_of[key] = slot;
    r->key_of[slot] = key;
    sort_in(r, r->order + r->layer[l].first_key, r->n[l]++, key);
}

void cache_ranks_remove(struct cache_ranks *r, int slot)
{
    int32_t key = r->key_of[slot];
    int l = r->layer_of[key], at = 0, n = --r->n[l];
    int32_t *order = r->order + r->layer[l].first_key;
    while (order[at] != key)
        at++;
    memmove(order + at, order + at + 1, (size_t)(n - at) * sizeof *order);
    r->slot_of[key] = -1;
}

/* By insertion: from one visit to the next few change places. */
void cache_ranks_sort(struct cache_ranks *r, int layer)
{
    int32_t *order = r->order + r->layer[layer].first_key;
    for (int i = 1; i < r->n[layer]; i++)
        sort_in(r, order, i, order[i]);
}

int cache_ranks_worst(const struct cache_ranks *r, const struct cache_wish *w,
                      const struct cache_valuer *v, float *worth)
{
    int best = -1;
    uint32_t lowest = CACHE_COST_NEVER;
    *worth = 0;
    for (int l = 0; l < r->n_layers; l++) {
        const int32_t *order = r->order + r->layer[l].first_key;
        if (r->layer[l].pool != w->pool)
            continue;
        for (int i = 0; i < r->n[l]; i++) {
            int32_t key = order[i];
            if (lowest == 0 && v->low(v->ctx, l, r->score[key]) >= *worth)
                break; /* and so are all behind it */
            uint32_t cost = w->cost(w->ctx, r->slot_of[key]);
            if (cost == CACHE_COST_NEVER || cost > lowest)
                continue;
            float x = v->worth(v->ctx, l, key);
            if (cost == lowest && x >= *worth)
                continue;
            lowest = cost;
            *worth = x;
            best = r->slot_of[key];
        }
    }
    return best;
}
