/* report.c: the results of a run, told as they come, and what can be looked up in them. */
#include <string.h>

#include "base/mem.h"
#include "bench/parts.h"

void bench_tell(const struct bench_run *run, enum bench_event event)
{
    if (run->on_event)
        run->on_event(run->event_arg, run->report, event);
}

/* Room for one more element of an array of n. */
static void *grow(void *p, int n, size_t size, struct sl_err *err)
{
    void *more = n % 64 ? p : mem_realloc(p, ((size_t)n + 64) * size);
    if (!more)
        err_set(err, SL_E_MEM, "bench", "no memory for the results");
    return more;
}

int bench_add_result(struct bench_run *run, const struct bench_result *r, struct sl_err *err)
{
    struct bench_report *rep = run->report;
    struct bench_result *more = grow(rep->results, rep->n_results, sizeof *more, err);
    if (!more)
        return SL_E_MEM;
    rep->results = more;
    more[rep->n_results++] = *r;
    bench_tell(run, BENCH_HAS_RESULT);
    return 0;
}

void bench_free_report(struct bench_report *r)
{
    mem_free(r->ram);
    mem_free(r->peaks);
    mem_free(r->results);
    memset(r, 0, sizeof *r);
}

double bench_find_peak(const struct bench_report *r, enum bench_unit unit, enum kern_level level,
                       int threads)
{
    double best = 0;
    for (int i = 0; i < r->n_peaks; i++) {
        const struct bench_peak *k = &r->peaks[i];
        if (k->unit == unit && k->level <= level && k->threads == threads &&
            k->ops / k->time.best > best)
            best = k->ops / k->time.best;
    }
    return best;
}

/* Memory that is not there would be taken from other programs, or end this one. */
int bench_check_memory(const struct bench_run *run, double bytes, struct sl_err *err)
{
    const uint64_t avail = run->report->machine.avail; /* before anything was allocated */
    const double need = bytes + (double)run->stream.bytes, mib = 1048576;
    if (avail == 0 || need < 0.9 * (double)avail)
        return 0;
    return err_set(
        err, SL_E_MEM, "bench",
        "%.0f MiB are needed, the buffer's %.0f among them, but only %.0f are available; "
        "a smaller --shape, --keys or --buffer, fewer --tokens or --threads need less",
        need / mib, (double)run->stream.bytes / mib, (double)avail / mib);
}
