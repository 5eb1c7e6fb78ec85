#include "base/clock.h"

#include <errno.h>
#include <time.h>

#define SLEEP_MAX 1e9 /* seconds; fits into a 32-bit time_t */

static double read_clock(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double clock_now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

double clock_cpu(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

void clock_sleep(double s)
{
    if (!(s > 0)) /* NaN too */
        return;
    if (s > SLEEP_MAX)
        s = SLEEP_MAX;
    struct timespec t = {.tv_sec = (time_t)s, .tv_nsec = (long)((s - (double)(time_t)s) * 1e9)};
    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        ;
}
