#include "cli/run_input.h"

#include "cli/stop.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/start.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 100, READ_SIZE = 1 << 16 };

struct input {
    int fd;
    struct events *events;
    struct sl_session *session;
    const struct request *defaults;
    pthread_t thread;
    atomic_bool quit;

    /* The reader's alone */
    char *line;
    size_t n_line, cap_line;
    bool skip; /* the line is too long: what is left of it is dropped */
    uint64_t number;
    int errnum; /* why reading ended; 0: at the end of the input */

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t more;
    struct request *first, *last;
    size_t n_waiting, bytes;
    bool over; /* nothing follows */
    bool running, cancelled;
    bool running_has_id;
    char running_id[REQUEST_MAX_ID + 1];
};

/* ---- The reader ----------------------------------------------------------------------------- */

static void complain(struct input *in, const struct request *r, struct sl_err *err)
{
    char msg[sizeof err->msg];
    memcpy(msg, err->msg, sizeof msg);
    err_set(err, err->code, err->where, "line %llu: %s", (unsigned long long)in->number, msg);
    events_tell_error(in->events, r != NULL && r->has_id ? r->id : NULL, err);
}

/* Does the cancel request mean the one with this id? Without an id it means the running one. */
static bool means(const struct request *cancel, bool has_id, const char *id)
{
    return cancel->has_id && has_id && strcmp(cancel->id, id) == 0;
}

/* Take the waiting request that is meant out of the queue. The lock is held. */
static struct request *take_meant(struct input *in, const struct request *cancel)
{
    struct request **at = &in->first, *before = NULL;
    while (*at != NULL &&
           !((*at)->op == REQUEST_GENERATE && means(cancel, (*at)->has_id, (*at)->id))) {
        before = *at;
        at = &before->next;
    }
    struct request *r = *at;
    if (r == NULL)
        return NULL;
    *at = r->next;
    if (in->last == r)
        in->last = before;
    in->n_waiting--;
    in->bytes -= r->bytes;
    return r;
}

static void cancel(struct input *in, struct request *c)
{
    struct sl_err err;
    pthread_mutex_lock(&in->lock);
    bool hit = in->running && (!c->has_id || means(c, in->running_has_id, in->running_id));
    struct request *waiting = hit ? NULL : take_meant(in, c);
    if (hit) {
        in->cancelled = true;
        sl_session_cancel(in->session);
    }
    pthread_mutex_unlock(&in->lock);
    if (waiting != NULL)
        events_tell_done(in->events, waiting->id, "cancelled", 0, "", 0);
    if (!hit && waiting == NULL) {
        err_set(&err, SL_E_ARG, "id", "there is no such request to cancel");
        complain(in, c, &err);
    }
    request_free(&waiting);
    request_free(&c);
}

static void enqueue(struct input *in, struct request *r)
{
    struct sl_err err;
    pthread_mutex_lock(&in->lock);
    bool full = in->n_waiting >= INPUT_MAX_WAITING || in->bytes + r->bytes > INPUT_MAX_BYTES;
    if (!full) {
        *(in->last != NULL ? &in->last->next : &in->first) = r;
        in->last = r;
        in->n_waiting++;
        in->bytes += r->bytes;
        in->over = r->op == REQUEST_CLOSE;
        pthread_cond_signal(&in->more);
    }
    pthread_mutex_unlock(&in->lock);
    if (full) {
        err_set(&err, SL_E_ARG, NULL, "too many requests are waiting");
        complain(in, r, &err);
        request_free(&r);
    }
}

static bool is_blank(const char *s, size_t n)
{
    while (n > 0 && (*s == ' ' || *s == '\t' || *s == '\r')) {
        s++;
        n--;
    }
    return n == 0;
}

/* False: that was the last one that is wanted. */
static bool take_line(struct input *in)
{
    struct request *r = NULL;
    struct sl_err err;
    bool blank = is_blank(in->line, in->n_line), skipped = in->skip;
    in->number++;
    if (skipped)
        err_set(&err, SL_E_FORMAT, NULL, "a request is longer than %zu bytes", REQUEST_MAX_LINE);
    if (!skipped && blank)
        return true;
    if (skipped || request_parse(in->line, in->n_line, in->defaults, &r, &err) < 0) {
        complain(in, r, &err);
        request_free(&r);
        return true;
    }
    if (r->op == REQUEST_CANCEL) {
        cancel(in, r);
        return true;
    }
    bool close = r->op == REQUEST_CLOSE;
    enqueue(in, r);
    return !close;
}

