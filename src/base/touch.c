/* touch.c: threads that share the pieces of memory to touch. */
#include "base/touch.h"

#include "base/mem.h"
#include "base/start.h"

/* In one call: meanwhile nobody can map or unmap memory, and where the host is slow to find pages a
 * call of 32 MiB holds up every such caller for tens of milliseconds. */
#define STEP ((size_t)2 << 20)

/* The next step, in the order of the pieces. */
static bool take_step(struct touch *t, struct touch_piece *out)
{
    pthread_mutex_lock(&t->lock);
    while (t->next < t->n_pieces && t->done == t->piece[t->next].bytes) {
        t->next++;
        t->done = 0;
    }
    bool got = !t->stop && t->next < t->n_pieces;
    if (got) {
        const struct touch_piece *p = &t->piece[t->next];
        size_t left = p->bytes - t->done;
        *out = (struct touch_piece){p->at + t->done, left < STEP ? left : STEP};
        t->done += out->bytes;
    }
    pthread_mutex_unlock(&t->lock);
    return got;
}

static void end_one(struct touch *t)
{
    pthread_mutex_lock(&t->lock);
    bool last = --t->running == 0;
    pthread_mutex_unlock(&t->lock);
    if (last && t->on_done)
        t->on_done(t->user);
}

static void *run(void *arg)
{
    struct touch *t = arg;
    struct touch_piece step;
    while (take_step(t, &step))
        mem_populate(step.at, step.bytes);
    end_one(t);
    return NULL;
}

/* No more than there are steps. */
static int count_threads(const struct touch_piece *piece, int n_pieces)
{
    size_t steps = 0;
    for (int i = 0; i < n_pieces && steps < TOUCH_THREADS; i++)
        steps += piece[i].bytes / STEP + (piece[i].bytes % STEP != 0);
    return steps < TOUCH_THREADS ? (int)steps : TOUCH_THREADS;
}

void touch_begin(struct touch *t, const struct touch_piece *piece, int n_pieces,
                 void (*on_done)(void *user), void *user)
{
    *t = (struct touch){.piece = piece, .n_pieces = n_pieces, .on_done = on_done, .user = user};
    const int want = count_threads(piece, n_pieces);
    t->running = 1 + want;
    pthread_mutex_init(&t->lock, NULL);
    while (t->n_threads < want &&
           start_thread(&t->thread[t->n_threads], "sluice-touch", run, t) == 0)
        t->n_threads++;
    for (int i = t->n_threads; i <= want; i++)
        end_one(t);
}

int touch_end(struct touch *t)
{
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_mutex_unlock(&t->lock);
    for (int i = 0; i < t->n_threads; i++)
        pthread_join(t->thread[i], NULL);
    pthread_mutex_destroy(&t->lock);
    if (t->next < t->n_pieces && t->done == t->piece[t->next].bytes)
        return t->next + 1;
    return t->next;
}
