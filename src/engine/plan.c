/* The memory plan: what goes where, before anything is loaded.
 *
 *   limit  >=  base      what the process holds now (vocabulary, headers) and a reserve for
 *                        stacks and small things
 *            + dense     weights that every token needs (mapped ones count in full)
 *            + kv        keys and values of n_ctx tokens
 *            + compute   buffers of one batch of ubatch tokens
 *            + transit   slots for experts on their way (streaming)
 *            + cache     slots for experts that stay (streaming)
 *
 * limit is --ram, or what the machine and the cgroup can spare less the floor that is left to
 * others. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/sys.h"
#include "cache/policy.h"
#include "engine/budget.h"
#include "engine/engine.h"
#include "engine/options.h"

#define MIB            ((uint64_t)1 << 20)
#define BASE_RESERVE   (24 * MIB)  /* libc, libraries, I/O buffers, what grows with use */
#define THREAD_RESERVE (256 << 10) /* touched stack and thread-local memory of one thread */
#define DEFAULT_CTX    4096
#define SMALLEST_CTX   256
#define UBATCH_SHARE   8 /* --ubatch 0: buffers take at most this part of the limit */

void engine_mark(struct sl_engine *e, const char *fmt, ...)
{
    char *at = e->plan.marks;
    size_t room = sizeof e->plan.marks, n = strlen(at);
    if (n > 0)
        n += (size_t)snprintf(at + n, room - n, "; ");
    va_list ap;
    va_start(ap, fmt);
    if (n < room)
        vsnprintf(at + n, room - n, fmt, ap);
    va_end(ap);
}

void engine_note(const struct sl_engine *e, const char *fmt, ...)
{
    if (!e->opt.on_note)
        return;
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    e->opt.on_note(e->opt.user, line);
}

struct planner {
    struct sl_engine *e;
    struct sl_engine_plan *p;
    const struct model *m;
    uint64_t limit;           /* what the sum may be */
    bool limit_is_ram;        /* --ram, else what the machine can spare */
    uint64_t experts;         /* bytes of all routed experts */
    struct cache_sizes sizes; /* of a cache of 0, then of the chosen one */
    struct sl_err *err;
};

static double mib(uint64_t bytes)
{
    return (double)bytes / (double)MIB;
}

