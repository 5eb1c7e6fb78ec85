/* kernels.c: the products of one weight type at every level of the plan: one token from cache and
 * from memory, several tokens.
 *
 * From cache every thread multiplies a matrix of its own again and again, with as many of the
 * plan's rows as fit into its second level cache. From memory the threads walk through one long
 * buffer, a matrix at a time, each one cold. Several tokens: every thread has its own matrix, the
 * tokens are the same for all, as in a prompt. */
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "bench/parts.h"

#define L2_GUESS  ((uint64_t)512 << 10) /* where the system does not tell */
#define ROW_GROUP 16                    /* rows that kernels put side by side, at most */

struct product {
    struct bench_run *run;
    struct pool *pool;
    mat_fn *fn;
    enum quant_type type;
    enum act_kind act;
    struct bench_result common; /* what all results of this type and level share */
    int cols, rows;             /* rows: of one call of fn at most */
    size_t row_bytes;
    const uint8_t *x;
    size_t x_stride;
    int tokens;
    float *y; /* rows * tokens for each thread */
    size_t y_thread;
    const uint8_t *w; /* one matrix for each thread */
    size_t w_thread;
    int64_t calls;
    double cache_rate;         /* bytes per second of one thread and one token */
    int64_t at, total, window; /* from memory, in rows: next, in the buffer, of one call */
};

static void multiply(const struct product *p, const uint8_t *w, int64_t rows, int tid)
{
    const struct mat_args a = {.w = w,
                               .row_bytes = p->row_bytes,
                               .n_rows = (int)rows,
                               .n_cols = p->cols,
                               .x = p->x,
                               .x_stride = p->x_stride,
                               .n_tok = p->tokens,
                               .y = p->y + p->y_thread * (size_t)tid,
                               .y_stride = (size_t)p->rows};
    p->fn(&a);
}

static void own_matrix(void *arg, int tid)
{
    const struct product *p = arg;
    for (int64_t i = 0; i < p->calls; i++)
        multiply(p, p->w + p->w_thread * (size_t)tid, p->rows, tid);
}

static void from_cache(void *arg, int64_t calls)
{
    struct product *p = arg;
    p->calls = calls;
    pool_run(p->pool, own_matrix, p);
}

/* Items are matrices, or parts of one where a window has too few for its threads. */
static void walk_items(void *arg, int64_t begin, int64_t end, int tid)
{
    const struct product *p = arg;
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = p->at + i * p->rows, left = p->at + p->window - row;
        multiply(p, p->run->stream.p + (size_t)row * p->row_bytes, left < p->rows ? left : p->rows,
                 tid);
    }
}

static void from_memory(void *arg, int64_t calls)
{
    struct product *p = arg;
    for (int64_t i = 0; i < calls; i++) {
        if (p->at + p->window > p->total)
            p->at = 0;
        pool_for(p->pool, (p->window + p->rows - 1) / p->rows, 1, walk_items, p);
        p->at += p->window;
    }
}

/* ---- Limits ---- */

/* Least seconds for this many multiply-adds. */
static void set_arithmetic_limit(const struct bench_run *run, enum act_kind act,
                                 struct bench_result *r)
{
    const enum bench_unit unit = act == ACT_F32 ? BENCH_FMA : BENCH_INT8;
    const double peak = bench_find_peak(run->report, unit, r->level, r->threads);
    if (peak > 0) {
        r->limit = unit == BENCH_FMA ? BENCH_BY_FMA : BENCH_BY_INT8;
        r->limit_s = r->ops / peak;
    }
}

/* The slower of memory and of what the same kernel does from cache on one thread, times threads. */
static void set_memory_limit(double cache_rate, struct bench_result *r)
{
    const double ram = (r->ram_before + r->ram_after) / 2, cache = cache_rate * r->threads;
    r->limit = ram < cache ? BENCH_BY_RAM : BENCH_BY_CACHE;
    r->limit_s = r->bytes / (ram < cache ? ram : cache);
}

void bench_time_beside_ram(struct bench_run *run, int i_threads, bench_work *fn, void *arg,
                           struct bench_result *out)
{
    struct pool *pool = run->pools[i_threads];
    struct bench_effort few = run->plan->effort;
    few.reps = few.reps < 5 ? few.reps : 5;
    struct bench_stream s = run->stream;
    struct bench_time t;
    s.window = bench_window(s.bytes, pool_threads(pool));
    double bytes = bench_time_ram(pool, &s, run->report->level, &few, &t);
    out->ram_before = bytes / t.median;
    bench_time_work(&run->plan->effort, fn, arg, &out->time);
    bytes = bench_time_ram(pool, &s, run->report->level, &few, &t);
    out->ram_after = bytes / t.median;
}

