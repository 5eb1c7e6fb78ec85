/* run_trace.h: the three trace files, as text. Events go in, lines come out; what fails sticks. */
#ifndef CLI_RUN_TRACE_H
#define CLI_RUN_TRACE_H

#include "telemetry/emit.h"
#include "telemetry/limit.h"
#include "telemetry/times.h"

struct outfile;

#define TRACE_MAX_FILES 1024 /* shards of a model */

/* One file that is being written. */
struct trace_out {
    struct outfile *file; /* NULL: not asked for */
    struct emit line;
    int code; /* first failure */
    struct sl_err err;
};

struct route_trace {
    struct trace_out out;
    int turn;
    int pos, block; /* of the batch that is being told */
    bool *asked;    /* per expert: this batch reads it already; n_expert of them */
    int n_expert;
};

struct io_trace {
    struct trace_out out;
    double start_s;                     /* 0 of its times */
    const char *files[TRACE_MAX_FILES]; /* paths in order of appearance; the engine's strings */
    int n_files;
    struct limit limit;
};

struct compute_trace {
    struct trace_out out;
    struct sl_batch batch; /* whose times are being gathered */
    struct times times;
};

void trace_begin_route(struct route_trace *t, const struct sl_engine *e);
void trace_add_route(struct route_trace *t, const struct sl_route_event *e);
void trace_begin_io(struct io_trace *t, const struct sl_engine *e);
void trace_add_read(struct io_trace *t, const struct sl_read_event *e);
void trace_add_block(struct io_trace *t, const struct sl_block_event *e);
void trace_end_io(struct io_trace *t, double measured_s);
void trace_begin_compute(struct compute_trace *t, const struct sl_engine *e);
void trace_add_op(struct compute_trace *t, const struct sl_op_event *e);
void trace_end_batch(struct compute_trace *t); /* an eval is over: its rows */

#endif
