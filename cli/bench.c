/* bench.c: `sluice bench`: a model's speed by the fixed protocol, or, with --kernels, the speed of
 * the kernels beside the limits of the machine. */
#include "cli/bench.h"
#include "cli/commands.h"
#include "cli/open.h"

#include <stdio.h>
#include <string.h>

#define AT(member) offsetof(struct bench_args, member)
#define G_KERNELS  "Kernels"
#define G_OUTPUT   "Length and output"

/* Only with --kernels, which is the first. */
static const struct opt_row KERNEL_ROWS[] = {
    {.names = "--kernels",
     .type = OPT_FLAG,
     .offset = AT(kernels),
     .help =
         "Measure the compute kernels instead of a model: products of every weight type, attention",
     .group = G_KERNELS},
    {.names = "--types",
     .type = OPT_STR,
     .offset = AT(types),
     .arg = "LIST",
     .def = "all",
     .help = "Weight types, separated by commas, such as Q4_K,Q6_K; all (whose blocks divide the "
             "columns of --shape); none",
     .group = G_KERNELS},
    {.names = "--levels",
     .type = OPT_STR,
     .offset = AT(levels),
     .arg = "LIST",
     .def = "best",
     .help = "CPU levels, separated by commas, such as scalar,avx2; all that this CPU has; best",
     .group = G_KERNELS},
    {.names = "--attention",
     .type = OPT_SWITCH,
     .offset = AT(attention),
     .def = "on",
     .help = "Measure attention too",
     .group = G_KERNELS},
    {.names = "--shape",
     .type = OPT_STR,
     .offset = AT(shape),
     .arg = "RxC",
     .def = "768x2048",
     .help = "Rows and columns of a weight matrix; C is a multiple of the type's block",
     .group = G_KERNELS},
    {.names = "--tokens",
     .type = OPT_STR,
     .offset = AT(tokens),
     .arg = "LIST",
     .def = "8,32,128,512",
     .help = "Numbers of tokens of the products with several, separated by commas; none",
     .group = G_KERNELS},
    {.names = "--keys",
     .type = OPT_INT,
     .offset = AT(keys),
     .arg = "N",
     .min = 1,
     .max = 1 << 22,
     .def = "4096",
     .help = "Positions that attention looks back on",
     .group = G_KERNELS},
    {.names = "--heads",
     .type = OPT_INT,
     .offset = AT(heads),
     .arg = "N",
     .min = 1,
     .max = 256,
     .def = "8",
     .help = "Query heads that share one key and value head",
     .group = G_KERNELS},
    {.names = "--head-dim",
     .type = OPT_INT,
     .offset = AT(head_dim),
     .arg = "N",
     .min = 1,
     .max = 4096,
     .def = "128",
     .help = "Values of one head",
     .group = G_KERNELS},
    {.names = "--buffer",
     .type = OPT_SIZE,
     .offset = AT(buffer),
     .arg = "SIZE",
     .min = 1 << 20,
     .max = 1099511627776.0,
     .def_say = "at least 512M and 16 times the last level cache",
     .help = "Memory to walk through, far larger than any cache",
     .group = G_KERNELS},
    {.names = "--reps",
     .type = OPT_INT,
     .offset = AT(reps),
     .arg = "N",
     .min = 1,
     .max = BENCH_MAX_REPS,
     .def = "15",
     .help = "Samples of each number; fewer where they would take over half a second",
     .group = G_KERNELS},
    {.names = "--sample-ms",
     .type = OPT_FLOAT,
     .offset = AT(sample_ms),
     .arg = "MS",
     .min = 0.01,
     .max = 500,
     .def = "2",
     .help = "Least length of a sample; short ones fit between two turns of other processes",
     .group = G_KERNELS},
};

/* Of both kinds. */
static const struct opt_row OWN_ROWS[] = {
    {.names = "-n --n-predict",
     .type = OPT_INT,
     .offset = AT(run.n_predict),
     .arg = "N",
     .min = 1,
     .max = 1000000,
     .def = "256",
     .unit = "tokens",
     .help = "How many tokens the protocol generates, past the model's end token",
     .group = G_OUTPUT},
    {.names = "--seed",
     .type = OPT_INT,
     .offset = AT(run.seed),
     .arg = "N",
     .min = 0,
     .max = 1e15,
     .def = "1",
     .help = "Of the random weights of --kernels, and of sampling with --temp",
     .group = G_OUTPUT},
    {.names = "--json",
     .type = OPT_FLAG,
     .offset = AT(json),
     .help = "Print one JSON object at the end instead of the table",
     .group = G_OUTPUT},
};

/* Options of `sluice run` that the protocol takes beside those of the model. */
static const char *const RUN_ROWS[] = {
    "--prompt", "--file",   "--chatml",          "--token-ids",    "--hot-experts",
    "--temp",   "--top-k",  "--top-p",           "--min-p",        "--repeat-penalty",
    "--csv",    "--timing", "--cache-telemetry", "--route-replay", "--ids-out",
};

#define N_KERNEL_ROWS (sizeof KERNEL_ROWS / sizeof *KERNEL_ROWS)
#define N_OWN_ROWS    (sizeof OWN_ROWS / sizeof *OWN_ROWS)

static struct opt_row rows[OPTS_MAX_ROWS];

