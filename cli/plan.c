/* plan.c: `sluice plan`: will it fit, how fast, with which flags, before anything is loaded. */
#include "cli/plan.h"

#include "cli/commands.h"
#include "cli/open.h"
#include "cli/opts.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "bench/drive.h"
#include "io/drives.h"

#define DRIVE_SECONDS 1.0
#define LOAD_PIECE    ((uint64_t)4 << 20) /* bytes; weights are loaded in such pieces at most */

static struct opt_row rows[OPTS_MAX_ROWS];

static const struct opt_row OWN_ROWS[] = {
    {"--prompt-tokens", OPT_INT, offsetof(struct plan_args, n_prompt), "N", 1, 16777216, "512",
     NULL, "tokens", "Length of the prompt that the time to first token is estimated for",
     "Estimate", NULL},
    {"--trace", OPT_STR, offsetof(struct plan_args, trace), "FILE", 0, 0, NULL, NULL, NULL,
     "Take the hit rate, and the experts per token, from a routing that this model recorded "
     "(route_trace v1), instead of what models of this kind usually give",
     "Estimate", NULL},
    {"--drive-gb-s", OPT_FLOAT, offsetof(struct plan_args, drive), "R", 0.001, 1000, NULL,
     "measured", NULL, "Read rate of the drive; for another machine than this one", "Estimate",
     NULL},
    {"--ram-gb-s", OPT_FLOAT, offsetof(struct plan_args, ram), "R", 0.1, 10000, NULL, "measured",
     NULL, "Read rate of memory with all threads; kernels are taken to reach it", "Estimate", NULL},
    {"--json", OPT_FLAG, offsetof(struct plan_args, json), NULL, 0, 0, NULL, NULL, NULL,
     "Print one JSON object: fits, dense_bytes, kv_bytes, compute_bytes, cache_bytes, "
     "bytes_per_token, hit, drive_gb_s, ram_gb_s, tok_s, ttft_s, flags and more",
     "Output", NULL},
};

static struct opt_cmd plan_cmd = {
    .name = "plan",
    .summary = "will it fit, how fast, which flags, before loading",
    .operands = "[MODEL]",
    .max_operands = 1,
    .about =
        "Makes the memory plan that `sluice run` would make with the same options, measures the "
        "drive and the memory for a few seconds, and estimates the speed. Nothing is loaded.\n\n"
        "Where the model does not fit, it says by how much, and tries what would make it fit. Exit "
        "status 1 then.",
    .rows = rows,
    .examples = "sluice plan model.gguf\n"
                "sluice plan model.gguf --ram 8G --prompt-tokens 2000\n"
                "sluice plan model.gguf --json --trace model.route.csv\n",
};

static void make_table(void)
{
    size_t n_own = sizeof OWN_ROWS / sizeof *OWN_ROWS;
    size_t n = run_opts_model_rows(rows, OPTS_MAX_ROWS - n_own);
    memcpy(rows + n, OWN_ROWS, sizeof OWN_ROWS);
    plan_cmd.n_rows = n + n_own;
}

static void on_note(void *user, const char *line)
{
    struct plan *p = user;
    if (p->n_notes < PLAN_NOTES)
        snprintf(p->notes[p->n_notes++], sizeof p->notes[0], "%s", line);
}

/* ---- Rates ---- */

/* Sizes of reads, bytes: of an expert's matrix, and of weights that are loaded. */
struct requests {
    uint64_t expert, load;
};

/* Bytes per second of both with all reads in flight, and seconds of an expert's that is alone. */
static int probe_file(const struct plan *p, const char *path, const struct requests *req,
                      struct forecast_rates *out, struct sl_err *err)
{
    struct io_file *f;
    double many, one, load;
    const int in_flight = (int)p->args->run.io_threads;
    int rc = io_file_open(path, p->args->run.odirect != 0, &f, err);
    if (rc < 0)
        return rc;
    rc = bench_probe_drive(f, req->expert, in_flight, 0.6 * DRIVE_SECONDS, &many, err);
    if (rc == SL_OK)
        rc = bench_probe_drive(f, req->expert, 1, 0.3 * DRIVE_SECONDS, &one, err);
    if (rc == SL_OK)
        rc = bench_probe_drive(f, req->load, in_flight, 0.3 * DRIVE_SECONDS, &load, err);
    io_file_close(&f);
    if (rc == SL_OK)
        *out = (struct forecast_rates){
            .drive = many * 1e9, .load = load * 1e9, .latency = (double)req->expert / (one * 1e9)};
    return rc;
}

/* Of each drive the largest part and the bytes of all parts. */
struct part_drives {
    struct io_drives drives;
    int largest[IO_DRIVES_MAX];
    uint64_t bytes[IO_DRIVES_MAX];
};

