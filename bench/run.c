/* run.c: the order of a run: memory, instructions, kernels, memory again. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/size.h"
#include "bench/parts.h"

int bench_thread_counts(int n, int counts[BENCH_MAX_COUNTS])
{
    int k = 0;
    for (int t = 1; t < n && k<BENCH_MAX_COUNTS - 1; t = n> 8 ? 2 * t : t + 1)
        counts[k++] = t;
    counts[k++] = n;
    return k;
}

uint64_t bench_ram_bytes(const struct bench_machine *m, int n_threads)
{
    const uint64_t least = UINT64_C(512) << 20, for_threads = (uint64_t)n_threads << 27;
    uint64_t want = 16 * m->llc;
    want = want > least ? want : least;
    want = want > for_threads ? want : for_threads;
    return m->avail > 0 && want > m->avail / 2 ? size_down(m->avail / 2, 1 << 21) : want;
}

static void read_ram(struct bench_run *run, bool before)
{
    struct bench_report *r = run->report;
    for (int i = 0; i < run->plan->n_threads; i++) {
        struct bench_ram *ram = &r->ram[i];
        struct bench_stream s = run->stream;
        struct bench_time t;
        ram->threads = pool_threads(run->pools[i]);
        s.window = bench_window(s.bytes, ram->threads);
        ram->bytes = bench_time_ram(run->pools[i], &s, r->level, &run->plan->effort, &t);
        *(before ? &ram->before : &ram->after) = t;
    }
    r->n_ram = run->plan->n_threads;
}

static int measure_limits(struct bench_run *run, struct sl_err *err)
{
    struct bench_report *r = run->report;
    const size_t counts = (size_t)run->plan->n_threads;
    r->ram = mem_calloc(counts, sizeof *r->ram);
    r->peaks = mem_calloc(counts * BENCH_MAX_PEAKS, sizeof *r->peaks);
    if (!r->ram || !r->peaks)
        return err_set(err, SL_E_MEM, "bench", "no memory for the results");
    read_ram(run, true);
    for (size_t i = 0; i < counts; i++)
        r->n_peaks += bench_time_peaks(run->pools[i], &run->plan->effort, r->peaks + r->n_peaks);
    bench_tell(run, BENCH_HAS_LIMITS);
    return 0;
}

static int measure_kernels(struct bench_run *run, struct sl_err *err)
{
    int rc = 0;
    for (int t = 0; rc == 0 && t < QT_COUNT; t++) {
        if (run->plan->types[t] && bench_has_product((enum quant_type)t))
            rc = bench_measure_products(run, (enum quant_type)t, err);
    }
    for (int t = 0; rc == 0 && run->plan->attention && t < KV_N_TYPES; t++)
        rc = bench_measure_attention(run, (enum kv_type)t, err);
    return rc;
}

static int open_run(struct bench_run *run, struct sl_err *err)
{
    const struct bench_plan *p = run->plan;
    int rc = 0;
    const int most = p->threads[p->n_threads - 1];
    if (p->ram_bytes < (uint64_t)most << 16)
        return err_set(err, SL_E_ARG, "--buffer", "--buffer: at least %d KiB for %d threads",
                       64 * most, most);
    run->stream.bytes = p->ram_bytes;
    rc = bench_check_memory(run, 0, err);
    if (rc != 0)
        return rc;
    if (!bench_open_stream(&run->stream, p->ram_bytes))
        return err_set(err, SL_E_MEM, "--buffer", "--buffer: no memory for a buffer of %llu MiB",
                       (unsigned long long)(p->ram_bytes >> 20));
    /* The largest first: it says how many threads were asked for where they cannot be had. */
    for (int i = p->n_threads - 1; rc == 0 && i >= 0; i--) {
        rc = pool_create(p->threads[i], &run->pools[i], err);
        if (rc == 0 && p->pin)
            rc = pool_pin(run->pools[i], err);
    }
    return rc;
}

static void close_run(struct bench_run *run)
{
    for (int i = 0; i < run->plan->n_threads; i++)
        pool_destroy(&run->pools[i]);
    bench_close_stream(&run->stream);
}

/* What others did meanwhile: the whole machine's busy time less our own. */
static void close_accounts(struct bench_report *r, const struct bench_ticks *start, double cpu,
                           double wall)
{
    struct bench_ticks end;
    bench_read_ticks("", &end);
    bench_read_load("", r->load_end);
    r->wall_s = clock_now() - wall;
    r->other_cpus = r->steal_cpus = -1;
    if (start->busy < 0 || end.busy < 0)
        return;
    const double others = end.busy - start->busy - (clock_cpu() - cpu);
    r->other_cpus = others > 0 ? others / r->wall_s : 0;
    r->steal_cpus = (end.steal - start->steal) / r->wall_s;
}

static int measure(struct bench_run *run, struct sl_err *err)
{
    /* Thread 0 is the same thread, and has the same CPU, in all pools. */
    struct pool *p = run->pools[run->plan->n_threads - 1];
    int rc = pool_enter(p, err);
    if (rc != 0)
        return rc;
    rc = measure_limits(run, err);
    if (rc == 0)
        rc = measure_kernels(run, err);
    if (rc == 0)
        read_ram(run, false);
    pool_leave(p);
    return rc;
}

int bench_run(const struct bench_plan *p, bench_event_fn *on_event, void *arg,
              struct bench_report *r, struct sl_err *err)
{
    struct bench_run run = {
        .plan = p, .report = r, .on_event = on_event, .event_arg = arg, .rng = p->seed};
    struct bench_ticks ticks;
    memset(r, 0, sizeof *r);
    bench_read_machine("", &r->machine);
    r->level = kernels_cpu_level();
    bench_read_ticks("", &ticks);
    const double wall = clock_now(), cpu = clock_cpu();
    int rc = open_run(&run, err);
    if (rc == 0)
        rc = measure(&run, err);
    if (rc == 0) {
        close_accounts(r, &ticks, cpu, wall);
        bench_tell(&run, BENCH_HAS_END);
    }
    close_run(&run);
    return rc;
}
