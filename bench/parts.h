/* parts.h: what the files of this folder share. */
#ifndef BENCH_PARTS_H
#define BENCH_PARTS_H

#include "bench/bench.h"
#include "thread/pool.h"

/* splitmix64 (Steele, Lea, Flood 2014): fast and good enough for weights nobody reads. */
static inline uint64_t bench_rand(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

/* Random blocks of a type whose values are all finite and neither huge nor subnormal. bytes: a
 * multiple of the block. */
void bench_fill_weights(enum quant_type type, void *p, size_t bytes, uint64_t *rng);
/* Values between -1 and 1. */
void bench_fill_floats(float *x, size_t n, uint64_t *rng);

/* The buffer that stands for memory: read window after window, round and round, so that each window
 * has left the caches when its turn comes again. */
struct bench_stream {
    uint8_t *p;
    uint64_t bytes, window; /* window: about what one call reads */
};
/* Huge pages where the system gives them, all touched; false: there is no memory. */
bool bench_open_stream(struct bench_stream *s, uint64_t bytes);
void bench_close_stream(struct bench_stream *s); /* also one that is not open */
/* Window for n threads: long enough to time, short enough to leave the caches. */
uint64_t bench_window(uint64_t ram_bytes, int n_threads);

/* Seconds to read window bytes with all threads of the pool; vectors of level. Returns the bytes
 * that one call reads. */
double bench_time_ram(struct pool *pool, const struct bench_stream *s, enum kern_level level,
                      const struct bench_effort *effort, struct bench_time *out);

/* Measure every instruction whose level the plan's CPU has, at one thread count; n: how many were
 * written to out, at most BENCH_MAX_PEAKS. */
#define BENCH_MAX_PEAKS 16
int bench_time_peaks(struct pool *pool, const struct bench_effort *effort,
                     struct bench_peak out[BENCH_MAX_PEAKS]);

/* A loop of n rounds of one instruction and what it does in a round. */
struct bench_loop {
    const char *instruction;
    enum bench_unit unit;
    enum kern_level level;
    int ops; /* multiply-adds per round */
    void (*run)(int64_t rounds);
};
extern const struct bench_loop bench_loops[]; /* ends with a NULL instruction */

/* What the measurements of one run share. */
struct bench_run {
    const struct bench_plan *plan;
    struct bench_report *report;
    bench_event_fn *on_event;
    void *event_arg;
    struct pool *pools[BENCH_MAX_COUNTS]; /* by index in plan->threads */
    struct bench_stream stream;
    uint64_t rng;
};
void bench_tell(const struct bench_run *run, enum bench_event event);
/* Append a result and tell about it. */
int bench_add_result(struct bench_run *run, const struct bench_result *r, struct sl_err *err);
/* Multiply-adds per second of the best instruction of that unit at a level; 0: none. */
double bench_find_peak(const struct bench_report *r, enum bench_unit unit, enum kern_level level,
                       int threads);
/* The table of the next lower level, scalar's where there is none: whose functions does a level
 * keep? */
void bench_init_below(struct kernels *k, enum kern_level level);
/* Refuse what would not fit into the memory that is left. bytes: beside the stream. */
int bench_check_memory(const struct bench_run *run, double bytes, struct sl_err *err);
/* Time fn with the read rate of memory measured directly before and after. */
void bench_time_beside_ram(struct bench_run *run, int i_threads, bench_work *fn, void *arg,
                           struct bench_result *out);

int bench_measure_products(struct bench_run *run, enum quant_type type, struct sl_err *err);
int bench_measure_attention(struct bench_run *run, enum kv_type type, struct sl_err *err);

#endif