/* ---- Buffers ---- */

struct buffers {
    uint8_t *w, *x;
    float *y, *floats;
};

static void free_buffers(struct buffers *b)
{
    mem_free(b->w);
    mem_free(b->x);
    mem_free(b->y);
    mem_free(b->floats);
}

static int most_tokens(const struct bench_plan *plan)
{
    int most = 1;
    for (int i = 0; i < plan->n_tokens; i++)
        most = plan->tokens[i] > most ? plan->tokens[i] : most;
    return most;
}

/* Rows of the type: one stretch of random ones, repeated. */
static void fill_rows(struct bench_run *run, const struct product *p, uint8_t *w, uint64_t rows)
{
    uint64_t unique = ((uint64_t)1 << 20) / p->row_bytes + 1;
    unique = unique < rows ? unique : rows;
    bench_fill_weights(p->type, w, (size_t)unique * p->row_bytes, &run->rng);
    for (uint64_t at = unique; at < rows; at += unique) {
        const uint64_t n = rows - at < unique ? rows - at : unique;
        memcpy(w + at * p->row_bytes, w, (size_t)n * p->row_bytes);
    }
}

/* Memory for all thread and token counts. */
static int make_buffers(struct product *p, struct buffers *b, struct sl_err *err)
{
    const struct bench_plan *plan = p->run->plan;
    const size_t threads = (size_t)plan->threads[plan->n_threads - 1];
    const size_t tokens = (size_t)most_tokens(plan), rows = (size_t)plan->rows;
    /* An odd number of lines apart, so that threads' matrices do not begin at the same place of a
     * page. */
    p->w_thread = size_up(p->row_bytes * rows, 2 * MEM_ALIGN) + MEM_ALIGN;
    p->y_thread = size_up(rows * tokens, MEM_ALIGN / sizeof(float));
    p->x_stride = size_up(act_bytes(p->act, p->cols), 64);
    const double need = (double)(p->w_thread + p->y_thread * sizeof(float)) * (double)threads +
                        (double)(p->x_stride * tokens);
    *b = (struct buffers){0};
    const int rc = bench_check_memory(p->run, need, err);
    if (rc != 0)
        return rc;
    *b = (struct buffers){.w = mem_alloc(p->w_thread * threads),
                          .x = mem_alloc(p->x_stride * tokens),
                          .y = mem_calloc(p->y_thread * threads, sizeof(float)),
                          .floats = mem_alloc((size_t)p->cols * sizeof(float))};
    if (!b->w || !b->x || !b->y || !b->floats)
        return err_set(err, SL_E_MEM, "bench",
                       "no memory for %zu matrices of %zux%d and %zu tokens", threads, rows,
                       p->cols, tokens);
    for (size_t t = 0; t < threads; t++)
        fill_rows(p->run, p, b->w + t * p->w_thread, rows);
    p->w = b->w;
    p->x = b->x;
    p->y = b->y;
    return 0;
}

static int pack_tokens(const struct product *p, const struct kernels *k, struct buffers *b,
                       struct sl_err *err)
{
    uint64_t rng = p->run->plan->seed;
    for (int t = 0; t < most_tokens(p->run->plan); t++) {
        bench_fill_floats(b->floats, (size_t)p->cols, &rng);
        if (!act_pack(k, p->act, b->floats, p->cols, b->x + (size_t)t * p->x_stride))
            return err_set(err, SL_E_INTERNAL, "bench", "finite activations were refused");
    }
    return 0;
}

/* ---- One type at one level ---- */

/* Rows whose weights stay in a thread's second level cache beside activations and results. */
static int cached_rows(const struct product *p)
{
    const uint64_t known = p->run->report->machine.l2, l2 = known ? known : L2_GUESS;
    const uint64_t fit = size_down(l2 * 9 / 10 / p->row_bytes, ROW_GROUP);
    const int rows = p->run->plan->rows;
    return fit >= (uint64_t)rows ? rows : fit > ROW_GROUP ? (int)fit : ROW_GROUP;
}

