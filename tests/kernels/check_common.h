/* check_common.h: what the kernel checkers share: levels, random data from a printed seed, buffers
 * between guard pages, comparison by memcmp, a running digest, timing.
 *
 * A checker is a function of struct check; check_main calls it once per CPU level. It computes
 * everything twice, by c->ref (scalar, the definition) and by c->k (the level), and compares bytes.
 * The same seed gives the same data on every machine, provided that a checker never draws two
 * random numbers in one expression without a sequence point between them. */
#ifndef TESTS_KERNELS_CHECK_COMMON_H
#define TESTS_KERNELS_CHECK_COMMON_H

#include "kernels/kernels.h"

struct check {
    struct kernels ref, k; /* scalar, and the level under test */
    uint64_t rng;          /* state of check_rand */
    uint64_t seed;
    uint64_t digest;    /* of all reference results so far */
    bool bench;         /* time kernels instead of comparing them */
    bool quiet;         /* do not print differences (they are expected) */
    const char *filter; /* only kernels whose name contains this; NULL: all */
    const char *what;   /* kernel and shape under test, for messages; set by check_begin */
    unsigned n_compared, n_failed;
};

typedef void check_fn(struct check *c);

/* The main function of a checker. Options: --level NAME (default: every level of this CPU),
 * --seed N (default: SLUICE_SEED, else the clock), --kernel TEXT, --bench, --digest HEX (fails when
 * the reference results differ; for one level and a fixed seed). Returns the exit status; 77 when
 * the CPU lacks the level. */
int check_main(int argc, char **argv, check_fn *fn);

/* Fill *c for a level; false when this CPU lacks it. */
bool check_init(struct check *c, enum kern_level level, uint64_t seed);
/* Name what comes next (printf style). False: filtered out, skip it. */
bool check_begin(struct check *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

uint64_t check_rand(struct check *c);
/* Uniform in [lo, hi]. */
int check_range(struct check *c, int lo, int hi);
/* A finite float: sign and 24 random bits, scaled into (-scale, scale). */
float check_float(struct check *c, float scale);
void check_fill(struct check *c, void *p, size_t n); /* random bytes */

/* Memory between two inaccessible pages. The n bytes end directly before the upper one (high; their
 * start is rounded down to align, so that up to align - 1 bytes follow) or start directly after the
 * lower one. What is left over on the other side carries a pattern: check_guard_intact says whether
 * it is unharmed. Exits the program when there is no memory. */
struct check_guard {
    uint8_t *p; /* n bytes */
    size_t n;
    uint8_t *map;
    size_t map_bytes;
};
void check_guard_new(struct check_guard *g, size_t n, size_t align, bool high);
bool check_guard_intact(const struct check_guard *g);
void check_guard_free(struct check_guard *g);

/* Compare n bytes of the level (got) with those of the definition (want); counts, prints the first
 * difference of c->what, and adds want to the digest. */
bool check_same(struct check *c, const void *got, const void *want, size_t n);
/* Count a condition of another kind as passed or failed. */
bool check_true(struct check *c, bool ok, const char *message);

/* Print the speed of fn(arg), which touches bytes bytes and does ops operations per call; it is
 * called for 20 ms, ten times, and the fastest counts: what else runs on the machine only slows. */
void check_bench(struct check *c, void (*fn)(void *arg), void *arg, double bytes, double ops);

#endif
