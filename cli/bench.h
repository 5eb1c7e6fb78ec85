/* bench.h: the parts of `sluice bench`: options in bench.c; of --kernels, the plan in bench_plan.c,
 * the table in bench_print.c, JSON in bench_json.c; the protocol in bench_protocol.c, its output in
 * bench_result.c. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "bench/bench.h"
#include "cli/report.h"
#include "cli/run.h"

struct bench_args {
    struct run_args run; /* first: run_opts_model_rows */
    int64_t kernels, attention, keys, heads, head_dim, buffer, reps, json;
    double sample_ms;
    const char *types, *levels, *shape, *tokens;
};

/* ---- The protocol ---- */

/* Run a.run.model, in a process that runs nothing else. The exit status. */
int bench_run_protocol(const struct opt_cmd *cmd, const struct opt_seen *seen,
                       struct bench_args *a);

/* What came out of it, while the engine is still open. */
struct bench_outcome {
    const struct bench_args *args;
    struct run_report *report;
    const char *changed; /* options that were given: "--cache-mb=0 --temp=2"; "" */
    bool fixed_prompt;
    size_t n_tokens;   /* that were generated */
    double repeat_pct; /* of runs of four tokens that the answer had before; NaN: too few tokens */
};
/* On standard output; false: it cannot be written. */
bool bench_print_outcome(const struct bench_outcome *o);
bool bench_print_outcome_json(const struct bench_outcome *o);

/* Share of the runs of four ids, in percent, that stand further ahead too; NaN: n is below 16, or
 * no memory. */
double bench_find_repeats(const int32_t *ids, size_t n);

/* ---- Kernels ---- */

/* What the options ask for. */
int bench_make_plan(const struct bench_args *a, struct bench_plan *p, struct sl_err *err);

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
