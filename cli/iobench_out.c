/* iobench_out.c: what `sluice iobench` prints. */
#include "cli/iobench.h"
#include "cli/json_text.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define MIB 1048576.0

/* "direct", "buffered, cold": what was measured. */
static const char *row_kind(const struct bench_drive_row *r)
{
    return r->direct ? "direct" : "buffered, cold";
}

/* What makes a row's rate not the drive's; NULL: nothing. */
static const char *row_doubt(const struct iobench_report *r, const struct bench_drive_row *row)
{
    if (r->copy_gb_s > 0 && row->gb_s > r->copy_gb_s)
        return "faster than memory is copied: not a drive's rate";
    if (r->again_ratio > IOBENCH_AGAIN && row->direct)
        return "a cache below the file system: not the drive's rate";
    if (row->again)
        return "the file is too small: places were read more than once";
    return NULL;
}

static bool alike(const struct bench_drive_row *a, const struct bench_drive_row *b)
{
    return a->direct == b->direct && strcmp(a->engine, b->engine) == 0;
}

/* The first row among those alike (engine and kind) that reaches IOBENCH_FLAT of the best of them;
 * NULL where row i is not the first of its alikes. */
static const struct bench_drive_row *find_flat(const struct iobench_report *r, int i)
{
    double best = 0;
    for (int j = 0; j < r->n_rows; j++) {
        if (!alike(&r->row[j], &r->row[i]))
            continue;
        if (j < i)
            return NULL;
        best = r->row[j].gb_s > best ? r->row[j].gb_s : best;
    }
    for (int j = i; j < r->n_rows; j++)
        if (alike(&r->row[j], &r->row[i]) && r->row[j].gb_s >= IOBENCH_FLAT * best)
            return &r->row[j];
    return NULL;
}

void iobench_print_head(const struct iobench_report *r)
{
    const struct bench_places *p = r->places;
    printf("%s: %lld %s of %.3f MiB (mean; largest %.3f), %.0f MiB, in random order", r->path,
           (long long)p->n, r->experts ? "expert slices" : "pieces", (double)p->bytes_mean / MIB,
           (double)p->bytes_most / MIB, (double)p->bytes / MIB);
    printf(p->group > 1 ? ", %d of one expert together\n" : "\n", p->group);
    if (*r->direct_note)
        printf("no direct reads: %s\n", r->direct_note);
    printf("memory is copied at %.1f GB/s by one thread\n\n", r->copy_gb_s);
    printf("%-8s %-15s %9s %8s %8s %9s %9s\n", "engine", "reads", "in flight", "GB/s", "MiB/s",
           "reads/s", "CPU s/GB");
    fflush(stdout);
}

void iobench_print_row(const struct iobench_report *r, int i)
{
    const struct bench_drive_row *w = &r->row[i];
    const char *doubt = row_doubt(r, w);
    printf("%-8s %-15s %9d %8.3f %8.0f %9.0f %9.3f%s%s", w->engine, row_kind(w), w->in_flight,
           w->gb_s, w->gb_s * 1e9 / MIB, (double)w->reads / w->seconds,
           w->cpu_s / ((double)w->bytes * 1e-9), doubt ? "  ! " : "", doubt ? doubt : "");
    if (w->cached > 0)
        printf("  (%.0f %% cached: dropped first%s)", 100 * w->cached,
               w->skipped ? ", or left out" : "");
    if (*w->note)
        printf("  (%s)", w->note);
    printf("\n");
    fflush(stdout);
}

void iobench_print_end(const struct iobench_report *r)
{
    printf("\n");
    for (int i = 0; i < r->n_rows; i++) {
        const struct bench_drive_row *flat = find_flat(r, i);
        if (flat)
            printf("%s, %s: flat from %d in flight (%.3f GB/s is %.0f %% of the best or more)\n",
                   flat->engine, row_kind(flat), flat->in_flight, flat->gb_s, 100 * IOBENCH_FLAT);
    }
    if (*r->buffered_note)
        printf("buffered reads were not measured: %s\n", r->buffered_note);
    if (r->again_ratio > IOBENCH_AGAIN)
        printf("! read again, the same places came %.2f times as fast: a cache below the file "
               "system has them, and no direct row is the drive's own rate\n",
               r->again_ratio);
    else if (r->again_ratio > 0)
        printf("read again, the same places came %.2f times as fast: no cache below the file "
               "system shows\n",
               r->again_ratio);
    else
        printf("no cache below the file system was looked for by reading again: the file is too "
               "small, each row read places that had been read before\n");
}

static json_t *json_row(const struct iobench_report *r, int i)
{
    const struct bench_drive_row *w = &r->row[i];
    const char *doubt = row_doubt(r, w);
    return json_pack("{s:s,s:b,s:b,s:i,s:f,s:f,s:f,s:I,s:I,s:f,s:f,s:I,s:b,s:s?,s:s}", "engine",
                     w->engine, "direct", w->direct, "direct_wanted", r->wanted_direct[i],
                     "in_flight", w->in_flight, "gb_s", w->gb_s, "mib_s", w->gb_s * 1e9 / MIB,
                     "seconds", w->seconds, "reads", (json_int_t)w->reads, "bytes",
                     (json_int_t)w->bytes, "cpu_s_per_gb", w->cpu_s / ((double)w->bytes * 1e-9),
                     "cached_before", w->cached, "skipped", (json_int_t)w->skipped, "repeated",
                     w->again, "doubt", doubt, "note", w->note);
}

bool iobench_print_json(const struct iobench_report *r)
{
    const struct bench_places *p = r->places;
    json_t *rows = json_array(), *flat = json_array();
    for (int i = 0; i < r->n_rows; i++) {
        const struct bench_drive_row *f = find_flat(r, i);
        json_array_append_new(rows, json_row(r, i));
        if (f)
            json_array_append_new(flat,
                                  json_pack("{s:s,s:b,s:i,s:f}", "engine", f->engine, "direct",
                                            f->direct, "in_flight", f->in_flight, "gb_s", f->gb_s));
    }
    json_t *all = json_pack(
        "{s:o,s:b,s:I,s:I,s:I,s:I,s:i,s:o,s:o,s:f,s:f,s:o,s:o}", "file", json_text_make(r->path),
        "experts", r->experts, "places", (json_int_t)p->n, "bytes", (json_int_t)p->bytes,
        "read_bytes_mean", (json_int_t)p->bytes_mean, "read_bytes_most", (json_int_t)p->bytes_most,
        "together", p->group, "no_direct", json_text_make(r->direct_note), "no_buffered",
        json_text_make(r->buffered_note), "copy_gb_s", r->copy_gb_s, "again_ratio", r->again_ratio,
        "rows", rows, "flat", flat);
    bool good = all && json_dumpf(all, stdout, JSON_INDENT(2)) == 0 && putchar('\n') != EOF &&
                fflush(stdout) == 0;
    json_decref(all);
    return good;
}