/* Room for n more bytes of the line; a line that is too long is dropped as it comes. */
static void add_bytes(struct input *in, const char *s, size_t n)
{
    if (in->skip || n == 0)
        return;
    if (n > REQUEST_MAX_LINE - in->n_line) {
        in->skip = true;
        return;
    }
    if (in->n_line + n > in->cap_line) {
        size_t cap = in->cap_line > 0 ? in->cap_line : READ_SIZE;
        while (cap < in->n_line + n)
            cap *= 2;
        char *p = mem_realloc(in->line, cap);
        if (p == NULL) {
            in->skip = true;
            return;
        }
        in->line = p;
        in->cap_line = cap;
    }
    memcpy(in->line + in->n_line, s, n);
    in->n_line += n;
}

static bool take_bytes(struct input *in, const char *s, size_t n)
{
    while (n > 0) {
        const char *nl = memchr(s, '\n', n);
        size_t part = nl != NULL ? (size_t)(nl - s) : n;
        add_bytes(in, s, part);
        if (nl == NULL)
            return true;
        bool go = take_line(in);
        in->n_line = 0;
        in->skip = false;
        if (!go)
            return false;
        s += part + 1;
        n -= part + 1;
    }
    return true;
}

static void *read_all(void *arg)
{
    struct input *in = arg;
    char buf[READ_SIZE];
    bool go = true;
    while (go && !atomic_load(&in->quit)) {
        struct pollfd p = {.fd = in->fd, .events = POLLIN};
        if (poll(&p, 1, LOOK_MS) == 0)
            continue;
        ssize_t n = read(in->fd, buf, sizeof buf);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n < 0)
            in->errnum = errno;
        if (n <= 0)
            break;
        go = take_bytes(in, buf, (size_t)n);
    }
    if (go && (in->n_line > 0 || in->skip)) /* a last line without its end */
        take_line(in);
    pthread_mutex_lock(&in->lock);
    in->over = true;
    pthread_cond_signal(&in->more);
    pthread_mutex_unlock(&in->lock);
    return NULL;
}

/* ---- The other side ------------------------------------------------------------------------- */

int input_open(int fd, struct events *v, struct sl_session *session, const struct request *defaults,
               struct input **out, struct sl_err *err)
{
    *out = NULL;
    struct input *in = mem_calloc(1, sizeof *in);
    if (in == NULL)
        return err_set(err, SL_E_MEM, NULL, "no memory for the requests");
    in->fd = fd;
    in->events = v;
    in->session = session;
    in->defaults = defaults;
    pthread_condattr_t attr;
    pthread_mutex_init(&in->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&in->more, &attr);
    pthread_condattr_destroy(&attr);
    int errnum = start_thread(&in->thread, "sluice-input", read_all, in);
    if (errnum != 0) {
        pthread_cond_destroy(&in->more);
        pthread_mutex_destroy(&in->lock);
        mem_free(in);
        return err_sys(err, SL_E_SYSTEM, NULL, errnum, "cannot start a thread for the requests");
    }
    *out = in;
    return SL_OK;
}

/* A signal cannot wake a condition: look now and then. The lock is held. */
static void wait_a_little(struct input *in)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += LOOK_MS * 1000000L;
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    pthread_cond_timedwait(&in->more, &in->lock, &t);
}

struct request *input_next(struct input *in)
{
    pthread_mutex_lock(&in->lock);
    in->running = in->cancelled = false;
    sl_session_forget_cancel(in->session); /* it came too late for the last one */
    while (in->first == NULL && !in->over && stop_signal() == 0 &&
           events_check(in->events, NULL) == SL_OK)
        wait_a_little(in);
    struct request *r = stop_signal() == 0 ? in->first : NULL;
    if (r != NULL) {
        in->first = r->next;
        if (in->first == NULL)
            in->last = NULL;
        in->n_waiting--;
        in->bytes -= r->bytes;
        r->next = NULL;
        in->running = r->op == REQUEST_GENERATE;
        in->running_has_id = r->has_id;
        memcpy(in->running_id, r->id, sizeof in->running_id);
    }
    pthread_mutex_unlock(&in->lock);
    if (r != NULL && r->op == REQUEST_CLOSE)
        request_free(&r);
    return r;
}

bool input_cancelled(struct input *in)
{
    pthread_mutex_lock(&in->lock);
    bool yes = in->cancelled;
    pthread_mutex_unlock(&in->lock);
    return yes;
}

int input_close(struct input **inp, struct sl_err *err)
{
    struct input *in = *inp;
    *inp = NULL;
    if (in == NULL)
        return SL_OK;
    atomic_store(&in->quit, true);
    pthread_join(in->thread, NULL);
    int rc = in->errnum == 0 ? SL_OK
                             : err_sys(err, SL_E_IO, "standard input", in->errnum,
                                       "cannot read requests from standard input");
    for (struct request *r = in->first, *next; r != NULL; r = next) {
        next = r->next;
        request_free(&r);
    }
    pthread_cond_destroy(&in->more);
    pthread_mutex_destroy(&in->lock);
    mem_free(in->line);
    mem_free(in);
    return rc;
}
