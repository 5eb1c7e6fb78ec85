/* Routing, and the experts: leased from the cache (or in memory), computed in groups, added in
 * rising id.
 *
 * An entry is one (token, expert) pair. Entries are sorted by expert, then token, so that an
 * expert's tokens are neighbours in every buffer. A narrow batch computes experts as they become
 * ready and keeps every entry's output until all are there; a wide one (FORWARD_WIDE_BYTES) takes
 * experts in rising id and adds at once. Both give the bytes of docs/arithmetic.md, experts. */
#include "model/moe.h"

#include <string.h>

#include "base/clock.h"
#include "model/forward.h"

/* Rows of gate, up or down that one work item covers. */
#define UNIT_DECODE 64
#define UNIT_BATCH  32
/* Read ahead into the next layer where this one used at least 7/8 of its bank. */
#define AHEAD_NUM 7
#define AHEAD_DEN 8

/* ---- Routing ---- */

struct route_args {
    struct forward *f;
    _Atomic bool bad;
};

/* Softmax, choice, weights: binary32 probabilities are ranked; the chosen ones are divided by their
 * sum in rank order, then scaled. */
static void route_range(void *arg, int64_t begin, int64_t end, int tid)
{
    (void)tid;
    struct route_args *a = arg;
    struct forward *f = a->f;
    const struct model_config *c = &f->m->cfg;
    int n = c->n_expert, k = c->n_expert_used;
    for (int64_t t = begin; t < end; t++) {
        float *s = f->router + t * n, *w = f->weights + t * k;
        int32_t *ids = f->ids + t * k;
        if (!f->k->softmax(s, n)) {
            atomic_store_explicit(&a->bad, true, memory_order_relaxed);
            memset(ids, 0, (size_t)k * sizeof *ids);
            continue;
        }
        kern_topk(s, n, k, ids);
        float sum = s[ids[0]];
        for (int i = 1; i < k; i++)
            sum = sum + s[ids[i]];
        for (int i = 0; i < k; i++) {
            w[i] = s[ids[i]] / sum;
            if (c->expert_scale != 1.0f)
                w[i] = w[i] * c->expert_scale;
        }
    }
}

/* Sort this batch's entries by expert; returns the number of distinct experts. */
static int build_entries(struct forward *f)
{
    const struct model_config *c = &f->m->cfg;
    int n = c->n_expert, k = c->n_expert_used, n_entry = f->n_tok * k, n_union = 0;
    memset(f->count, 0, (size_t)n * sizeof *f->count);
    for (int i = 0; i < n_entry; i++)
        f->count[f->ids[i]]++;
    int at = 0;
    for (int e = 0; e < n; e++) {
        f->first[e] = at;
        at += f->count[e];
        if (f->count[e]) {
            f->union_ids[n_union] = e;
            f->union_counts[n_union++] = f->count[e];
        }
    }
    f->first[n] = at;
    memset(f->count, 0, (size_t)n * sizeof *f->count);
    for (int t = 0; t < f->n_tok; t++)
        for (int i = 0; i < k; i++) {
            int e = f->ids[t * k + i], entry = f->first[e] + f->count[e]++;
            f->entry_tok[entry] = t;
            f->entry_w[entry] = f->weights[t * k + i];
        }
    return n_union;
}

static void sort_token(int32_t *v, int k)
{
    for (int i = 1; i < k; i++) {
        int32_t x = v[i];
        int j = i - 1;
        for (; j >= 0 && v[j] > x; j--)
            v[j + 1] = v[j];
        v[j + 1] = x;
    }
}

/* ids of each token ascending, entries likewise. */
static void sort_tokens(struct forward *f, int il)
{
    int k = f->m->cfg.n_expert_used;
    memset(f->count, 0, (size_t)f->m->cfg.n_expert * sizeof *f->count);
    for (int t = 0; t < f->n_tok; t++) {
        int32_t *ids = f->ids + (size_t)t * (size_t)k;
        sort_token(ids, k);
        for (int i = 0; i < k; i++)
            f->tok_entry[t * k + i] = f->first[ids[i]] + f->count[ids[i]]++;
        if (f->on_experts)
            f->on_experts(f->user, f->pos0 + t, il, ids, k);
    }
}

