/* bench.c: `sluice bench`: the speed of the kernels beside the limits of the machine. */
#include "cli/bench.h"
#include "cli/commands.h"
#include "cli/opts.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

struct bench_args {
    int64_t kernels, threads, attention, keys, heads, head_dim, buffer, reps, seed, json;
    double sample_ms;
    const char *types, *levels, *shape, *tokens;
};

#define AT(member) offsetof(struct bench_args, member)
static const struct opt_row ROWS[] = {
    {.names = "--kernels",
     .type = OPT_FLAG,
     .offset = AT(kernels),
     .help = "Measure the compute kernels: products of every weight type, attention",
     .group = "what"},
    {.names = "--types",
     .type = OPT_STR,
     .offset = AT(types),
     .arg = "LIST",
     .def = "all",
     .help = "Weight types, separated by commas, such as Q4_K,Q6_K; all (whose blocks divide the "
             "columns of --shape); none",
     .group = "what"},
    {.names = "--levels",
     .type = OPT_STR,
     .offset = AT(levels),
     .arg = "LIST",
     .def = "best",
     .help = "CPU levels, separated by commas, such as scalar,avx2; all that this CPU has; best",
     .group = "what"},
    {.names = "--attention",
     .type = OPT_SWITCH,
     .offset = AT(attention),
     .def = "1",
     .def_say = "on",
     .help = "Measure attention too",
     .group = "what"},
    {.names = "-t --threads",
     .type = OPT_INT,
     .offset = AT(threads),
     .arg = "N",
     .min = 1,
     .max = 1024,
     .def_say = "all usable CPUs",
     .help = "Most threads; from memory all counts up to it are measured, above 8 powers of two, "
             "else 1 and N",
     .group = "how much"},
    {.names = "--shape",
     .type = OPT_STR,
     .offset = AT(shape),
     .arg = "RxC",
     .def = "768x2048",
     .help = "Rows and columns of a weight matrix; C is a multiple of the type's block",
     .group = "how much"},
    {.names = "--tokens",
     .type = OPT_STR,
     .offset = AT(tokens),
     .arg = "LIST",
     .def = "8,32,128,512",
     .help = "Numbers of tokens of the products with several, separated by commas; none",
     .group = "how much"},
    {.names = "--keys",
     .type = OPT_INT,
     .offset = AT(keys),
     .arg = "N",
     .min = 1,
     .max = 1 << 22,
     .def = "4096",
     .help = "Positions that attention looks back on",
     .group = "how much"},
    {.names = "--heads",
     .type = OPT_INT,
     .offset = AT(heads),
     .arg = "N",
     .min = 1,
     .max = 256,
     .def = "8",
     .help = "Query heads that share one key and value head",
     .group = "how much"},
    {.names = "--head-dim",
     .type = OPT_INT,
     .offset = AT(head_dim),
     .arg = "N",
     .min = 1,
     .max = 4096,
     .def = "128",
     .help = "Values of one head",
     .group = "how much"},
    {.names = "--buffer",
     .type = OPT_SIZE,
     .offset = AT(buffer),
     .arg = "SIZE",
     .min = 1 << 20,
     .max = 1099511627776.0,
     .def_say = "at least 512M and 16 times the last level cache",
     .help = "Memory to walk through, far larger than any cache",
     .group = "how much"},
    {.names = "--reps",
     .type = OPT_INT,
     .offset = AT(reps),
     .arg = "N",
     .min = 1,
     .max = BENCH_MAX_REPS,
     .def = "15",
     .help = "Samples of each number; fewer where they would take over half a second",
     .group = "how much"},
    {.names = "--sample-ms",
     .type = OPT_FLOAT,
     .offset = AT(sample_ms),
     .arg = "MS",
     .min = 0.01,
     .max = 500,
     .def = "2",
     .help = "Least length of a sample; short ones fit between two turns of other processes",
     .group = "how much"},
    {.names = "--seed",
     .type = OPT_INT,
     .offset = AT(seed),
     .arg = "N",
     .min = 0,
     .max = 1e15,
     .def = "1",
     .help = "Of the random weights",
     .group = "how much"},
    {.names = "--json",
     .type = OPT_FLAG,
     .offset = AT(json),
     .help = "Print one JSON object at the end instead of the table",
     .group = "output"},
};

