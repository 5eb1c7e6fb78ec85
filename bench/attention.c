/* attention.c: one token's attention over a long sequence, the query heads that share one KV head
 * at a time. From cache every thread has a KV head of its own; from memory the threads walk through
 * a buffer full of them, as through the layers of a model. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "bench/parts.h"

#define TILE 16 /* positions of a tile of K */

struct attention {
    struct bench_run *run;
    struct pool *pool;
    const struct kernels *k;
    enum kv_type type;
    struct bench_result common;
    int keys, heads, dim;
    size_t k_bytes, head_bytes; /* K of one KV head; K and V, a multiple of 64 */
    uint8_t *kv;                /* one KV head for each thread */
    const float *q;
    float *out, *scratch; /* for each thread */
    size_t out_thread, scratch_thread;
    int64_t calls;
    int64_t at, total, window; /* from memory, in KV heads: next, in the buffer, of one call */
};

static void attend(const struct attention *a, const uint8_t *kv, int tid)
{
    const struct attn_args args = {.q = a->q,
                                   .q_stride = (size_t)a->dim,
                                   .n_q = a->heads,
                                   .k = kv,
                                   .v = kv + a->k_bytes,
                                   .k_type = a->type,
                                   .v_type = a->type,
                                   .dim_k = a->dim,
                                   .dim_v = a->dim,
                                   .first = 0,
                                   .pos = a->keys - 1,
                                   .scale = 1 / sqrtf((float)a->dim),
                                   .scratch = a->scratch + a->scratch_thread * (size_t)tid,
                                   .out = a->out + a->out_thread * (size_t)tid,
                                   .out_stride = (size_t)a->dim};
    a->k->attention(&args);
}

static void own_head(void *arg, int tid)
{
    const struct attention *a = arg;
    for (int64_t i = 0; i < a->calls; i++)
        attend(a, a->kv + a->head_bytes * (size_t)tid, tid);
}

static void from_cache(void *arg, int64_t calls)
{
    struct attention *a = arg;
    a->calls = calls;
    pool_run(a->pool, own_head, a);
}

static void walk_heads(void *arg, int64_t begin, int64_t end, int tid)
{
    const struct attention *a = arg;
    for (int64_t i = begin; i < end; i++)
        attend(a, a->run->stream.p + (size_t)(a->at + i) * a->head_bytes, tid);
}

static void from_memory(void *arg, int64_t calls)
{
    struct attention *a = arg;
    for (int64_t i = 0; i < calls; i++) {
        if (a->at + a->window > a->total)
            a->at = 0;
        pool_for(a->pool, a->window, 1, walk_heads, a);
        a->at += a->window;
    }
}

/* Random keys and values through the kernels' own store functions; q, and one head for each
 * thread. */
static void fill_heads(struct attention *a, size_t threads, float *floats)
{
    struct bench_run *run = a->run;
    memset(a->kv, 0, a->head_bytes); /* keys of the last tile that are not there */
    for (int pos = 0; pos < a->keys; pos++) {
        bench_fill_floats(floats, (size_t)a->dim, &run->rng);
        a->k->store_k(floats, a->dim, a->kv, pos, a->type);
        bench_fill_floats(floats, (size_t)a->dim, &run->rng);
        a->k->store_v(floats, a->dim, a->kv + a->k_bytes, pos, a->type);
    }
    for (size_t t = 1; t < threads; t++)
        memcpy(a->kv + t * a->head_bytes, a->kv, a->head_bytes);
    for (int64_t i = 0; i < a->total; i++)
        memcpy(run->stream.p + (size_t)i * a->head_bytes, a->kv, a->head_bytes);
    bench_fill_floats(floats, (size_t)a->dim * (size_t)a->heads, &run->rng);
    a->q = floats;
}

static void set_counts(const struct attention *a, int64_t kv_heads, struct bench_result *r)
{
    const double values = 2.0 * a->keys * a->dim; /* of K and V */
    r->bytes = (double)a->keys * (double)kv_heads *
               ((double)kern_kv_tile_bytes(a->type, a->dim) / TILE +
                (double)kern_kv_row_bytes(a->type, a->dim));
    r->ops = values * a->heads * (double)kv_heads;
}

static int measure_cached(struct attention *a, int i_threads, struct sl_err *err)
{
    struct bench_result r = a->common;
    a->pool = a->run->pools[i_threads];
    r.source = BENCH_CACHE;
    r.threads = pool_threads(a->pool);
    set_counts(a, r.threads, &r);
    bench_time_work(&a->run->plan->effort, from_cache, a, &r.time);
    const double peak = bench_find_peak(a->run->report, BENCH_FMA, r.level, r.threads);
    if (peak > 0) {
        r.limit = BENCH_BY_FMA;
        r.limit_s = r.ops / peak;
    }
    return bench_add_result(a->run, &r, err);
}

