/* cache.c: making and ending a cache, prompts, statistics. */
#include "cache/impl.h"

#include "base/mem.h"
#include "io/drives.h"

#include <assert.h>
#include <string.h>

/* Experts that are certain to be asked for and read before that: those of a token in a layer, and
 * enough to keep the drive busy. */
static int count_expected_open(const struct cache_config *cfg, const struct cache_geometry *g)
{
    int most = 0;
    for (int i = 0; i < g->n_classes; i++)
        most = g->cls[i].top_k > most ? g->cls[i].top_k : most;
    return most + cfg->in_flight;
}

/* Experts that can be in flight at once: a pass's, and what is read ahead. */
static uint64_t count_loads(const struct cache_config *cfg, const struct cache_geometry *g)
{
    uint64_t slots = g->n_transit,
             most = (uint64_t)g->max_experts + (uint64_t)count_expected_open(cfg, g);
    for (int i = 0; i < g->n_classes; i++)
        slots += g->cls[i].most_slots;
    return slots < most ? slots : most;
}

static int count_reqs_per_load(const struct cache_config *cfg, const struct cache_geometry *g)
{
    uint64_t most = 0;
    for (int i = 0; i < g->n_classes; i++) {
        uint64_t n = 0;
        for (int j = 0; j < g->cls[i].n_parts; j++) {
            uint64_t blocks = g->cls[i].part_room[j] / cfg->align;
            n += blocks < (uint64_t)cfg->split ? blocks : (uint64_t)cfg->split;
        }
        most = n > most ? n : most;
    }
    return (int)most;
}

static uint64_t count_policy(const struct cache_config *cfg, const struct cache_geometry *g)
{
    const struct cache_policy_ops *ops = cache_choose_policy(cfg);
    struct cache_shape *s = ops ? cache_make_shape(cfg, g) : NULL;
    uint64_t n = s ? ops->measure(s) : 0; /* else making the cache fails too */
    mem_free(s);
    return n;
}

uint64_t cache_count_tables(const struct cache_config *cfg, const struct cache_geometry *g)
{
    uint64_t slots = g->n_transit, loads = count_loads(cfg, g);
    for (int i = 0; i < g->n_classes; i++)
        slots += g->cls[i].most_slots;
    uint64_t per_slot = sizeof(struct cache_slot) + sizeof(int32_t) + sizeof(struct cache_piece) +
                        sizeof(struct touch_piece) + sizeof(bool);
    uint64_t per_item = sizeof(struct pass_item) + sizeof(struct pass_rank) + 2 * sizeof(int32_t);
    uint64_t per_load = sizeof(struct load) +
                        (uint64_t)count_reqs_per_load(cfg, g) * sizeof(struct io_req);
    return sizeof(struct cache) + slots * per_slot + loads * per_load +
           (uint64_t)g->max_experts * per_item + (uint64_t)g->n_experts * 13 +
           (uint64_t)cfg->n_layers * (sizeof(struct cache_layer) + 3 * sizeof(int32_t)) +
           (uint64_t)g->n_classes * (sizeof(struct cache_class) + sizeof(struct slot_pool)) +
           count_policy(cfg, g);
}

static int check_files(const struct cache_layer *ly, int l, size_t align, struct sl_err *err)
{
    for (int j = 0; j < ly->n_parts; j++) {
        const struct cache_part *p = &ly->part[j];
        if (!p->file)
            return err_set(err, SL_E_INTERNAL, "cache", "layer %d has a part without a file", l);
        if (io_file_direct(p->file) && align % io_file_align(p->file))
            return err_set(err, SL_E_INTERNAL, io_file_path(p->file),
                           "direct reads need alignment %zu, the cache has %zu",
                           io_file_align(p->file), align);
        uint64_t end = p->offset + (uint64_t)(ly->n_experts - 1) * p->stride + p->bytes;
        if (end > io_file_size(p->file))
            return err_set(err, SL_E_FORMAT, io_file_path(p->file),
                           "the experts of layer %d end at %llu, past the file's %llu bytes", l,
                           (unsigned long long)end, (unsigned long long)io_file_size(p->file));
    }
    return 0;
}

static uint32_t find_drives(struct io_drives *all, const struct cache_layer *ly)
{
    uint32_t set = 0;
    for (int j = 0; j < ly->n_parts; j++)
        set |= UINT32_C(1) << io_drives_find(all, IO_DRIVES_MAX, ly->part[j].file);
    return set;
}

