/* uring.c: reads through io_uring. No thread of our own: the kernel works on in_flight reads of
 * each drive while the caller computes, and whoever reaps takes what has completed and puts the
 * next ones in.
 *
 * The ring is made without IORING_SETUP_SINGLE_ISSUER and DEFER_TASKRUN: they would hide
 * completions from a thread that only looks at the ring, and tie it to one thread. At most
 * n_ops_most entries are in the kernel, which is no more than either queue holds, so completions
 * cannot overflow.
 *
 * The usual case is handled here: a read that completes whole, or goes on after stopping short.
 * Whatever else a file system can do to a read (EINVAL, an unaligned end) is left to
 * io_file_read_rest, which knows what can be done about it. */
#include "io/uring.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/size.h"
#include "io/file_internal.h"
#include "io/queue.h"

#include <errno.h>
#include <liburing.h>

#define FILES_MAX     256  /* registered descriptors; further ones are used as they are */
#define TRIES_MAX     16   /* without progress, before the read is left to io_file_read_rest */
#define SUBMIT_TRIES  2000 /* times 1 ms that the kernel may refuse all submissions */
#define SUBMIT_WAIT_S 1e-3

/* A request that is in the kernel, or in the submission queue. */
struct op {
    struct io_req *req;
    size_t got; /* bytes that have arrived */
    size_t at;  /* where the piece that is being read begins */
    int fd;     /* it is read from */
    int tries;
    bool direct;
    int next_free;
};

struct uring {
    struct io_reader base;
    const struct io_ring_calls *calls;
    struct io_uring ring;
    bool ring_open; /* false: given up; every read is done in reap */
    struct io_lanes todo;
    struct io_queue finished;
    struct op *op; /* n_ops_most of them: in_flight of each drive */
    int n_ops_most;
    int free_op;  /* -1: none */
    int n_ops;    /* in use */
    double since; /* when the last stretch with an open read began */

    bool registered; /* a table of descriptors is registered */
    int n_files;
    struct uring_file {
        uint64_t serial;
        bool direct;
    } file[FILES_MAX];
};

/* ---- The ring -------------------------------------------------------------------------------- */

static int real_open(struct io_uring *ring, unsigned n_entries)
{
    struct io_uring_params p = {.flags = IORING_SETUP_CLAMP};
    return io_uring_queue_init_params(n_entries, ring, &p);
}

const struct io_ring_calls io_real_ring_calls = {
    .open = real_open,
    .submit = io_uring_submit,
    .peek = io_uring_peek_cqe,
    .wait = io_uring_wait_cqe,
};

static const struct io_ring_calls *in_use = &io_real_ring_calls;

void io_ring_calls_replace(const struct io_ring_calls *calls)
{
    in_use = calls ? calls : &io_real_ring_calls;
}

static bool can_read(struct io_uring *ring)
{
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    bool can = probe && io_uring_opcode_supported(probe, IORING_OP_READ);
    io_uring_free_probe(probe);
    return can;
}

/* Saves looking the descriptor up at every read; does without where the kernel won't. */
static void register_files(struct uring *u)
{
    int none[FILES_MAX];
    for (int i = 0; i < FILES_MAX; i++)
        none[i] = -1;
    u->registered = io_uring_register_files(&u->ring, none, FILES_MAX) == 0;
}

static int open_ring(struct uring *u, unsigned n_entries, struct sl_err *err)
{
    int rc = u->calls->open(&u->ring, n_entries);
    if (rc == -ENOSYS)
        return err_set(err, SL_E_UNSUPPORTED, "I/O engine", "the kernel has no io_uring");
    if (rc == -EPERM || rc == -EACCES)
        return err_sys(
            err, SL_E_UNSUPPORTED, "I/O engine", -rc,
            "io_uring is forbidden here (a container or sysctl kernel.io_uring_disabled)");
    if (rc < 0)
        return err_sys(err, SL_E_SYSTEM, "I/O engine", -rc, "io_uring cannot be set up");
    u->ring_open = true;
    if (!can_read(&u->ring))
        return err_set(err, SL_E_UNSUPPORTED, "I/O engine",
                       "the kernel's io_uring is too old (before Linux 5.6)");
    register_files(u);
    return 0;
}

static void free_uring(struct uring *u)
{
    if (u->ring_open)
        io_uring_queue_exit(&u->ring);
    mem_free(u->op);
    mem_free(u);
}

