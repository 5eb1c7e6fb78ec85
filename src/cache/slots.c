#include "cache/slots.h"

#include "base/mem.h"
#include "base/size.h"

#include <stdio.h>
#include <string.h>

/* Bounds on what a configuration may ask for; they keep every product below 2^63. */
#define MAX_EXPERTS (1 << 16) /* of a layer */
#define MAX_ALIGN   ((size_t)2 << 20)
#define MAX_LANES   4096
#define MAX_SPLIT   64

struct cache_window cache_get_window(const struct cache_part *p, int expert, size_t align)
{
    uint64_t at = p->offset + (uint64_t)expert * p->stride;
    struct cache_window w = {.offset = size_down(at, align)};
    w.skip = at - w.offset;
    w.need = w.skip + p->bytes;
    w.len = size_up(w.need, align);
    return w;
}

static int check_config(const struct cache_config *cfg, struct sl_err *err)
{
    if (cfg->n_layers < 0 || (cfg->n_layers && !cfg->layers))
        return err_set(err, SL_E_ARG, "cache", "no layers are given");
    if (cfg->align == 0 || (cfg->align & (cfg->align - 1)) || cfg->align > MAX_ALIGN)
        return err_set(err, SL_E_ARG, "cache",
                       "alignment %zu is not a power of two of at most %zu bytes", cfg->align,
                       MAX_ALIGN);
    if (cfg->budget < 0 || cfg->slots < -1)
        return err_set(err, SL_E_ARG, "cache", "the cache size is negative");
    if (cfg->in_flight < 1 || cfg->in_flight > MAX_LANES)
        return err_set(err, SL_E_ARG, "cache", "reads in flight must be 1 to %d, not %d", MAX_LANES,
                       cfg->in_flight);
    if (cfg->threads < 1 || cfg->threads > MAX_LANES)
        return err_set(err, SL_E_ARG, "cache", "threads must be 1 to %d, not %d", MAX_LANES,
                       cfg->threads);
    if (cfg->split < 1 || cfg->split > MAX_SPLIT)
        return err_set(err, SL_E_ARG, "cache", "an expert is cut into 1 to %d chunks, not %d",
                       MAX_SPLIT, cfg->split);
    return 0;
}

/* A part's last byte, rounded up to the alignment, must be a file offset (below 2^63). */
static bool part_fits(const struct cache_part *p, int n_experts, size_t align)
{
    uint64_t end;
    return p->bytes > 0 && size_mul((uint64_t)n_experts - 1, p->stride, &end) &&
           size_add(end, p->offset, &end) && size_add(end, p->bytes, &end) &&
           size_add(end, align, &end) && end <= INT64_MAX;
}

static int check_layer(const struct cache_config *cfg, int l, struct sl_err *err)
{
    const struct cache_layer *layer = &cfg->layers[l];
    char where[32];
    snprintf(where, sizeof where, "layer %d", l);
    if (layer->n_parts < 0 || layer->n_parts > CACHE_MAX_PARTS)
        return err_set(err, SL_E_ARG, where, "an expert has 0 to %d parts, not %d", CACHE_MAX_PARTS,
                       layer->n_parts);
    if (layer->n_parts == 0)
        return 0;
    if (layer->n_experts < 1 || layer->n_experts > MAX_EXPERTS)
        return err_set(err, SL_E_UNSUPPORTED, where, "%d experts (at most %d are supported)",
                       layer->n_experts, MAX_EXPERTS);
    if (layer->top_k < 1 || layer->top_k > layer->n_experts)
        return err_set(err, SL_E_ARG, where, "%d of %d experts per token is impossible",
                       layer->top_k, layer->n_experts);
    for (int i = 0; i < layer->n_parts; i++)
        if (!part_fits(&layer->part[i], layer->n_experts, cfg->align))
            return err_set(err, SL_E_FORMAT, where,
                           "part %d of its experts (%llu bytes each from offset %llu) is not a "
                           "range of a file",
                           i, (unsigned long long)layer->part[i].bytes,
                           (unsigned long long)layer->part[i].offset);
    return 0;
}