static int find_drives(const struct gguf *g, struct part_drives *out, struct sl_err *err)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < gguf_n_shards(g); i++) {
        struct io_file *f;
        int rc = io_file_open(gguf_shard_path(g, i), false, &f, err);
        if (rc < 0)
            return rc;
        const int before = out->drives.n, d = io_drives_find(&out->drives, IO_DRIVES_MAX, f);
        io_file_close(&f);
        if (d == before || gguf_shard_size(g, i) > gguf_shard_size(g, out->largest[d]))
            out->largest[d] = i;
        out->bytes[d] += gguf_shard_size(g, i);
    }
    return SL_OK;
}

static struct requests choose_requests(const struct plan *p)
{
    const struct plan_tensors *t = &p->tensors;
    const uint64_t parts = (uint64_t)p->shape.n_layer * (uint64_t)p->shape.n_expert * 3;
    const int n = t->n_dense + (p->plan.streamed ? 0 : t->n_bank);
    const uint64_t mean = n > 0 ? p->plan.dense_bytes / (uint64_t)n : LOAD_PIECE;
    struct requests r = {.load = mean < LOAD_PIECE ? mean : LOAD_PIECE};
    r.expert = parts ? p->info.expert_bytes / parts : r.load;
    return r;
}

/* Reads as a run would make them, from each drive. Layers come one after the other and most lie on
 * one drive each, so times add up. */
static int measure_drive(struct plan *p, const struct gguf *g, struct sl_err *err)
{
    const struct requests req = choose_requests(p);
    struct part_drives d;
    double bytes = 0, seconds = 0, load_s = 0, latency = 0;
    p->rates.drive = p->rates.load = p->args->drive * 1e9;
    if (p->rates.drive > 0)
        return SL_OK;
    int rc = find_drives(g, &d, err);
    for (int i = 0; rc == SL_OK && i < d.drives.n; i++) {
        const double part = (double)d.bytes[i];
        struct forecast_rates r = {0};
        rc = probe_file(p, gguf_shard_path(g, d.largest[i]), &req, &r, err);
        if (rc == SL_E_UNSUPPORTED) { /* files in memory, or tiny ones: no rate is known */
            rc = SL_OK;
            continue;
        }
        if (rc == SL_OK) {
            bytes += part;
            seconds += part / r.drive;
            load_s += part / r.load;
            latency += part * r.latency;
        }
    }
    if (rc == SL_OK && bytes > 0) {
        p->rates.drive = bytes / seconds;
        p->rates.load = bytes / load_s;
        p->rates.latency = latency / bytes;
    }
    return rc;
}

/* ---- Estimate ---- */

static int estimate(const struct plan *p, uint64_t cache, struct forecast *out, struct sl_err *err)
{
    const struct sl_engine_plan *e = &p->plan;
    struct forecast_run run = {.cache_bytes = cache,
                               .streamed = e->streamed,
                               .in_flight = (int)p->args->run.io_threads,
                               .parts = e->packed ? 1 : 3,
                               .n_prompt = (int)p->args->n_prompt,
                               .batch_bytes = e->compute_bytes,
                               .ubatch = e->ubatch > 0 ? e->ubatch : 1,
                               .kv_bytes = e->n_ctx > 0 ? e->kv_bytes / (uint64_t)e->n_ctx : 0,
                               .load_bytes = e->dense_bytes,
                               .embd_bytes = e->row_stream ? 0 : p->tensors.embd_bytes,
                               .load_behind = e->load_behind};
    const int width = run.n_prompt < run.ubatch ? run.n_prompt : run.ubatch;
    int rc = plan_recorded_hit(p, cache, &run.hit, err);
    if (rc == SL_OK)
        rc = plan_recorded_reach(p, width, &run.reach, err);
    if (rc == SL_OK)
        forecast_make(&p->shape, &p->rates, &run, out);
    if (!(p->rates.drive > 0)) {
        out->load_s = (double)NAN;
        if (e->streamed)
            out->token_s = out->prompt_s = (double)NAN;
    }
    return rc;
}

/* The same with other cache sizes: from 1000 MiB on doubling, the planned one, and the ends. */
static int estimate_sizes(struct plan *p, struct sl_err *err)
{
    const uint64_t mib = 1 << 20, bank = p->info.expert_bytes, least = p->plan.cache_min_bytes;
    uint64_t sizes[PLAN_SIZES] = {0, least};
    int n = 2;
    for (uint64_t s = 1000 * mib; s < bank && n < PLAN_SIZES - 2; s *= 2)
        if (s > least)
            sizes[n++] = s;
    sizes[n++] = bank;
    if (p->plan.cache_bytes > 0)
        sizes[n++] = p->plan.cache_bytes;
    for (int i = 1; i < n; i++) /* rising, each once */
        for (int j = i; j > 0 && sizes[j - 1] > sizes[j]; j--) {
            uint64_t t = sizes[j];
            sizes[j] = sizes[j - 1];
            sizes[j - 1] = t;
        }
    int rc = SL_OK;
    for (int i = 0; i < n && rc == SL_OK; i++) {
        if (i > 0 && sizes[i] == sizes[i - 1])
            continue;
        p->sizes[p->n_sizes] = sizes[i];
        rc = estimate(p, sizes[i], &p->by_size[p->n_sizes++], err);
    }
    return rc;
}

/* ---- What would fit ---- */

