/* timing.c: short samples, and what is told about them.
 *
 * A sample is far shorter than a scheduler's slice, so that most samples are undisturbed even on a
 * machine that does other things; the median then says what is usual and the best what is possible.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "bench/bench.h"

#define BUDGET_S 0.5
#define LONG_S   0.1 /* too long for an interruption to matter much */

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

/* How many calls a sample takes. A call that was interrupted looks
 * longer than it is, so a count is taken only when two more timings agree that it lasts. */
static void calibrate(double sample_s, bench_work *fn, void *arg, int64_t *calls)
{
    double s = time_calls(fn, arg, 1);
    *calls = 1;
    for (;;) {
        for (int i = 0; i < 2 && s >= sample_s && s < LONG_S; i++) {
            const double again = time_calls(fn, arg, *calls);
            s = again < s ? again : s;
        }
        if (s >= sample_s || *calls > INT64_C(1) << 40)
            return;
        const double factor = 1.1 * sample_s / s;
        *calls = (int64_t)((double)*calls * (factor < 1.5 ? 1.5 : factor > 100 ? 100 : factor)) + 1;
        s = time_calls(fn, arg, *calls);
    }
}

void bench_time_work(const struct bench_effort *effort, bench_work *fn, void *arg,
                     struct bench_time *out)
{
    double samples[BENCH_MAX_REPS], spent = 0;
    int64_t calls;
    int n = 0;
    calibrate(effort->sample_s, fn, arg, &calls);
    do {
        const double s = time_calls(fn, arg, calls);
        samples[n++] = s / (double)calls;
        spent += s;
    } while (n < effort->reps && n < BENCH_MAX_REPS && spent < BUDGET_S);
    bench_take_median(samples, n, out);
}