/* The limit is the sum of reading and computing: what a token adds for its context, if nothing
 * overlapped. */
static int measure_memory(struct attention *a, int i_threads, struct sl_err *err)
{
    struct bench_result r = a->common;
    a->pool = a->run->pools[i_threads];
    r.source = BENCH_RAM;
    r.threads = pool_threads(a->pool);
    a->at = 0;
    a->window = (int64_t)(bench_window(a->run->stream.bytes, r.threads) / a->head_bytes);
    if (a->window < r.threads)
        a->window = r.threads;
    if (a->window > a->total)
        a->window = a->total;
    set_counts(a, a->window, &r);
    bench_time_beside_ram(a->run, i_threads, from_memory, a, &r);
    const double peak = bench_find_peak(a->run->report, BENCH_FMA, r.level, r.threads);
    if (peak > 0) {
        r.limit = BENCH_BY_RAM_FMA;
        r.limit_s = r.bytes / ((r.ram_before + r.ram_after) / 2) + r.ops / peak;
    }
    return bench_add_result(a->run, &r, err);
}

static int measure_levels(struct attention *a, struct sl_err *err)
{
    const struct bench_plan *plan = a->run->plan;
    const int last = plan->n_threads - 1;
    int rc = 0;
    for (int level = 0; rc == 0 && level < KL_COUNT; level++) {
        struct kernels k, below;
        if (!plan->levels[level])
            continue;
        kernels_init(&k, (enum kern_level)level);
        bench_init_below(&below, (enum kern_level)level);
        a->k = &k;
        a->common.level = (enum kern_level)level;
        a->common.own = level == KL_SCALAR || below.attention != k.attention;
        for (int i = 0; rc == 0 && i <= last; i += last > 0 ? last : 1)
            rc = measure_cached(a, i, err);
        for (int i = 0; rc == 0 && i <= last; i++)
            rc = measure_memory(a, i, err);
    }
    return rc;
}

int bench_measure_attention(struct bench_run *run, enum kv_type type, struct sl_err *err)
{
    static const char *const names[] = {[KV_F32] = "F32", [KV_F16] = "F16", [KV_Q8_0] = "Q8_0"};
    const struct bench_plan *plan = run->plan;
    const size_t threads = (size_t)plan->threads[plan->n_threads - 1];
    const size_t dim = (size_t)plan->head_dim;
    const size_t heads = (size_t)plan->heads, keys = (size_t)plan->keys;
    struct attention a = {.run = run, .type = type, .keys = plan->keys, .heads = plan->heads};
    struct kernels k;
    if (!kern_kv_fits(type, plan->head_dim))
        return 0;
    kernels_init(&k, KL_COUNT);
    a.k = &k;
    a.dim = plan->head_dim;
    a.k_bytes = size_up(keys, TILE) / TILE * kern_kv_tile_bytes(type, a.dim);
    a.head_bytes = size_up(a.k_bytes + keys * kern_kv_row_bytes(type, a.dim), MEM_ALIGN);
    a.total = (int64_t)(run->stream.bytes / a.head_bytes);
    if (a.total < 1)
        return err_set(err, SL_E_ARG, "--buffer",
                       "--buffer: %llu bytes do not hold %d keys of %d values",
                       (unsigned long long)run->stream.bytes, plan->keys, plan->head_dim);
    a.common = (struct bench_result){.kernel = BENCH_ATTENTION,
                                     .type = names[type],
                                     .tokens = 1,
                                     .rows = plan->keys,
                                     .cols = plan->head_dim};
    a.out_thread = size_up(heads * dim, MEM_ALIGN / sizeof(float));
    a.scratch_thread = size_up(kern_attn_scratch(plan->heads, plan->head_dim, plan->head_dim), 16);
    const double need = (double)a.head_bytes + (double)(a.out_thread + a.scratch_thread) * 4;
    int rc = bench_check_memory(run, need * (double)threads, err);
    if (rc != 0)
        return rc;
    float *floats = mem_alloc(heads * dim * sizeof(float));
    a.kv = mem_alloc(a.head_bytes * threads);
    a.out = mem_alloc(a.out_thread * threads * sizeof(float));
    a.scratch = mem_alloc(a.scratch_thread * threads * sizeof(float));
    if (!floats || !a.kv || !a.out || !a.scratch)
        rc = err_set(err, SL_E_MEM, "bench", "no memory for %zu heads of %zu keys", threads, keys);
    if (rc == 0) {
        fill_heads(&a, threads, floats);
        rc = measure_levels(&a, err);
    }
    mem_free(floats);
    mem_free(a.kv);
    mem_free(a.out);
    mem_free(a.scratch);
    return rc;
}
