/* pool.c: how a parallel call travels.
 *
 * The caller writes the job and opens the gate under a new generation. A worker that sees the new
 * generation joins, if the gate is still open, runs the job and leaves. pool_run waits until all
 * workers have been through. pool_for closes the gate as soon as no piece is left and waits only
 * for the workers inside: one that the system has not let run yet delays nobody.
 *
 * Both sides spin first, since in decode the next call comes within microseconds, and sleep on a
 * condition variable when it doesn't. A worker lingers before it sleeps: when experts are streamed
 * the next call comes when a read has ended, a millisecond later, and a core that has slept takes
 * long to wake and then runs slowly for a while. It yields meanwhile to whoever wants its CPU.
 * "About to sleep" is announced in an atomic before the last look at the awaited value, and the
 * other side changes the value before it looks whether anybody sleeps, all sequentially consistent:
 * so no wake-up is lost, and none is paid for when nobody sleeps. */
#include "thread/pool.h"

#include "base/clock.h"
#include "base/fpenv.h"
#include "base/mem.h"
#include "base/start.h"
#include "base/sys.h"
#include "thread/pin.h"

#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>

#define THREADS_MAX    1024
#define SPIN_S         50e-6 /* longer than the serial parts between two calls of one token */
#define LINGER_S       2e-3  /* docs/experiments.md */
#define PAUSES         32    /* between two looks at the clock */
#define PIECES_PER_CPU 32    /* pool_for: a slow core delays the end by one piece at most */

struct worker {
    struct pool *pool;
    pthread_t thread;
    int tid;
};

/* One thread's part of a pool_for: pieces [begin, end) as begin << 32 | end, in one word so that
 * owner and thieves change it by a single compare-and-swap. */
struct share {
    alignas(MEM_ALIGN) _Atomic uint64_t span;
};

struct pool {
    int n_threads;
    bool spin; /* false: threads outnumber the CPUs, and spinning would keep others from working */
    double busy_s; /* written by the caller's thread */
    struct pin pin;
    pool_fn *fn;
    void *arg;
    struct worker *workers; /* n_threads - 1 of them, tid = index + 1 */
    struct share *shares;   /* n_threads */
    pthread_mutex_t lock;
    pthread_cond_t work, done;

    alignas(MEM_ALIGN) _Atomic uint64_t gate; /* see GATE_ below */
    atomic_int sleepers;                      /* workers that sleep or are about to */
    atomic_bool quit;                         /* set before a generation is raised */
    atomic_bool caller_sleeps;
};

/* The gate, from the top: generation (32 bits), open, workers that joined (12), workers still
 * inside (12). One word, so that closing, joining and leaving cannot be seen half. */
#define GATE_OPEN         (UINT64_C(1) << 24)
#define GATE_JOINED(gate) ((int)((gate) >> 12 & 0xfff))
#define GATE_INSIDE(gate) ((int)((gate)&0xfff))
#define GATE_JOIN         (UINT64_C(1) << 12 | 1)
_Static_assert(THREADS_MAX <= 0xfff, "the gate counts workers in 12 bits");

static inline void cpu_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("isb" ::: "memory"); /* yield does nothing on most cores */
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

static uint32_t generation(uint64_t gate)
{
    return (uint32_t)(gate >> 32);
}

/* FULL BARRIER: who announces something and then looks whether the other side sleeps, or the other
 * way round, must not see the old state. That is what a sequentially consistent store and load
 * promise; an exchange also gets it from emulators of Arm, which let the load pass the store. */

typedef bool ready_fn(struct pool *p, uint32_t seen);

static bool has_work(struct pool *p, uint32_t seen)
{
    return generation(atomic_load(&p->gate)) != seen;
}

static bool all_through(struct pool *p, uint32_t unused)
{
    (void)unused;
    uint64_t gate = atomic_load(&p->gate);
    return GATE_JOINED(gate) == p->n_threads - 1 && GATE_INSIDE(gate) == 0;
}

static bool nobody_inside(struct pool *p, uint32_t unused)
{
    (void)unused;
    return GATE_INSIDE(atomic_load(&p->gate)) == 0;
}

/* True as soon as ready says so; false when it is time to sleep. */
static bool spin_for(struct pool *p, ready_fn *ready, uint32_t seen)
{
    if (!p->spin) /* nor sched_yield: on a busy machine it gives away a whole time slice */
        return ready(p, seen);
    double end = 0;
    for (;;) {
        for (int i = 0; i < PAUSES; i++) {
            if (ready(p, seen))
                return true;
            cpu_pause();
        }
        double now = clock_now();
        if (end == 0)
            end = now + SPIN_S;
        else if (now > end)
            return false;
    }
}

