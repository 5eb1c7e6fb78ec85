/* queue.h: a list of requests with both ends, and the counting that all engines share. */
#ifndef IO_QUEUE_H
#define IO_QUEUE_H

#include "base/clock.h"
#include "io/reader.h"

struct io_queue {
    struct io_req *head, *tail;
};

static inline void io_queue_put(struct io_queue *q, struct io_req *req)
{
    req->next = NULL;
    if (q->tail)
        q->tail->next = req;
    else
        q->head = req;
    q->tail = req;
}

/* The oldest; NULL when there is none. */
static inline struct io_req *io_queue_take(struct io_queue *q)
{
    struct io_req *req = q->head;
    if (req) {
        q->head = req->next;
        if (!q->head)
            q->tail = NULL;
        req->next = NULL;
    }
    return req;
}

/* Count a request that goes back to the caller. Windows reach past the end of the file: only what
 * is there was read. */
static inline void io_reader_count(struct io_reader *r, const struct io_req *req)
{
    uint64_t size = io_file_size(req->file);
    uint64_t left = req->offset < size ? size - req->offset : 0;
    r->open--;
    r->n_reads++;
    if (req->err.code == 0)
        r->bytes += req->len < left ? req->len : left;
}

/* Requests that were never begun when the reader was destroyed. */
static inline void io_queue_cancel(struct io_queue *q)
{
    for (struct io_req *req; (req = io_queue_take(q));)
        err_file(&req->err, SL_E_CANCELLED, io_file_path(req->file), 0, "the reader was closed");
}

static inline void io_req_run(struct io_req *req)
{
    req->err.code = 0;
    req->err.where[0] = req->err.msg[0] = 0;
    io_file_read(req->file, req->buf, req->offset, req->len, req->need, &req->err);
    req->done_s = clock_now();
}

#endif
