/* cachebench.h: the parts of `sluice cachebench`. */
#ifndef CLI_CACHEBENCH_H
#define CLI_CACHEBENCH_H

#include "bench/cached.h"
#include "model/packed.h"

#include <stdio.h>

struct cachebench_args {
    const char *model, *file, *csv;
    int64_t stride, layer, experts, q4, q3, q2;
    int64_t threads, split, warmup, passes, slots, huge, seed, sweep, json;
};

/* ---- cachebench_source.c: where the experts are ---- */

struct cachebench_source {
    char path[4096]; /* of the first file */
    char what[160];  /* "layer 0, Q3_K", "bytes of any kind" */
    int layer;       /* -1: not known */
    struct io_file *file[BENCH_MAX_PARTS];
    int n_files;
    struct bench_places places;
    int64_t experts;       /* that are read */
    uint64_t expert_bytes; /* of one */
};
/* Find the experts that the arguments name; SL_E_ARG names both numbers when there are fewer than
 * asked for. To be closed also after a failure. */
int cachebench_open(const struct cachebench_args *a, struct cachebench_source *s,
                    struct sl_err *err);
void cachebench_close(struct cachebench_source *s);

/* ---- cachebench_out.c ---- */

#define CACHEBENCH_MAX_ROWS 96
struct cachebench_report {
    const struct cachebench_args *args;
    const struct cachebench_source *source;
    struct bench_cached_row row[CACHEBENCH_MAX_ROWS];
    int n_rows, best; /* best: the row that is reported as such; -1: none was cached */
};
void cachebench_print_head(const struct cachebench_report *r);
void cachebench_print_passes(const struct cachebench_report *r); /* of the only row */
void cachebench_print_row(const struct cachebench_report *r, int i);
void cachebench_print_best(const struct cachebench_report *r);
/* What speaks against calling this a cached rate, to out. */
void cachebench_print_doubt(const struct cachebench_report *r, FILE *out);
bool cachebench_print_json(const struct cachebench_report *r);
int cachebench_write_csv(const struct cachebench_report *r, struct sl_err *err);

#endif