static const struct opt_cmd BENCH_CMD = {
    .name = "bench",
    .summary = "the speed of the kernels beside the machine's limits",
    .about =
        "Measures, in one process: the rate at which memory is read, before and after; the peaks "
        "of the integer and FMA instructions; then every product with one token from cache and "
        "from memory, with several tokens, and attention. Each number is a median of short "
        "samples with the best and the spread; limit says what bounds the kernel, share how near "
        "it comes.\n\n"
        "A level with = uses the function of the level below it. docs/benchmarks.md explains the "
        "columns and how to get numbers that can be believed.",
    .rows = ROWS,
    .n_rows = sizeof ROWS / sizeof ROWS[0],
    .examples = "sluice bench --kernels                                  # every type, best level\n"
                "sluice bench --kernels --types Q4_K,Q6_K --levels all   # two types, all levels\n"
                "sluice bench --kernels --json > kernels.json            # for programs\n",
};

/* ---- Lists ---- */

static enum quant_type find_type(const char *name)
{
    for (int t = 0; t < QT_COUNT; t++) {
        const struct quant_info *q = quant_type_info((uint32_t)t);
        if (q && strcasecmp(q->name, name) == 0 && bench_has_product((enum quant_type)t))
            return (enum quant_type)t;
    }
    return QT_COUNT;
}

