/* cachebench_out.c: what `sluice cachebench` prints and writes. */
#include "cli/cachebench.h"
#include "cli/json_text.h"
#include "cli/outfile.h"

#include "sluice.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define MIB 1048576.0
#define GIB 1073741824.0

static double gib_of(double gb_s)
{
    return gb_s * 1e9 / GIB;
}

static double us_per_expert(const struct bench_cached_row *r, double seconds)
{
    return seconds * 1e6 / (double)r->experts;
}

static double mean_s(const struct bench_cached_row *r)
{
    return r->seconds / r->passes;
}

static double rate_of(const struct bench_cached_row *r, double seconds)
{
    return (double)r->bytes / seconds * 1e-9;
}

static double least_cached(const struct bench_cached_row *r)
{
    double least = 1;
    for (int i = 0; i < r->passes; i++)
        least = r->pass_cached[i] < least ? r->pass_cached[i] : least;
    return least;
}

/* ---- For people ---- */

static const char *dest_name(const struct cachebench_args *a)
{
    return a->slots ? "slots" : "thread";
}

void cachebench_print_head(const struct cachebench_report *r)
{
    const struct cachebench_source *s = r->source;
    const struct cachebench_args *a = r->args;
    printf("%s: %s\n", s->path, s->what);
    printf("%lld experts of %llu bytes (%.3f MiB)%s, %.1f MiB a pass, each pass in another order\n",
           (long long)s->experts, (unsigned long long)s->expert_bytes,
           (double)s->expert_bytes / MIB, s->places.group > 1 ? " in several pieces" : "",
           (double)s->places.bytes / MIB);
    printf("buffered reads to %s%s; %lld passes to warm up, %lld timed; seed %lld\n",
           a->slots ? "a place for each expert" : "one buffer for each thread",
           a->huge ? ", huge pages asked for" : "", (long long)a->warmup, (long long)a->passes,
           (long long)a->seed);
    if (!a->sweep)
        printf("%lld threads, split %lld: %lld tasks\n\n", (long long)a->threads,
               (long long)a->split, (long long)(s->experts * a->split));
    else
        printf("\n| threads | split | tasks |    GB/s |   GiB/s | us/expert | best GB/s | worst "
               "GB/s | memcpy GB/s | of memcpy | RAM read GB/s |\n"
               "| ------: | ----: | ----: | ------: | ------: | --------: | --------: | "
               "---------: | ----------: | --------: | ------------: |\n");
    fflush(stdout);
}

static void print_line(const char *name, const struct bench_cached_row *r, double seconds,
                       const char *mark)
{
    const double gb_s = rate_of(r, seconds);
    printf("%-8s %10.3f %9.3f %9.3f %10.2f%s\n", name, seconds * 1e3, gb_s, gib_of(gb_s),
           us_per_expert(r, seconds), mark);
}

void cachebench_print_passes(const struct cachebench_report *rep)
{
    const struct bench_cached_row *r = &rep->row[0];
    const double gb_s = bench_cached_rate(r);
    const char *mark = r->cached ? "" : "  ! not a cached rate";
    printf("%-8s %10s %9s %9s %10s\n", "pass", "ms", "GB/s", "GiB/s", "us/expert");
    for (int i = 0; i < r->passes; i++) {
        char name[16], cold[48] = "";
        snprintf(name, sizeof name, "%d", i + 1);
        if (r->pass_cached[i] < 1)
            snprintf(cold, sizeof cold, "  ! %.1f %% cached", 100 * r->pass_cached[i]);
        print_line(name, r, r->pass_s[i], cold);
    }
    print_line("average", r, mean_s(r), mark);
    print_line("best", r, r->best_s, mark);
    print_line("worst", r, r->worst_s, mark);
    printf("\ntasks %lld, bytes %llu a pass, %llu in all timed passes\n", (long long)r->tasks,
           (unsigned long long)r->bytes, (unsigned long long)r->bytes * (unsigned)r->passes);
    printf("memcpy   %8.3f GB/s %8.3f GiB/s  the same tasks from plain memory: reads reach %.0f %% "
           "of it\n",
           r->copy_gb_s, gib_of(r->copy_gb_s), 100 * gb_s / r->copy_gb_s);
    printf("RAM read %8.3f GB/s %8.3f GiB/s  the same threads, only loading it\n", r->read_gb_s,
           gib_of(r->read_gb_s));
    if (r->cached)
        printf("cached: yes, every page looked at, before and after every timed pass\n");
}

void cachebench_print_row(const struct cachebench_report *rep, int i)
{
    const struct bench_cached_row *r = &rep->row[i];
    const double gb_s = bench_cached_rate(r);
    printf("| %7d | %5d | %5lld | %7.3f | %7.3f | %9.2f | %9.3f | %10.3f | %11.3f | %7.0f %% | "
           "%13.3f |%s\n",
           r->threads, r->split, (long long)r->tasks, gb_s, gib_of(gb_s),
           us_per_expert(r, mean_s(r)), rate_of(r, r->best_s), rate_of(r, r->worst_s), r->copy_gb_s,
           100 * gb_s / r->copy_gb_s, r->read_gb_s, r->cached ? "" : " ! not cached");
    fflush(stdout);
}

void cachebench_print_best(const struct cachebench_report *r)
{
    if (r->best < 0)
        return;
    const struct bench_cached_row *w = &r->row[r->best];
    printf("\nbest: %d threads, split %d: %.3f GB/s, %.2f us/expert\n", w->threads, w->split,
           bench_cached_rate(w), us_per_expert(w, mean_s(w)));
}

