/* run_session.h: `--session`: requests as JSON lines on standard input, answers on standard output;
 * docs/telemetry.md has their forms. */
#ifndef CLI_RUN_SESSION_H
#define CLI_RUN_SESSION_H

#include "cli/run.h"
#include "cli/run_csv.h"
#include "cli/run_events.h"
#include "cli/run_watch.h"

struct serve {
    const struct run_args *args;
    struct sl_engine *engine;
    struct sl_session *session;
    struct run_csv *csv;            /* NULL: none */
    struct run_watch *watch;        /* NULL: none */
    struct events *events;          /* to standard output */
    const struct run_report *about; /* its info and plan */
    /* Sums over all requests, for the report */
    size_t n_prompt, n_generated;
    double prompt_s, first_s, loop_s; /* first_s: of the first request that gave a token */
    double *step_s;                   /* n_generated of them; owned */
};

/* Serve until the input ends. */
int serve_requests(struct serve *s, struct sl_err *err);

#endif