static uint64_t saturating_sub(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* On all drives together. */
static int reads_in_flight(const struct sl_engine *e)
{
    return e->opt.io_threads * e->plan.n_drives;
}

static void find_limit(struct planner *pl)
{
    const struct sl_engine_options *o = &pl->e->opt;
    struct budget_room room;
    struct sys_rss rss;
    sys_rss("", &rss);
    pl->p->base_bytes = rss.anon + rss.shmem + BASE_RESERVE +
                        (uint64_t)(pl->p->threads + pl->e->opt.io_threads * pl->e->n_drives) *
                            THREAD_RESERVE;
    budget_find_room(o, rss.anon + rss.shmem, &room);
    pl->limit_is_ram = o->ram != 0;
    pl->limit = o->ram ? o->ram : room.spare;
    pl->p->limit_bytes = o->ram;
}

static void sum_up(struct sl_engine_plan *p)
{
    p->total_bytes = p->base_bytes + p->dense_bytes + p->kv_bytes + p->compute_bytes +
                     p->transit_bytes + p->cache_bytes;
}

/* What must fit beside KV and buffers whatever the cache is. */
static uint64_t fixed_bytes(const struct planner *pl)
{
    return pl->p->base_bytes + pl->p->dense_bytes + pl->p->transit_bytes;
}

static uint64_t kv_for(const struct planner *pl, int n_ctx)
{
    return kv_bytes(&pl->m->cfg, n_ctx, options_kv_type(pl->e->opt.k_type),
                    options_kv_type(pl->e->opt.v_type));
}

static int refuse(struct planner *pl, uint64_t cache_min)
{
    struct sl_engine_plan *p = pl->p;
    uint64_t need = fixed_bytes(pl) + p->kv_bytes + p->compute_bytes + cache_min;
    p->cache_bytes = cache_min;
    sum_up(p);
    char experts[96] = "";
    if (p->streamed)
        snprintf(experts, sizeof experts, ", experts in transit %.1f, least cache %.1f",
                 mib(p->transit_bytes), mib(cache_min));
    return err_set(
        pl->err, SL_E_BUDGET, "memory",
        "does not fit: needs %llu MiB (program %.1f, dense weights %.1f, KV cache of %d tokens "
        "%.1f, compute buffers %.1f%s), %s %llu MiB; %s",
        (unsigned long long)((need + MIB - 1) / MIB), mib(p->base_bytes), mib(p->dense_bytes),
        p->n_ctx, mib(p->kv_bytes), mib(p->compute_bytes), experts,
        pl->limit_is_ram ? "--ram allows" : "the machine can spare",
        (unsigned long long)(pl->limit / MIB),
        p->streamed || pl->m->cfg.n_expert == 0
            ? "allow more memory, or give a smaller context (-c) or --ubatch"
            : "allow more memory, or stream the experts (--moe-stream)");
}

/* Buffers of batches of tok tokens, a session's logits and a sampler's three arrays. */
static uint64_t batch_bytes(const struct planner *pl, int tok)
{
    return forward_bytes(pl->m, tok, pl->p->threads) +
           (uint64_t)pl->m->cfg.n_vocab * 4 * sizeof(float);
}

/* Buffers of the narrowest batch that is worth planning for. */
static uint64_t smallest_compute(const struct planner *pl, int n_ctx)
{
    int tok = pl->e->opt.ubatch ? pl->e->opt.ubatch : 32;
    return batch_bytes(pl, tok < n_ctx ? tok : n_ctx);
}

/* -c: as given, else min(model's, 4096), halved until it fits beside the smallest cache. */
static void choose_ctx(struct planner *pl, uint64_t cache_min)
{
    const struct sl_engine_options *o = &pl->e->opt;
    int train = pl->m->cfg.n_ctx_train, n = o->n_ctx;
    if (n == 0) {
        n = train < DEFAULT_CTX ? train : DEFAULT_CTX;
        while (n > SMALLEST_CTX &&
               fixed_bytes(pl) + kv_for(pl, n) + smallest_compute(pl, n) + cache_min > pl->limit)
            n = n / 2 < SMALLEST_CTX ? SMALLEST_CTX : n / 2;
    } else if (n > train) {
        engine_note(pl->e,
                    "context of %d tokens is longer than the %d that the model was trained for", n,
                    train);
    }
    pl->p->n_ctx = n;
    pl->p->kv_bytes = kv_for(pl, n);
}

/* --ubatch 0: the widest batch, up to the context, whose buffers take at most an eighth of the
 * limit and that leaves room for the smallest cache. */
static void choose_ubatch(struct planner *pl, uint64_t cache_min)
{
    struct sl_engine_plan *p = pl->p;
    int n = pl->e->opt.ubatch;
    if (n == 0) {
        uint64_t room = saturating_sub(pl->limit, fixed_bytes(pl) + p->kv_bytes + cache_min);
        uint64_t most = pl->limit / UBATCH_SHARE < room ? pl->limit / UBATCH_SHARE : room;
        int low = 1, high = p->n_ctx; /* invariant: low fits or is 1 */
        while (low < high) {
            int mid = low + (high - low + 1) / 2;
            if (batch_bytes(pl, mid) <= most)
                low = mid;
            else
                high = mid - 1;
        }
        n = low;
    }
    p->ubatch = n < p->n_ctx ? n : p->n_ctx;
    p->compute_bytes = batch_bytes(pl, p->ubatch);
}

void plan_cache_config(const struct sl_engine *e, struct cache_config *cfg)
{
    size_t align = mem_page_size();
    for (int i = 0; i < e->model->n_files; i++)
        if (io_file_align(e->model->files[i]) > align)
            align = io_file_align(e->model->files[i]);
    *cfg = (struct cache_config){.layers = e->cache_layers,
                                 .n_layers = e->model->cfg.n_layer,
                                 .align = align,
                                 .budget = (int64_t)e->plan.cache_bytes,
                                 .most = INT64_MAX,
                                 .slots = e->opt.cache_slots == SL_CACHE_UNSET ? -1
                                                                               : e->opt.cache_slots,
                                 .in_flight = reads_in_flight(e),
                                 .threads = e->plan.threads,
                                 .split = e->opt.io_split,
                                 .overlap = e->opt.overlap,
                                 .two_wave = e->opt.two_wave,
                                 .policy = e->opt.cache_policy};
}

/* Sizes that do not depend on the budget: transit, smallest cache, bank. The bookkeeping is that of
 * a cache that holds the whole bank: a few MiB at most, so an upper bound will do. */
static int measure_bank(struct planner *pl)
{
    struct cache_config cfg;
    plan_cache_config(pl->e, &cfg);
    cfg.budget = INT64_MAX;
    cfg.slots = -1;
    int rc = cache_measure(&cfg, &pl->sizes, pl->err);
    if (rc == 0) {
        pl->p->transit_bytes = pl->sizes.transit_bytes + pl->sizes.table_bytes;
        pl->p->cache_min_bytes = pl->sizes.min_bytes;
        pl->p->cache_max_bytes = pl->sizes.bank_bytes;
    }
    return rc;
}

/* --cache-mb auto: all that is left, at most the ceiling and the bank; where the smallest legal
 * cache does not fit, none. */
static uint64_t auto_cache(struct planner *pl)
{
    const struct sl_engine_options *o = &pl->e->opt;
    uint64_t left = saturating_sub(pl->limit,
                                   fixed_bytes(pl) + pl->p->kv_bytes + pl->p->compute_bytes);
    if (o->cache_ceil_mb && left > o->cache_ceil_mb * MIB)
        left = o->cache_ceil_mb * MIB;
    if (left < pl->sizes.min_bytes) {
        engine_note(pl->e, "no expert cache: %llu MiB are left, the smallest cache is %llu MiB",
                    (unsigned long long)(left / MIB),
                    (unsigned long long)(pl->sizes.min_bytes / MIB));
        return 0;
    }
    return left < pl->sizes.bank_bytes ? left : pl->sizes.bank_bytes;
}

/* What --cache-entries or --cache-mb names, at most the bank; 0: none, or an automatic size. */
static uint64_t asked_cache(const struct planner *pl)
{
    const struct sl_engine_options *o = &pl->e->opt;
    const uint64_t bank = pl->sizes.bank_bytes;
    uint64_t all = 0, want = o->cache_mb > 0 ? (uint64_t)o->cache_mb * MIB : 0;
    for (int l = 0; l < pl->m->cfg.n_layer; l++)
        all += (uint64_t)pl->e->cache_layers[l].n_experts;
    if (o->cache_entries > 0)
        want = (uint64_t)o->cache_entries >= all
                   ? bank
                   : (uint64_t)((unsigned __int128)bank * (uint64_t)o->cache_entries / all);
    return want < bank ? want : bank;
}

static int choose_cache(struct planner *pl)
{
    const struct sl_engine_options *o = &pl->e->opt;
    struct sl_engine_plan *p = pl->p;
    struct cache_config cfg;
    p->cache_auto = o->cache_slots == SL_CACHE_UNSET && o->cache_mb == SL_CACHE_AUTO &&
                    o->cache_entries == 0;
    p->cache_bytes = p->cache_auto ? auto_cache(pl) : asked_cache(pl);
    plan_cache_config(pl->e, &cfg);
    int rc = cache_measure(&cfg, &pl->sizes, pl->err);
    if (rc < 0)
        return rc;
    p->cache_bytes = pl->sizes.cache_bytes;
    if (p->cache_bytes && p->cache_bytes < pl->sizes.token_bytes)
        engine_note(
            pl->e,
            "the expert cache (%.1f MiB) is smaller than what one token routes (%.1f MiB): %s",
            mib(p->cache_bytes), mib(pl->sizes.token_bytes),
            cache_find_policy(o->cache_policy) == &cache_policy_lru
                ? "least-recently-used replacement then hits nothing"
                : "most experts are read for every token");
    return 0;
}

/* Would everything fit, experts included? */
static bool fits_resident(const struct planner *pl)
{
    int n = pl->e->opt.n_ctx                       ? pl->e->opt.n_ctx
            : pl->m->cfg.n_ctx_train < DEFAULT_CTX ? pl->m->cfg.n_ctx_train
                                                   : DEFAULT_CTX;
    return pl->p->base_bytes + pl->p->dense_bytes + pl->experts + kv_for(pl, n) +
               smallest_compute(pl, n) <=
           pl->limit;
}

/* Mapped weights are the system's to drop: without --ram they only have to exist. */
static bool must_fit(const struct planner *pl)
{
    return pl->limit_is_ram || pl->p->dense_mode == SL_DENSE_ANON || pl->p->streamed;
}

static void choose_streaming(struct planner *pl)
{
    const struct sl_engine_options *o = &pl->e->opt;
    bool routed = pl->m->cfg.n_expert > 0;
    if (o->stream == SL_STREAM_ON && !routed)
        engine_note(pl->e, "the model has no routed experts: nothing to stream");
    pl->p->streamed = routed && (o->stream == SL_STREAM_ON ||
                                 (o->stream == SL_STREAM_AUTO && !fits_resident(pl)));
    if (!pl->p->streamed)
        pl->p->dense_bytes += pl->experts;
}

int plan_make(struct sl_engine *e, struct sl_err *err)
{
    struct planner pl = {.e = e, .p = &e->plan, .m = e->model, .err = err};
    struct sl_engine_plan *p = &e->plan;
    p->dense_mode = e->opt.dense_mode;
    p->dense_bytes = model_dense_bytes(e->model);
    p->load_behind = e->opt.load_behind && p->dense_mode == SL_DENSE_ANON;
    pl.experts = model_expert_room(e->model);
    find_limit(&pl);
    choose_streaming(&pl);
    int rc = p->streamed ? measure_bank(&pl) : 0;
    if (rc < 0)
        return rc;
    bool wants_cache = p->streamed && e->opt.cache_slots != 0 &&
                       (e->opt.cache_mb != 0 || e->opt.cache_entries > 0);
    uint64_t asked = wants_cache && e->opt.cache_slots < 0 ? asked_cache(&pl) : 0;
    uint64_t cache_min = asked ? asked : wants_cache ? pl.sizes.min_bytes : 0;
    choose_ctx(&pl, cache_min);
    choose_ubatch(&pl, cache_min);
    if (must_fit(&pl) && fixed_bytes(&pl) + p->kv_bytes + p->compute_bytes > pl.limit)
        return refuse(&pl, asked);
    if (p->streamed && (rc = choose_cache(&pl)) < 0)
        return rc;
    sum_up(p);
    if (must_fit(&pl) && p->total_bytes > pl.limit)
        return refuse(&pl, p->cache_bytes);
    return 0;
}
