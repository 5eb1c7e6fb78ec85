/* iobench.c: `sluice iobench`: the drive at the sizes that the engine reads. */
#include "cli/iobench.h"
#include "cli/commands.h"
#include "cli/opts.h"

#include "base/clock.h"
#include "base/mem.h"
#include "model/weights.h"

#include <stdio.h>
#include <string.h>

#define MAX_COUNTS    16
#define MAX_IN_FLIGHT 256
#define DEFAULT_PIECE (1 << 20)

struct iobench_args {
    const char *engines, *in_flight;
    int64_t size, memory, buffered, seed, json;
    double seconds;
};

#define AT(member) offsetof(struct iobench_args, member)
static const struct opt_row ROWS[] = {
    {.names = "--engines",
     .type = OPT_STR,
     .offset = AT(engines),
     .arg = "LIST",
     .def = "uring,threads",
     .help = "I/O engines, separated by commas: uring, threads, plain",
     .group = "what"},
    {.names = "--in-flight",
     .type = OPT_STR,
     .offset = AT(in_flight),
     .arg = "LIST",
     .def = "1,2,4,8,16,32",
     .help = "Numbers of reads in flight (--io-threads of a run), separated by commas, rising",
     .group = "what"},
    {.names = "--size",
     .type = OPT_SIZE,
     .offset = AT(size),
     .arg = "SIZE",
     .min = 512,
     .max = 1 << 30,
     .def_say = "the slices of the model's experts; 1M in other files",
     .help = "Read pieces of this size from anywhere in the file",
     .group = "what"},
    {.names = "--memory",
     .type = OPT_SIZE,
     .offset = AT(memory),
     .arg = "SIZE",
     .min = 4096,
     .max = 64.0 * (1 << 30),
     .def = "128M",
     .help = "Read into this much memory, by turns; what the CPU's caches hold of less can make a "
             "drive faster than it is for an expert cache",
     .group = "what"},
    {.names = "--buffered",
     .type = OPT_SWITCH,
     .offset = AT(buffered),
     .def = "on",
     .help = "Also measure reads through the page cache, of pages that it does not hold",
     .group = "what"},
    {.names = "--seconds",
     .type = OPT_FLOAT,
     .offset = AT(seconds),
     .arg = "S",
     .min = 0.01,
     .max = 600,
     .def = "0.7",
     .unit = "s",
     .help = "Time for each row",
     .group = "how much"},
    {.names = "--seed",
     .type = OPT_INT,
     .offset = AT(seed),
     .arg = "N",
     .min = 0,
     .max = 1e15,
     .def = "0",
     .def_say = "0: another one each time",
     .help = "Order in which places are read",
     .group = "how much"},
    {.names = "--json",
     .type = OPT_FLAG,
     .offset = AT(json),
     .help = "Print one JSON object at the end instead of the table",
     .group = "output"},
};

static const struct opt_cmd IOBENCH_CMD = {
    .name = "iobench",
    .summary = "the drive at the engine's request sizes",
    .operands = "FILE",
    .min_operands = 1,
    .max_operands = 1,
    .about =
        "Reads slices of randomly chosen experts of a model, those of one expert together, as a "
        "run does, and says how much arrives by I/O engine and by reads in flight: where the "
        "curve flattens is what --io-threads should be. No place is read twice as long as there "
        "are others. Each row says what was measured: direct reads, or buffered reads of pages "
        "that were not cached (cached ones are dropped first, or the place is left out).\n\n"
        "Rates that cannot be the drive's are marked with !: faster than memory is copied, or, by "
        "reading the last places again, a cache below the file system.",
    .rows = ROWS,
    .n_rows = sizeof ROWS / sizeof ROWS[0],
    .examples = "sluice iobench model.gguf\n"
                "sluice iobench model.gguf --engines uring --in-flight 2,4,6,8 --seconds 2\n"
                "sluice iobench big.file --size 1M --json\n",
};

static const char *const ENGINES[] = {"uring", "threads", "plain"};
#define N_ENGINES 3

struct iobench_plan {
    const char *engine[N_ENGINES];
    int n_engines;
    int in_flight[MAX_COUNTS], n_in_flight;
    double seconds;
    uint64_t seed, memory;
    bool buffered;
};

/* ---- The command line ---- */

static int parse_engines(const char *list, struct iobench_plan *p, struct sl_err *err)
{
    char word[32];
    while (opts_next_word(&list, word, sizeof word)) {
        int i = 0;
        while (i < N_ENGINES && strcmp(word, ENGINES[i]) != 0)
            i++;
        for (int j = 0; i < N_ENGINES && j < p->n_engines; j++)
            if (strcmp(p->engine[j], word) == 0)
                i = N_ENGINES;
        if (i == N_ENGINES)
            return err_set(err, SL_E_ARG, "--engines",
                           "--engines: '%s' is not one of uring, threads, plain, each once", word);
        p->engine[p->n_engines++] = ENGINES[i];
    }
    return 0;
}