static bool linger(struct pool *p, uint32_t seen)
{
    if (!p->spin)
        return false;
    for (double end = clock_now() + LINGER_S; clock_now() < end; sched_yield())
        for (int i = 0; i < PAUSES; i++) {
            if (has_work(p, seen))
                return true;
            cpu_pause();
        }
    return false;
}

static void wait_for_work(struct pool *p, uint32_t seen)
{
    if (spin_for(p, has_work, seen) || linger(p, seen))
        return;
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->sleepers, 1);
    while (!has_work(p, seen))
        pthread_cond_wait(&p->work, &p->lock);
    atomic_fetch_sub(&p->sleepers, 1);
    pthread_mutex_unlock(&p->lock);
}

static void wait_for_workers(struct pool *p, ready_fn *ready)
{
    if (spin_for(p, ready, 0))
        return;
    pthread_mutex_lock(&p->lock);
    atomic_exchange(&p->caller_sleeps, true); /* FULL BARRIER */
    while (!ready(p, 0))
        pthread_cond_wait(&p->done, &p->lock);
    atomic_store(&p->caller_sleeps, false);
    pthread_mutex_unlock(&p->lock);
}

/* Nobody is inside, and the gate is closed or everybody has been through. */
static void raise_generation(struct pool *p)
{
    uint32_t next = generation(atomic_load(&p->gate)) + 1;
    atomic_exchange(&p->gate, (uint64_t)next << 32 | GATE_OPEN); /* FULL BARRIER */
    if (atomic_load(&p->sleepers) > 0) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->work);
        pthread_mutex_unlock(&p->lock);
    }
}

/* False: the gate of the newest generation is closed already. *seen: that generation. */
static bool join(struct pool *p, uint32_t *seen)
{
    uint64_t gate = atomic_load(&p->gate);
    do {
        *seen = generation(gate);
        if (!(gate & GATE_OPEN))
            return false;
    } while (!atomic_compare_exchange_weak(&p->gate, &gate, gate + GATE_JOIN));
    return true;
}

/* After the first line the caller may return and begin the next job: a signal too many is harmless,
 * it looks again. */
static void leave(struct pool *p)
{
    atomic_fetch_sub(&p->gate, 1);
    if (atomic_load(&p->caller_sleeps)) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_signal(&p->done);
        pthread_mutex_unlock(&p->lock);
    }
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    fpenv_enter();
    for (uint32_t seen = 0;;) {
        wait_for_work(p, seen);
        if (atomic_load(&p->quit))
            return NULL;
        if (!join(p, &seen))
            continue;
        p->fn(p->arg, w->tid);
        leave(p);
    }
}

/* Returns how many threads were started. */
static int start_workers(struct pool *p, int *errnum)
{
    int n = 0;
    *errnum = 0;
    for (; n < p->n_threads - 1; n++) {
        struct worker *w = &p->workers[n];
        *w = (struct worker){.pool = p, .tid = n + 1};
        char name[24];
        snprintf(name, sizeof name, "sluice-%d", w->tid);
        *errnum = start_thread(&w->thread, name, work, w);
        if (*errnum)
            break;
    }
    return n;
}

int pool_create(int n_threads, struct pool **out, struct sl_err *err)
{
    *out = NULL;
    if (n_threads < 1 || n_threads > THREADS_MAX)
        return err_set(err, SL_E_ARG, "threads", "must be between 1 and %d, not %d", THREADS_MAX,
                       n_threads);
    struct pool *p = mem_calloc(1, sizeof *p);
    struct worker *workers = mem_calloc((size_t)n_threads, sizeof *workers);
    struct share *shares = mem_calloc((size_t)n_threads, sizeof *shares);
    if (!p || !workers || !shares) {
        mem_free(p);
        mem_free(workers);
        mem_free(shares);
        return err_set(err, SL_E_MEM, "threads", "no memory for %d threads", n_threads);
    }
    p->workers = workers;
    p->shares = shares;
    p->n_threads = n_threads;
    p->spin = n_threads <= sys_usable_cpus("");
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->done, NULL);
    int errnum, started = start_workers(p, &errnum);
    if (errnum) {
        p->n_threads = started + 1;
        pool_destroy(&p);
        return err_sys(err, SL_E_SYSTEM, "threads", errnum, "cannot start thread %d of %d",
                       started + 2, n_threads);
    }
    *out = p;
    return 0;
}

void pool_destroy(struct pool **pp)
{
    if (!pp || !*pp)
        return;
    struct pool *p = *pp;
    *pp = NULL;
    atomic_store(&p->quit, true);
    raise_generation(p);
    for (int i = 0; i < p->n_threads - 1; i++)
        pthread_join(p->workers[i].thread, NULL);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    mem_free(p->workers);
    mem_free(p->shares);
    pin_free(&p->pin);
    mem_free(p);
}

