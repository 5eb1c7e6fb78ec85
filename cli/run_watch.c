#include "cli/run_watch.h"

#include "cli/outfile.h"
#include "cli/run_tables.h"
#include "cli/run_trace.h"

#include "base/mem.h"

#include <string.h>

struct run_watch {
    const struct run_args *args;
    struct route_trace route;
    struct io_trace io;
    struct compute_trace compute;
    struct times decode, prompt; /* --timing */
    struct reuse reuse;          /* --cache-telemetry */
    bool streamed;
    double measured_s; /* per token, for the trailer */
    char names[64];
};

static bool asks_for_file(const struct run_args *a)
{
    return a->route_trace != NULL || a->io_trace != NULL || a->compute_trace != NULL;
}

static int open_file(const char *path, const char *option, const char *name, struct run_watch *w,
                     struct trace_out *t, struct sl_err *err)
{
    if (path == NULL)
        return SL_OK;
    size_t n = strlen(w->names);
    snprintf(w->names + n, sizeof w->names - n, "%s%s", n > 0 ? ", " : "", name);
    return outfile_open(path, option, &t->file, err);
}

int run_watch_open(const struct run_args *a, struct run_watch **out, struct sl_err *err)
{
    *out = NULL;
    if (!asks_for_file(a) && !a->timing && !a->cache_telemetry)
        return SL_OK;
    struct run_watch *w = mem_calloc(1, sizeof *w);
    if (w == NULL)
        return err_set(err, SL_E_MEM, NULL, "no memory to watch the run");
    w->args = a;
    int rc = open_file(a->route_trace, "--route-trace", "route", w, &w->route.out, err);
    if (rc == SL_OK)
        rc = open_file(a->io_trace, "--io-trace", "io", w, &w->io.out, err);
    if (rc == SL_OK)
        rc = open_file(a->compute_trace, "--compute-trace", "compute", w, &w->compute.out, err);
    *out = w;
    if (rc < 0)
        run_watch_close(out);
    return rc;
}

const char *run_watch_names(const struct run_watch *w)
{
    return w != NULL ? w->names : "";
}

/* ---- Events --------------------------------------------------------------------------------- */

static void on_op(void *user, const struct sl_op_event *e)
{
    struct run_watch *w = user;
    if (w->compute.out.file != NULL)
        trace_add_op(&w->compute, e);
    if (w->args->timing)
        times_add(e->batch.prompt ? &w->prompt : &w->decode, e);
}

static void on_route(void *user, const struct sl_route_event *e)
{
    trace_add_route(&((struct run_watch *)user)->route, e);
}

static void on_block(void *user, const struct sl_block_event *e)
{
    struct run_watch *w = user;
    if (w->io.out.file != NULL)
        trace_add_block(&w->io, e);
    for (int i = 0; w->args->cache_telemetry && i < e->n; i++)
        reuse_add(&w->reuse, e->block, e->ids[i], e->resident[i], !e->batch.prompt);
}

static void on_read(void *user, const struct sl_read_event *e)
{
    trace_add_read(&((struct run_watch *)user)->io, e);
}

static int begin_tables(struct run_watch *w, const struct sl_model_info *m, struct sl_err *err)
{
    int rc = SL_OK;
    if (w->args->timing) {
        rc = times_open(&w->decode, m->n_layer, err);
        if (rc == SL_OK)
            rc = times_open(&w->prompt, m->n_layer, err);
    }
    if (rc == SL_OK && w->args->cache_telemetry)
        rc = reuse_open(&w->reuse, m->n_layer, m->n_expert, err);
    if (rc == SL_OK && w->compute.out.file != NULL)
        rc = times_open(&w->compute.times, m->n_layer, err);
    w->route.n_expert = m->n_expert;
    if (rc == SL_OK && w->route.out.file != NULL) {
        w->route.asked = mem_calloc((size_t)m->n_expert + 1, sizeof *w->route.asked);
        if (w->route.asked == NULL)
            rc = err_set(err, SL_E_MEM, NULL, "no memory for --route-trace");
    }
    return rc;
}

