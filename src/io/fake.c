/* fake.c: deterministic misbehaviour. Everything happens on the caller's thread: a request gets a
 * due time when it is submitted (on the lane of in_flight lanes that is free first) and is read
 * when it is handed out, in the order that the script asks for among all that are open. Until then
 * its buffer holds garbage, so that a use before completion is seen. */
#include "io/fake.h"

#include "base/clock.h"
#include "base/mem.h"
#include "io/file_internal.h"
#include "io/queue.h"

#include <errno.h>
#include <string.h>

#define GARBAGE 0xee

struct entry {
    struct io_req *req;
    int64_t number; /* counted from 0 in the order of submission */
    double due;
};

struct fake {
    struct io_reader base;
    struct io_fake_script script;
    int in_flight;
    double *lane_free;  /* in_flight of them: when the lane has done its last read */
    struct entry *open; /* oldest first */
    int n_open, capacity;
    struct io_queue refused; /* no memory to queue them: come back with SL_E_MEM */
    int64_t submitted;
    int chosen; /* index into open of the next to hand out; -1: not yet chosen */
    uint64_t rng;
    double since; /* busy_s is counted up to here */
};

static const struct io_reader_ops fake_ops;

/* splitmix64 */
static uint64_t next_random(uint64_t *s)
{
    uint64_t z = (*s += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

int io_fake_create(const struct io_fake_script *script, int in_flight, struct io_reader **out,
                   struct sl_err *err)
{
    *out = NULL;
    if (in_flight < 1 || script->order < 0 || script->order > 2 || !(script->delay_s >= 0))
        return err_set(err, SL_E_ARG, "fake reader", "impossible script");
    struct fake *f = mem_calloc(1, sizeof *f);
    double *lanes = mem_calloc((size_t)in_flight, sizeof *lanes);
    if (!f || !lanes) {
        mem_free(f);
        mem_free(lanes);
        return err_set(err, SL_E_MEM, "fake reader", "no memory for the reader");
    }
    f->base.ops = &fake_ops;
    f->script = *script;
    f->in_flight = in_flight;
    f->lane_free = lanes;
    f->chosen = -1;
    f->rng = script->seed;
    *out = &f->base;
    return 0;
}

static void fake_destroy(struct io_reader *r)
{
    struct fake *f = (struct fake *)r;
    io_queue_cancel(&f->refused);
    struct io_queue rest = {0};
    for (int i = 0; i < f->n_open; i++)
        io_queue_put(&rest, f->open[i].req);
    io_queue_cancel(&rest);
    mem_free(f->open);
    mem_free(f->lane_free);
    mem_free(f);
}

static double due_time(struct fake *f, double now)
{
    double *lane = f->lane_free;
    for (int i = 1; i < f->in_flight; i++)
        if (f->lane_free[i] < *lane)
            lane = &f->lane_free[i];
    *lane = (*lane > now ? *lane : now) + f->script.delay_s;
    return *lane;
}

/* Room for one more; false when there is no memory. */
static bool make_room(struct fake *f)
{
    if (f->n_open < f->capacity)
        return true;
    int more = f->capacity ? f->capacity * 2 : 64;
    struct entry *grown = mem_realloc(f->open, (size_t)more * sizeof *grown);
    if (!grown)
        return false;
    f->open = grown;
    f->capacity = more;
    return true;
}

static void fake_submit(struct io_reader *r, struct io_req *list, int n)
{
    struct fake *f = (struct fake *)r;
    double now = clock_now();
    if (r->open == 0)
        f->since = now;
    r->open += n;
    for (int i = 0; i < n; i++) {
        struct io_req *req = list;
        list = req->next;
        req->next = NULL;
        if (!make_room(f)) {
            io_queue_put(&f->refused, req);
            continue;
        }
        memset(req->buf, GARBAGE, req->len);
        f->open[f->n_open++] = (struct entry){
            .req = req, .number = f->submitted++, .due = due_time(f, now)};
    }
}

static void run_entry(struct fake *f, const struct entry *e)
{
    const struct io_fake_script *s = &f->script;
    struct io_req *req = e->req;
    int64_t number = e->number - s->first;
    bool every = number >= 0 && s->fail_every > 0 && (number + 1) % s->fail_every == 0;
    io_req_run(req);
    if (number < 0)
        return;
    if (number == s->fail_at || every) {
        int errnum = s->fail_errno ? s->fail_errno : EIO;
        memset(req->buf, GARBAGE, req->len);
        io_file_read_error(req->file, req->offset, req->need, 0, errnum, &req->err);
    } else if (number == s->short_at) {
        size_t got = req->need / 2;
        memset((char *)req->buf + got, GARBAGE, req->len - got);
        io_file_read_error(req->file, req->offset, req->need, got, 0, &req->err);
    }
}

static int choose(struct fake *f)
{
    switch (f->script.order) {
    case 1:
        return f->n_open - 1;
    case 2:
        return (int)(next_random(&f->rng) % (uint64_t)f->n_open);
    default:
        return 0;
    }
}

static struct io_req *finish(struct fake *f, struct io_req *req)
{
    double now = clock_now();
    f->base.busy_s += now - f->since;
    f->since = now;
    io_reader_count(&f->base, req);
    return req;
}

static struct io_req *fake_reap(struct io_reader *r, bool wait)
{
    struct fake *f = (struct fake *)r;
    struct io_req *req = io_queue_take(&f->refused);
    if (req) {
        err_file(&req->err, SL_E_MEM, io_file_path(req->file), 0, "no memory to queue a read");
        return finish(f, req);
    }
    if (f->chosen < 0)
        f->chosen = choose(f);
    struct entry e = f->open[f->chosen];
    double now = clock_now();
    if (now < e.due) {
        if (!wait)
            return NULL;
        clock_sleep(e.due - now);
    }
    f->n_open--;
    memmove(&f->open[f->chosen], &f->open[f->chosen + 1],
            (size_t)(f->n_open - f->chosen) * sizeof e);
    f->chosen = -1;
    run_entry(f, &e);
    return finish(f, e.req);
}

static double fake_busy(const struct io_reader *r)
{
    const struct fake *f = (const struct fake *)r;
    return r->busy_s + (r->open > 0 ? clock_now() - f->since : 0);
}

static const struct io_reader_ops fake_ops = {
    .name = "fake",
    .destroy = fake_destroy,
    .submit = fake_submit,
    .reap = fake_reap,
    .busy = fake_busy,
};