static int make_layers(struct cache *c, const struct cache_config *cfg, struct sl_err *err)
{
    size_t n = (size_t)cfg->n_layers;
    c->layers = mem_calloc(n, sizeof *c->layers);
    c->first_key = mem_calloc(n, sizeof *c->first_key);
    c->drives = mem_calloc(n, sizeof *c->drives);
    c->where = mem_calloc((size_t)c->geo.n_experts, sizeof *c->where);
    c->routed = mem_calloc((size_t)c->geo.n_experts, sizeof *c->routed);
    c->used = mem_calloc((size_t)c->geo.n_experts, sizeof *c->used);
    c->known = mem_calloc((size_t)c->geo.n_experts, 1);
    if (!c->layers || !c->first_key || !c->drives || !c->where || !c->routed || !c->used ||
        !c->known)
        return err_set(err, SL_E_MEM, "cache", "no memory for the table of experts");
    memcpy(c->layers, cfg->layers, n * sizeof *c->layers);
    c->cfg.layers = c->layers;
    int32_t key = 0;
    struct io_drives all = {0};
    for (size_t l = 0; l < n; l++) {
        c->first_key[l] = key;
        if (c->geo.layer_class[l] >= 0)
            key += c->layers[l].n_experts;
        int rc = cfg->dry ? 0 : check_files(&c->layers[l], (int)l, cfg->align, err);
        if (rc)
            return rc;
        if (!cfg->dry)
            c->drives[l] = find_drives(&all, &c->layers[l]);
    }
    for (int64_t i = 0; i < c->geo.n_experts; i++)
        c->where[i] = -1;
    return 0;
}

/* The pools' slots, in the order of the arena: the first is handed out first. */
static void fill_pool(struct cache *c, int i)
{
    struct slot_pool *p = &c->pool[i];
    p->free = c->free_stacks + p->first;
    p->n_free = p->n_open;
    for (int s = 0; s < p->n; s++) {
        bool open = s < p->n_open;
        c->slot[p->first + s] = (struct cache_slot){
            .pool = i,
            .layer = -1,
            .key = -1,
            .item = -1,
            .state = open ? SLOT_FREE : SLOT_CLOSED,
        };
        if (open)
            p->free[p->n_open - 1 - s] = p->first + s;
    }
}

static int make_policy(struct cache *c, const struct cache_policy_ops *ops, struct sl_err *err)
{
    if (cache_transit(c)->first == 0)
        return 0; /* no slot that it could rule */
    struct cache_shape *s = cache_make_shape(&c->cfg, &c->geo);
    if (!s)
        return err_set(err, SL_E_MEM, "cache", "no memory for the replacement policy");
    int rc = ops->create(s, &c->policy, err);
    mem_free(s);
    return rc;
}

/* n of the pools: the arena has settled how many slots there may be. */
static void size_pools(struct cache *c)
{
    int first = 0;
    for (int i = 0; i <= c->geo.n_classes; i++) {
        const struct cache_class *k = &c->geo.cls[i];
        bool transit = i == c->geo.n_classes;
        struct slot_pool *p = &c->pool[i];
        p->first = first;
        p->n = (int)(transit ? c->geo.n_transit : k->most_slots); /* at most 2^30 experts in all */
        p->n_open = (int)(transit ? c->geo.n_transit : k->n_slots);
        p->slot_bytes = transit ? c->sizes.slot_bytes_max : k->slot_bytes;
        first += p->n;
    }
    c->n_slots = first;
}

static int make_slots(struct cache *c, struct sl_err *err)
{
    c->pool = mem_calloc((size_t)c->geo.n_classes + 1, sizeof *c->pool);
    if (!c->pool)
        return err_set(err, SL_E_MEM, "cache", "no memory for the table of slots");
    int rc = c->cfg.dry ? 0 : cache_map_arena(c, err);
    if (rc)
        return rc;
    size_pools(c);
    c->slot = mem_calloc((size_t)c->n_slots, sizeof *c->slot);
    c->free_stacks = mem_calloc((size_t)c->n_slots, sizeof *c->free_stacks);
    if (!c->slot || !c->free_stacks)
        return err_set(err, SL_E_MEM, "cache", "no memory for the table of %d slots", c->n_slots);
    for (int i = 0; i <= c->geo.n_classes; i++)
        fill_pool(c, i);
    return c->cfg.dry ? 0 : cache_fill_arena(c, err);
}

