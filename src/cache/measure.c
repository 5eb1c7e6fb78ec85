/* measure.c: what a cache of a given configuration takes, before any memory is taken. */
#include "cache/impl.h"

static uint64_t mib_up(uint64_t bytes)
{
    return (bytes >> 20) + ((bytes & 0xfffff) != 0);
}

static uint64_t min_bytes(const struct cache_geometry *g)
{
    uint64_t sum = 0;
    for (int i = 0; i < g->n_classes; i++)
        sum += (uint64_t)g->cls[i].top_k * g->cls[i].slot_bytes;
    return sum;
}

/* a has less of its share than b: bytes per layer that uses the class. */
static bool is_poorer(const struct cache_class *a, const struct cache_class *b)
{
    return (unsigned __int128)a->n_slots * a->slot_bytes * (unsigned)b->n_layers <
           (unsigned __int128)b->n_slots * b->slot_bytes * (unsigned)a->n_layers;
}

/* Every class starts with its share, or where some share is below its top_k, all start there; then
 * whichever is poorest gets the next slot until nothing fits: classes whose bank is full leave the
 * rest to the others. */
static void share_bytes(struct cache_geometry *g, uint64_t budget)
{
    uint64_t layers = 0, used = 0;
    bool whole = true; /* each share holds a class's top_k */
    for (int i = 0; i < g->n_classes; i++)
        layers += (uint64_t)g->cls[i].n_layers;
    for (int i = 0; i < g->n_classes; i++) {
        struct cache_class *k = &g->cls[i];
        uint64_t share = (uint64_t)((unsigned __int128)budget * (unsigned)k->n_layers / layers) /
                         k->slot_bytes;
        whole = whole && share >= (uint64_t)k->top_k;
        k->n_slots = share < k->bank ? share : k->bank;
    }
    for (int i = 0; i < g->n_classes; i++) {
        struct cache_class *k = &g->cls[i];
        if (!whole)
            k->n_slots = (uint64_t)k->top_k;
        used += k->n_slots * k->slot_bytes;
    }
    for (;;) {
        struct cache_class *poorest = NULL;
        for (int i = 0; i < g->n_classes; i++) {
            struct cache_class *k = &g->cls[i];
            if (k->n_slots < k->bank && k->slot_bytes <= budget - used &&
                (!poorest || is_poorer(k, poorest)))
                poorest = k;
        }
        if (!poorest)
            return;
        poorest->n_slots++;
        used += poorest->slot_bytes;
    }
}

static int give_slots(const struct cache_config *cfg, struct cache_geometry *g, struct sl_err *err)
{
    int top_k = 0;
    for (int i = 0; i < g->n_classes; i++) {
        struct cache_class *k = &g->cls[i];
        uint64_t n = (uint64_t)cfg->slots;
        k->n_slots = n < k->bank ? n : k->bank;
        top_k = k->top_k > top_k ? k->top_k : top_k;
    }
    if (cfg->slots > 0 && cfg->slots < top_k)
        return err_set(err, SL_E_BUDGET, "cache",
                       "%lld cache slots per class are fewer than the %d experts that one token "
                       "uses; give at least %d, or 0 for no cache",
                       (long long)cfg->slots, top_k, top_k);
    return 0;
}

int cache_check_budget(uint64_t budget, const struct cache_geometry *g, struct sl_err *err)
{
    uint64_t need = min_bytes(g);
    if (budget == 0 || budget >= need)
        return 0;
    return err_set(err, SL_E_BUDGET, "cache",
                   "an expert cache of %llu bytes is too small: the smallest is %llu MiB (%llu "
                   "bytes, room for the experts that one token uses in a layer); give that, or "
                   "0 for no cache",
                   (unsigned long long)budget, (unsigned long long)mib_up(need),
                   (unsigned long long)need);
}

int cache_divide_budget(const struct cache_config *cfg, struct cache_geometry *g,
                        struct sl_err *err)
{
    if (cfg->slots >= 0)
        return give_slots(cfg, g, err);
    for (int i = 0; i < g->n_classes; i++)
        g->cls[i].n_slots = 0;
    if (cfg->budget == 0 || g->n_classes == 0)
        return 0;
    int rc = cache_check_budget((uint64_t)cfg->budget, g, err);
    if (rc)
        return rc;
    share_bytes(g, (uint64_t)cfg->budget);
    return 0;
}

void cache_reserve_slots(const struct cache_config *cfg, struct cache_geometry *g)
{
    for (int i = 0; i < g->n_classes; i++)
        g->cls[i].most_slots = g->cls[i].n_slots;
    if (cfg->most <= 0 || g->n_classes == 0 || (uint64_t)cfg->most < min_bytes(g))
        return;
    share_bytes(g, (uint64_t)cfg->most);
    for (int i = 0; i < g->n_classes; i++) {
        struct cache_class *k = &g->cls[i];
        uint64_t now = k->most_slots;
        k->most_slots = k->n_slots > now ? k->n_slots : now;
        k->n_slots = now;
    }
}

void cache_sum_sizes(const struct cache_config *cfg, const struct cache_geometry *g,
                     struct cache_sizes *out)
{
    *out = (struct cache_sizes){.n_classes = g->n_classes, .min_bytes = min_bytes(g)};
    for (int i = 0; i < g->n_classes; i++) {
        const struct cache_class *k = &g->cls[i];
        uint64_t data = 0;
        for (int j = 0; j < k->n_parts; j++)
            data += k->bytes[j];
        if (k->slot_bytes > out->slot_bytes_max)
            out->slot_bytes_max = k->slot_bytes;
        out->bank_bytes += k->bank * k->slot_bytes;
        out->cache_bytes += k->n_slots * k->slot_bytes;
        out->waste_bytes += k->n_slots * (k->slot_bytes - data);
    }
    for (int l = 0; l < cfg->n_layers; l++)
        for (int j = 0; j < cfg->layers[l].n_parts; j++)
            out->token_bytes += (uint64_t)cfg->layers[l].top_k * cfg->layers[l].part[j].bytes;
    out->transit_bytes = g->n_transit * out->slot_bytes_max;
    out->table_bytes = cache_count_tables(cfg, g);
}

int cache_measure(const struct cache_config *cfg, struct cache_sizes *out, struct sl_err *err)
{
    struct cache_geometry g;
    *out = (struct cache_sizes){0};
    int rc = cache_plan_geometry(cfg, &g, err);
    if (rc == 0) {
        rc = cache_divide_budget(cfg, &g, err);
        cache_reserve_slots(cfg, &g);
        cache_sum_sizes(cfg, &g, out); /* the smallest legal size is there after a refusal too */
    }
    cache_free_geometry(&g);
    return rc;
}
