/* pin.h: compute threads bound to CPUs: the workers for good, the caller while it computes. */
#ifndef THREAD_PIN_H
#define THREAD_PIN_H

#include "base/cpus.h"

struct pin {
    int *cpus;               /* of each thread, the caller first; NULL: none is bound */
    struct cpus_mask caller; /* what the caller may use, from pin_enter to pin_leave */
};

/* A CPU for each of n threads (cpus_order); SL_E_ARG when there are not enough. */
int pin_choose(struct pin *p, int n, struct sl_err *err);
int pin_bind(const struct pin *p, pthread_t thread, int tid, struct sl_err *err);
/* Bind the calling thread as thread 0, and give it back what it might use before. Nothing happens
 * where no CPUs were chosen. */
int pin_enter(struct pin *p, struct sl_err *err);
void pin_leave(const struct pin *p);
void pin_free(struct pin *p);

#endif