static int measure_cached(struct product *p, int i_threads, int tokens, struct sl_err *err)
{
    struct bench_result r = p->common;
    p->pool = p->run->pools[i_threads];
    p->tokens = tokens;
    p->rows = tokens == 1 ? cached_rows(p) : p->run->plan->rows;
    if (p->rows > p->run->plan->rows)
        p->rows = p->run->plan->rows;
    r.kernel = tokens == 1 ? BENCH_GEMV : BENCH_GEMM;
    r.source = BENCH_CACHE;
    r.threads = pool_threads(p->pool);
    r.tokens = tokens;
    r.rows = p->rows;
    r.bytes = (double)p->row_bytes * p->rows * r.threads;
    r.ops = (double)p->rows * p->cols * tokens * r.threads;
    bench_time_work(&p->run->plan->effort, from_cache, p, &r.time);
    set_arithmetic_limit(p->run, p->act, &r);
    if (tokens == 1 && i_threads == 0)
        p->cache_rate = r.bytes / r.time.median / r.threads;
    return bench_add_result(p->run, &r, err);
}

static int measure_memory(struct product *p, int i_threads, struct sl_err *err)
{
    struct bench_run *run = p->run;
    struct bench_result r = p->common;
    p->pool = run->pools[i_threads];
    p->tokens = 1;
    r.threads = pool_threads(p->pool);
    p->at = 0;
    p->total = (int64_t)(run->stream.bytes / p->row_bytes);
    p->window = (int64_t)(bench_window(run->stream.bytes, r.threads) / p->row_bytes);
    if (p->window < ROW_GROUP)
        p->window = ROW_GROUP;
    if (p->total < p->window)
        return err_set(err, SL_E_ARG, "--buffer", "--buffer: %llu bytes do not hold %d rows of %s",
                       (unsigned long long)run->stream.bytes, ROW_GROUP, r.type);
    /* At least eight items for each thread. */
    const int64_t most = (int64_t)size_down((uint64_t)(p->window / (8 * r.threads)), ROW_GROUP);
    p->rows = run->plan->rows < most ? run->plan->rows : most > ROW_GROUP ? (int)most : ROW_GROUP;
    if (p->rows > run->plan->rows)
        p->rows = run->plan->rows;
    r.kernel = BENCH_GEMV;
    r.source = BENCH_RAM;
    r.tokens = 1;
    r.rows = p->rows;
    r.bytes = (double)p->row_bytes * (double)p->window;
    r.ops = (double)p->window * p->cols;
    bench_time_beside_ram(run, i_threads, from_memory, p, &r);
    set_memory_limit(p->cache_rate, &r);
    return bench_add_result(run, &r, err);
}

/* From cache with the least and the most threads, from memory with all counts between. */
static int measure_level(struct product *p, const struct mat_kernel *k, struct sl_err *err)
{
    const struct bench_plan *plan = p->run->plan;
    const int last = plan->n_threads - 1;
    int rc = 0;
    p->fn = k->gemv;
    for (int i = 0; rc == 0 && i <= last; i += last > 0 ? last : 1)
        rc = measure_cached(p, i, 1, err);
    for (int i = 0; rc == 0 && i <= last; i++)
        rc = measure_memory(p, i, err);
    p->fn = k->gemm;
    for (int t = 0; t < plan->n_tokens; t++)
        for (int i = 0; rc == 0 && i <= last; i += last > 0 ? last : 1)
            rc = measure_cached(p, i, plan->tokens[t], err);
    return rc;
}

/* Does a level bring a function of its own, or is it that of the one below? */
static bool is_own(const struct kernels *k, enum quant_type type)
{
    struct kernels below;
    bench_init_below(&below, k->level);
    return k->level == KL_SCALAR || below.mat[type].gemv != k->mat[type].gemv ||
           below.mat[type].gemm != k->mat[type].gemm;
}

int bench_measure_products(struct bench_run *run, enum quant_type type, struct sl_err *err)
{
    const struct bench_plan *plan = run->plan;
    struct product p = {.run = run, .type = type, .cols = plan->cols};
    struct buffers b;
    struct kernels k;
    kernels_init(&k, KL_SCALAR);
    p.act = k.mat[type].act;
    p.row_bytes = (size_t)quant_row_bytes(type, (uint64_t)plan->cols);
    p.common = (struct bench_result){.type = quant_type_info(type)->name, .cols = plan->cols};
    int rc = make_buffers(&p, &b, err);
    if (rc == 0)
        fill_rows(run, &p, run->stream.p, run->stream.bytes / p.row_bytes);
    for (int level = 0; rc == 0 && level < KL_COUNT; level++) {
        if (!plan->levels[level])
            continue;
        kernels_init(&k, (enum kern_level)level);
        p.common.level = (enum kern_level)level;
        p.common.own = is_own(&k, type);
        rc = pack_tokens(&p, &k, &b, err);
        if (rc == 0)
            rc = measure_level(&p, &k.mat[type], err);
    }
    free_buffers(&b);
    return rc;
}
