/* run_watch.h: everything that looks inside a run: --route-trace, --io-trace, --compute-trace,
 * --timing, --cache-telemetry. docs/telemetry.md describes the files. */
#ifndef CLI_RUN_WATCH_H
#define CLI_RUN_WATCH_H

#include "cli/report.h"
#include "cli/run.h"

struct run_watch;

/* *out is NULL when nothing is to be watched; the other functions take that. */
int run_watch_open(const struct run_args *a, struct run_watch **out, struct sl_err *err);
/* "route, io": what is traced, for the mode line; "" when nothing is. */
const char *run_watch_names(const struct run_watch *w);
int run_watch_begin(struct run_watch *w, const struct sl_engine *e, struct sl_session *s,
                    struct sl_err *err);
/* A new request: turns are numbered in the route trace. */
void run_watch_turn(struct run_watch *w, int turn);
/* After each eval: what failed while it ran. */
int run_watch_step(struct run_watch *w, struct sl_err *err);
/* The lines after the report. */
void run_watch_print(struct run_watch *w, const struct run_report *r);
/* Trailers; then the files get their names. *w is NULL afterwards. */
int run_watch_commit(struct run_watch **w, struct sl_err *err);
void run_watch_close(struct run_watch **w); /* removes what was not committed */

#endif
