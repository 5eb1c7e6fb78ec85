/* run_csv.h: `--csv FILE`: a row per generated token; docs/telemetry.md names the columns. */
#ifndef CLI_RUN_CSV_H
#define CLI_RUN_CSV_H

#include "cli/report.h"
#include "cli/run.h"
#include "cli/run_gen.h"

struct run_csv;

/* *out is NULL when no file is asked for; the other functions take that. */
int run_csv_open(const struct run_args *a, struct run_csv **out, struct sl_err *err);
/* Preamble and header, once the model is open. */
int run_csv_begin(struct run_csv *c, const struct run_args *a, const struct sl_model_info *info,
                  const struct sl_engine_plan *plan, struct sl_err *err);
/* The rows that follow belong to this request. */
void run_csv_turn(struct run_csv *c, int turn);
int run_csv_step(struct run_csv *c, const struct sl_engine *e, const struct sl_session *s,
                 const struct gen_step *step, struct sl_err *err);
/* The summary; then the file gets its name. *c is NULL afterwards. */
int run_csv_commit(struct run_csv **c, const struct run_report *report, struct sl_err *err);
void run_csv_close(struct run_csv **c); /* removes what was not committed */

#endif
