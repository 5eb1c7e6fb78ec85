#include "cli/rss.h"

#include "base/mem.h"
#include "base/start.h"
#include "base/sys.h"

#include <pthread.h>
#include <time.h>

enum { PERIOD_NS = 100000000 };

struct rss_sampler {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;
    uint64_t peak;
};

/* The lock is held. */
static void sample(struct rss_sampler *r)
{
    struct sys_rss rss;
    sys_rss("", &rss);
    if (rss.anon + rss.shmem > r->peak)
        r->peak = rss.anon + rss.shmem;
}

static void *rss_main(void *arg)
{
    struct rss_sampler *r = arg;
    pthread_mutex_lock(&r->lock);
    while (!r->stop) {
        struct timespec t;
        sample(r);
        clock_gettime(CLOCK_MONOTONIC, &t);
        t.tv_nsec += PERIOD_NS;
        if (t.tv_nsec >= 1000000000) {
            t.tv_nsec -= 1000000000;
            t.tv_sec++;
        }
        while (!r->stop && pthread_cond_timedwait(&r->wake, &r->lock, &t) == 0)
            ;
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

struct rss_sampler *rss_start(void)
{
    pthread_condattr_t attr;
    struct rss_sampler *r = mem_calloc(1, sizeof *r);
    if (r == NULL)
        return NULL;
    pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&r->wake, &attr);
    pthread_condattr_destroy(&attr);
    if (start_thread(&r->thread, "sluice-rss", rss_main, r) == 0)
        return r;
    pthread_cond_destroy(&r->wake);
    pthread_mutex_destroy(&r->lock);
    mem_free(r);
    return NULL;
}

bool rss_peak(struct rss_sampler *r, uint64_t *bytes)
{
    if (r == NULL)
        return false;
    pthread_mutex_lock(&r->lock);
    sample(r);
    *bytes = r->peak;
    pthread_mutex_unlock(&r->lock);
    return *bytes > 0;
}

void rss_stop(struct rss_sampler **rp)
{
    struct rss_sampler *r = *rp;
    *rp = NULL;
    if (r == NULL)
        return;
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_signal(&r->wake);
    pthread_mutex_unlock(&r->lock);
    pthread_join(r->thread, NULL);
    pthread_cond_destroy(&r->wake);
    pthread_mutex_destroy(&r->lock);
    mem_free(r);
}
