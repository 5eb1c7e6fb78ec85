/* queue.h: lists of requests, one for each drive, and the counting that all engines share. */
#ifndef IO_QUEUE_H
#define IO_QUEUE_H

#include "base/clock.h"
#include "io/drives.h"
#include "io/reader.h"

struct io_queue {
    struct io_req *head, *tail;
};

/* Requests that wait, apart for each drive: however many of one drive do, others' go on. */
struct io_lanes {
    struct io_drives drives;
    int n, each; /* drives; reads of one drive that may be begun and not ended */
    struct io_lane {
        struct io_queue todo;
        int begun;
    } lane[IO_DRIVES_MAX];
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

static inline struct io_lane *io_lanes_find(struct io_lanes *l, const struct io_req *req)
{
    return &l->lane[io_drives_find(&l->drives, l->n, req->file)];
}

static inline void io_lanes_put(struct io_lanes *l, struct io_req *req)
{
    io_queue_put(&io_lanes_find(l, req)->todo, req);
}

/* The oldest request of a drive that may begin another read; it counts as begun until
 * io_lanes_end. NULL: there is none. */
static inline struct io_req *io_lanes_take(struct io_lanes *l)
{
    for (int i = 0; i < l->n; i++) {
        struct io_lane *lane = &l->lane[i];
        struct io_req *req = lane->begun < l->each ? io_queue_take(&lane->todo) : NULL;
        lane->begun += req != NULL;
        if (req)
            return req;
    }
    return NULL;
}

/* Before the request goes back to the caller. */
static inline void io_lanes_end(struct io_lanes *l, const struct io_req *req)
{
    io_lanes_find(l, req)->begun--;
}

/* Requests that were never begun when the reader was destroyed. */
static inline void io_queue_cancel(struct io_queue *q)
{
    for (struct io_req *req; (req = io_queue_take(q));)
        err_file(&req->err, SL_E_CANCELLED, io_file_path(req->file), 0, "the reader was closed");
}

static inline void io_lanes_cancel(struct io_lanes *l)
{
    for (int i = 0; i < l->n; i++)
        io_queue_cancel(&l->lane[i].todo);
}

static inline void io_req_run(struct io_req *req)
{
    req->err.code = 0;
    req->err.where[0] = req->err.msg[0] = 0;
    io_file_read(req->file, req->buf, req->offset, req->len, req->need, &req->err);
    req->done_s = clock_now();
}

#endif
