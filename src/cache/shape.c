/* shape.c: what a policy is told about the cache that it serves. */
#include "cache/impl.h"

#include "base/mem.h"

const struct cache_policy_ops *cache_choose_policy(const struct cache_config *cfg)
{
    return cfg->future ? &cache_policy_belady : cache_find_policy(cfg->policy);
}

struct cache_shape *cache_make_shape(const struct cache_config *cfg, const struct cache_geometry *g)
{
    size_t n_layers = (size_t)cfg->n_layers, n_pools = (size_t)g->n_classes;
    struct all {
        struct cache_shape shape;
        struct cache_policy_layer layer[];
    } *a = mem_calloc(1, sizeof *a + n_layers * sizeof a->layer[0] + (n_pools + 1) * sizeof(int));
    if (!a)
        return NULL;
    int *first = (int *)(a->layer + n_layers);
    int32_t key = 0;
    for (size_t l = 0; l < n_layers; l++) {
        struct cache_policy_layer *p = &a->layer[l];
        *p = (struct cache_policy_layer){.first_key = key, .pool = g->layer_class[l]};
        if (p->pool < 0)
            continue;
        p->n_experts = cfg->layers[l].n_experts;
        p->top_k = cfg->layers[l].top_k;
        key += p->n_experts;
    }
    for (size_t i = 0; i < n_pools; i++)
        first[i + 1] = first[i] + (int)g->cls[i].most_slots;
    a->shape = (struct cache_shape){.n_layers = cfg->n_layers,
                                    .n_keys = key,
                                    .n_pools = (int)n_pools,
                                    .layer = a->layer,
                                    .pool_first = first,
                                    .future = cfg->future};
    return &a->shape;
}
