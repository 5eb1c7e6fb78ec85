/* bench.h: the parts of `sluice bench`: options in bench.c, the table in bench_print.c, JSON in
 * bench_json.c. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "bench/bench.h"

/* Multiply-adds count as two operations wherever a rate is called OP/s. */
#define BENCH_OPS_PER_MAC 2.0

/* Why numbers of this report should not be believed, most important first, n of at most max; at the
 * start of a run (end false) only what is known by then. Returns how many. */
#define BENCH_MAX_WARNINGS 8
struct bench_warning {
    char text[200];
};
int bench_list_warnings(const struct bench_plan *p, const struct bench_report *r, bool end,
                        struct bench_warning out[BENCH_MAX_WARNINGS]);

/* What limits a result, in words: "RAM"; NULL: no limit is known. */
const char *bench_limit_name(enum bench_limit limit);
const char *bench_kernel_name(enum bench_kernel kernel);

/* The table, piece by piece as the measurements go on. arg: the struct bench_plan. */
void bench_print_event(void *plan, const struct bench_report *r, enum bench_event event);
/* One object on standard output; false: no memory, or it cannot be written. */
bool bench_print_json(const struct bench_plan *p, const struct bench_report *r);

#endif
