/* One timeline of tokens: appending, counters. */
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fpenv.h"
#include "base/mem.h"
#include "base/sys.h"
#include "engine/budget.h"
#include "engine/engine.h"
#include "engine/options.h"
#include "model/watch.h"

struct sl_session {
    struct sl_engine *e;
    struct forward f;
    struct sl_observer obs;
    float *logits;
    bool has_logits;
    int length;
    _Atomic int cancel;
    struct sl_phase_stats phase[2];
};

int sl_session_open(struct sl_engine *e, struct sl_session **out, struct sl_err *err)
{
    *out = NULL;
    if (e->n_sessions)
        return err_set(
            err, SL_E_ARG, "session",
            "the engine's memory plan holds one session, and one is open; close it first");
    struct sl_session *s = mem_calloc(1, sizeof *s);
    if (!s)
        return err_set(err, SL_E_MEM, "session", "no memory for a session");
    s->e = e;
    s->logits = mem_alloc((size_t)e->model->cfg.n_vocab * sizeof(float));
    enum kv_type k = options_kv_type(e->opt.k_type), v = options_kv_type(e->opt.v_type);
    int rc = s->logits ? forward_open(&s->f, e->model, e->pool, e->cache, e->plan.ubatch,
                                      e->plan.n_ctx, k, v, err)
                       : err_set(err, SL_E_MEM, "session", "no memory for logits");
    if (rc < 0) {
        mem_free(s->logits);
        mem_free(s);
        return rc;
    }
    s->f.cancel = &s->cancel;
    s->f.route = e->route;
    s->f.load_all = e->plan.load_all;
    e->n_sessions++;
    *out = s;
    return 0;
}

void sl_session_close(struct sl_session **ps)
{
    struct sl_session *s = ps ? *ps : NULL;
    if (!s)
        return;
    sl_session_watch(s, NULL, NULL);
    forward_close(&s->f);
    mem_free(s->logits);
    s->e->n_sessions--;
    mem_free(s);
    *ps = NULL;
}

void sl_session_observe(struct sl_session *s, const struct sl_observer *obs)
{
    s->obs = obs ? *obs : (struct sl_observer){0};
    s->f.on_experts = s->obs.on_experts;
    s->f.user = s->obs.user;
}

static void on_read(void *user, const struct cache_read *r)
{
    const struct sl_session *s = user;
    const struct sl_watch *w = &s->f.watch->to;
    struct sl_read_event e = {.pos = r->tag,
                              .block = r->layer,
                              .expert = r->expert,
                              .file = io_file_path(r->file),
                              .offset = r->offset,
                              .bytes = r->bytes,
                              .submit_s = r->submit_s,
                              .done_s = r->done_s,
                              .speculative = r->spec,
                              .failed = r->failed};
    w->on_read(w->user, &e);
}

int sl_session_watch(struct sl_session *s, const struct sl_watch *w, struct sl_err *err)
{
    struct cache *c = s->e->cache;
    watch_close(&s->f.watch);
    if (c)
        cache_watch_reads(c, NULL, NULL);
    int rc = w ? watch_open(s->e->model, w, &s->f.watch, err) : 0;
    if (rc == 0 && c && w && w->on_read)
        cache_watch_reads(c, on_read, s);
    return rc;
}

/* ---- Counters: differences of the cache's, the reader's and the system's around an eval ---- */

struct snapshot {
    double wall, cpu, busy, compute;
    uint64_t majflt;
    struct cache_stats cache;
    struct route_counts route;
    struct row_counts rows;
    double load_wait;
};

static void take(const struct sl_session *s, struct snapshot *n)
{
    memset(n, 0, sizeof *n);
    n->wall = clock_now();
    n->cpu = clock_cpu();
    n->compute = pool_busy(s->e->pool);
    n->majflt = sys_majflt();
    n->route = s->f.route_counts;
    n->rows = s->f.rows;
    n->load_wait = s->f.load_wait_s;
    if (s->e->cache) {
        cache_get_stats(s->e->cache, &n->cache);
        n->busy = io_reader_busy(s->e->reader);
    }
}

static void add_difference(struct sl_phase_stats *p, const struct snapshot *a,
                           const struct snapshot *b)
{
    p->wall_s += b->wall - a->wall;
    p->cpu_s += b->cpu - a->cpu;
    p->compute_s += b->compute - a->compute;
    p->read_busy_s += b->busy - a->busy;
    p->majflt += b->majflt - a->majflt;
    p->mgmt_s += b->cache.mgmt_s - a->cache.mgmt_s;
    p->stall_s += b->cache.stall_s - a->cache.stall_s;
    p->bytes_read += b->cache.bytes_read - a->cache.bytes_read;
    p->reads += b->cache.reads - a->cache.reads;
    p->hits += b->cache.hits - a->cache.hits;
    p->misses += b->cache.misses - a->cache.misses;
    p->evictions += b->cache.evictions - a->cache.evictions;
    p->rereads += b->cache.rereads - a->cache.rereads;
    p->expected_reads += b->cache.expected_reads - a->cache.expected_reads;
    p->spec_useful_bytes += b->cache.spec_useful_bytes - a->cache.spec_useful_bytes;
    p->spec_wasted_bytes += b->cache.spec_wasted_bytes - a->cache.spec_wasted_bytes;
    p->rows_read += b->rows.n - a->rows.n;
    p->row_bytes += b->rows.bytes - a->rows.bytes;
    p->stall_s += b->rows.wait_s - a->rows.wait_s;
    p->load_wait_s += b->load_wait - a->load_wait;
    p->stall_s += b->load_wait - a->load_wait;
    p->experts_routed += b->route.routed - a->route.routed;
    p->experts_replayed += b->route.replayed - a->route.replayed;
    p->experts_dropped += b->route.dropped - a->route.dropped;
    p->experts_substituted += b->route.substituted - a->route.substituted;
    p->experts_ahead += b->route.ahead - a->route.ahead;
}

