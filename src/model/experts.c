/* experts.c: one group of experts, from packed inputs to outputs. */
#include <string.h>

#include "model/forward.h"
#include "model/moe.h"

/* Rows of gate, up or down that one work item covers. */
#define UNIT_DECODE 64
#define UNIT_BATCH  32

/* Which job a row of the group belongs to. */
static const struct moe_job *job_of_row(const struct expert_group *g, int row)
{
    const struct moe_job *j = g->f->jobs;
    while (row >= j->row + j->n)
        j++;
    return j;
}

static void gather_range(void *arg, int64_t begin, int64_t end, int tid)
{
    (void)tid;
    const struct expert_group *g = arg;
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
static const struct moe_job *job_after(const struct expert_group *g, const struct moe_job *j)
{
    return j + 1 < g->f->jobs + g->n_jobs ? j + 1 : NULL;
}

/* Items are (job, matrix, rows): consecutive items of a job walk gate's rows, then up's. */
static void gate_up_range(void *arg, int64_t begin, int64_t end, int tid)
{
    const struct expert_group *g = arg;
    const struct layer *l = g->l;
    struct forward *f = g->f;
    int ff = l->gate_exps.n_out, per = (ff + g->unit - 1) / g->unit;
    forward_keep_reading(f, tid);
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
    struct expert_group *g = arg;
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
    const struct expert_group *g = arg;
    struct forward *f = g->f;
    int n = g->l->down_exps.n_out, per = (n + g->unit - 1) / g->unit;
    forward_keep_reading(f, tid);
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
    const struct expert_group *g = arg;
    struct forward *f = g->f;
    size_t n = (size_t)f->m->cfg.n_embd;
    for (int64_t r = begin; r < end; r++) {
        const struct moe_job *j = job_of_row(g, (int)r);
        int entry = j->entry + (int)r - j->row;
        f->k->axpy(f->entry_w[entry], f->expert_out + (size_t)r * n, (int)n,
                   f->h + (size_t)f->entry_tok[entry] * n);
    }
}

int experts_compute(struct expert_group *g, int il, struct sl_err *err)
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
    for (int i = 0; f->cache && i < g->n_jobs; i++) {
        int rc = cache_pass_await(f->cache, f->jobs[i].index, err);
        if (rc < 0)
            return rc;
    }
    pool_for(f->pool, (int64_t)g->n_jobs * ((n + g->unit - 1) / g->unit), 1, down_range, g);
    if (g->wide)
        pool_for(f->pool, g->n_rows, 4, accumulate_range, g);
    return 0;
}

void experts_start(struct expert_group *g, struct forward *f, const struct layer *l, bool wide)
{
    *g = (struct expert_group){.f = f, .l = l, .wide = wide};
}

void experts_add(struct expert_group *g, int index, const struct expert_view *v)
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
