/* iobench.h: the parts of `sluice iobench`. */
#ifndef CLI_IOBENCH_H
#define CLI_IOBENCH_H

#include "bench/drive.h"

#define IOBENCH_MAX_ROWS 96
/* Of the best rate: where the curve counts as flat. */
#define IOBENCH_FLAT 0.95
/* Reading the same places again must not be faster than this. */
#define IOBENCH_AGAIN 1.25

struct iobench_report {
    const char *path;
    bool experts; /* the places are a model's experts; else pieces of a file */
    const struct bench_places *places;
    const char *direct_note; /* why no direct reads; "" */
    char buffered_note[640]; /* why no buffered ones beside direct ones; "" */
    struct bench_drive_row row[IOBENCH_MAX_ROWS];
    bool wanted_direct[IOBENCH_MAX_ROWS];
    int n_rows;
    double copy_gb_s;   /* one thread copying memory */
    double again_ratio; /* of a second reading of the same places to the first; 0: not tried */
};

void iobench_print_head(const struct iobench_report *r);
void iobench_print_row(const struct iobench_report *r, int i);
void iobench_print_end(const struct iobench_report *r);
bool iobench_print_json(const struct iobench_report *r);

#endif