static int route(struct forward *f, int il, int *n_union, struct sl_err *err)
{
    const struct layer *l = &f->m->layers[il];
    const struct model_config *c = &f->m->cfg;
    int rc = forward_pack(f, l->router.kernel->act, f->h, (size_t)c->n_embd, c->n_embd, f->n_tok,
                          il, "router input", err);
    if (rc < 0)
        return rc;
    struct product p = {&l->router, f->router, (size_t)c->n_expert};
    forward_products(f, &p, 1, f->packed, f->packed_stride, f->n_tok);
    struct route_args a = {.f = f};
    pool_for(f->pool, f->n_tok, 8, route_range, &a);
    if (a.bad)
        return forward_numeric(err, il, "router's scores");
    *n_union = build_entries(f);
    sort_tokens(f, il);
    return forward_pack(f, l->gate_exps.kernel->act, f->h, (size_t)c->n_embd, c->n_embd, f->n_tok,
                        il, "expert input", err);
}

/* ---- A group of experts ---- */

struct group {
    struct forward *f;
    const struct layer *l;
    int n_jobs, n_rows;
    int unit;
    const uint8_t *x; /* packed rows of the group */
    size_t x_stride;
    bool wide;
    _Atomic bool bad;
};

/* Which job a row of the group belongs to. */
static const struct moe_job *job_of_row(const struct group *g, int row)
{
    const struct moe_job *j = g->f->jobs;
    while (row >= j->row + j->n)
        j++;
    return j;
}

static void gather_range(void *arg, int64_t begin, int64_t end, int tid)
{
    (void)tid;
    const struct group *g = arg;
    struct forward *f = g->f;
    for (int64_t r = begin; r < end; r++) {
        const struct moe_job *j = job_of_row(g, (int)r);
        int t = f->entry_tok[j->entry + (int)r - j->row];
        memcpy(f->gathered + (size_t)r * f->gathered_stride,
               f->packed + (size_t)t * f->packed_stride,
               act_bytes(f->packed_kind, f->m->cfg.n_embd));
    }
}

/* Rows [r0, r1) of an expert's matrix at data; after: what comes behind its last row, or NULL. */
static void multiply(const struct weight *w, int expert, const uint8_t *data, const uint8_t *after,
                     int r0, int r1, const uint8_t *x, size_t x_stride, int n_tok, float *y,
                     size_t y_stride)
{
    bool more = r1 < w->n_out;
    struct mat_args m = {.w = data + (size_t)r0 * w->row_bytes,
                         .row_bytes = w->row_bytes,
                         .n_rows = r1 - r0,
                         .n_cols = w->n_in,
                         .x = x,
                         .x_stride = x_stride,
                         .n_tok = n_tok,
                         .y = y + r0,
                         .y_stride = y_stride,
                         .next = more ? data + (size_t)r1 * w->row_bytes : after,
                         .next_bytes = more    ? (size_t)(w->n_out - r1) * w->row_bytes
                                       : after ? (size_t)w->n_out * w->row_bytes
                                               : 0};
    (n_tok == 1 ? w->kernel->gemv : w->kernel->gemm)(&m);
    for (int t = 0; w->scale && t < n_tok; t++)
        forward_finish(w, expert, r0, r1, m.y + (size_t)t * y_stride);
}

/* The job behind j in the group; NULL: j is the last. */
static const struct moe_job *job_after(const struct group *g, const struct moe_job *j)
{
    return j + 1 < g->f->jobs + g->n_jobs ? j + 1 : NULL;
}

/* Items are (job, matrix, rows): consecutive items of a job walk gate's rows, then up's. */
static void gate_up_range(void *arg, int64_t begin, int64_t end, int tid)
{
    (void)tid;
    const struct group *g = arg;
    const struct layer *l = g->l;
    struct forward *f = g->f;
    int ff = l->gate_exps.n_out, per = (ff + g->unit - 1) / g->unit;
    for (int64_t i = begin; i < end; i++) {
        const struct moe_job *j = &f->jobs[i / (2 * per)];
        int at = (int)(i % (2 * per)), up = at >= per, r0 = (at - up * per) * g->unit;
        int r1 = r0 + g->unit < ff ? r0 + g->unit : ff;
        const struct weight *w = up ? &l->up_exps : &l->gate_exps;
        const struct moe_job *next = job_after(g, j);
        const uint8_t *after = !up ? j->up : next ? next->gate : NULL;
        float *y = (up ? f->up : f->gate) + (size_t)j->row * (size_t)ff;
        multiply(w, j->expert, up ? j->up : j->gate, after, r0, r1,
                 g->x + (size_t)j->row * g->x_stride, g->x_stride, j->n, y, (size_t)ff);
    }
}