static int find_class(const struct cache_geometry *g, const struct cache_layer *layer)
{
    for (int i = 0; i < g->n_classes; i++) {
        const struct cache_class *k = &g->cls[i];
        bool same = k->n_parts == layer->n_parts;
        for (int j = 0; same && j < layer->n_parts; j++)
            same = k->bytes[j] == layer->part[j].bytes;
        if (same)
            return i;
    }
    return -1;
}

static int add_class(struct cache_geometry *g, const struct cache_layer *layer)
{
    struct cache_class *k = &g->cls[g->n_classes];
    k->n_parts = layer->n_parts;
    for (int j = 0; j < layer->n_parts; j++)
        k->bytes[j] = layer->part[j].bytes;
    return g->n_classes++;
}

static void join_class(struct cache_class *k, const struct cache_layer *layer, size_t align)
{
    k->n_layers++;
    k->bank += (uint64_t)layer->n_experts;
    if (layer->top_k > k->top_k)
        k->top_k = layer->top_k;
    for (int j = 0; j < layer->n_parts; j++)
        for (int e = 0; e < layer->n_experts; e++) {
            uint64_t r = cache_get_window(&layer->part[j], e, align).skip;
            if (r > k->worst_r[j])
                k->worst_r[j] = r;
        }
}

/* Places the parts; false when the class's bank is larger than any memory. */
static bool place_parts(struct cache_class *k, size_t align)
{
    uint64_t total = 0;
    for (int j = 0; j < k->n_parts; j++) {
        k->part_at[j] = total;
        k->part_room[j] = size_up(k->worst_r[j] + k->bytes[j], align);
        if (!size_add(total, k->part_room[j], &total))
            return false;
    }
    k->slot_bytes = total;
    return size_mul(total, k->bank + 3 * MAX_LANES, &total) && total <= INT64_MAX / 2;
}

int cache_plan_geometry(const struct cache_config *cfg, struct cache_geometry *g,
                        struct sl_err *err)
{
    *g = (struct cache_geometry){0};
    int rc = check_config(cfg, err);
    if (rc)
        return rc;
    g->n_transit = 2 * (uint64_t)cfg->in_flight + (uint64_t)cfg->threads;
    g->cls = mem_calloc((size_t)cfg->n_layers, sizeof *g->cls);
    g->layer_class = mem_calloc((size_t)cfg->n_layers, sizeof *g->layer_class);
    if (!g->cls || !g->layer_class)
        return err_set(err, SL_E_MEM, "cache", "no memory for the table of %d layers",
                       cfg->n_layers);
    for (int l = 0; l < cfg->n_layers; l++) {
        const struct cache_layer *layer = &cfg->layers[l];
        if ((rc = check_layer(cfg, l, err)) != 0)
            return rc;
        g->layer_class[l] = -1;
        if (layer->n_parts == 0)
            continue;
        int k = find_class(g, layer);
        g->layer_class[l] = k < 0 ? k = add_class(g, layer) : k;
        join_class(&g->cls[k], layer, cfg->align);
        g->n_experts += layer->n_experts;
        if (layer->n_experts > g->max_experts)
            g->max_experts = layer->n_experts;
        if (g->n_experts > 1 << 30)
            return err_set(err, SL_E_UNSUPPORTED, "cache", "more than 2^30 experts");
    }
    uint64_t all = 0, bank;
    for (int i = 0; i < g->n_classes; i++)
        if (!place_parts(&g->cls[i], cfg->align) ||
            !size_mul(g->cls[i].slot_bytes, g->cls[i].bank, &bank) || !size_add(all, bank, &all) ||
            all > INT64_MAX)
            return err_set(err, SL_E_FORMAT, "cache", "the experts' sizes are beyond 2^63 bytes");
    return 0;
}

void cache_free_geometry(struct cache_geometry *g)
{
    mem_free(g->cls);
    mem_free(g->layer_class);
    *g = (struct cache_geometry){0};
}