static void try_option(struct plan *p, const char *flags, const struct sl_engine_options *opt)
{
    struct sl_model_info info;
    struct sl_engine_plan plan;
    if (p->n_ways < PLAN_WAYS && sl_plan(p->path, opt, &info, &plan, NULL) == SL_OK) {
        p->ways[p->n_ways] = (struct plan_way){.plan = plan};
        snprintf(p->ways[p->n_ways++].flags, sizeof p->ways[0].flags, "%s", flags);
    }
}

/* One change at a time, then those that cost speed together. */
static void find_ways(struct plan *p)
{
    const struct sl_engine_options given = p->opt;
    struct sl_engine_options o = given;
    o.on_note = NULL;
    if (o.stream == SL_STREAM_OFF) {
        o.stream = SL_STREAM_AUTO;
        try_option(p, "--moe-stream", &o);
    }
    if (o.cache_mb > 0) {
        o.cache_mb = SL_CACHE_AUTO;
        try_option(p, "--cache-mb auto", &o);
    }
    o = given;
    o.on_note = NULL;
    o.n_ctx = 1024;
    o.ubatch = 0;
    if (given.n_ctx == 0 || given.n_ctx > 1024)
        try_option(p, "-c 1024", &o);
    o.k_type = o.v_type = SL_KV_Q8_0;
    try_option(p, "-c 1024 -ctk q8_0 -ctv q8_0", &o);
    o.stream = SL_STREAM_ON;
    o.cache_slots = SL_CACHE_UNSET;
    o.cache_mb = 0;
    try_option(p, "--moe-stream --cache-mb 0 -c 1024 -ctk q8_0 -ctv q8_0", &o);
    o = given;
    o.on_note = NULL;
    if (o.ram == 0 && o.cache_floor_mb > 256) {
        o.cache_floor_mb = 256;
        try_option(p, "--cache-floor-mb 256", &o);
    }
    if (p->plan.total_bytes > 0 && given.ram > 0 && given.ram < p->plan.total_bytes) {
        const uint64_t mib = 1 << 20, need = (p->plan.total_bytes + 16 * mib) / mib;
        char flags[48];
        snprintf(flags, sizeof flags, "--ram %lluM", (unsigned long long)need);
        o = given;
        o.on_note = NULL;
        o.ram = need * mib;
        try_option(p, flags, &o);
    }
}

/* ---- The command ---- */

/* Shape, drive and recording. */
static int read_inputs(struct plan *p, struct sl_err *err)
{
    struct gguf *g;
    int rc = gguf_open(p->path, &g, err);
    if (rc < 0)
        return rc;
    plan_read_shape(g, p->info.n_expert_run, &p->shape, &p->tensors);
    rc = measure_drive(p, g, err);
    gguf_close(&g);
    if (rc == SL_OK && p->args->trace)
        rc = trace_read(p->args->trace, &p->trace, err);
    if (p->trace && p->shape.top_k > 0) /* a run that follows it uses as many */
        p->shape.top_k = p->trace->top_k < p->shape.n_expert ? p->trace->top_k : p->shape.n_expert;
    return rc;
}

static int make_plan(struct plan *p, struct sl_err *err)
{
    run_opts_engine(&p->args->run, &p->opt);
    p->opt.load_behind = true; /* as a run does that is not told otherwise */
    p->opt.on_note = on_note;
    p->opt.user = p;
    int rc = sl_plan(p->path, &p->opt, &p->info, &p->plan, err);
    if (rc == SL_E_BUDGET) {
        p->refused = *err;
        find_ways(p);
        return SL_OK;
    }
    p->fits = rc == SL_OK;
    if (rc == SL_OK)
        rc = read_inputs(p, err);
    if (rc == SL_OK)
        rc = forecast_measure(&p->shape, p->plan.threads, p->plan.dense_bytes + p->plan.cache_bytes,
                              p->args->ram * 1e9, &p->rates, err);
    if (rc == SL_OK)
        rc = estimate(p, p->plan.cache_bytes, &p->forecast, err);
    if (rc == SL_OK && p->plan.streamed)
        rc = estimate_sizes(p, err);
    return rc;
}

int cmd_plan(int argc, char **argv)
{
    struct plan_args args = {0};
    struct opt_seen seen;
    struct sl_err err;
    make_table();
    int rc = opts_begin(&plan_cmd, argc, argv, &args, &seen);
    if (rc != OPTS_GO)
        return rc;
    static struct plan p;
    p.args = &args;
    if (open_find_model(&seen, args.run.model, &p.path, &err) < 0 ||
        run_opts_check(&plan_cmd, &seen, &args.run, &err) < 0) {
        opts_fail(&err);
        return EXIT_USAGE;
    }
    rc = make_plan(&p, &err);
    if (rc == SL_OK && args.json)
        plan_print_json(&p);
    else if (rc == SL_OK)
        plan_print(&p);
    else
        opts_fail(&err);
    trace_free(&p.trace);
    return rc == SL_E_ARG ? EXIT_USAGE : rc < 0 || !p.fits ? EXIT_FAILED : 0;
}