static void activate_range(void *arg, int64_t begin, int64_t end, int tid)
{
    (void)tid;
    struct group *g = arg;
    struct forward *f = g->f;
    int ff = g->l->gate_exps.n_out;
    enum act_kind kind = g->l->down_exps.kernel->act;
    for (int64_t r = begin; r < end; r++) {
        float *gate = f->gate + (size_t)r * (size_t)ff;
        f->k->swiglu(gate, f->up + (size_t)r * (size_t)ff, ff, gate);
        if (!act_pack(f->k, kind, gate, ff, f->gathered + (size_t)r * f->gathered_stride))
            atomic_store_explicit(&g->bad, true, memory_order_relaxed);
    }
}

static void down_range(void *arg, int64_t begin, int64_t end, int tid)
{
    (void)tid;
    const struct group *g = arg;
    struct forward *f = g->f;
    int n = g->l->down_exps.n_out, per = (n + g->unit - 1) / g->unit;
    for (int64_t i = begin; i < end; i++) {
        const struct moe_job *j = &f->jobs[i / per];
        int r0 = (int)(i % per) * g->unit, r1 = r0 + g->unit < n ? r0 + g->unit : n;
        const struct moe_job *next = job_after(g, j);
        float *y = f->expert_out + (size_t)(g->wide ? j->row : j->entry) * (size_t)n;
        multiply(&g->l->down_exps, j->expert, j->down, next ? next->down : NULL, r0, r1,
                 f->gathered + (size_t)j->row * f->gathered_stride, f->gathered_stride, j->n, y,
                 (size_t)n);
    }
}

/* Wide: one expert's outputs into the accumulators (f->att's rows are too short in general, so h
 * holds them: the batch's input is packed by now). */
static void accumulate_range(void *arg, int64_t begin, int64_t end, int tid)
{
    (void)tid;
    const struct group *g = arg;
    struct forward *f = g->f;
    size_t n = (size_t)f->m->cfg.n_embd;
    for (int64_t r = begin; r < end; r++) {
        const struct moe_job *j = job_of_row(g, (int)r);
        int entry = j->entry + (int)r - j->row;
        f->k->axpy(f->entry_w[entry], f->expert_out + (size_t)r * n, (int)n,
                   f->h + (size_t)f->entry_tok[entry] * n);
    }
}

static int compute_group(struct group *g, int il, struct sl_err *err)
{
    struct forward *f = g->f;
    bool batch = f->n_tok > 1;
    g->unit = g->n_rows > g->n_jobs ? UNIT_BATCH : UNIT_DECODE;
    g->x = f->packed;
    g->x_stride = batch ? f->gathered_stride : 0; /* one token: every job reads its only row */
    if (batch) {
        pool_for(f->pool, g->n_rows, 4, gather_range, g);
        g->x = f->gathered;
    }
    int ff = g->l->gate_exps.n_out, n = g->l->down_exps.n_out;
    pool_for(f->pool, (int64_t)g->n_jobs * 2 * ((ff + g->unit - 1) / g->unit), 1, gate_up_range, g);
    pool_for(f->pool, g->n_rows, 1, activate_range, g);
    if (g->bad)
        return forward_numeric(err, il, "expert's activation");
    pool_for(f->pool, (int64_t)g->n_jobs * ((n + g->unit - 1) / g->unit), 1, down_range, g);
    if (g->wide)
        pool_for(f->pool, g->n_rows, 4, accumulate_range, g);
    return 0;
}

static void group_start(struct group *g, struct forward *f, const struct layer *l, bool wide)
{
    *g = (struct group){.f = f, .l = l, .wide = wide};
}

/* Add expert `index` of the union to the group; the caller checked that its rows fit. */
static void group_add(struct group *g, int index, const struct expert_view *v)
{
    struct forward *f = g->f;
    int e = f->union_ids[index];
    f->jobs[g->n_jobs++] = (struct moe_job){.gate = v->part[0],
                                            .up = v->part[1],
                                            .down = v->part[2],
                                            .index = index,
                                            .expert = e,
                                            .entry = f->first[e],
                                            .row = g->n_rows,
                                            .n = f->union_counts[index]};
    g->n_rows += f->union_counts[index];
}

