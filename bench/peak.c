/* peak.c: the most multiply-adds that a thread's instructions can do, of 8-bit integers and of
 * binary32. The loops themselves are in peak_x86.c and peak_arm.c. */
#include "bench/parts.h"

struct peak_call {
    struct pool *pool;
    const struct bench_loop *loop;
    int64_t rounds;
};

static void run_thread(void *arg, int tid)
{
    (void)tid;
    const struct peak_call *c = arg;
    c->loop->run(c->rounds);
}

#define ROUNDS                                                                                     \
    2000 /* of one call: some microseconds, far above what starting the threads takes              \
          */

static void run_calls(void *arg, int64_t calls)
{
    struct peak_call *c = arg;
    c->rounds = calls * ROUNDS;
    pool_run(c->pool, run_thread, c);
}

int bench_time_peaks(struct pool *pool, const struct bench_effort *effort,
                     struct bench_peak out[BENCH_MAX_PEAKS])
{
    bool levels[KL_COUNT];
    bench_find_levels(levels);
    int n = 0;
    for (const struct bench_loop *l = bench_loops; l->instruction && n < BENCH_MAX_PEAKS; l++) {
        if (!levels[l->level])
            continue;
        struct peak_call c = {.pool = pool, .loop = l};
        struct bench_peak *k = &out[n++];
        *k = (struct bench_peak){.instruction = l->instruction,
                                 .unit = l->unit,
                                 .level = l->level,
                                 .threads = pool_threads(pool),
                                 .ops = (double)ROUNDS * l->ops * pool_threads(pool)};
        bench_time_work(effort, run_calls, &c, &k->time);
    }
    return n;
}