static int uring_create(int in_flight, int n_drives, struct io_reader **out, struct sl_err *err)
{
    *out = NULL;
    struct uring *u = mem_calloc(1, sizeof *u);
    int n = in_flight * n_drives;
    struct op *op = mem_calloc((size_t)n, sizeof *op);
    if (!u || !op) {
        mem_free(u);
        mem_free(op);
        return err_set(err, SL_E_MEM, "I/O engine", "no memory for the reader");
    }
    u->base.ops = &io_uring_ops;
    u->calls = in_use;
    u->op = op;
    u->n_ops_most = n;
    u->todo.n = n_drives;
    u->todo.each = in_flight;
    for (int i = 0; i < n; i++)
        op[i].next_free = i + 1 < n ? i + 1 : -1;
    int rc = open_ring(u, (unsigned)n, err);
    if (rc < 0) {
        free_uring(u);
        return rc;
    }
    *out = &u->base;
    return 0;
}

/* The index of f's descriptor in the registered table; -1: it has none. */
static int find_file(struct uring *u, const struct io_file *f, bool direct, int fd)
{
    for (int i = 0; i < u->n_files; i++)
        if (u->file[i].serial == f->serial && u->file[i].direct == direct)
            return i;
    if (!u->registered || u->n_files == FILES_MAX ||
        io_uring_register_files_update(&u->ring, (unsigned)u->n_files, &fd, 1) != 1)
        return -1;
    u->file[u->n_files] = (struct uring_file){.serial = f->serial, .direct = direct};
    return u->n_files++;
}

/* ---- One request ----------------------------------------------------------------------------- */

static void finish_op(struct uring *u, struct op *op)
{
    io_lanes_end(&u->todo, op->req);
    io_queue_put(&u->finished, op->req);
    op->req = NULL;
    op->next_free = u->free_op;
    u->free_op = (int)(op - u->op);
    u->n_ops--;
}

/* What is not there yet is read on this thread. */
static void finish_here(struct uring *u, struct op *op)
{
    struct io_req *req = op->req;
    io_file_read_rest(req->file, req->buf, req->offset, req->len, op->got, req->need, &req->err);
    finish_op(u, op);
}

/* Put the next piece of op into the submission queue, which has room for all ops. */
static void queue_piece(struct uring *u, struct op *op)
{
    struct io_req *req = op->req;
    struct io_file *f = req->file;
    struct io_uring_sqe *sqe = u->ring_open ? io_uring_get_sqe(&u->ring) : NULL;
    if (!sqe) {
        finish_here(u, op);
        return;
    }
    /* a short read may have ended anywhere */
    op->at = op->direct ? size_down(op->got, f->align) : op->got;
    size_t left = (op->direct ? req->len : req->need) - op->at;
    unsigned piece = (unsigned)(left < FILE_PIECE_MAX ? left : FILE_PIECE_MAX);
    int index = find_file(u, f, op->direct, op->fd);
    io_uring_prep_read(sqe, index < 0 ? op->fd : index, (uint8_t *)req->buf + op->at, piece,
                       req->offset + op->at);
    if (index >= 0)
        sqe->flags |= IOSQE_FIXED_FILE;
    if (!op->direct) /* else a page that is cached would be copied while we submit */
        sqe->flags |= IOSQE_ASYNC;
    io_uring_sqe_set_data64(sqe, (uint64_t)(op - u->op));
}

static void start_op(struct uring *u, struct io_req *req)
{
    struct op *op = &u->op[u->free_op];
    u->free_op = op->next_free;
    u->n_ops++;
    *op = (struct op){.req = req, .direct = atomic_load(&req->file->direct)};
    struct sl_err *err = &req->err;
    err->code = 0;
    err->where[0] = err->msg[0] = 0;
    op->fd = op->direct ? req->file->direct_fd : io_file_buffered_fd(req->file, err);
    if (op->fd < 0 ||
        io_file_check_read(req->file, req->buf, req->offset, req->len, req->need, err) != 0 ||
        req->need == 0)
        finish_op(u, op);
    else
        queue_piece(u, op);
}

/* res: bytes, or a negative errno. stop: the reader is being closed; nothing is begun again. */
static void complete_op(struct uring *u, struct op *op, int res, bool stop)
{
    struct io_req *req = op->req;
    struct io_file *f = req->file;
    if (res > 0 && !op->direct)
        io_file_drop_read(f, op->fd, req->offset + op->at, req->offset + op->at + (unsigned)res);
    bool more = res > 0 && op->at + (unsigned)res > op->got;
    if (more) {
        op->got = op->at + (unsigned)res;
        op->tries = 0;
    }
    /* cancelled: the thread that submitted it has ended */
    bool again = more || res == -EINTR || res == -EAGAIN || res == -ECANCELED;
    if (op->got >= req->need) {
        finish_op(u, op);
    } else if (stop) {
        err_file(&req->err, SL_E_CANCELLED, f->path, 0, "the reader was closed");
        finish_op(u, op);
    } else if (again && op->tries++ < TRIES_MAX) {
        queue_piece(u, op);
    } else if (again || res >= 0 || res == -EINVAL || res == -EOPNOTSUPP) {
        finish_here(u, op);
    } else {
        io_file_read_error(f, req->offset, req->need, op->got, -res, &req->err);
        finish_op(u, op);
    }
}

