/* loading.c: reads of weights, several at once on each drive, in the order of the blocks.
 *
 * Windows are cut into pieces. Threads touch the memory ahead of the reads, which never wait for
 * them. Behind an evaluation that reads experts from the same drive, the blocks that it is about to
 * need are read with all that the drive takes, those further on by one small piece at a time. */
#include "model/loading.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "base/start.h"
#include "base/touch.h"
#include "io/drives.h"

/* Bytes of one read; multiples of any alignment. */
#define READ_PIECE  ((size_t)4 << 20)
#define SPARE_PIECE ((size_t)1 << 20)
/* Blocks after the one that is waited for that count as about to be needed. */
#define BLOCKS_AHEAD 2
#define MAP_FLAGS    (MEM_HUGE | MEM_DONTFORK)

/* How far the spans of a drive have been handed to the reader. */
struct feed {
    int next;            /* the span that is being cut, of any drive */
    uint64_t done;       /* bytes of its window */
    int open;            /* reads under way */
    struct io_req *idle; /* requests that are not, chained by next */
};

struct loading {
    struct load_options opt;
    struct span_list list;
    struct io_drives drives;
    struct feed feed[IO_DRIVES_MAX];
    struct io_req *req; /* twice what may be under way, for each drive */
    int n_blocks;       /* embeddings, layers, head */
    uint64_t *left;     /* of each block: bytes still to come; the reading thread's */
    struct touch_piece memory;
    struct touch touch;
    pthread_t thread;
    bool behind; /* the thread runs */

    _Atomic int wanted; /* the block that is waited for, or was last */
    _Atomic int ready;  /* blocks from the first that are there */
    _Atomic bool stop, over;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t moved;
    uint64_t done, told;
    struct sl_err err; /* code 0: none */
};

/* ---- Reading ---- */

/* The span that the drive's next piece belongs to; NULL: all is cut. */
static const struct span *next_span(struct loading *ld, int drive)
{
    struct feed *f = &ld->feed[drive];
    const struct span *s = ld->list.span;
    while (f->next < ld->list.n &&
           (s[f->next].drive != drive || f->done == spans_window_bytes(&s[f->next]))) {
        f->next++;
        f->done = 0;
    }
    return f->next < ld->list.n ? &s[f->next] : NULL;
}

static void cut_piece(struct feed *f, const struct span *s, size_t most, struct io_req *r)
{
    uint64_t begin = spans_window_begin(s), all = spans_window_bytes(s);
    uint64_t need = s->offset + s->bytes - begin, left = all - f->done;
    uint64_t take = left < most ? left : most, end = f->done + take;
    memset(r, 0, sizeof *r);
    r->file = s->file;
    r->buf = s->window + f->done;
    r->offset = begin + f->done;
    r->len = (size_t)take;
    r->need = (size_t)((end < need ? end : need) - f->done);
    r->user = (void *)s;
    f->done = end;
}

/* As many pieces as may be under way. */
static void feed_drive(struct loading *ld, int drive)
{
    struct feed *f = &ld->feed[drive];
    const struct span *s;
    while (f->idle && (s = next_span(ld, drive)) != NULL) {
        bool soon = ld->opt.experts || s->block <= atomic_load(&ld->wanted) + BLOCKS_AHEAD;
        if (!soon && f->open > 0)
            break;
        struct io_req *r = f->idle;
        f->idle = r->next;
        cut_piece(f, s, soon ? READ_PIECE : SPARE_PIECE, r);
        io_reader_submit(ld->opt.reader, r, 1);
        f->open++;
    }
}

static void note_arrival(struct loading *ld, const struct io_req *r)
{
    const struct span *s = r->user;
    int ready = atomic_load(&ld->ready);
    ld->left[s->block + 1] -= r->len;
    while (ready < ld->n_blocks && ld->left[ready] == 0)
        ready++;
    pthread_mutex_lock(&ld->lock);
    ld->done += r->len;
    atomic_store(&ld->ready, ready);
    pthread_cond_broadcast(&ld->moved);
    pthread_mutex_unlock(&ld->lock);
    if (!ld->behind && ld->opt.on_load)
        ld->opt.on_load(ld->opt.user, ld->done, ld->list.window_bytes);
}

/* After a failure nothing is begun, and what is under way is waited for: it is read into memory
 * that will be given back. */
static void read_all(struct loading *ld)
{
    int open;
    bool failed = false;
    do {
        open = 0;
        for (int d = 0; d < ld->drives.n; d++) {
            if (!failed && !atomic_load(&ld->stop))
                feed_drive(ld, d);
            open += ld->feed[d].open;
        }
        struct io_req *next, *r = open > 0 ? io_reader_reap(ld->opt.reader, true) : NULL;
        for (; r; r = next) {
            struct feed *f = &ld->feed[((const struct span *)r->user)->drive];
            next = r->next;
            f->open--;
            r->next = f->idle;
            f->idle = r;
            if (r->err.code == 0) {
                note_arrival(ld, r);
            } else if (!failed) {
                failed = true;
                pthread_mutex_lock(&ld->lock);
                ld->err = r->err;
                pthread_mutex_unlock(&ld->lock);
            }
        }
    } while (open > 0);
    touch_end(&ld->touch);
    pthread_mutex_lock(&ld->lock);
    atomic_store(&ld->over, true);
    pthread_cond_broadcast(&ld->moved);
    pthread_mutex_unlock(&ld->lock);
}

/* ---- Beginning and ending ---- */