static int parse_in_flight(const char *list, struct iobench_plan *p, struct sl_err *err)
{
    char word[32];
    while (opts_next_word(&list, word, sizeof word)) {
        int64_t n, last = p->n_in_flight ? p->in_flight[p->n_in_flight - 1] : 0;
        if (!opts_parse_int(word, &n) || n <= last || n > MAX_IN_FLIGHT)
            return err_set(err, SL_E_ARG, "--in-flight",
                           "--in-flight: '%s': expected rising numbers from 1 to %d", word,
                           MAX_IN_FLIGHT);
        if (p->n_in_flight == MAX_COUNTS)
            return err_set(err, SL_E_ARG, "--in-flight", "--in-flight: at most %d numbers",
                           MAX_COUNTS);
        p->in_flight[p->n_in_flight++] = (int)n;
    }
    return 0;
}

static int make_plan(const struct iobench_args *a, struct iobench_plan *p, struct sl_err *err)
{
    *p = (struct iobench_plan){.seconds = a->seconds,
                               .buffered = a->buffered != 0,
                               .memory = (uint64_t)a->memory,
                               .seed = a->seed ? (uint64_t)a->seed : (uint64_t)(clock_now() * 1e9)};
    int rc = parse_engines(a->engines, p, err);
    return rc ? rc : parse_in_flight(a->in_flight, p, err);
}

/* ---- What is read ---- */

/* A file, opened directly or buffered, as a list of places. */
struct source {
    struct gguf *gguf; /* of a model with experts; else NULL */
    struct model *model;
    struct io_file *file;
    struct bench_places places;
};

static void close_source(struct source *s)
{
    bench_free_places(&s->places);
    model_free(&s->model);
    gguf_close(&s->gguf);
    io_file_close(&s->file);
}

static void fill_bank(const struct cache_layer *l, struct bench_bank *out)
{
    _Static_assert(CACHE_MAX_PARTS <= BENCH_MAX_PARTS, "every part has a place");
    *out = (struct bench_bank){.n_parts = l->n_parts, .n_experts = l->n_experts};
    for (int j = 0; j < l->n_parts; j++)
        out->part[j] = (struct bench_part){l->part[j].file, l->part[j].offset, l->part[j].stride,
                                           l->part[j].bytes};
}

static int list_model(struct source *s, bool direct, struct sl_err *err)
{
    int rc = model_bind(s->gguf, KL_COUNT, &s->model, err);
    if (rc == 0)
        rc = model_open_files(s->model, direct, err);
    if (rc < 0)
        return rc;
    for (int i = 0; i < s->model->n_files; i++)
        io_file_drop_behind(s->model->files[i], true);
    size_t n = (size_t)s->model->cfg.n_layer;
    struct cache_layer *layers = mem_calloc(n, sizeof *layers);
    struct bench_bank *banks = mem_calloc(n, sizeof *banks);
    rc = layers && banks ? 0 : err_set(err, SL_E_MEM, "drive", "no memory for a table of layers");
    if (rc == 0) {
        model_cache_layers(s->model, layers);
        for (size_t l = 0; l < n; l++)
            fill_bank(&layers[l], &banks[l]);
        rc = bench_list_experts(banks, (int)n, &s->places, err);
    }
    mem_free(layers);
    mem_free(banks);
    return rc;
}

/* A model that runs here is read as it runs; any other file in pieces. */
static int open_source(const char *path, int64_t size, bool direct, struct source *s,
                       struct sl_err *err)
{
    *s = (struct source){0};
    if (size == 0 && gguf_open(path, &s->gguf, NULL) == 0 && list_model(s, direct, NULL) == 0)
        return 0;
    close_source(s);
    *s = (struct source){0};
    int rc = io_file_open(path, direct, &s->file, err);
    if (rc < 0)
        return rc;
    io_file_drop_behind(s->file, true);
    uint64_t piece = size ? (uint64_t)size : DEFAULT_PIECE;
    if (io_file_size(s->file) < piece)
        return err_file(err, SL_E_UNSUPPORTED, path, 0, "is smaller than one read of %llu bytes",
                        (unsigned long long)piece);
    return bench_list_file(s->file, piece, &s->places, err);
}

/* Of the first file that is not read directly; "": all are. */
static const char *note_of(const struct source *s)
{
    for (int64_t i = 0; i < s->places.n; i++)
        if (!io_file_direct(s->places.slice[i].file))
            return io_file_note(s->places.slice[i].file);
    return "";
}

/* ---- The measurements ---- */

struct iobench {
    const struct iobench_plan *plan;
    struct iobench_report report;
    uint64_t groups;   /* of the order that earlier rows have read */
    int fresh;         /* the last row of places that none had read before it; -1: there is none */
    uint64_t fresh_at; /* groups of the order before that row */
    bool json;
};