/* ---- All of them ----------------------------------------------------------------------------- */

/* Hand what is queued to the kernel; what it is too busy to take goes with the next call. */
static void submit_queued(struct uring *u)
{
    while (io_uring_sq_ready(&u->ring) > 0)
        if (u->calls->submit(&u->ring) <= 0)
            break;
}

static void fill_ring(struct uring *u)
{
    struct io_req *req;
    if (!u->ring_open)
        return;
    while (u->free_op >= 0 && (req = io_lanes_take(&u->todo)))
        start_op(u, req);
    submit_queued(u);
}

static void take_completions(struct uring *u, bool stop)
{
    struct io_uring_cqe *cqe;
    while (u->ring_open && u->n_ops > 0 && u->calls->peek(&u->ring, &cqe) == 0) {
        struct op *op = &u->op[io_uring_cqe_get_data64(cqe)];
        int res = cqe->res;
        io_uring_cqe_seen(&u->ring, cqe);
        complete_op(u, op, res, stop);
    }
}

/* In the kernel, to be completed. */
static int count_submitted(const struct uring *u)
{
    return u->ring_open ? u->n_ops - (int)io_uring_sq_ready(&u->ring) : 0;
}

/* Block until a completion is there. An error that is more than an interruption (a kernel short of
 * memory) passes; completions may be visible in spite of it. */
static void wait_in_kernel(struct uring *u)
{
    struct io_uring_cqe *cqe;
    int rc = u->calls->wait(&u->ring, &cqe);
    if (rc < 0 && rc != -EINTR)
        clock_sleep(SUBMIT_WAIT_S);
}

/* The kernel takes no submission and has none: do without it from now on. */
static void give_up_ring(struct uring *u)
{
    io_uring_queue_exit(&u->ring);
    u->ring_open = false;
    for (int i = 0; i < u->n_ops_most; i++)
        if (u->op[i].req)
            finish_here(u, &u->op[i]);
}

static void wait_for_one(struct uring *u)
{
    for (int refused = 0; !u->finished.head;) {
        if (!u->ring_open) {
            start_op(u, io_lanes_take(&u->todo));
        } else if (count_submitted(u) > 0) {
            wait_in_kernel(u);
            refused = 0;
        } else if (++refused < SUBMIT_TRIES) {
            clock_sleep(SUBMIT_WAIT_S);
        } else {
            give_up_ring(u);
        }
        take_completions(u, false);
        fill_ring(u);
    }
}

/* ---- The engine ------------------------------------------------------------------------------ */

static void uring_destroy(struct io_reader *r)
{
    struct uring *u = (struct uring *)r;
    struct io_queue unsubmitted = {0};
    io_lanes_cancel(&u->todo);
    while (count_submitted(u) > 0) {
        take_completions(u, true);
        if (count_submitted(u) > 0)
            wait_in_kernel(u);
    }
    for (int i = 0; i < u->n_ops_most; i++)
        if (u->op[i].req)
            io_queue_put(&unsubmitted, u->op[i].req);
    io_queue_cancel(&unsubmitted);
    free_uring(u);
}

static void uring_submit(struct io_reader *r, struct io_req *list, int n)
{
    struct uring *u = (struct uring *)r;
    if (r->open == 0)
        u->since = clock_now();
    r->open += n;
    for (int i = 0; i < n; i++) {
        struct io_req *req = list;
        list = req->next;
        io_lanes_put(&u->todo, req);
    }
    fill_ring(u);
}

static struct io_req *uring_reap(struct io_reader *r, bool wait)
{
    struct uring *u = (struct uring *)r;
    take_completions(u, false);
    fill_ring(u);
    if (wait)
        wait_for_one(u);
    struct io_req *list = u->finished.head;
    u->finished = (struct io_queue){0};
    double now = clock_now();
    r->busy_s += now - u->since;
    u->since = now;
    for (struct io_req *req = list; req; req = req->next)
        io_reader_count(r, req);
    return list;
}

static double uring_busy(const struct io_reader *r)
{
    return r->busy_s + (r->open > 0 ? clock_now() - ((const struct uring *)r)->since : 0);
}

const struct io_reader_ops io_uring_ops = {
    .name = "uring",
    .create = uring_create,
    .destroy = uring_destroy,
    .submit = uring_submit,
    .reap = uring_reap,
    .busy = uring_busy,
};