static int make_loads(struct cache *c, struct sl_err *err)
{
    uint64_t n = count_loads(&c->cfg, &c->geo);
    c->n_loads = (int)n;
    c->n_expected_open = count_expected_open(&c->cfg, &c->geo);
    c->reqs_per_load = count_reqs_per_load(&c->cfg, &c->geo);
    c->load = mem_calloc((size_t)n, sizeof *c->load);
    c->req = mem_calloc((size_t)n * (size_t)c->reqs_per_load, sizeof *c->req);
    size_t most = (size_t)c->geo.max_experts;
    c->pass.item = mem_calloc(most, sizeof *c->pass.item);
    c->pass.rank = mem_calloc(most, sizeof *c->pass.rank);
    c->pass.ready = mem_calloc(most, sizeof *c->pass.ready);
    c->ahead.counts = mem_calloc(most, sizeof *c->ahead.counts);
    if (!c->load || !c->req || !c->pass.item || !c->pass.rank || !c->pass.ready || !c->ahead.counts)
        return err_set(err, SL_E_MEM, "cache", "no memory for %d reads", c->n_loads);
    for (int i = c->n_loads; i-- > 0;) {
        c->load[i].req = c->req + (size_t)i * (size_t)c->reqs_per_load;
        c->load[i].next = c->free_load;
        c->free_load = &c->load[i];
    }
    return 0;
}

int cache_create(const struct cache_config *cfg, struct io_reader *reader, struct cache **out,
                 struct sl_err *err)
{
    *out = NULL;
    const struct cache_policy_ops *ops = cache_choose_policy(cfg);
    if (!ops)
        return err_set(err, SL_E_ARG, cfg->policy, "there is no cache policy of this name");
    struct cache *c = mem_calloc(1, sizeof *c);
    if (!c)
        return err_set(err, SL_E_MEM, "cache", "no memory for the expert cache");
    c->cfg = *cfg;
    c->cfg.policy = ops->name;
    c->reader = reader;
    c->ahead.layer = -1;
    int rc = cache_plan_geometry(cfg, &c->geo, err);
    if (rc == 0 && c->geo.n_classes == 0)
        rc = err_set(err, SL_E_ARG, "cache", "no layer has routed experts");
    if (rc == 0)
        rc = cache_divide_budget(cfg, &c->geo, err);
    if (rc == 0) {
        cache_reserve_slots(cfg, &c->geo);
        cache_sum_sizes(cfg, &c->geo, &c->sizes);
        rc = make_layers(c, cfg, err);
    }
    if (rc == 0)
        rc = make_slots(c, err);
    if (rc == 0)
        rc = make_policy(c, ops, err);
    if (rc == 0)
        rc = make_loads(c, err);
    if (rc) {
        cache_destroy(&c);
        return rc;
    }
    *out = c;
    return 0;
}

void cache_destroy(struct cache **cp)
{
    if (!cp || !*cp)
        return;
    struct cache *c = *cp;
    *cp = NULL;
    assert(c->pass.n_held == 0); /* a view is in use: its memory would go away */
    while (cache_reap_loads(c, true))
        ;
    cache_unmap_arena(c);
    if (c->policy)
        c->policy->ops->destroy(c->policy);
    mem_free(c->pool);
    mem_free(c->slot);
    mem_free(c->free_stacks);
    mem_free(c->layers);
    mem_free(c->first_key);
    mem_free(c->drives);
    mem_free(c->where);
    mem_free(c->routed);
    mem_free(c->used);
    mem_free(c->known);
    mem_free(c->load);
    mem_free(c->req);
    mem_free(c->pass.item);
    mem_free(c->pass.rank);
    mem_free(c->pass.ready);
    mem_free(c->ahead.counts);
    cache_free_geometry(&c->geo);
    mem_free(c);
}

void cache_prompt_begin(struct cache *c)
{
    struct cache_span span = cache_begin_span(c);
    c->in_prompt = true;
    cache_forget_expected(c, -1);
    memset(c->routed, 0, (size_t)c->geo.n_experts * sizeof *c->routed);
    cache_end_span(c, span);
}

void cache_prompt_end(struct cache *c)
{
    c->in_prompt = false;
    c->ahead.layer = -1;
}

bool cache_holds_expert(const struct cache *c, int layer, int expert)
{
    return c->where[c->first_key[layer] + expert] >= 0;
}

void cache_get_stats(const struct cache *c, struct cache_stats *out)
{
    *out = c->stats;
}

bool cache_has_expert(const struct cache *c, int layer, int expert)
{
    int slot = c->where[c->first_key[layer] + expert];
    return slot >= 0 && !c->slot[slot].spec;
}

void cache_watch_reads(struct cache *c, cache_read_fn *fn, void *user)
{
    c->on_read = fn;
    c->read_user = user;
}

void cache_set_tag(struct cache *c, int tag)
{
    c->tag = tag;
}
