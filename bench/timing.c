/* timing.c: short samples, and what is told about them.
 *
 * A sample is far shorter than a scheduler's slice, so that most samples are undisturbed even on a
 * machine that does other things; the median then says what is usual and the best what is possible.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "bench/bench.h"

#define SAMPLE_S 2e-3 /* a clock with 1 us of jitter adds 0.05 % */
#define BUDGET_S 0.5

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void bench_take_median(double *values, int n, struct bench_time *out)
{
    qsort(values, (size_t)n, sizeof *values, compare);
    out->median = n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
    out->best = values[0];
    out->worst = values[n - 1];
    out->reps = n;
}

static double time_calls(bench_work *fn, void *arg, int64_t calls)
{
    const double start = clock_now();
    fn(arg, calls);
    const double s = clock_now() - start;
    return s > 1e-9 ? s : 1e-9; /* a clock that stood still */
}

void bench_time_work(int reps, bench_work *fn, void *arg, struct bench_time *out)
{
    double samples[BENCH_MAX_REPS];
    int64_t calls = 1;
    double s = time_calls(fn, arg, 1);
    if (s < SAMPLE_S)
        s = time_calls(fn, arg, 1); /* caches are warm now */
    while (s < SAMPLE_S && calls < INT64_C(1) << 40) {
        const double factor = 1.1 * SAMPLE_S / s;
        calls = (int64_t)((double)calls * (factor < 1.5 ? 1.5 : factor > 100 ? 100 : factor)) + 1;
        s = time_calls(fn, arg, calls);
    }
    reps = reps < 1 ? 1 : reps > BENCH_MAX_REPS ? BENCH_MAX_REPS : reps;
    double spent = 0;
    int n = 0;
    do {
        s = time_calls(fn, arg, calls);
        samples[n++] = s / (double)calls;
        spent += s;
    } while (n < reps && spent < BUDGET_S);
    bench_take_median(samples, n, out);
}
