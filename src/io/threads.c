/* threads.c: as many workers as reads in flight over all drives, each in a pread of its own, oldest
 * request of a drive first. Works on every system. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/start.h"
#include "io/queue.h"

#include <pthread.h>

struct threads {
    struct io_reader base; /* written by the thread that submits and reaps */
    int n_workers;
    pthread_t *workers;

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t work, done;
    struct io_lanes todo;
    struct io_queue finished;
    int idle;    /* workers that wait for work */
    bool reaper; /* somebody waits in reap */
    bool quit;
    int in_flight; /* submitted and not finished */
    double since;  /* when in_flight left 0 */
    double busy_s; /* closed stretches of in_flight > 0 */
};

static void *work(void *arg)
{
    struct threads *t = arg;
    pthread_mutex_lock(&t->lock);
    for (;;) {
        struct io_req *req = io_lanes_take(&t->todo);
        if (!req) {
            if (t->quit)
                break;
            t->idle++;
            pthread_cond_wait(&t->work, &t->lock);
            t->idle--;
            continue;
        }
        pthread_mutex_unlock(&t->lock);
        io_req_run(req);
        pthread_mutex_lock(&t->lock);
        io_lanes_end(&t->todo, req);
        io_queue_put(&t->finished, req);
        if (--t->in_flight == 0)
            t->busy_s += clock_now() - t->since;
        if (t->reaper)
            pthread_cond_signal(&t->done);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static void threads_destroy(struct io_reader *r)
{
    struct threads *t = (struct threads *)r;
    pthread_mutex_lock(&t->lock);
    io_lanes_cancel(&t->todo);
    t->quit = true;
    pthread_cond_broadcast(&t->work);
    pthread_mutex_unlock(&t->lock);
    for (int i = 0; i < t->n_workers; i++)
        pthread_join(t->workers[i], NULL);
    pthread_cond_destroy(&t->done);
    pthread_cond_destroy(&t->work);
    pthread_mutex_destroy(&t->lock);
    mem_free(t->workers);
    mem_free(t);
}

static int start_workers(struct threads *t, int n)
{
    int errnum = 0;
    while (t->n_workers < n) {
        errnum = start_thread(&t->workers[t->n_workers], "sluice-io", work, t);
        if (errnum)
            break;
        t->n_workers++;
    }
    return errnum;
}

static int threads_create(int in_flight, int n_drives, struct io_reader **out, struct sl_err *err)
{
    *out = NULL;
    struct threads *t = mem_calloc(1, sizeof *t);
    int n = in_flight * n_drives;
    pthread_t *workers = mem_calloc((size_t)n, sizeof *workers);
    if (!t || !workers) {
        mem_free(t);
        mem_free(workers);
        return err_set(err, SL_E_MEM, "I/O engine", "no memory for the reader");
    }
    t->base.ops = &io_threads_ops;
    t->workers = workers;
    t->todo.n = n_drives;
    t->todo.each = in_flight;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->work, NULL);
    pthread_cond_init(&t->done, NULL);
    int errnum = start_workers(t, n);
    if (errnum) {
        int started = t->n_workers;
        threads_destroy(&t->base);
        return err_sys(err, SL_E_SYSTEM, "I/O engine", errnum, "cannot start read thread %d of %d",
                       started + 1, n);
    }
    *out = &t->base;
    return 0;
}

static void threads_submit(struct io_reader *r, struct io_req *list, int n)
{
    struct threads *t = (struct threads *)r;
    r->open += n;
    pthread_mutex_lock(&t->lock);
    if (t->in_flight == 0)
        t->since = clock_now();
    t->in_flight += n;
    for (int i = 0; i < n; i++) {
        struct io_req *req = list;
        list = req->next;
        io_lanes_put(&t->todo, req);
    }
    int wake = n < t->idle ? n : t->idle;
    for (int i = 0; i < wake; i++)
        pthread_cond_signal(&t->work);
    pthread_mutex_unlock(&t->lock);
}

static double busy_now(const struct threads *t)
{
    return t->busy_s + (t->in_flight > 0 ? clock_now() - t->since : 0);
}

static struct io_req *threads_reap(struct io_reader *r, bool wait)
{
    struct threads *t = (struct threads *)r;
    pthread_mutex_lock(&t->lock);
    while (wait && !t->finished.head && t->in_flight > 0) {
        t->reaper = true;
        pthread_cond_wait(&t->done, &t->lock);
        t->reaper = false;
    }
    struct io_req *list = t->finished.head;
    t->finished = (struct io_queue){0};
    r->busy_s = busy_now(t);
    pthread_mutex_unlock(&t->lock);
    for (struct io_req *req = list; req; req = req->next)
        io_reader_count(r, req);
    return list;
}

static double threads_busy(const struct io_reader *r)
{
    struct threads *t = (struct threads *)(uintptr_t)r; /* const but for the lock */
    pthread_mutex_lock(&t->lock);
    double s = busy_now(t);
    pthread_mutex_unlock(&t->lock);
    return s;
}

const struct io_reader_ops io_threads_ops = {
    .name = "threads",
    .create = threads_create,
    .destroy = threads_destroy,
    .submit = threads_submit,
    .reap = threads_reap,
    .busy = threads_busy,
};