static struct opt_cmd bench_cmd = {
    .name = "bench",
    .summary = "a model's speed by a fixed protocol, or the speed of the kernels",
    .operands = "[MODEL]",
    .max_operands = 1,
    .about =
        "Runs a model by the fixed protocol and prints what came out: a fixed prompt, 256 greedy "
        "tokens, the end token ignored, experts streamed with 4 reads in flight into a cache of "
        "automatic size, overlapped, dense weights in own memory, prompt chunks of 512 tokens, as "
        "many threads as usable CPUs but at most 8. Options change that; the result names each "
        "that was given. The text itself is not shown. docs/benchmark-method.md tells how to read "
        "the numbers and what makes them worthless; a warning says when the generated tokens "
        "repeat, since a loop needs the same experts again and again.\n\n"
        "With --kernels it measures, in one process: the rate at which memory is read, before and "
        "after; the peaks of the integer and FMA instructions; then every product with one token "
        "from cache and from memory, with several tokens, and attention. Each number is a median "
        "of short samples with the best and the spread; limit says what bounds the kernel, share "
        "how near it comes. From memory all thread counts up to -t (here all usable CPUs unless "
        "given) are measured, above 8 powers of two; else 1 and -t. "
        "A level with = uses the function of the level below it. docs/benchmarks.md explains the "
        "columns and how to get numbers that can be believed.",
    .rows = rows,
    .examples = "sluice bench model.gguf\n"
                "sluice bench model.gguf --cache-mb 2000 --json > result.json\n"
                "sluice bench --kernels                                  # every type, best level\n"
                "sluice bench --kernels --types Q4_K,Q6_K --levels all   # two types, all levels\n"
                "sluice bench --kernels --json > kernels.json            # for programs\n",
};

static struct opt_row *find_row(const char *names, size_t n)
{
    size_t i = 0;
    while (i + 1 < n && strcmp(rows[i].names, names) != 0)
        i++;
    return &rows[i];
}

/* Rows come from `run`, so that both mean the same; two have the protocol's defaults. */
static void make_table(void)
{
    size_t n = N_KERNEL_ROWS;
    memcpy(rows, KERNEL_ROWS, sizeof KERNEL_ROWS);
    n += run_opts_model_rows(rows + n, OPTS_MAX_ROWS - n);
    find_row("--ubatch", n)->def = "512";
    find_row("--ubatch", n)->def_say = NULL;
    find_row("--moe-stream", n)->def_say = "on for models with experts";
    n += run_opts_named_rows(RUN_ROWS, sizeof RUN_ROWS / sizeof *RUN_ROWS, rows + n,
                             OPTS_MAX_ROWS - N_OWN_ROWS - n);
    memcpy(rows + n, OWN_ROWS, sizeof OWN_ROWS);
    bench_cmd.n_rows = n + N_OWN_ROWS;
}

static int run_kernels(const struct bench_args *a)
{
    static struct bench_plan plan;
    struct bench_report report;
    struct sl_err err;
    if (bench_make_plan(a, &plan, &err) != 0) {
        opts_fail(&err);
        return EXIT_USAGE;
    }
    int rc = bench_run(&plan, a->json ? NULL : bench_print_event, &plan, &report, &err);
    if (rc == 0 && a->json && !bench_print_json(&plan, &report))
        rc = err_set(&err, SL_E_IO, "standard output", "standard output: can't write");
    bench_free_report(&report);
    return rc ? opts_fail(&err) : 0;
}

/* An option of the other kind would be without effect. */
static int check_kind(const struct bench_args *a, const struct opt_seen *seen, struct sl_err *err)
{
    static const char *const both[] = {"-t --threads", "--pin", "--seed", "--json"};
    char name[32];
    for (size_t i = 1; i < bench_cmd.n_rows; i++) {
        bool shared = false;
        for (size_t j = 0; j < sizeof both / sizeof *both; j++)
            shared = shared || strcmp(rows[i].names, both[j]) == 0;
        if (!seen->given[i] || shared || (i < N_KERNEL_ROWS) == (a->kernels != 0))
            continue;
        const char *last = strrchr(rows[i].names, ' ');
        snprintf(name, sizeof name, "%s", last != NULL ? last + 1 : rows[i].names);
        return err_set(err, SL_E_ARG, name,
                       a->kernels ? "%s is for runs of a model; --kernels runs none"
                                  : "%s is for --kernels",
                       name);
    }
    if (a->kernels && seen->n_operands > 0)
        return err_set(err, SL_E_ARG, "--kernels", "--kernels runs no model; '%.200s' is too much",
                       seen->operands[0]);
    return SL_OK;
}

int cmd_bench(int argc, char **argv)
{
    static struct bench_args a;
    struct opt_seen seen;
    struct sl_err err;
    make_table();
    int rc = opts_begin(&bench_cmd, argc, argv, &a, &seen);
    if (rc != OPTS_GO)
        return rc;
    rc = check_kind(&a, &seen, &err);
    if (rc == SL_OK && !a.kernels)
        rc = run_opts_check(&bench_cmd, &seen, &a.run, &err);
    if (rc == SL_OK && !a.kernels)
        rc = open_find_model(&seen, a.run.model, &a.run.model, &err);
    if (rc < 0) {
        opts_fail(&err);
        return EXIT_USAGE;
    }
    return a.kernels ? run_kernels(&a) : bench_run_protocol(&bench_cmd, &seen, &a);
}
