/* plan.h: what `sluice plan` found out, and its two forms. */
#ifndef CLI_PLAN_H
#define CLI_PLAN_H

#include "bench/forecast.h"
#include "cli/run.h"
#include "gguf/gguf.h"
#include "telemetry/trace.h"

struct plan_args {
    struct run_args run; /* first: run_opts_model_rows */
    int64_t n_prompt, json;
    double drive, ram; /* GB/s; 0: measure */
    const char *trace;
};

#define PLAN_NOTES 8
#define PLAN_SIZES 24
#define PLAN_WAYS  8

/* Matrices of a file: those that every token needs, embeddings and head among them, and those of
 * experts, all of a layer in one. */
struct plan_tensors {
    int n_dense, n_bank;
    uint64_t embd_bytes;
};

/* A change of options with which it fits. */
struct plan_way {
    char flags[96];
    struct sl_engine_plan plan;
};

struct plan {
    const struct plan_args *args;
    const char *path;
    struct sl_engine_options opt;
    struct sl_model_info info;
    struct sl_engine_plan plan;
    struct trace *trace; /* NULL: none */
    struct forecast_shape shape;
    struct plan_tensors tensors;
    struct forecast_rates rates;
    struct forecast forecast;   /* with the planned cache */
    uint64_t sizes[PLAN_SIZES]; /* of other caches, rising */
    struct forecast by_size[PLAN_SIZES];
    int n_sizes, n_notes, n_ways;
    char notes[PLAN_NOTES][512];
    bool fits;
    struct sl_err refused; /* why not */
    struct plan_way ways[PLAN_WAYS];
};

/* top_k: experts per token of the run. */
void plan_read_shape(const struct gguf *g, int top_k, struct forecast_shape *out,
                     struct plan_tensors *tensors);
/* Of a decoded token's experts, those found in a cache of so many bytes; of a layer's, those that
 * n_tokens of a prompt reach. Below 0: there is no recording. */
int plan_recorded_hit(const struct plan *p, uint64_t cache, double *hit, struct sl_err *err);
int plan_recorded_reach(const struct plan *p, int n_tokens, double *reach, struct sl_err *err);
/* To standard output. */
void plan_print(const struct plan *p);
void plan_print_json(const struct plan *p);

#endif
