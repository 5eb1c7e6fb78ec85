#include "support/watch.h"

#include <math.h>
#include <string.h>

static void on_op(void *user, const struct sl_op_event *e)
{
    struct watcher *w = user;
    bool same = w->ops && w->pos == e->batch.pos;
    w->ops++;
    w->bad += !(e->wall_s >= 0) || e->op < 0 || e->op >= SL_OP_COUNT ||
              strcmp(sl_op_name(e->op), "?") == 0 || e->batch.n_tok < 1;
    w->bad += same && e->start_s < w->end - 1e-6; /* stretches do not overlap */
    w->end = e->start_s + e->wall_s;
    w->pos = e->batch.pos;
}

static void on_route(void *user, const struct sl_route_event *e)
{
    struct watcher *w = user;
    w->routes += (uint64_t)e->k;
    w->bad += e->pos < e->batch.pos || e->pos >= e->batch.pos + e->batch.n_tok ||
              e->expert_bytes == 0;
    for (int i = 0; i < e->k; i++) {
        w->bad += !isfinite(e->weights[i]) || e->ids[i] < 0;
        for (int j = 0; j < i; j++)
            w->bad += e->ids[i] == e->ids[j];
    }
}

static void on_block(void *user, const struct sl_block_event *e)
{
    struct watcher *w = user;
    uint64_t hits = 0;
    w->blocks++;
    for (int i = 0; i < e->n; i++) {
        hits += e->resident[i];
        w->bad += i > 0 && e->ids[i] <= e->ids[i - 1];
    }
    w->hits += hits;
    w->misses += (uint64_t)e->n - hits;
    w->bad += e->hit_bytes != hits * e->expert_bytes ||
              e->missed_bytes != ((uint64_t)e->n - hits) * e->expert_bytes || e->dense_bytes == 0;
}

static void on_read(void *user, const struct sl_read_event *e)
{
    struct watcher *w = user;
    w->reads++;
    w->bytes += e->failed ? 0 : e->bytes;
    w->bad += !(e->submit_s > 0 && e->done_s >= e->submit_s) || e->bytes == 0 || e->expert < 0 ||
              e->block < 0 || e->file[0] == '\0';
}

int watcher_start(struct watcher *w, struct sl_session *s, struct sl_err *err)
{
    struct sl_watch watch = {
        .on_op = on_op, .on_route = on_route, .on_block = on_block, .on_read = on_read, .user = w};
    memset(w, 0, sizeof *w);
    return sl_session_watch(s, &watch, err);
}

const char *watcher_check(const struct watcher *w, const struct sl_stats *s, int routed, int k)
{
    const struct sl_phase_stats *p = &s->prompt, *d = &s->decode;
    uint64_t tokens = p->tokens + d->tokens;
    if (w->bad)
        return "events that cannot be";
    if (w->ops == 0 || w->blocks == 0)
        return "no events";
    if (w->routes != tokens * (uint64_t)routed * (uint64_t)k)
        return "routing events do not fit the tokens";
    if (p->hits + p->misses + d->hits + d->misses == 0)
        return NULL; /* resident */
    if (w->hits != p->hits + d->hits || w->misses != p->misses + d->misses)
        return "hits and misses of the events are not those of the counters";
    if (w->reads != p->reads + d->reads || w->bytes != p->bytes_read + d->bytes_read)
        return "reads of the events are not those of the counters";
    return NULL;
}