/* Narrow: outputs of each token's experts in rising id, then the residual. */
static void combine_range(void *arg, int64_t begin, int64_t end, int tid)
{
    (void)tid;
    const struct group *g = arg;
    struct forward *f = g->f;
    size_t n = (size_t)f->m->cfg.n_embd;
    int k = f->m->cfg.n_expert_used;
    for (int64_t t = begin; t < end; t++) {
        float *y = f->h + (size_t)t * n, *x = f->x + (size_t)t * n;
        if (!g->wide) {
            memset(y, 0, n * sizeof *y);
            for (int i = 0; i < k; i++) {
                int entry = f->tok_entry[t * k + i];
                f->k->axpy(f->entry_w[entry], f->expert_out + (size_t)entry * n, (int)n, y);
            }
        }
        f->k->add(x, y, (int)n, x);
    }
}

/* ---- A layer ---- */

static int resident_experts(struct forward *f, int il, int n_union, bool wide, struct sl_err *err)
{
    const struct layer *l = &f->m->layers[il];
    struct group g;
    int rc = 0;
    for (int i = 0; i < n_union && rc == 0;) {
        group_start(&g, f, l, wide);
        do {
            size_t e = (size_t)f->union_ids[i];
            struct expert_view v = {{l->gate_exps.data + e * l->gate_stride,
                                     l->up_exps.data + e * l->up_stride,
                                     l->down_exps.data + e * l->down_stride}};
            group_add(&g, i++, &v);
        } while (!wide && i < n_union && g.n_rows + f->union_counts[i] <= f->group_rows);
        rc = compute_group(&g, il, err);
    }
    return rc;
}

/* Take what is ready without waiting, as far as the group's rows allow; waits for the first. */
static int next_group(struct forward *f, struct group *g, bool *done, struct sl_err *err)
{
    int rc = 1, most = g->wide ? 1 : f->n_tok == 1 ? f->m->cfg.n_expert_used : f->group_rows;
    while (g->n_jobs < most) {
        int index;
        struct expert_view v;
        rc = g->n_jobs == 0 ? cache_pass_next(f->cache, &index, &v, err)
                            : cache_pass_try(f->cache, f->group_rows - g->n_rows, &index, &v, err);
        if (rc <= 0 || rc == CACHE_NOT_READY)
            break;
        group_add(g, index, &v);
    }
    *done = rc == 0;
    return rc < 0 ? rc : 0;
}

static int streamed_experts(struct forward *f, int il, int n_union, bool wide, struct sl_err *err)
{
    const struct layer *l = &f->m->layers[il];
    struct group g;
    bool done = false;
    double t0 = clock_now();
    int rc = cache_pass_begin(f->cache, il, f->union_ids, f->union_counts, n_union,
                              wide ? CACHE_ASCENDING : CACHE_AS_READY, err);
    if (rc < 0) {
        f->cache_call_s += clock_now() - t0;
        return rc;
    }
    while (rc == 0 && !done) {
        group_start(&g, f, l, wide);
        rc = next_group(f, &g, &done, err);
        double t1 = clock_now();
        f->cache_call_s += t1 - t0;
        if (rc == 0 && g.n_jobs)
            rc = compute_group(&g, il, err);
        t0 = clock_now();
        for (int i = 0; i < g.n_jobs; i++)
            cache_pass_release(f->cache, f->jobs[i].index);
    }
    cache_pass_end(f->cache);
    if (rc == 0 && f->prompt && n_union * AHEAD_DEN >= f->m->cfg.n_expert * AHEAD_NUM &&
        il + 1 < f->m->cfg.n_layer)
        cache_read_ahead(f->cache, il + 1);
    f->cache_call_s += clock_now() - t0;
    return rc;
}

int forward_moe(struct forward *f, int il, struct sl_err *err)
{
    const struct model_config *c = &f->m->cfg;
    int n_union = 0, rc = route(f, il, &n_union, err);
    if (rc < 0)
        return rc;
    size_t outputs = (size_t)f->n_tok * (size_t)c->n_expert_used * (size_t)c->n_embd *
                     sizeof(float);
    bool wide = outputs > FORWARD_WIDE_BYTES;
    if (wide)
        memset(f->h, 0, (size_t)f->n_tok * (size_t)c->n_embd * sizeof(float));
    rc = f->cache ? streamed_experts(f, il, n_union, wide, err)
                  : resident_experts(f, il, n_union, wide, err);
    f->packed_src = NULL;
    if (rc < 0)
        return rc;
    struct group g;
    group_start(&g, f, &f->m->layers[il], wide);
    pool_for(f->pool, f->n_tok, 4, combine_range, &g);
    return 0;
}