/* ---- Appending ---- */

static int check(const struct sl_session *s, const int32_t *ids, size_t n, struct sl_err *err)
{
    int n_vocab = s->e->model->cfg.n_vocab, room = s->e->plan.n_ctx - s->length;
    if (n > (size_t)room)
        return err_set(
            err, SL_E_CONTEXT, "context",
            "%zu more tokens after %d do not fit into the context of %d; give a larger -c or a "
            "shorter prompt",
            n, s->length, s->e->plan.n_ctx);
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= n_vocab)
            return err_set(err, SL_E_ARG, "token ids",
                           "token id %d at index %zu is outside 0 to %d", ids[i], i, n_vocab - 1);
    return 0;
}

static int eval_chunks(struct sl_session *s, const int32_t *ids, size_t n, bool prompt,
                       struct sl_err *err)
{
    size_t width = (size_t)s->e->plan.ubatch;
    int rc = 0;
    for (size_t at = 0; at < n && rc == 0; at += width) {
        int m = (int)(n - at < width ? n - at : width);
        bool last = at + (size_t)m == n;
        struct forward_sink sink = {.on_logits = s->obs.on_logits,
                                    .user = s->obs.user,
                                    .last_logits = last ? s->logits : NULL};
        budget_adapt(s->e);
        if (s->e->cache)
            cache_set_tag(s->e->cache, s->length);
        if ((rc = pool_enter(s->e->pool, err)) < 0) /* here: resizing a cache starts a thread */
            break;
        rc = forward_batch(&s->f, ids + at, m, s->length, prompt, &sink, err);
        pool_leave(s->e->pool);
        if (rc == 0) {
            s->length += m;
            s->has_logits = last;
        }
    }
    return rc;
}

int sl_session_eval(struct sl_session *s, const int32_t *ids, size_t n, enum sl_phase phase,
                    struct sl_err *err)
{
    int rc = check(s, ids, n, err);
    if (rc < 0 || n == 0)
        return rc;
    bool prompt = phase == SL_PROMPT;
    struct sl_phase_stats *p = &s->phase[prompt ? 0 : 1];
    struct snapshot a, b;
    uint64_t fp = fpenv_enter();
    take(s, &a);
    int before = s->length;
    if (prompt && s->e->cache)
        cache_prompt_begin(s->e->cache);
    s->has_logits = false;
    if (s->e->touch_cache)
        cache_touch(s->e->cache);
    s->e->touch_cache = false;
    rc = eval_chunks(s, ids, n, prompt, err);
    if (prompt && s->e->cache)
        cache_prompt_end(s->e->cache);
    take(s, &b);
    add_difference(p, &a, &b);
    p->tokens += (uint64_t)(s->length - before);
    if (rc == SL_E_CANCELLED)
        atomic_store(&s->cancel, 0);
    fpenv_restore(fp);
    return rc;
}

const float *sl_session_logits(const struct sl_session *s)
{
    return s->has_logits ? s->logits : NULL;
}

int sl_session_length(const struct sl_session *s)
{
    return s->length;
}

void sl_session_truncate(struct sl_session *s, int n_keep)
{
    if (n_keep < 0)
        n_keep = 0;
    if (n_keep < s->length) {
        s->length = n_keep;
        s->has_logits = false;
    }
}

void sl_session_cancel(struct sl_session *s)
{
    atomic_store(&s->cancel, 1);
}

void sl_session_forget_cancel(struct sl_session *s)
{
    atomic_store(&s->cancel, 0);
}

void sl_session_stats(const struct sl_session *s, struct sl_stats *out)
{
    memset(out, 0, sizeof *out);
    out->prompt = s->phase[0];
    out->decode = s->phase[1];
    if (s->e->cache) {
        struct cache_stats cs;
        cache_get_stats(s->e->cache, &cs);
        out->cache_resident_bytes = cs.resident_bytes;
        out->cache_changes = s->e->cache_changes;
        out->cache_least_bytes = s->e->cache_least;
    }
    if (s->e->route.script && s->e->script.n_tokens[1])
        out->replay_rounds = (uint64_t)(s->f.n_decoded / s->e->script.n_tokens[1]);
    out->mem_now = mem_now();
    out->mem_peak = mem_peak();
}

bool sl_session_predictions(const struct sl_session *s, struct sl_prediction *rows)
{
    if (!s->f.route.predict)
        return false;
    for (int il = 0; il < s->e->model->cfg.n_layer; il++) {
        const struct peek_score *p = &s->f.peek.score[il];
        rows[il] = (struct sl_prediction){p->router_asked, p->router_hit,    p->previous_asked,
                                          p->previous_hit, p->control_asked, p->control_hit};
    }
    return true;
}
