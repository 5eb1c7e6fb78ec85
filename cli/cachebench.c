/* cachebench.c: `sluice cachebench`: expert reads that the page cache serves, and nothing else. */
#include "cli/cachebench.h"
#include "cli/commands.h"
#include "cli/opts.h"

#include <stddef.h>
#include <stdio.h>

#define AT(field) offsetof(struct cachebench_args, field)

#define G_WHAT "What is read"
#define G_HOW  "How"
#define G_OUT  "Output"

static const struct opt_word DEST_WORDS[] = {{"thread", 0}, {"slots", 1}, {NULL, 0}};

static const struct opt_row ROWS[] = {
    {"-m --model", OPT_STR, AT(model), "DIR|FILE", 0, 0, NULL, "$SLUICE_MODEL_DIR, else ./model",
     NULL,
     "Directory with packed trees (sluice pack), or a GGUF file; of a directory without a tree, "
     "its GGUF file",
     G_WHAT, NULL},
    {"--4bit", OPT_FLAG, AT(q4), NULL, 0, 0, NULL, NULL, NULL,
     "The tree packed_experts/, which must be 4-bit; without a tree option it is read whatever it "
     "holds",
     G_WHAT, NULL},
    {"--q3-experts", OPT_FLAG, AT(q3), NULL, 0, 0, NULL, NULL, NULL, "The tree packed_experts_Q3/",
     G_WHAT, NULL},
    {"--2bit", OPT_FLAG, AT(q2), NULL, 0, 0, NULL, NULL, NULL, "The tree packed_experts_2bit/",
     G_WHAT, NULL},
    {"--layer", OPT_INT, AT(layer), "N", 0, 1023, "0", NULL, NULL, "Whose experts are read", G_WHAT,
     NULL},
    {"--file", OPT_STR, AT(file), "FILE", 0, 0, NULL, NULL, NULL,
     "Instead of a model: one layer's file, or any file with experts at equal distances", G_WHAT,
     NULL},
    {"--stride", OPT_SIZE, AT(stride), "SIZE", 512, 1 << 30, NULL,
     "the manifest's, else the file's size / experts", NULL,
     "Bytes from one expert of --file to the next", G_WHAT, NULL},
    {"--experts", OPT_INT, AT(experts), "N", 0, 65536, "0", "128, or all where there are fewer",
     "experts", "How many, from the first; asked for more than there are, it is refused", G_WHAT,
     NULL},

    {"-t --threads", OPT_INT, AT(threads), "N", 1, 256, "8", NULL, "threads",
     "Threads that read, kept for all passes", G_HOW, NULL},
    {"--split", OPT_INT, AT(split), "N", 1, BENCH_MAX_SPLIT, "1", NULL, "pieces",
     "Tasks that each expert is cut into, at pages of the file: N times as many tasks, the same "
     "bytes",
     G_HOW, NULL},
    {"--warmup", OPT_INT, AT(warmup), "N", 0, 1000, "2", NULL, "passes",
     "Passes that are not timed", G_HOW, NULL},
    {"--passes", OPT_INT, AT(passes), "N", 1, BENCH_MAX_PASSES, "5", NULL, "passes", "Timed passes",
     G_HOW, NULL},
    {"--dest", OPT_ENUM, AT(slots), NULL, 0, 0, "thread", NULL, NULL,
     "Where the bytes go: to one buffer for each thread, used again and again, or to a place for "
     "each expert",
     G_HOW, DEST_WORDS},
    {"--hugepages", OPT_FLAG, AT(huge), NULL, 0, 0, NULL, NULL, NULL, "Ask for huge pages there",
     G_HOW, NULL},
    {"--seed", OPT_INT, AT(seed), "N", 0, 1e15, "1", NULL, NULL,
     "Of the orders in which experts are read", G_HOW, NULL},
    {"--sweep", OPT_FLAG, AT(sweep), NULL, 0, 0, NULL, NULL, NULL,
     "Measure 1, 2, 4 ... --threads threads with splits of 1, 2, 4, 8 ... --split and print a "
     "table and the best setting",
     G_HOW, NULL},

    {"--json", OPT_FLAG, AT(json), NULL, 0, 0, NULL, NULL, NULL,
     "Print one JSON object at the end instead", G_OUT, NULL},
    {"--csv", OPT_STR, AT(csv), "FILE", 0, 0, NULL, NULL, NULL,
     "Write a row for every timed pass as well", G_OUT, NULL},
};

static const struct opt_cmd CACHEBENCH_CMD = {
    .name = "cachebench",
    .summary = "expert reads that the page cache serves",
    .about =
        "Reads a layer's experts from the page cache, in a random order, with a fixed set of "
        "threads, and says how fast they come: what is left of memory's speed when an expert is "
        "fetched by a system call. Nothing else is in the way: no cache of ours, no arithmetic. "
        "Beside it stand the same tasks as copies from plain memory, and the rate at which the "
        "same threads load memory.\n\n"
        "It looks up whether the pages were in the page cache before and after every timed pass, "
        "and does not call a rate cached otherwise. It says nothing about the drive: for that, "
        "sluice iobench.",
    .rows = ROWS,
    .n_rows = sizeof ROWS / sizeof ROWS[0],
    .examples = "sluice cachebench --model packed --q3-experts --split 4\n"
                "sluice cachebench --model model.gguf --sweep --threads 4\n"
                "sluice cachebench --file packed/packed_experts/layer_07.bin --dest slots --json\n",
};