int run_watch_begin(struct run_watch *w, const struct sl_engine *e, struct sl_session *s,
                    struct sl_err *err)
{
    if (w == NULL)
        return SL_OK;
    struct sl_model_info info;
    struct sl_engine_plan plan;
    sl_engine_info(e, &info);
    sl_engine_get_plan(e, &plan);
    w->streamed = plan.streamed;
    int rc = begin_tables(w, &info, err);
    if (rc < 0)
        return rc;
    struct sl_watch watch = {.user = w};
    if (w->route.out.file != NULL) {
        trace_begin_route(&w->route, e);
        watch.on_route = on_route;
    }
    if (w->io.out.file != NULL) {
        struct limit_rates rates = {.ram = 1e9 * w->args->ram_rate,
                                    .kernel = 1e9 * w->args->kernel_rate,
                                    .drive = 1e9 * w->args->drive_rate,
                                    .threads = plan.threads};
        limit_open(&w->io.limit, &rates, info.n_layer);
        trace_begin_io(&w->io, e);
        watch.on_read = on_read;
    }
    if (w->compute.out.file != NULL)
        trace_begin_compute(&w->compute, e);
    if (w->compute.out.file != NULL || w->args->timing)
        watch.on_op = on_op;
    if (w->io.out.file != NULL || w->args->cache_telemetry)
        watch.on_block = on_block;
    return sl_session_watch(s, &watch, err);
}

void run_watch_turn(struct run_watch *w, int turn)
{
    if (w != NULL)
        w->route.turn = turn;
}

int run_watch_step(struct run_watch *w, struct sl_err *err)
{
    if (w == NULL)
        return SL_OK;
    if (w->compute.out.file != NULL)
        trace_end_batch(&w->compute);
    const struct trace_out *all[] = {&w->route.out, &w->io.out, &w->compute.out};
    for (int i = 0; i < 3; i++) {
        if (all[i]->code < 0) {
            if (err != NULL)
                *err = all[i]->err;
            return all[i]->code;
        }
    }
    return SL_OK;
}

/* ---- The end -------------------------------------------------------------------------------- */

void run_watch_print(struct run_watch *w, const struct run_report *r)
{
    if (w == NULL)
        return;
    struct report_summary s;
    report_sum_up(r, &s);
    w->measured_s = s.wall_s;
    if (w->args->timing)
        tables_print_timing(&w->prompt, &w->decode, &s);
    if (w->args->cache_telemetry)
        tables_print_cache(&w->reuse, w->streamed, r->info.token_expert_bytes,
                           (uint64_t)r->info.n_expert_run * (uint64_t)r->info.n_layer_routed);
    if (w->io.out.file != NULL)
        tables_print_limit(&w->io.limit, &s);
}

int run_watch_commit(struct run_watch **wp, struct sl_err *err)
{
    struct run_watch *w = *wp;
    if (w == NULL)
        return SL_OK;
    if (w->io.out.file != NULL)
        trace_end_io(&w->io, w->measured_s);
    int rc = run_watch_step(w, err);
    struct trace_out *all[] = {&w->route.out, &w->io.out, &w->compute.out};
    for (int i = 0; i < 3 && rc == SL_OK; i++) {
        if (all[i]->file != NULL)
            rc = outfile_commit(&all[i]->file, err);
    }
    run_watch_close(wp);
    return rc;
}

void run_watch_close(struct run_watch **wp)
{
    struct run_watch *w = *wp;
    *wp = NULL;
    if (w == NULL)
        return;
    struct trace_out *all[] = {&w->route.out, &w->io.out, &w->compute.out};
    for (int i = 0; i < 3; i++) {
        outfile_discard(&all[i]->file);
        emit_free(&all[i]->line);
    }
    mem_free(w->route.asked);
    times_close(&w->compute.times);
    times_close(&w->decode);
    times_close(&w->prompt);
    reuse_close(&w->reuse);
    mem_free(w);
}