int pool_pin(struct pool *p, struct sl_err *err)
{
    int rc = pin_choose(&p->pin, p->n_threads, err);
    for (int tid = 1; rc == 0 && tid < p->n_threads; tid++)
        rc = pin_bind(&p->pin, p->workers[tid - 1].thread, tid, err);
    return rc;
}

int pool_cpu(const struct pool *p, int tid)
{
    return p->pin.cpus ? p->pin.cpus[tid] : -1;
}

int pool_enter(struct pool *p, struct sl_err *err)
{
    return pin_enter(&p->pin, err);
}

void pool_leave(struct pool *p)
{
    pin_leave(&p->pin);
}

int pool_threads(const struct pool *p)
{
    return p->n_threads;
}

double pool_busy(const struct pool *p)
{
    return p->busy_s;
}

static void run(struct pool *p, pool_fn *fn, void *arg, ready_fn *until)
{
    uint64_t old = fpenv_enter();
    double start = clock_now();
    if (p->n_threads > 1) {
        p->fn = fn;
        p->arg = arg;
        raise_generation(p);
    }
    fn(arg, 0);
    if (p->n_threads > 1) {
        if (until == nobody_inside)
            atomic_fetch_and(&p->gate, ~GATE_OPEN);
        wait_for_workers(p, until);
    }
    p->busy_s += clock_now() - start;
    fpenv_restore(old);
}

void pool_run(struct pool *p, pool_fn *fn, void *arg)
{
    run(p, fn, arg, all_through);
}

/* pool_for: every thread owns a contiguous share and takes its pieces in rising order, so that it
 * walks memory as a stream; who is done takes pieces from the end of the others' shares, those of
 * threads that never came too. */
struct range {
    pool_range_fn *fn;
    void *arg;
    int64_t n, piece; /* items; items per piece */
    struct share *shares;
    int n_threads;
};

/* The first (or last) piece of a share; -1: it is empty. */
static int64_t take_piece(struct share *s, bool last)
{
    uint64_t span = atomic_load_explicit(&s->span, memory_order_relaxed), left;
    uint32_t begin, end;
    do {
        begin = (uint32_t)(span >> 32);
        end = (uint32_t)span;
        if (begin >= end)
            return -1;
        left = last ? span - 1 : span + ((uint64_t)1 << 32);
    } while (!atomic_compare_exchange_weak_explicit(&s->span, &span, left, memory_order_relaxed,
                                                    memory_order_relaxed));
    return last ? (int64_t)end - 1 : (int64_t)begin;
}

static void run_piece(const struct range *r, int64_t i, int tid)
{
    int64_t begin = i * r->piece, left = r->n - begin;
    r->fn(r->arg, begin, left > r->piece ? begin + r->piece : r->n, tid);
}

static void run_pieces(void *arg, int tid)
{
    const struct range *r = arg;
    int64_t i;
    while ((i = take_piece(&r->shares[tid], false)) >= 0)
        run_piece(r, i, tid);
    for (int k = 1; k < r->n_threads; k++) {
        struct share *other = &r->shares[(tid + k) % r->n_threads];
        while ((i = take_piece(other, true)) >= 0)
            run_piece(r, i, tid);
    }
}

static void deal_shares(struct pool *p, int64_t n_pieces)
{
    for (int t = 0; t < p->n_threads; t++) {
        uint64_t begin = (uint64_t)(n_pieces * t / p->n_threads);
        uint64_t end = (uint64_t)(n_pieces * (t + 1) / p->n_threads);
        atomic_store_explicit(&p->shares[t].span, begin << 32 | end, memory_order_relaxed);
    }
}

void pool_for(struct pool *p, int64_t n, int64_t grain, pool_range_fn *fn, void *arg)
{
    if (n <= 0)
        return;
    if (grain < 1)
        grain = 1;
    if (p->n_threads == 1 || n <= grain) { /* not worth waking anybody */
        uint64_t old = fpenv_enter();
        double start = clock_now();
        fn(arg, 0, n, 0);
        p->busy_s += clock_now() - start;
        fpenv_restore(old);
        return;
    }
    int64_t grains = n / grain + (n % grain != 0);
    int64_t per_piece = grains / ((int64_t)p->n_threads * PIECES_PER_CPU);
    if (per_piece < 1) /* at most twice threads x PIECES_PER_CPU pieces: far below 2^32 */
        per_piece = 1;
    struct range r = {.fn = fn,
                      .arg = arg,
                      .n = n,
                      .piece = grain * per_piece,
                      .shares = p->shares,
                      .n_threads = p->n_threads};
    deal_shares(p, grains / per_piece + (grains % per_piece != 0));
    run(p, run_pieces, &r, nobody_inside);
}
