/* bench_print.c: the table of `sluice bench`, and what speaks against its numbers. */
#include "cli/bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOVED 0.10 /* memory changed its speed: relative difference of two read rates */

const char *bench_limit_name(enum bench_limit limit)
{
    static const char *const names[] = {
        [BENCH_BY_INT8] = "int8",   [BENCH_BY_FMA] = "FMA",         [BENCH_BY_RAM] = "RAM",
        [BENCH_BY_CACHE] = "cache", [BENCH_BY_RAM_FMA] = "RAM+FMA",
    };
    return names[limit];
}

const char *bench_kernel_name(enum bench_kernel kernel)
{
    static const char *const names[] = {
        [BENCH_GEMV] = "gemv", [BENCH_GEMM] = "gemm", [BENCH_ATTENTION] = "attention"};
    return names[kernel];
}

/* ---- Warnings ---- */

static bool moved(double a, double b)
{
    return fabs(a - b) > MOVED * (a < b ? a : b);
}

/* How often memory changed its speed beside a result. */
static int count_moved(const struct bench_report *r)
{
    int n = 0;
    for (int i = 0; i < r->n_results; i++)
        n += r->results[i].ram_before > 0 &&
             moved(r->results[i].ram_before, r->results[i].ram_after);
    return n;
}

static const struct bench_ram *find_moved_ram(const struct bench_report *r)
{
    for (int i = 0; i < r->n_ram; i++)
        if (moved(1 / r->ram[i].before.median, 1 / r->ram[i].after.median))
            return &r->ram[i];
    return NULL;
}

#define WARN(...)                                                                                  \
    (n < BENCH_MAX_WARNINGS ? snprintf(out[n++].text, sizeof out->text, __VA_ARGS__) : 0)

static int warn_start(const struct bench_plan *p, const struct bench_report *r,
                      struct bench_warning *out)
{
    const struct bench_machine *m = &r->machine;
    int n = 0;
    if (m->load[0] > 0.5)
        WARN("the machine is busy (load average %.2f): medians are too low, look at the best",
             m->load[0]);
    if (m->governor[0] && strcmp(m->governor, "performance") != 0)
        WARN("the CPU's frequency governor is '%s': speeds depend on what ran before", m->governor);
    if (p->ram_bytes < 4 * m->llc)
        WARN("the buffer of %.1f MiB is not far larger than the cache of %.1f MiB: what is called "
             "RAM may be cache",
             (double)p->ram_bytes / 1048576, (double)m->llc / 1048576);
    if (p->threads[p->n_threads - 1] > m->usable_cpus)
        WARN("%d threads on %d usable CPUs wait for one another", p->threads[p->n_threads - 1],
             m->usable_cpus);
#ifndef __OPTIMIZE__
    WARN("this build is not optimised: build with CMAKE_BUILD_TYPE=Release");
#endif
    return n;
}

int bench_list_warnings(const struct bench_plan *p, const struct bench_report *r, bool end,
                        struct bench_warning out[BENCH_MAX_WARNINGS])
{
    int n = warn_start(p, r, out);
    if (!end)
        return n;
    if (r->other_cpus > 0.1)
        WARN("other processes kept %.1f CPUs busy meanwhile", r->other_cpus);
    if (r->steal_cpus > 0.05)
        WARN("the hypervisor withheld %.2f CPUs", r->steal_cpus);
    const struct bench_ram *ram = find_moved_ram(r);
    if (ram)
        WARN("memory changed its speed: %d thread%s read %.1f GB/s before and %.1f after",
             ram->threads, ram->threads == 1 ? "" : "s", ram->bytes / ram->before.median * 1e-9,
             ram->bytes / ram->after.median * 1e-9);
    const int rows = count_moved(r);
    if (rows)
        WARN("beside %d result%s memory changed its speed by more than 10 %%: see ram_before and "
             "ram_after in --json",
             rows, rows == 1 ? "" : "s");
    return n;
}

static void print_warnings(const struct bench_plan *p, const struct bench_report *r, bool end)
{
    struct bench_warning w[BENCH_MAX_WARNINGS], early[BENCH_MAX_WARNINGS];
    const int n = bench_list_warnings(p, r, end, w);
    const int told = end ? bench_list_warnings(p, r, false, early) : 0;
    fflush(stdout);
    for (int i = told; i < n; i++)
        fprintf(stderr, "sluice: warning: %s\n", w[i].text);
}

/* ---- The table ---- */

static double spread(const struct bench_time *t)
{
    return 100 * (t->worst - t->best) / t->median;
}

static void print_size(uint64_t bytes, const char *what)
{
    if (bytes == 0)
        printf("%s not known", what);
    else if (bytes < 1u << 20)
        printf("%s %.0f KiB", what, (double)bytes / 1024);
    else if (bytes < 1u << 30)
        printf("%s %.0f MiB", what, (double)bytes / 1048576);
    else
        printf("%s %.1f GiB", what, (double)bytes / 1073741824);
}