static struct bench_drive_spec spec_of(const struct iobench *b, const char *engine, int in_flight,
                                       uint64_t skip)
{
    return (struct bench_drive_spec){.engine = engine,
                                     .in_flight = in_flight,
                                     .seconds = b->plan->seconds,
                                     .skip = skip,
                                     .seed = b->plan->seed,
                                     .memory = b->plan->memory};
}

static int measure(struct iobench *b, const struct source *s, const char *engine, int in_flight,
                   bool direct, struct sl_err *err)
{
    struct iobench_report *r = &b->report;
    struct bench_drive_row *row = &r->row[r->n_rows];
    struct bench_drive_spec spec = spec_of(b, engine, in_flight, b->groups);
    int rc = bench_measure_drive(&s->places, &spec, row, err);
    if (rc < 0)
        return rc;
    const uint64_t n_groups = (uint64_t)(s->places.n / s->places.group), at = b->groups;
    b->groups += row->groups + row->skipped;
    if (b->groups <= n_groups) {
        b->fresh = r->n_rows;
        b->fresh_at = at;
    }
    r->wanted_direct[r->n_rows++] = direct;
    if (!b->json)
        iobench_print_row(r, r->n_rows - 1);
    return 0;
}

/* The places of the last row that had them fresh, in the same way: one that read what an earlier
 * one had read may itself have come from such a cache. */
static int measure_again(struct iobench *b, const struct source *s, struct sl_err *err)
{
    struct iobench_report *r = &b->report;
    if (b->fresh < 0)
        return 0;
    struct bench_drive_row again, *last = &r->row[b->fresh];
    struct bench_drive_spec spec = spec_of(b, last->engine, last->in_flight, b->fresh_at);
    spec.seconds = last->seconds; /* as long as the row took */
    int rc = bench_measure_drive(&s->places, &spec, &again, err);
    if (rc == 0 && last->gb_s > 0)
        r->again_ratio = again.gb_s / last->gb_s;
    return rc;
}

static int measure_direct(struct iobench *b, const struct source *s, struct sl_err *err)
{
    const struct iobench_plan *p = b->plan;
    int rc = 0;
    for (int e = 0; rc == 0 && e < p->n_engines; e++)
        for (int i = 0; rc == 0 && i < p->n_in_flight; i++)
            rc = measure(b, s, p->engine[e], p->in_flight[i], true, err);
    return rc ? rc : measure_again(b, s, err);
}

static int measure_buffered(struct iobench *b, const struct source *s, struct sl_err *err)
{
    const struct iobench_plan *p = b->plan;
    struct sl_err why;
    int rc = 0, step = p->n_in_flight > 1 ? p->n_in_flight - 1 : 1;
    for (int e = 0; rc == 0 && e < p->n_engines; e++)
        for (int i = 0; rc == 0 && i < p->n_in_flight; i += step)
            rc = measure(b, s, p->engine[e], p->in_flight[i], false, &why);
    if (rc == SL_E_UNSUPPORTED) { /* pages that stay: they are mapped, or not yet written */
        snprintf(b->report.buffered_note, sizeof b->report.buffered_note, "%s", why.msg);
        return 0;
    }
    if (rc < 0)
        *err = why;
    return rc;
}

/* The direct source stays open meanwhile: the report points into it. */
static int run_all(struct iobench *b, const char *path, int64_t size, struct sl_err *err)
{
    struct source direct, buffered = {0};
    int rc = open_source(path, size, true, &direct, err);
    if (rc == 0) {
        struct iobench_report *r = &b->report;
        r->path = path;
        r->experts = direct.model != NULL;
        r->places = &direct.places;
        r->direct_note = note_of(&direct);
        r->copy_gb_s = bench_copy_rate();
        if (!b->json)
            iobench_print_head(r);
        rc = measure_direct(b, &direct, err);
    }
    if (rc == 0 && b->plan->buffered && !*b->report.direct_note) {
        rc = open_source(path, size, false, &buffered, err);
        if (rc == 0)
            rc = measure_buffered(b, &buffered, err);
    }
    if (rc == 0 && !b->json)
        iobench_print_end(&b->report);
    if (rc == 0 && b->json && !iobench_print_json(&b->report))
        rc = err_set(err, SL_E_IO, "standard output", "standard output: can't write");
    close_source(&buffered);
    close_source(&direct);
    return rc;
}

int cmd_iobench(int argc, char **argv)
{
    struct iobench_args a;
    struct iobench_plan plan;
    struct opt_seen seen;
    struct sl_err err;
    int rc = opts_begin(&IOBENCH_CMD, argc, argv, &a, &seen);
    if (rc != OPTS_GO)
        return rc;
    if (make_plan(&a, &plan, &err) < 0) {
        opts_fail(&err);
        return EXIT_USAGE;
    }
    static struct iobench b; /* a hundred rows: large for a stack */
    b = (struct iobench){.plan = &plan, .fresh = -1, .json = a.json != 0};
    rc = run_all(&b, seen.operands[0], a.size, &err);
    return rc < 0 ? opts_fail(&err) : 0;
}
