#include "cli/run_events.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

void events_open(struct events *v, int fd, const char *name)
{
    *v = (struct events){.fd = fd, .name = name};
    pthread_mutex_init(&v->lock, NULL);
}

void events_close(struct events *v)
{
    if (v->name == NULL)
        return;
    pthread_mutex_destroy(&v->lock);
    emit_free(&v->line);
    *v = (struct events){0};
}

struct emit *events_begin(struct events *v, const char *event, const char *id)
{
    pthread_mutex_lock(&v->lock);
    emit_clear(&v->line);
    emit_open(&v->line);
    emit_put_text(&v->line, "event", event);
    if (id != NULL)
        emit_put_text(&v->line, "id", id);
    return &v->line;
}

static void put(struct events *v)
{
    const char *p = v->line.text;
    size_t n = v->line.n;
    if (v->line.failed)
        v->code = err_set(&v->err, SL_E_MEM, v->name, "no memory for an event");
    while (v->code == SL_OK && n > 0) {
        ssize_t w = write(v->fd, p, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0) {
            v->code = err_sys(&v->err, SL_E_IO, v->name, w < 0 ? errno : EIO, "cannot write to %s",
                              v->name);
            return;
        }
        p += w;
        n -= (size_t)w;
    }
}

void events_end(struct events *v)
{
    emit_close(&v->line);
    if (v->code == SL_OK)
        put(v);
    pthread_mutex_unlock(&v->lock);
}

int events_check(struct events *v, struct sl_err *err)
{
    pthread_mutex_lock(&v->lock);
    int code = v->code;
    if (code < 0 && err != NULL)
        *err = v->err;
    pthread_mutex_unlock(&v->lock);
    return code;
}

/* ---- The events ----------------------------------------------------------------------------- */

void events_tell_mode(struct events *v, const struct sl_engine_plan *p,
                      const struct sl_model_info *m)
{
    struct emit *e = events_begin(v, "mode", NULL);
    emit_put_text(e, "version", SL_VERSION);
    emit_put_text(e, "arch", m->arch);
    emit_put_text(e, "model", m->name);
    emit_put_bool(e, "streamed", p->streamed);
    emit_put_bool(e, "o_direct", p->direct);
    emit_put_text(e, "io_engine", p->io_engine);
    emit_put_int(e, "n_drives", p->n_drives);
    emit_put_text(e, "cpu", p->cpu_level);
    emit_put_int(e, "threads", p->threads);
    emit_put_bool(e, "pinned", p->pinned);
    emit_put_int(e, "n_ctx", p->n_ctx);
    emit_put_int(e, "ubatch", p->ubatch);
    emit_put_uint(e, "dense_bytes", p->dense_bytes);
    emit_put_uint(e, "kv_bytes", p->kv_bytes);
    emit_put_uint(e, "compute_bytes", p->compute_bytes);
    emit_put_uint(e, "cache_bytes", p->cache_bytes);
    emit_put_uint(e, "total_bytes", p->total_bytes);
    emit_put_uint(e, "limit_bytes", p->limit_bytes);
    emit_put_text(e, "marks", p->marks);
    events_end(v);
}

void events_tell_prompt(struct events *v, const char *id, size_t n_tokens, double wall_s)
{
    struct emit *e = events_begin(v, "prompt", id);
    emit_put_uint(e, "tokens", n_tokens);
    emit_put_number(e, "wall_s", wall_s);
    events_end(v);
}

void events_tell_token(struct events *v, const char *id, const struct gen_step *s, const char *text,
                       size_t n, bool streamed)
{
    struct emit *e = events_begin(v, "token", id);
    const struct sl_phase_stats *d = &s->d;
    double asked = (double)d->hits + (double)d->misses, none = (double)NAN;
    emit_put_uint(e, "step", s->step);
    emit_put_int(e, "token", s->id);
    emit_put_bytes(e, "text", text, n);
    emit_put_number(e, "loop_s", s->loop_s);
    emit_put_number(e, "wall_s", d->wall_s);
    emit_put_number(e, "compute_s", d->compute_s);
    emit_put_number(e, "mgmt_s", streamed ? d->mgmt_s : none);
    emit_put_number(e, "stall_s", streamed ? d->stall_s : none);
    emit_put_number(e, "read_bytes", streamed ? (double)d->bytes_read : none);
    emit_put_number(e, "hit_pct", asked > 0 ? 100 * (double)d->hits / asked : none);
    events_end(v);
}

void events_tell_done(struct events *v, const char *id, const char *end, size_t n_tokens,
                      const char *rest, size_t n)
{
    struct emit *e = events_begin(v, "done", id);
    emit_put_text(e, "end", end);
    emit_put_uint(e, "tokens", n_tokens);
    emit_put_bytes(e, "text", rest, n);
    events_end(v);
}

static void put_result(void *user, const char *key, double value)
{
    emit_put_number(user, key, value);
}

void events_tell_summary(struct events *v, const struct run_report *r)
{
    struct report_summary s;
    report_sum_up(r, &s);
    struct emit *e = events_begin(v, "summary", NULL);
    report_each_number(&s, put_result, e);
    events_end(v);
}

void events_tell_error(struct events *v, const char *id, const struct sl_err *err)
{
    struct emit *e = events_begin(v, "error", id);
    emit_put_text(e, "code", sl_code_name(err->code));
    emit_put_text(e, "where", err->where);
    emit_put_text(e, "message", err->msg);
    events_end(v);
}

void events_tell_note(struct events *v, const char *text)
{
    emit_put_text(events_begin(v, "note", NULL), "text", text);
    events_end(v);
}

void events_tell_cache(struct events *v, const struct sl_cache_change *c, const char *why)
{
    struct emit *e = events_begin(v, "cache", NULL);
    emit_put_uint(e, "from_bytes", c->from_bytes);
    emit_put_uint(e, "to_bytes", c->to_bytes);
    emit_put_uint(e, "available_bytes", c->available_bytes);
    emit_put_text(e, "why", why);
    events_end(v);
}

void events_tell_load(struct events *v, uint64_t done, uint64_t total)
{
    struct emit *e = events_begin(v, "load", NULL);
    emit_put_uint(e, "done_bytes", done);
    emit_put_uint(e, "total_bytes", total);
    events_end(v);
}

const char *events_end_name(enum gen_end end)
{
    static const char *const names[] = {[GEN_LENGTH] = "length",
                                        [GEN_EOG] = "end",
                                        [GEN_CONTEXT] = "context",
                                        [GEN_STOPPED] = "stopped"};
    return names[end];
}