static int unknown_type(const char *word, struct sl_err *err)
{
    const char *names[QT_COUNT];
    size_t n = 0;
    for (int t = 0; t < QT_COUNT; t++)
        if (bench_has_product((enum quant_type)t))
            names[n++] = quant_type_info((uint32_t)t)->name;
    const char *near = opts_nearest(word, names, n);
    return err_set(err, SL_E_ARG, "--types", "--types: no product has weights of type '%s'%s%s%s",
                   word, near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

static int parse_types(const char *list, struct bench_plan *p, struct sl_err *err)
{
    char word[32];
    const bool all = strcmp(list, "all") == 0;
    for (int t = 0; t < QT_COUNT; t++)
        p->types[t] = all && bench_has_product((enum quant_type)t) &&
                      p->cols % (int)quant_type_info((uint32_t)t)->block_values == 0;
    if (all || strcmp(list, "none") == 0)
        return 0;
    while (opts_next_word(&list, word, sizeof word)) {
        const enum quant_type type = find_type(word);
        if (type == QT_COUNT)
            return unknown_type(word, err);
        if (p->cols % (int)quant_type_info(type)->block_values)
            return err_set(err, SL_E_ARG, "--shape",
                           "--shape: %d columns are no multiple of the %u values of a block of %s",
                           p->cols, quant_type_info(type)->block_values, word);
        p->types[type] = true;
    }
    return 0;
}

static int parse_levels(const char *list, struct bench_plan *p, struct sl_err *err)
{
    bool have[KL_COUNT];
    char word[32];
    bench_find_levels(have);
    if (strcmp(list, "all") == 0)
        memcpy(p->levels, have, sizeof have);
    if (strcmp(list, "best") == 0)
        p->levels[kernels_cpu_level()] = true;
    if (strcmp(list, "all") == 0 || strcmp(list, "best") == 0)
        return 0;
    while (opts_next_word(&list, word, sizeof word)) {
        int l = 0;
        while (l < KL_COUNT && strcmp(word, kernels_level_name((enum kern_level)l)) != 0)
            l++;
        if (l == KL_COUNT)
            return err_set(err, SL_E_ARG, "--levels", "--levels: there is no level '%s'", word);
        if (!have[l])
            return err_set(err, SL_E_ARG, "--levels",
                           "--levels: this CPU or build has no %s; its best is %s", word,
                           kernels_level_name(kernels_cpu_level()));
        p->levels[l] = true;
    }
    return 0;
}

#define MAX_SIDE   (1 << 20) /* rows or columns */
#define MAX_TOKENS 65536

static int parse_tokens(const char *list, struct bench_plan *p, struct sl_err *err)
{
    char word[32];
    if (strcmp(list, "none") == 0)
        return 0;
    while (opts_next_word(&list, word, sizeof word)) {
        int64_t n;
        if (!opts_parse_int(word, &n) || n < 1 || n > MAX_TOKENS)
            return err_set(err, SL_E_ARG, "--tokens",
                           "--tokens: '%s' is not a number of tokens from 1 to %d", word,
                           MAX_TOKENS);
        if (p->n_tokens == BENCH_MAX_COUNTS)
            return err_set(err, SL_E_ARG, "--tokens", "--tokens: at most %d numbers",
                           BENCH_MAX_COUNTS);
        p->tokens[p->n_tokens++] = (int)n;
    }
    return 0;
}

static int parse_shape(const char *s, struct bench_plan *p, struct sl_err *err)
{
    char rows[24];
    const char *x = strchr(s, 'x');
    int64_t r = 0, c = 0;
    if (x && (size_t)(x - s) < sizeof rows) {
        snprintf(rows, sizeof rows, "%.*s", (int)(x - s), s);
        if (!opts_parse_int(rows, &r) || !opts_parse_int(x + 1, &c))
            r = c = 0;
    }
    if (r < 1 || r > MAX_SIDE || c < 1 || c > MAX_SIDE)
        return err_set(err, SL_E_ARG, "--shape",
                       "--shape: '%s' is not ROWSxCOLUMNS, each from 1 to %d", s, MAX_SIDE);
    p->rows = (int)r;
    p->cols = (int)c;
    return 0;
}

/* ---- The command ---- */

static int make_plan(const struct bench_args *a, struct bench_plan *p, struct sl_err *err)
{
    struct bench_machine m;
    memset(p, 0, sizeof *p);
    int rc = parse_shape(a->shape, p, err);
    if (rc == 0)
        rc = parse_types(a->types, p, err);
    if (rc == 0)
        rc = parse_levels(a->levels, p, err);
    if (rc == 0)
        rc = parse_tokens(a->tokens, p, err);
    if (rc != 0)
        return rc;
    bench_read_machine("", &m);
    const int threads = a->threads > 0 ? (int)a->threads : m.usable_cpus;
    p->n_threads = bench_thread_counts(threads, p->threads);
    p->attention = a->attention != 0;
    p->keys = (int)a->keys;
    p->heads = (int)a->heads;
    p->head_dim = (int)a->head_dim;
    p->ram_bytes = a->buffer > 0 ? (uint64_t)a->buffer : bench_ram_bytes(&m, threads);
    p->effort = (struct bench_effort){(int)a->reps, 1e-3 * a->sample_ms};
    p->seed = (uint64_t)a->seed;
    return 0;
}

int cmd_bench(int argc, char **argv)
{
    struct bench_args a;
    struct opt_seen seen;
    struct bench_plan plan;
    struct bench_report report;
    struct sl_err err;
    int rc = opts_begin(&BENCH_CMD, argc, argv, &a, &seen);
    if (rc != OPTS_GO)
        return rc;
    rc = a.kernels ? make_plan(&a, &plan, &err)
                   : err_set(&err, SL_E_ARG, NULL, "say what to measure: --kernels");
    if (rc != 0) {
        opts_fail(&err);
        return EXIT_USAGE;
    }
    rc = bench_run(&plan, a.json ? NULL : bench_print_event, &plan, &report, &err);
    if (rc == 0 && a.json && !bench_print_json(&plan, &report))
        rc = err_set(&err, SL_E_IO, "standard output", "standard output: can't write");
    bench_free_report(&report);
    return rc ? opts_fail(&err) : 0;
}