static int check_args(const struct cachebench_args *a, struct sl_err *err)
{
    if (a->q4 + a->q3 + a->q2 > 1)
        return err_set(err, SL_E_ARG, "--4bit",
                       "--4bit, --q3-experts and --2bit exclude each other");
    if (a->file && (a->model || a->q4 || a->q3 || a->q2 || a->layer))
        return err_set(err, SL_E_ARG, "--file",
                       "--file is one layer's file; --model, --layer and the trees mean nothing "
                       "beside it");
    if (a->stride && !a->file)
        return err_set(err, SL_E_ARG, "--stride", "--stride is for --file; models have their own");
    return 0;
}

/* What would not fit would push the experts out of the page cache, or end other programs. */
static int check_memory(const struct cachebench_args *a, const struct cachebench_source *s,
                        uint64_t ram, uint64_t avail, struct sl_err *err)
{
    const double places = a->slots ? (double)s->experts : (double)a->threads;
    const double need = places * (double)s->expert_bytes + (double)ram, mib = 1048576;
    if (avail == 0 || need < 0.9 * (double)avail)
        return 0;
    return err_set(err, SL_E_MEM, "cachebench",
                   "%.0f MiB of buffers are needed, but only %.0f are available; fewer --experts "
                   "or --threads need less",
                   need / mib, (double)avail / mib);
}

static int measure(struct cachebench_report *r, int threads, int split,
                   const struct bench_stream *ram, struct sl_err *err)
{
    const struct cachebench_args *a = r->args;
    const struct bench_cached_spec spec = {.threads = threads,
                                           .split = split,
                                           .warmup = (int)a->warmup,
                                           .passes = (int)a->passes,
                                           .slots = a->slots != 0,
                                           .huge = a->huge != 0,
                                           .seed = (uint64_t)a->seed};
    struct bench_cached_row *row = &r->row[r->n_rows];
    int rc = bench_measure_cached(&r->source->places, &spec, ram, row, err);
    if (rc < 0)
        return rc;
    if (row->cached &&
        (r->best < 0 || bench_cached_rate(row) > bench_cached_rate(&r->row[r->best])))
        r->best = r->n_rows;
    r->n_rows++;
    if (a->sweep && !a->json)
        cachebench_print_row(r, r->n_rows - 1);
    return 0;
}

/* 1, 2, 4 ... below n, and n itself; 0 after it. */
static int next_count(int k, int n)
{
    return k == n ? 0 : 2 * k < n ? 2 * k : n;
}

static int measure_all(struct cachebench_report *r, const struct bench_stream *ram,
                       struct sl_err *err)
{
    const int threads = (int)r->args->threads, split = (int)r->args->split;
    int rc = 0;
    if (!r->args->sweep)
        return measure(r, threads, split, ram, err);
    for (int t = 1; rc == 0 && t; t = next_count(t, threads))
        for (int s = 1; rc == 0 && s; s = next_count(s, split > 8 ? split : 8))
            rc = measure(r, t, s, ram, err);
    return rc;
}

static int report(struct cachebench_report *r, struct sl_err *err)
{
    const struct cachebench_args *a = r->args;
    if (a->json && !cachebench_print_json(r))
        return err_set(err, SL_E_IO, "standard output", "standard output: can't write");
    if (!a->json && a->sweep)
        cachebench_print_best(r);
    else if (!a->json)
        cachebench_print_passes(r);
    cachebench_print_doubt(r, a->json ? stderr : stdout);
    return a->csv ? cachebench_write_csv(r, err) : 0;
}

static int run_all(struct cachebench_report *r, struct cachebench_source *s, struct sl_err *err)
{
    struct bench_stream ram = {0};
    struct bench_machine m;
    int rc = cachebench_open(r->args, s, err);
    if (rc < 0)
        return rc;
    bench_read_machine("", &m);
    const uint64_t bytes = bench_cached_ram(&s->places, (int)r->args->threads, m.avail / 4);
    if ((rc = check_memory(r->args, s, bytes, m.avail, err)) < 0)
        return rc;
    if (!bench_open_stream(&ram, bytes))
        return err_set(err, SL_E_MEM, "cachebench", "no memory for a buffer of %llu MiB",
                       (unsigned long long)(bytes >> 20));
    if (!r->args->json)
        cachebench_print_head(r);
    rc = measure_all(r, &ram, err);
    bench_close_stream(&ram);
    return rc < 0 ? rc : report(r, err);
}

int cmd_cachebench(int argc, char **argv)
{
    struct cachebench_args a;
    struct cachebench_source source = {0};
    struct opt_seen seen;
    struct sl_err err;
    int rc = opts_begin(&CACHEBENCH_CMD, argc, argv, &a, &seen);
    if (rc != OPTS_GO)
        return rc;
    if (check_args(&a, &err) < 0) {
        opts_fail(&err);
        return EXIT_USAGE;
    }
    static struct cachebench_report r; /* a hundred rows: large for a stack */
    r = (struct cachebench_report){.args = &a, .source = &source, .best = -1};
    rc = run_all(&r, &source, &err);
    cachebench_close(&source);
    return rc < 0 ? opts_fail(&err) : 0;
}
