#include "model/watch.h"

#include "base/clock.h"
#include "base/mem.h"

int watch_open(const struct model *m, const struct sl_watch *to, struct forward_watch **out,
               struct sl_err *err)
{
    size_t n = (size_t)m->cfg.n_expert, k = (size_t)m->cfg.n_expert_used;
    struct forward_watch *w = mem_calloc(1, sizeof *w);
    *out = w;
    if (w) {
        w->to = *to;
        w->resident = mem_calloc(n + 1, sizeof *w->resident);
        w->of_choice = mem_calloc(k + 1, sizeof *w->of_choice);
    }
    if (w && w->resident && w->of_choice)
        return 0;
    watch_close(out);
    return err_set(err, SL_E_MEM, "watch", "no memory to watch a session");
}

void watch_close(struct forward_watch **pw)
{
    struct forward_watch *w = *pw;
    *pw = NULL;
    if (!w)
        return;
    mem_free(w->resident);
    mem_free(w->of_choice);
    mem_free(w);
}

static struct sl_batch batch_of(const struct forward *f)
{
    return (struct sl_batch){.pos = f->pos0, .n_tok = f->n_tok, .prompt = f->prompt};
}

static double stall_of(const struct forward *f)
{
    struct cache_stats s;
    if (!f->cache)
        return 0;
    cache_get_stats(f->cache, &s);
    return s.stall_s;
}

/* Waiting happens inside the cache's calls; it is told as an operation of its own behind them. */
static void tell_op(struct forward *f, double now)
{
    struct forward_watch *w = f->watch;
    double stall = w->op == SL_OP_CACHE ? stall_of(f) - w->stall_s : 0, wall = now - w->since;
    stall = stall < wall ? stall : wall;
    struct sl_op_event e = {.batch = batch_of(f),
                            .block = f->il,
                            .op = w->op,
                            .start_s = w->since,
                            .wall_s = wall - stall};
    w->to.on_op(w->to.user, &e);
    if (stall > 0) {
        e.op = SL_OP_STALL;
        e.start_s = w->since + e.wall_s;
        e.wall_s = stall;
        w->to.on_op(w->to.user, &e);
    }
}

void watch_change(struct forward *f, enum sl_op op)
{
    struct forward_watch *w = f->watch;
    if (!w->to.on_op || (w->inside && w->op == op))
        return;
    double now = clock_now();
    if (w->inside)
        tell_op(f, now);
    w->inside = true;
    w->op = op;
    w->since = now;
    if (op == SL_OP_CACHE)
        w->stall_s = stall_of(f);
}

void watch_end(struct forward *f)
{
    struct forward_watch *w = f->watch;
    if (!w || !w->inside)
        return;
    tell_op(f, clock_now());
    w->inside = false;
}

static bool is_resident(const struct forward *f, int expert)
{
    return !f->cache || cache_has_expert(f->cache, f->il, expert);
}

void watch_tell_routes(struct forward *f)
{
    struct forward_watch *w = f->watch;
    size_t k = (size_t)f->m->cfg.n_expert_used;
    for (int t = 0; t < f->n_tok; t++) {
        const int32_t *ids = f->ids + (size_t)t * k;
        for (int i = 0; i < f->used[t]; i++)
            w->of_choice[i] = is_resident(f, ids[i]);
        struct sl_route_event e = {.batch = batch_of(f),
                                   .pos = f->pos0 + t,
                                   .block = f->il,
                                   .k = f->used[t],
                                   .ids = ids,
                                   .weights = f->weights + (size_t)t * k,
                                   .resident = w->of_choice,
                                   .expert_bytes = model_block_expert_bytes(f->m, f->il)};
        w->to.on_route(w->to.user, &e);
    }
}

void watch_look(struct forward *f, int n_union)
{
    for (int i = 0; i < n_union; i++)
        f->watch->resident[i] = is_resident(f, f->union_ids[i]);
}

void watch_tell_block(struct forward *f, int n_union)
{
    struct forward_watch *w = f->watch;
    uint64_t each = model_block_expert_bytes(f->m, f->il);
    struct sl_block_event e = {.batch = batch_of(f),
                               .block = f->il,
                               .n = n_union,
                               .ids = f->union_ids,
                               .resident = w->resident,
                               .dense_bytes = model_block_bytes(f->m, f->il),
                               .expert_bytes = each};
    for (int i = 0; i < n_union; i++)
        *(w->resident[i] ? &e.hit_bytes : &e.missed_bytes) += each;
    w->to.on_block(w->to.user, &e);
}
