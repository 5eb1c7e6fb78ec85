/* A layer of experts: routed, leased from the cache (or in memory), computed in groups, added in
 * rising id.
 *
 * A narrow batch computes experts as they become ready and keeps every entry's output until all are
 * there; a wide one (FORWARD_WIDE_BYTES) takes experts in rising id and adds at once. Both give the
 * bytes of docs/arithmetic.md, experts. */
#include "model/moe.h"

#include <string.h>

#include "model/forward.h"
#include "model/watch.h"

/* Narrow: outputs of each token's experts in rising id, then the residual. */
static void combine_range(void *arg, int64_t begin, int64_t end, int tid)
{
    (void)tid;
    const struct expert_group *g = arg;
    struct forward *f = g->f;
    size_t n = (size_t)f->m->cfg.n_embd;
    int k = f->m->cfg.n_expert_used;
    for (int64_t t = begin; t < end; t++) {
        float *y = f->h + (size_t)t * n, *x = f->x + (size_t)t * n;
        if (!g->wide) {
            memset(y, 0, n * sizeof *y);
            for (int i = 0; i < f->used[t]; i++) {
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
    struct expert_group g;
    int rc = 0;
    watch_enter(f, SL_OP_EXPERTS);
    for (int i = 0; i < n_union && rc == 0;) {
        experts_start(&g, f, l, wide);
        do {
            size_t e = (size_t)f->union_ids[i];
            size_t step = l->packed_stride; /* 0: each matrix has its experts one by one */
            struct expert_view v = {{l->gate_exps.data + e * (step ? step : l->gate_stride),
                                     l->up_exps.data + e * (step ? step : l->up_stride),
                                     l->down_exps.data + e * (step ? step : l->down_stride)}};
            experts_add(&g, i++, &v);
        } while (!wide && i < n_union && g.n_rows + f->union_counts[i] <= f->group_rows);
        rc = experts_compute(&g, il, err);
    }
    return rc;
}

/* Take what is ready without waiting, as far as the group's rows allow; waits for the first. */
static int next_group(struct forward *f, struct expert_group *g, bool *done, struct sl_err *err)
{
    int rc = 1, most = g->wide         ? 1
                       : f->n_tok == 1 ? f->m->cfg.n_expert_used
                                       : cache_hold_most(f->cache);
    while (g->n_jobs < most) {
        int index;
        struct expert_view v;
        rc = g->n_jobs == 0 ? cache_pass_next(f->cache, &index, &v, err)
                            : cache_pass_try(f->cache, f->group_rows - g->n_rows, &index, &v, err);
        if (rc <= 0 || rc == CACHE_NOT_READY)
            break;
        if (f->union_counts[index] == 0) { /* read for nothing: load_all */
            if ((rc = cache_pass_await(f->cache, index, err)) < 0)
                break;
            cache_pass_release(f->cache, index);
            continue;
        }
        experts_add(g, index, &v);
    }
    *done = rc == 0;
    return rc < 0 ? rc : 0;
}

static int streamed_experts(struct forward *f, int il, int n_union, bool wide, struct sl_err *err)
{
    const struct layer *l = &f->m->layers[il];
    struct expert_group g;
    bool done = false;
    watch_enter(f, SL_OP_CACHE);
    cache_note_routing(f->cache, il, f->ids, f->n_tok, f->m->cfg.n_expert_used);
    int rc = cache_pass_begin(f->cache, il, f->union_ids, f->union_counts, n_union,
                              wide ? CACHE_ASCENDING : CACHE_AS_READY, err);
    if (rc < 0)
        return rc;
    peek_tell_cache(f, il);
    while (rc == 0 && !done) {
        experts_start(&g, f, l, wide);
        rc = next_group(f, &g, &done, err);
        if (rc == 0 && g.n_jobs) {
            watch_enter(f, SL_OP_EXPERTS);
            rc = experts_compute(&g, il, err);
            watch_enter(f, SL_OP_CACHE);
        }
        for (int i = 0; i < g.n_jobs; i++)
            cache_pass_release(f->cache, f->jobs[i].index);
    }
    cache_pass_end(f->cache);
    return rc;
}

int forward_moe(struct forward *f, int il, struct sl_err *err)
{
    const struct model_config *c = &f->m->cfg;
    watch_enter(f, SL_OP_ROUTER);
    int n_union = 0, rc = route_batch(f, il, &n_union, err);
    if (rc == 0)
        rc = forward_pack(f, f->m->layers[il].gate_exps.kernel->act, f->h, (size_t)c->n_embd,
                          c->n_embd, f->n_tok, il, "expert input", err);
    if (rc < 0)
        return rc;
    watch_before_experts(f, n_union);
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
    watch_block(f, n_union);
    watch_enter(f, SL_OP_COMBINE);
    struct expert_group g;
    experts_start(&g, f, &f->m->layers[il], wide);
    pool_for(f->pool, f->n_tok, 4, combine_range, &g);
    return 0;
}