static void place_spans(struct loading *ld, uint8_t *at)
{
    for (int i = 0; i < ld->list.n; i++) {
        struct span *s = &ld->list.span[i];
        s->drive = io_drives_find(&ld->drives, IO_DRIVES_MAX, s->file);
        s->window = at;
        *s->data = at + (s->offset - spans_window_begin(s));
        ld->left[s->block + 1] += spans_window_bytes(s);
        at += spans_window_bytes(s);
    }
    while (ld->ready < ld->n_blocks && ld->left[ld->ready] == 0)
        ld->ready++;
}

int loading_begin(struct model *m, const struct load_options *opt, struct span_list *list,
                  struct loading **out, struct sl_err *err)
{
    struct loading *ld = mem_calloc(1, sizeof *ld);
    struct io_reader *reader = opt->reader;
    *out = ld;
    if (!ld) {
        if (opt->behind)
            io_reader_destroy(&reader);
        return err_set(err, SL_E_MEM, "model", "no memory to load");
    }
    ld->opt = *opt;
    ld->list = *list;
    *list = (struct span_list){0};
    ld->n_blocks = m->cfg.n_layer + 2;
    ld->wanted = ld->n_blocks;
    pthread_mutex_init(&ld->lock, NULL);
    pthread_cond_init(&ld->moved, NULL);
    m->anon_bytes = (size_t)ld->list.window_bytes;
    m->anon = mem_map(m->anon_bytes, MAP_FLAGS);
    ld->left = mem_calloc((size_t)ld->n_blocks, sizeof *ld->left);
    if (m->anon && ld->left)
        place_spans(ld, m->anon);
    int each = 2 * opt->in_flight;
    ld->req = mem_calloc((size_t)(each * ld->drives.n), sizeof *ld->req);
    if (!m->anon || !ld->left || !ld->req)
        return err_set(err, SL_E_MEM, "model", "no memory for %llu MiB of weights",
                       (unsigned long long)(ld->list.window_bytes >> 20));
    for (int i = 0; i < each * ld->drives.n; i++) {
        struct feed *f = &ld->feed[i / each];
        ld->req[i].next = f->idle;
        f->idle = &ld->req[i];
    }
    ld->memory = (struct touch_piece){m->anon, m->anon_bytes};
    return 0;
}

static void start_touching(struct loading *ld)
{
    touch_begin(&ld->touch, &ld->memory, 1, ld->opt.on_touched, ld->opt.touched_user);
}

static int read_here(struct loading *ld, struct sl_err *err)
{
    read_all(ld);
    if (ld->err.code != 0 && err)
        *err = ld->err;
    return ld->err.code;
}

int loading_run(struct loading *ld, struct sl_err *err)
{
    start_touching(ld);
    return read_here(ld, err);
}

static void *run(void *arg)
{
    struct loading *ld = arg;
    read_all(ld);
    io_reader_destroy(&ld->opt.reader);
    return NULL;
}

int loading_run_behind(struct loading *ld, struct sl_err *err)
{
    start_touching(ld);
    ld->wanted = -1;
    ld->behind = true;
    if (start_thread(&ld->thread, "sluice-load", run, ld) == 0)
        return 0;
    ld->behind = false;
    ld->wanted = ld->n_blocks;
    int rc = read_here(ld, err);
    io_reader_destroy(&ld->opt.reader);
    return rc;
}

void loading_end(struct loading **pld)
{
    struct loading *ld = *pld;
    if (!ld)
        return;
    atomic_store(&ld->stop, true);
    if (ld->behind)
        pthread_join(ld->thread, NULL);
    if (ld->opt.behind)
        io_reader_destroy(&ld->opt.reader);
    pthread_cond_destroy(&ld->moved);
    pthread_mutex_destroy(&ld->lock);
    mem_free(ld->req);
    mem_free(ld->left);
    mem_free(ld->list.span);
    mem_free(ld);
    *pld = NULL;
}

/* ---- Waiting ---- */

bool loading_has(const struct loading *ld, int block)
{
    return atomic_load(&ld->ready) > block + 1;
}

/* The caller's thread tells how far it is: nobody else calls the program's functions. */
int loading_wait(struct loading *ld, int block, const _Atomic int *cancel, struct sl_err *err)
{
    if (!ld->behind)
        return 0;
    if (atomic_load(&ld->wanted) < block)
        atomic_store(&ld->wanted, block);
    if (loading_has(ld, ld->n_blocks - 2) && ld->told == ld->list.window_bytes)
        return 0;
    pthread_mutex_lock(&ld->lock);
    bool has, cancelled;
    for (;;) {
        has = loading_has(ld, block);
        cancelled = !has && cancel && atomic_load(cancel);
        if (ld->told != ld->done && !cancelled) {
            ld->told = ld->done;
            pthread_mutex_unlock(&ld->lock);
            if (ld->opt.on_load)
                ld->opt.on_load(ld->opt.user, ld->told, ld->list.window_bytes);
            pthread_mutex_lock(&ld->lock);
            continue;
        }
        if (has || cancelled || atomic_load(&ld->over))
            break;
        pthread_cond_wait(&ld->moved, &ld->lock);
    }
    pthread_mutex_unlock(&ld->lock);
    if (has)
        return 0;
    if (cancelled)
        return err_set(err, SL_E_CANCELLED, "session", "cancelled");
    if (ld->err.code == 0)
        return err_set(err, SL_E_INTERNAL, "model", "the weights are no longer being loaded");
    if (err)
        *err = ld->err;
    return ld->err.code;
}