void cachebench_print_doubt(const struct cachebench_report *r, FILE *out)
{
    double least = 1;
    for (int i = 0; i < r->n_rows; i++) {
        const double cached = least_cached(&r->row[i]);
        least = cached < least ? cached : least;
    }
    if (least < 1)
        fprintf(out,
                "cached: NO, of the pages looked at only %.1f %% were in the page cache at some "
                "timed pass: its rate is not the page cache's%s\n",
                100 * least,
                r->args->warmup ? "; do the experts fit into the memory that is free?"
                                : "; --warmup reads them first");
}

/* ---- For programs ---- */

static json_t *json_row(const struct bench_cached_row *r)
{
    const double gb_s = bench_cached_rate(r);
    json_t *passes = json_array();
    for (int i = 0; i < r->passes; i++)
        json_array_append_new(passes, json_real(rate_of(r, r->pass_s[i])));
    return json_pack("{s:i,s:i,s:I,s:I,s:I,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:o,s:b,s:f}", "threads",
                     r->threads, "split", r->split, "experts", (json_int_t)r->experts, "tasks",
                     (json_int_t)r->tasks, "bytes", (json_int_t)r->bytes, "gb_s", gb_s, "gib_s",
                     gib_of(gb_s), "best_gb_s", rate_of(r, r->best_s), "worst_gb_s",
                     rate_of(r, r->worst_s), "us_per_expert", us_per_expert(r, mean_s(r)),
                     "memcpy_gb_s", r->copy_gb_s, "read_gb_s", r->read_gb_s, "passes", passes,
                     "cached", r->cached, "cached_fraction", least_cached(r));
}

static json_t *json_head(const struct cachebench_report *r)
{
    const struct cachebench_source *s = r->source;
    const struct cachebench_args *a = r->args;
    return json_pack("{s:s,s:o,s:s,s:o,s:I,s:s,s:b,s:i,s:I}", "version", SL_VERSION, "file",
                     json_text_make(s->path), "what", s->what, "layer",
                     s->layer >= 0 ? json_integer(s->layer) : json_null(), "expert_bytes",
                     (json_int_t)s->expert_bytes, "dest", dest_name(a), "hugepages", a->huge != 0,
                     "warmup", (int)a->warmup, "seed", (json_int_t)a->seed);
}

/* A sweep has its settings in "rows"; a single setting stands on top. */
static json_t *json_report(const struct cachebench_report *r)
{
    json_t *all = json_head(r);
    if (!all || !r->args->sweep) {
        json_t *row = json_row(&r->row[0]);
        if (all && (!row || json_object_update(all, row) != 0)) {
            json_decref(all);
            all = NULL;
        }
        json_decref(row);
        return all;
    }
    json_t *rows = json_array();
    for (int i = 0; i < r->n_rows; i++)
        json_array_append_new(rows, json_row(&r->row[i]));
    json_object_set_new(all, "rows", rows);
    json_object_set_new(all, "best", r->best < 0 ? json_null() : json_row(&r->row[r->best]));
    return all;
}

bool cachebench_print_json(const struct cachebench_report *r)
{
    json_t *all = json_report(r);
    const bool good = all && json_dumpf(all, stdout, JSON_INDENT(2)) == 0 && putchar('\n') != EOF &&
                      fflush(stdout) == 0;
    json_decref(all);
    return good;
}

static int put_csv(struct outfile *f, const struct cachebench_report *r, struct sl_err *err)
{
    const struct cachebench_args *a = r->args;
    char line[5000];
    int n = snprintf(line, sizeof line,
                     "# sluice cachebench csv v1\n# version=%s\n# file=%s\n# what=%s\n"
                     "# expert_bytes=%llu\n# dest=%s\n# hugepages=%d\n# warmup=%lld\n# seed=%lld\n"
                     "threads,split,experts,tasks,bytes,pass,seconds,gb_s,us_per_expert,"
                     "cached_fraction,memcpy_gb_s,read_gb_s\n",
                     SL_VERSION, r->source->path, r->source->what,
                     (unsigned long long)r->source->expert_bytes, dest_name(a), a->huge != 0,
                     (long long)a->warmup, (long long)a->seed);
    int rc = outfile_write(f, line, (size_t)n, err);
    for (int i = 0; i < r->n_rows; i++)
        for (int k = 0; rc == 0 && k < r->row[i].passes; k++) {
            const struct bench_cached_row *w = &r->row[i];
            n = snprintf(
                line, sizeof line, "%d,%d,%lld,%lld,%llu,%d,%.9f,%.4f,%.3f,%.4f,%.4f,%.4f\n",
                w->threads, w->split, (long long)w->experts, (long long)w->tasks,
                (unsigned long long)w->bytes, k + 1, w->pass_s[k], rate_of(w, w->pass_s[k]),
                us_per_expert(w, w->pass_s[k]), w->pass_cached[k], w->copy_gb_s, w->read_gb_s);
            rc = outfile_write(f, line, (size_t)n, err);
        }
    return rc;
}

int cachebench_write_csv(const struct cachebench_report *r, struct sl_err *err)
{
    struct outfile *f;
    int rc = outfile_open(r->args->csv, "--csv", &f, err);
    if (rc < 0)
        return rc;
    rc = put_csv(f, r, err);
    if (rc < 0) {
        outfile_discard(&f);
        return rc;
    }
    return outfile_commit(&f, err);
}
