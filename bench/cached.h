/* cached.h: how fast a model's experts come out of the page cache.
 *
 * A pass reads every expert once, in an order of its own, by buffered reads that a fixed set of
 * threads takes one after the other. Nothing else is in the way: no cache of ours, no arithmetic.
 * Whether the pages were in the page cache is looked up, not assumed. Beside it stand the same
 * tasks as copies from plain memory, and the rate at which the same threads read memory. */
#ifndef BENCH_CACHED_H
#define BENCH_CACHED_H

#include "bench/drive.h"
#include "bench/parts.h"

#define BENCH_MAX_PASSES 100
#define BENCH_MAX_SPLIT  64

struct bench_cached_spec {
    int threads;
    int split;          /* tasks of one expert: pieces of whole pages of its file; 1: whole */
    int warmup, passes; /* passes >= 1; at most BENCH_MAX_PASSES */
    bool slots;         /* read to a place of its own for each expert; else to one for each thread,
                           again and again */
    bool huge;          /* ask for huge pages there */
    uint64_t seed;      /* of the orders */
};
struct bench_cached_row {
    int threads, split, passes;
    int64_t experts, tasks; /* of one pass */
    uint64_t bytes;         /* of one pass */
    double pass_s[BENCH_MAX_PASSES];
    double pass_cached[BENCH_MAX_PASSES]; /* fraction of the probed pages that the page cache held,
                                             before or after the pass, whichever is less */
    double seconds, best_s, worst_s;      /* of all timed passes; of one */
    bool cached;                          /* every probed page, in every timed pass */
    double copy_gb_s; /* the same tasks, but copied from ram; 10^9 bytes per second */
    double read_gb_s; /* the same threads, only reading ram */
};

/* The files of places were opened without direct reads. ram: bench_cached_ram bytes or more. */
int bench_measure_cached(const struct bench_places *places, const struct bench_cached_spec *spec,
                         const struct bench_stream *ram, struct bench_cached_row *out,
                         struct sl_err *err);
/* Bytes that memory for the comparison should have: as much as a pass reads, but not so little that
 * a cache holds it, nor more than `most` where it can be helped. */
uint64_t bench_cached_ram(const struct bench_places *places, int threads, uint64_t most);

double bench_cached_rate(const struct bench_cached_row *r); /* GB/s over all timed passes */

#endif