static void print_load(const double load[3])
{
    if (load[0] < 0)
        printf("not known");
    else
        printf("%.2f %.2f %.2f", load[0], load[1], load[2]);
}

static void print_machine(const struct bench_plan *p, const struct bench_report *r)
{
    const struct bench_machine *m = &r->machine;
    printf("CPU         %s, %d of %d CPUs usable, best level %s, ",
           m->cpu[0] ? m->cpu : "not known", m->usable_cpus, m->online_cpus,
           kernels_level_name(r->level));
    print_size(m->l2, "L2");
    printf(", ");
    print_size(m->llc, "last level");
    printf("\nsystem      %s, ", m->os[0] ? m->os : "not known");
    print_size(m->memory, "memory");
    printf(", ");
    print_size(m->avail, "available");
    printf(", governor %s", m->governor[0] ? m->governor : "not known");
    if (m->mhz_max > 0)
        printf(", at most %.0f MHz", m->mhz_max);
    printf("\nload        ");
    print_load(m->load);
    printf("\nmeasured    median of %d samples of %.3g ms, ", p->effort.reps,
           1e3 * p->effort.sample_s);
    print_size(p->ram_bytes, "buffer");
    printf(", seed %llu%s\n\n", (unsigned long long)p->seed, p->pin ? ", threads pinned" : "");
}

static void print_ram(const struct bench_ram *ram, const struct bench_time *t, const char *when)
{
    printf("RAM read    %3d thread%s %8.2f GB/s   best %.2f, spread %.1f %%%s\n", ram->threads,
           ram->threads == 1 ? " " : "s", ram->bytes / t->median * 1e-9,
           ram->bytes / t->best * 1e-9, spread(t), when);
}

static void print_limits(const struct bench_report *r)
{
    for (int i = 0; i < r->n_ram; i++)
        print_ram(&r->ram[i], &r->ram[i].before, "");
    for (int i = 0; i < r->n_peaks; i++) {
        const struct bench_peak *k = &r->peaks[i];
        const double macs = k->ops / k->time.median;
        printf("peak        %3d thread%s ", k->threads, k->threads == 1 ? " " : "s");
        if (k->unit == BENCH_FMA)
            printf("%8.2f GFMA/s", macs * 1e-9);
        else
            printf("%8.3f TOP/s ", macs * BENCH_OPS_PER_MAC * 1e-12);
        printf(" best %.3f, spread %.1f %%, %s (%s)\n",
               k->ops / k->time.best * (k->unit == BENCH_FMA ? 1e-9 : BENCH_OPS_PER_MAC * 1e-12),
               spread(&k->time), k->instruction, kernels_level_name(k->level));
    }
}

static void print_header(void)
{
    printf("\n%-9s %-7s %-11s %3s %6s %-5s %11s %8s %8s %8s %6s  %-7s %s\n", "kernel", "type",
           "level", "thr", "tokens", "from", "shape", "GB/s", "best", "TOP/s", "spread", "limit",
           "share");
}

static void print_result(const struct bench_result *r)
{
    char level[24], shape[32];
    snprintf(level, sizeof level, "%s%s", kernels_level_name(r->level), r->own ? "" : "=");
    snprintf(shape, sizeof shape, "%dx%d", r->rows, r->cols);
    printf("%-9s %-7s %-11s %3d %6d %-5s %11s %8.2f %8.2f %8.4f %5.1f%%  ",
           bench_kernel_name(r->kernel), r->type, level, r->threads, r->tokens,
           r->source == BENCH_RAM ? "RAM" : "cache", shape, r->bytes / r->time.median * 1e-9,
           r->bytes / r->time.best * 1e-9, r->ops * BENCH_OPS_PER_MAC / r->time.median * 1e-12,
           spread(&r->time));
    if (r->limit == BENCH_NO_LIMIT)
        printf("-\n");
    else
        printf("%-7s %.3f\n", bench_limit_name(r->limit), r->limit_s / r->time.median);
}

void bench_print_event(void *plan, const struct bench_report *r, enum bench_event event)
{
    const struct bench_plan *p = plan;
    switch (event) {
    case BENCH_HAS_LIMITS:
        print_machine(p, r);
        print_warnings(p, r, false);
        print_limits(r);
        print_header();
        break;
    case BENCH_HAS_RESULT:
        print_result(&r->results[r->n_results - 1]);
        break;
    case BENCH_HAS_END:
        printf("\n");
        for (int i = 0; i < r->n_ram; i++)
            print_ram(&r->ram[i], &r->ram[i].after, ", at the end");
        printf("load        ");
        print_load(r->load_end);
        printf(" at the end, after %.1f s\n", r->wall_s);
        print_warnings(p, r, true);
        break;
    }
    fflush(stdout);
}
