/* touch.h: the first touch of memory, in the background and ahead of its use.
 *
 * A page's first touch costs a fault and the zeroing of the page; on a virtual machine whose host
 * has to find the page first it costs up to 2 s per GB, and several are found at a time. */
#ifndef BASE_TOUCH_H
#define BASE_TOUCH_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOUCH_THREADS 4

struct touch_piece {
    uint8_t *at;
    size_t bytes;
};

struct touch {
    const struct touch_piece *piece;
    int n_pieces;
    void (*on_done)(void *user);
    void *user;
    pthread_mutex_t lock; /* of what follows */
    int next;             /* the piece that is being handed out, */
    size_t done;          /* and its bytes that were */
    int running;          /* threads, and touch_begin itself */
    bool stop;
    /* The caller's own */
    pthread_t thread[TOUCH_THREADS];
    int n_threads;
};

/* Touch the pieces in their order on threads of its own. piece is borrowed until touch_end, and its
 * memory is open until then; others may use it meanwhile. on_done, which may be NULL, is called
 * once, from any thread: all is touched, or touch_end was called, or no thread could be had (then
 * nothing is touched, which harms nobody: pages come with their first use). */
void touch_begin(struct touch *t, const struct touch_piece *piece, int n_pieces,
                 void (*on_done)(void *user), void *user);
/* Stop and wait; returns how many pieces, from the first, were touched. */
int touch_end(struct touch *t);

#endif
