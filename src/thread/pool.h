/* pool.h: a fixed set of compute threads. Nothing else in the library creates compute threads.
 *
 * The caller is thread 0 and works too. All threads run with the default floating-point
 * environment. Idle workers spin briefly, then sleep. One parallel call at a time per pool. */
#ifndef THREAD_POOL_H
#define THREAD_POOL_H

#include "base/err.h"

struct pool;

/* n_threads >= 1, the caller included. */
int pool_create(int n_threads, struct pool **out, struct sl_err *err);
void pool_destroy(struct pool **pool);
int pool_threads(const struct pool *pool);

/* Bind each thread to a CPU of its own among those that the calling thread may use, one on each
 * core before second hardware threads; SL_E_ARG when there are not enough. After a failure the pool
 * is good for nothing but pool_destroy. Once at most. The caller is bound only
 * from pool_enter to pool_leave, which gives back what it was allowed before; both do nothing for a
 * pool that is not pinned. Threads that are started in between inherit the one CPU. */
int pool_pin(struct pool *pool, struct sl_err *err);
int pool_enter(struct pool *pool, struct sl_err *err);
void pool_leave(struct pool *pool);
/* The CPU of a thread; -1: it is not bound. */
int pool_cpu(const struct pool *pool, int tid);

/* Wall seconds that callers spent in parallel calls so far: the measured compute time. To be asked
 * by the thread that makes the calls. */
double pool_busy(const struct pool *pool);

/* Call fn(arg, tid) once on each thread, tid = 0 .. n-1; returns when all have returned. */
typedef void pool_fn(void *arg, int tid);
void pool_run(struct pool *pool, pool_fn *fn, void *arg);

/* Call fn(arg, begin, end, tid) on pieces that cover [0, n) once. Pieces are multiples of grain
 * (the last may be shorter) and are handed out as threads become free, so a slow core does not hold
 * the rest. fn's result must not depend on the cutting. */
typedef void pool_range_fn(void *arg, int64_t begin, int64_t end, int tid);
void pool_for(struct pool *pool, int64_t n, int64_t grain, pool_range_fn *fn, void *arg);

#endif
