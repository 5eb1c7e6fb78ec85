/* bench.h: how fast the kernels are, beside what the machine can do at most.
 *
 * A plan says what to measure, bench_run measures and fills a report. Everything is measured in one
 * process, one after the other, each number as the median of short samples: the read rate of memory
 * before and after every product from memory, the peaks of the arithmetic instructions, then the
 * kernels. Nothing is printed here. A report is the caller's, to be freed by bench_free_report. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "base/err.h"
#include "kernels/kernels.h"

#define BENCH_MAX_COUNTS 32 /* thread counts, token counts */
#define BENCH_MAX_REPS   1001

/* ---- Time ---- */

struct bench_time {
    double median, best, worst; /* seconds of one call */
    int reps;                   /* samples taken; fewer than asked for where one takes long */
};
/* Do the work calls times. */
typedef void bench_work(void *arg, int64_t calls);
struct bench_effort {
    int reps;        /* samples */
    double sample_s; /* least length of one */
};
/* Samples of as many calls as they take, after calls that do not count; they end after half a
 * second in all, with at least one. */
void bench_time_work(const struct bench_effort *effort, bench_work *fn, void *arg,
                     struct bench_time *out);
/* Median, least and greatest of n >= 1 values, which are sorted. */
void bench_take_median(double *values, int n, struct bench_time *out);

/* ---- The machine ---- */

struct bench_machine {
    char cpu[96];      /* as the system names it; "" where it does not */
    char os[96];       /* system and release */
    char governor[32]; /* of CPU 0; "" where the system has none */
    int usable_cpus, online_cpus;
    uint64_t l2, llc;       /* bytes of CPU 0's second and last level cache; 0: not known */
    uint64_t memory, avail; /* bytes */
    double mhz_max;         /* 0: not known */
    double load[3];         /* over 1, 5 and 15 minutes; negative: not known */
};
/* CPU seconds that all processes took so far, and those that the hypervisor gave to others. */
struct bench_ticks {
    double busy, steal; /* negative: not known */
};
void bench_read_machine(const char *root, struct bench_machine *out);
void bench_read_load(const char *root, double load[3]);
void bench_read_ticks(const char *root, struct bench_ticks *out);

/* ---- What to measure ---- */

struct bench_plan {
    bool types[QT_COUNT];
    bool levels[KL_COUNT];                    /* only those that this CPU has */
    int threads[BENCH_MAX_COUNTS], n_threads; /* rising */
    bool pin;                                 /* each thread to a CPU of its own */
    int tokens[BENCH_MAX_COUNTS], n_tokens;   /* of the products with several tokens */
    int rows, cols;                           /* of one weight matrix */
    bool attention;
    int keys, heads, head_dim; /* keys of a sequence; query heads that share one KV head */
    uint64_t ram_bytes;        /* of the buffer that products from memory walk through */
    struct bench_effort effort;
    uint64_t seed;
};
/* 1 .. n, or powers of two and n where n is above 8. Returns how many. */
int bench_thread_counts(int n, int counts[BENCH_MAX_COUNTS]);
/* A buffer so large that what was read one round ago has left every cache. */
uint64_t bench_ram_bytes(const struct bench_machine *m, int n_threads);
/* The levels that this CPU has, scalar too. */
void bench_find_levels(bool levels[KL_COUNT]);
bool bench_has_product(enum quant_type type);

/* ---- What came out ---- */

enum bench_unit { BENCH_INT8, BENCH_FMA };
struct bench_peak {
    const char *instruction; /* "vpdpbusd zmm" */
    enum bench_unit unit;    /* multiply-adds of 8-bit integers, or of binary32 */
    enum kern_level level;   /* the lowest that has it */
    int threads;
    double ops; /* multiply-adds of one call, all threads */
    struct bench_time time;
};
struct bench_ram {
    int threads;
    double bytes; /* of one call */
    struct bench_time before, after;
};

enum bench_kernel { BENCH_GEMV, BENCH_GEMM, BENCH_ATTENTION };
enum bench_source { BENCH_CACHE, BENCH_RAM };
enum bench_limit {
    BENCH_NO_LIMIT,
    BENCH_BY_INT8,
    BENCH_BY_FMA,
    BENCH_BY_RAM,
    BENCH_BY_CACHE,
    BENCH_BY_RAM_FMA
};
struct bench_result {
    enum bench_kernel kernel;
    const char *type; /* of the weights, or of keys and values */
    enum kern_level level;
    bool own; /* false: the function is that of a lower level */
    int threads, tokens;
    enum bench_source source;
    int rows, cols;    /* attention: keys, head size */
    double bytes, ops; /* of one call, all threads: weights or keys and values read;
                          multiply-adds */
    struct bench_time time;
    double ram_before, ram_after; /* bytes per second, beside products from memory; else 0 */
    enum bench_limit limit;
    double limit_s; /* least seconds that the limit allows; 0: no limit known */
};

struct bench_report {
    struct bench_machine machine;
    enum kern_level level; /* the best of this CPU */
    double load_end[3];
    double other_cpus; /* CPUs that other processes kept busy meanwhile; negative: not known */
    double steal_cpus; /* CPUs that the hypervisor withheld; negative: not known */
    double wall_s;
    struct bench_ram *ram; /* one per thread count */
    int n_ram;
    struct bench_peak *peaks;
    int n_peaks;
    struct bench_result *results;
    int n_results;
};

/* Called after each step, when the report has grown; kept short, since it delays what follows. */
enum bench_event { BENCH_HAS_LIMITS, BENCH_HAS_RESULT, BENCH_HAS_END };
typedef void bench_event_fn(void *arg, const struct bench_report *r, enum bench_event event);
/* r: empty; filled as far as it went also when it fails. on_event may be NULL. */
int bench_run(const struct bench_plan *p, bench_event_fn *on_event, void *arg,
              struct bench_report *r, struct sl_err *err);
void bench_free_report(struct bench_report *r);

#endif
