/* plain.c: one read at a time, on the caller's thread, in reap (waiting or not). For tests and for
 * telling a drive's own time from that of an engine. */
#include "base/clock.h"
#include "base/mem.h"
#include "io/queue.h"

struct plain {
    struct io_reader base;
    struct io_queue todo;
};

static int plain_create(int in_flight, int n_drives, struct io_reader **out, struct sl_err *err)
{
    (void)in_flight;
    (void)n_drives;
    struct plain *p = mem_calloc(1, sizeof *p);
    if (!p)
        return err_set(err, SL_E_MEM, "I/O engine", "no memory for the reader");
    p->base.ops = &io_plain_ops;
    *out = &p->base;
    return 0;
}

static void plain_destroy(struct io_reader *r)
{
    struct plain *p = (struct plain *)r;
    io_queue_cancel(&p->todo);
    mem_free(p);
}

static void plain_submit(struct io_reader *r, struct io_req *list, int n)
{
    struct plain *p = (struct plain *)r;
    for (int i = 0; i < n; i++) {
        struct io_req *req = list;
        list = req->next;
        io_queue_put(&p->todo, req);
    }
    r->open += n;
}

static struct io_req *plain_reap(struct io_reader *r, bool wait)
{
    (void)wait; /* nobody else would ever do the read */
    struct io_req *req = io_queue_take(&((struct plain *)r)->todo);
    if (!req)
        return NULL;
    double start = clock_now();
    io_req_run(req);
    r->busy_s += clock_now() - start;
    io_reader_count(r, req);
    return req;
}

const struct io_reader_ops io_plain_ops = {
    .name = "plain",
    .create = plain_create,
    .destroy = plain_destroy,
    .submit = plain_submit,
    .reap = plain_reap,
};
