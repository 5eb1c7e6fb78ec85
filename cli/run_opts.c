/* run_opts.c: the options of `sluice run`: the table that --help, the manual and docs/cli.md come
 * from. run_check.c has the rules between them and what they mean to the library. */
#include "cli/run.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define AT(field) offsetof(struct run_args, field)

#define G_MODEL  "Model and text"
#define G_SAMPLE "Sampling"
#define G_STREAM "Streaming"
#define G_PACKED "Packed experts (sluice pack makes them)"
#define G_WATCH  "Telemetry"
#define G_GUESS  "Experimental: guessing which experts come next; the text does not depend on it"
#define G_LOSSY  "Lossy: these change the text, and every output says so"
#define G_DUMP   "For tests and scripts"

static const struct opt_word CPU_WORDS[] = {
    {"auto", SL_CPU_AUTO},
    {"scalar", SL_CPU_SCALAR},
    {"avx2", SL_CPU_AVX2},
    {"avxvnni", SL_CPU_AVXVNNI},
    {"avx512", SL_CPU_AVX512},
    {"avx512vnni", SL_CPU_AVX512VNNI},
    {"amx", SL_CPU_AMX},
    {"neon", SL_CPU_NEON},
    {"dotprod", SL_CPU_DOTPROD},
    {"i8mm", SL_CPU_I8MM},
    {NULL, 0},
};
static const struct opt_word KV_WORDS[] = {
    {"f32", SL_KV_F32}, {"f16", SL_KV_F16}, {"q8_0", SL_KV_Q8_0}, {NULL, 0}};
static const struct opt_word DENSE_WORDS[] = {
    {"anon", SL_DENSE_ANON}, {"mmap", SL_DENSE_MMAP}, {"warm", SL_DENSE_WARM}, {NULL, 0}};
static const struct opt_word IO_WORDS[] = {{"auto", SL_IO_AUTO},
                                           {"uring", SL_IO_URING},
                                           {"threads", SL_IO_THREADS},
                                           {"plain", SL_IO_PLAIN},
                                           {NULL, 0}};
/* Values are places in this table. */
static const struct opt_word POLICY_WORDS[] = {
    {"echo", 0}, {"lfu-decay", 1}, {"lru", 2}, {NULL, 0}};
static const struct opt_word AUTO_MB[] = {{"auto", SL_CACHE_AUTO}, {NULL, 0}};
static const struct opt_word SPEC_DEFAULT[] = {{"default", 0}, {NULL, 0}};
static const struct opt_word MODELS_OWN[] = {{"model", 0}, {NULL, 0}};
static const struct opt_word UNSET_SLOTS[] = {{"unset", SL_CACHE_UNSET}, {NULL, 0}};

/* Rows whose meaning needs no more than one line; see struct opt_row for the order of fields. */
static const struct opt_row ROWS[] = {
    {"-m --model", OPT_STR, AT(model), "FILE", 0, 0, NULL,
     "$SLUICE_MODEL, else the storyteller that comes with sluice", NULL,
     "GGUF file; of a split set, its first part; or a directory with model.gguf or one GGUF file",
     G_MODEL, NULL},
    {"-p --prompt", OPT_STR, AT(prompt), "TEXT", 0, 0, NULL,
     "standard input when it is no terminal", NULL, "The prompt", G_MODEL, NULL},
    {"-f --file", OPT_STR, AT(file), "FILE", 0, 0, NULL, NULL, NULL,
     "Read the prompt from a file, - for standard input", G_MODEL, NULL},
    {"--chatml", OPT_FLAG, AT(chatml), NULL, 0, 0, NULL, NULL, NULL,
     "Wrap the prompt as one user turn in the model's own chat template (ChatML templates only)",
     G_MODEL, NULL},
    {"-n --n-predict --tokens", OPT_INT, AT(n_predict), "N", 0, 1000000, "256", NULL, "tokens",
     "How many tokens to generate at most; generation also ends at the model's end token", G_MODEL,
     NULL},
    {"--ignore-eos", OPT_FLAG, AT(ignore_eos), NULL, 0, 0, NULL, NULL, NULL,
     "Go on after the model's end token", G_MODEL, NULL},
    {"-c --ctx-size", OPT_INT, AT(n_ctx), "N", 0, 16777216, "0",
     "0: the model's, at most 4096 and what the budget allows", "tokens",
     "Size of the context: prompt and answer together", G_MODEL, NULL},
    {"-t --threads", OPT_INT, AT(threads), "N", 0, 1024, "0", "0: the usable CPUs, at most 8",
     "threads", "Compute threads", G_MODEL, NULL},
    {"--pin", OPT_FLAG, AT(pin), NULL, 0, 0, NULL, NULL, NULL,
     "Bind each compute thread to a CPU of its own, of those that the process may use (taskset): "
     "one on each core before second hardware threads, fast cores first",
     G_MODEL, NULL},
    {"--ubatch", OPT_INT, AT(ubatch), "N", 0, 65536, "0",
     "0: the widest whose buffers stay small beside the budget", "tokens",
     "Width of a prompt chunk; each chunk reads the experts again, so few wide ones are better",
     G_MODEL, NULL},
    {"--cpu", OPT_ENUM, AT(cpu), NULL, 0, 0, "auto", NULL, NULL,
     "Upper bound on the vector instructions used; the text does not depend on it", G_MODEL,
     CPU_WORDS},
    {"-ctk --cache-type-k", OPT_ENUM, AT(k_type), NULL, 0, 0, "f16", NULL, NULL,
     "How keys are stored in the KV cache", G_MODEL, KV_WORDS},
    {"-ctv --cache-type-v", OPT_ENUM, AT(v_type), NULL, 0, 0, "f16", NULL, NULL,
     "How values are stored in the KV cache", G_MODEL, KV_WORDS},

    {"--temp", OPT_FLOAT, AT(temp), "T", 0, 100, "0", "0: greedy", NULL,
     "Temperature: divides the logits; 0 always takes the best token", G_SAMPLE, NULL},
    {"--top-k", OPT_INT, AT(top_k), "K", 0, 1e8, "0", "0: all", "tokens",
     "Draw only from the K best tokens", G_SAMPLE, NULL},
    {"--top-p", OPT_FLOAT, AT(top_p), "P", 0, 1, "1", "1: all", NULL,
     "Draw only from the best tokens that together reach probability P", G_SAMPLE, NULL},
    {"--min-p", OPT_FLOAT, AT(min_p), "P", 0, 1, "0", "0: all", NULL,
     "Draw only from tokens of at least P times the best one's probability", G_SAMPLE, NULL},
    {"--repeat-penalty", OPT_FLOAT, AT(repeat_penalty), "R", 0.01, 100, "1", "1: none", NULL,
     "Makes tokens of the last 64 positions less likely", G_SAMPLE, NULL},
    {"--seed", OPT_INT, AT(seed), "N", 0, 9.2e18, "0", NULL, NULL,
     "Start of the random generator; the same seed gives the same text", G_SAMPLE, NULL},

    {"--moe-stream", OPT_SWITCH, AT(stream), NULL, 0, 0, "auto",
     "on when the model does not fit into memory", NULL,
     "Keep the experts on the drive and read those that the router asks for", G_STREAM, NULL},
    {"--ram", OPT_SIZE, AT(ram), "SIZE", 1048576, 9.2e18, NULL, "no bound", NULL,
     "Bound on all memory of the process; what does not fit is refused before loading", G_STREAM,
     NULL},
    {"--cache-mb", OPT_INT, AT(cache_mb), "N", 0, 1e9, "auto", NULL, "MiB",
     "Memory for the expert cache; 0: none, every expert is read when it is used", G_STREAM,
     AUTO_MB},
    {"--cache-entries", OPT_INT, AT(cache_entries), "N", 0, 1e7, "0", "--cache-mb decides",
     "experts", "Cache size as a number of experts instead", G_STREAM, NULL},
    {"--cache-slots", OPT_INT, AT(cache_slots), "N", 0, 1e7, "unset", "--cache-mb decides",
     "experts", "Cache size as a number of slots per size class (for tests)", G_STREAM,
     UNSET_SLOTS},
    {"--cache-floor-mb", OPT_INT, AT(cache_floor_mb), "N", 0, 1e9, "1536", NULL, "MiB",
     "What --cache-mb auto leaves free of the machine's memory, and --cache-adapt keeps free; of a "
     "memory cgroup a sixteenth, at most this",
     G_STREAM, NULL},
    {"--cache-ceil-mb", OPT_INT, AT(cache_ceil_mb), "N", 0, 1e9, "0", "0: no bound", "MiB",
     "What --cache-mb auto takes at most", G_STREAM, NULL},
    {"--cache-adapt", OPT_FLAG, AT(cache_adapt), NULL, 0, 0, NULL, NULL, NULL,
     "Give cache memory back while the system runs short of it, and take it again afterwards; the "
     "text does not depend on it",
     G_STREAM, NULL},
    {"--cache-policy", OPT_ENUM, AT(cache_policy), NULL, 0, 0, "echo", NULL, NULL,
     "Which cached expert gives way to a new one; the text does not depend on it", G_STREAM,
     POLICY_WORDS},
    {"--hot-experts", OPT_STR, AT(hot_experts), "FILE", 0, 0, NULL, NULL, NULL,
     "Fill the cache from this list of the experts that earlier runs used most, and bring the list "
     "up to date at the end; it may be missing at first",
     G_STREAM, NULL},
    {"--io-threads", OPT_INT, AT(io_threads), "N", 1, 64, "4", NULL, "reads",
     "Reads in flight, on each drive that holds experts", G_STREAM, NULL},
    {"--io-engine", OPT_ENUM, AT(io_engine), NULL, 0, 0, "auto", NULL, NULL,
     "How reads are made: by the kernel (io_uring), by worker threads, or one by one (plain, for "
     "diagnosis); auto: the first of these that can be had",
     G_STREAM, IO_WORDS},
    {"--cache-io-split", OPT_INT, AT(io_split), "N", 1, 64, "1", NULL, "pieces",
     "Cut each expert's read into N page-aligned pieces", G_STREAM, NULL},
    {"--odirect", OPT_SWITCH, AT(odirect), NULL, 0, 0, "on", NULL, NULL,
     "Read experts past the page cache where the file system can", G_STREAM, NULL},
    {"--io-two-wave", OPT_FLAG, AT(two_wave), NULL, 0, 0, NULL, NULL, NULL,
     "Experimental: read the gate and up matrices of a layer's experts first and start with them "
     "while the down matrices are read",
     G_STREAM, NULL},
    {"--load-all", OPT_FLAG, AT(load_all), NULL, 0, 0, NULL, NULL, NULL,
     "Read every expert of every layer, whatever the router chose: a baseline to measure against",
     G_STREAM, NULL},
    {"--overlap", OPT_SWITCH, AT(overlap), NULL, 0, 0, "on", NULL, NULL,
     "Compute cached experts while missing ones are read", G_STREAM, NULL},
    {"--dense-weights", OPT_ENUM, AT(dense), NULL, 0, 0, "anon", NULL, NULL,
     "Weights that every token needs: read into own memory, mapped, or mapped and read once",
     G_STREAM, DENSE_WORDS},
    {"--load-behind", OPT_SWITCH, AT(load_behind), NULL, 0, 0, "on", NULL, NULL,
     "Load these weights while the prompt is evaluated, not before it: the first token comes "
     "sooner, "
     "and its time has loading in it. Mapped weights and --session go without",
     G_STREAM, NULL},
    {"--row-stream", OPT_FLAG, AT(row_stream), NULL, 0, 0, NULL, NULL, NULL,
     "Read embedding rows when a token wants them instead of holding the table in memory", G_STREAM,
     NULL},

    {"--packed", OPT_STR, AT(packed), "DIR", 0, 0, NULL, NULL, NULL,
     "Read the experts from the packed tree in DIR, one read each; without one of the next three "
     "the lossless tree, which gives the same text",
     G_PACKED, NULL},
    {"--4bit", OPT_FLAG, AT(q4), NULL, 0, 0, NULL, NULL, NULL,
     "Lossy: the tree with experts requantised to Q4_K, in --packed's DIR or beside the model",
     G_PACKED, NULL},
    {"--q3-experts", OPT_FLAG, AT(q3), NULL, 0, 0, NULL, NULL, NULL, "Lossy: likewise, Q3_K",
     G_PACKED, NULL},
    {"--2bit", OPT_FLAG, AT(q2), NULL, 0, 0, NULL, NULL, NULL, "Lossy: likewise, Q2_K", G_PACKED,
     NULL},

    {"--csv", OPT_STR, AT(csv), "FILE", 0, 0, NULL, NULL, NULL,
     "Write a row of measurements per generated token, with the configuration before and a summary "
     "behind them",
     G_WATCH, NULL},
    {"--progress", OPT_FLAG, AT(progress), NULL, 0, 0, NULL, NULL, NULL,
     "Write what happens as JSON lines to standard error, between the other lines: loading, "
     "tokens with their text, the summary",
     G_WATCH, NULL},
    {"--session", OPT_FLAG, AT(session), NULL, 0, 0, NULL, NULL, NULL,
     "Serve requests, JSON lines on standard input, until it ends; answers are JSON lines on "
     "standard output",
     G_WATCH, NULL},
    {"--timing", OPT_FLAG, AT(timing), NULL, 0, 0, NULL, NULL, NULL,
     "Print where each layer's time went", G_WATCH, NULL},
    {"--cache-telemetry", OPT_FLAG, AT(cache_telemetry), NULL, 0, 0, NULL, NULL, NULL,
     "Print cold and eviction misses and how soon experts are used again", G_WATCH, NULL},
    {"--route-trace", OPT_STR, AT(route_trace), "FILE", 0, 0, NULL, NULL, NULL,
     "Record what the router chose, as `sluice replay` and --route-replay read it", G_WATCH, NULL},
    {"--io-trace", OPT_STR, AT(io_trace), "FILE", 0, 0, NULL, NULL, NULL,
     "Record every read, and the weights that each layer went through", G_WATCH, NULL},
    {"--compute-trace", OPT_STR, AT(compute_trace), "FILE", 0, 0, NULL, NULL, NULL,
     "Record the time of every operation of every layer", G_WATCH, NULL},
    {"--ram-gb-s", OPT_FLOAT, AT(ram_rate), "GBPS", 0, 1e6, "0", "0: not known", "GB/s",
     "Rate at which all threads read memory, for the layered limit that --io-trace prints; "
     "sluice bench measures it",
     G_WATCH, NULL},
    {"--kernel-gb-s", OPT_FLOAT, AT(kernel_rate), "GBPS", 0, 1e6, "0", "0: no limit", "GB/s",
     "Rate of one thread's products from cache, likewise", G_WATCH, NULL},
    {"--drive-gb-s", OPT_FLOAT, AT(drive_rate), "GBPS", 0, 1e6, "0", "0: not known", "GB/s",
     "Rate of the drive at the size of an expert's reads, likewise", G_WATCH, NULL},
    {"--prefetch", OPT_INT, AT(prefetch), "K", 0, 1023, "0", "0: off", "layers",
     "In decode, while the drive is idle, read what the previous token used in the next K layers",
     G_GUESS, NULL},
    {"--predict-prefetch", OPT_FLAG, AT(predict_prefetch), NULL, 0, 0, NULL, NULL, NULL,
     "In decode, while the drive is idle, read what the next layer's router says of this layer's "
     "input",
     G_GUESS, NULL},
    {"--predict-spec-max", OPT_INT, AT(predict_spec_max), "N", 1, 128, "default",
     "as many as a token uses", "experts",
     "At most so many experts of a layer are read by --predict-prefetch", G_GUESS, SPEC_DEFAULT},
    {"--predict-log", OPT_FLAG, AT(predict_log), NULL, 0, 0, NULL, NULL, NULL,
     "Report how often guesses of the next layer's experts were right", G_GUESS, NULL},

    {"--n-expert-used", OPT_INT, AT(n_expert_used), "K", 1, 128, "model", "the model's", "experts",
     "Experts per token; the same text every time", G_LOSSY, MODELS_OWN},
    {"--drop-cold-experts", OPT_FLOAT, AT(drop_cold), "F", 0, 1, "0", "0: off", NULL,
     "In decode, leave out experts that are not in the cache and whose share of the weight is "
     "below "
     "F / experts per token; never a token's top expert; depends on the cache",
     G_LOSSY, NULL},
    {"--drop-no-renorm", OPT_FLAG, AT(drop_no_renorm), NULL, 0, 0, NULL, NULL, NULL,
     "Leave the weights of the others as they are when an expert is dropped", G_LOSSY, NULL},
    {"--drop-in-prefill", OPT_FLAG, AT(drop_in_prefill), NULL, 0, 0, NULL, NULL, NULL,
     "Drop cold experts in prompts too", G_LOSSY, NULL},
    {"--expert-substitute", OPT_FLOAT, AT(substitute), "L", 0, 1, "0", "0: off", NULL,
     "In decode, rank cached experts as if their score were higher by L times the token's score "
     "range; weights stay the router's; depends on the cache",
     G_LOSSY, NULL},
    {"--route-ahead", OPT_INT, AT(route_ahead), "N", 0, 1023, "0", "0: off", "layers",
     "In decode, route each layer by the hidden state N layers earlier, so that its reads start "
     "early; the same text every time",
     G_LOSSY, NULL},

    {"--token-ids", OPT_LIST, AT(token_ids), "LIST|@FILE", 0, 2147483647.0, NULL, NULL, NULL,
     "Token ids instead of a prompt: 1,2,3 or a file of little-endian int32", G_DUMP, NULL},
    {"--logits-out", OPT_STR, AT(logits_out), "FILE", 0, 0, NULL, NULL, NULL,
     "Write float32 logits, one row per position of prompt and answer", G_DUMP, NULL},
    {"--experts-out", OPT_STR, AT(experts_out), "FILE", 0, 0, NULL, NULL, NULL,
     "Write int32 rows: position, block, the chosen expert ids ascending", G_DUMP, NULL},
    {"--route-replay", OPT_STR, AT(route_replay), "TRACE", 0, 0, NULL, NULL, NULL,
     "Follow a recorded routing instead of the router, to measure with real locality; the text "
     "means nothing",
     G_DUMP, NULL},
    {"--ids-out", OPT_STR, AT(ids_out), "FILE", 0, 0, NULL, NULL, NULL,
     "Write the ids of prompt and answer as int32", G_DUMP, NULL},
};

static const struct opt_cmd RUN = {
    .name = "run",
    .summary = "one prompt, one answer",
    .about =
        "Continues a prompt with a model. The generated text alone goes to standard output; the "
        "mode line, progress and the report go to standard error.\n\n"
        "With --moe-stream the routed experts stay on the drive and are read into a bounded cache "
        "when a token needs them, so that a model can be larger than memory. The text is the same "
        "to the byte with any cache, thread count and CPU, unless a lossy option is given.\n\n"
        "Ctrl-C ends the run after the current token and still prints the report; a second one "
        "ends it at once.",
    .rows = ROWS,
    .n_rows = sizeof ROWS / sizeof ROWS[0],
    .examples = "sluice run -p 'Once upon a time' -n 200\n"
                "sluice run --moe-stream --ram 5G -m model.gguf -f prompt.txt\n"
                "sluice run --chatml -p 'Tell me a tale.' --temp 0.8 --top-p 0.95 --seed 1\n",
};

size_t run_opts_model_rows(struct opt_row *rows, size_t max)
{
    static const char *const own[] = {"--prompt",     "--file",       "--chatml",
                                      "--n-predict",  "--ignore-eos", "--hot-experts",
                                      "--load-behind"};
    size_t n = 0;
    for (size_t i = 0; i < RUN.n_rows; i++) {
        bool leave = strcmp(ROWS[i].group, G_SAMPLE) == 0 || strcmp(ROWS[i].group, G_WATCH) == 0 ||
                     strcmp(ROWS[i].group, G_DUMP) == 0;
        for (size_t j = 0; !leave && j < sizeof own / sizeof *own; j++)
            leave = strstr(ROWS[i].names, own[j]) != NULL;
        if (!leave && n < max)
            rows[n++] = ROWS[i];
    }
    return n;
}

size_t run_opts_named_rows(const char *const *names, size_t n_names, struct opt_row *rows,
                           size_t max)
{
    size_t n = 0;
    for (size_t i = 0; i < RUN.n_rows; i++) {
        bool wanted = false;
        for (size_t j = 0; !wanted && j < n_names; j++) {
            const char *at = strstr(ROWS[i].names, names[j]);
            char end = at != NULL ? at[strlen(names[j])] : 'x';
            wanted = end == '\0' || end == ' ';
        }
        if (wanted && n < max)
            rows[n++] = ROWS[i];
    }
    return n;
}

/* What `sluice run` alone offers. */
static int check_own(const struct opt_seen *seen, const struct run_args *a, struct sl_err *err)
{
    static const char *const single[] = {"--prompt",      "--file",    "--token-ids",
                                         "--chatml",      "--ids-out", "--logits-out",
                                         "--experts-out", "--progress"};
    for (size_t i = 0; a->session && i < sizeof single / sizeof *single; i++) {
        if (opts_given(&RUN, seen, single[i]))
            return err_set(err, SL_E_ARG, single[i],
                           "%s is for a single answer; --session takes requests", single[i]);
    }
    static const char *const rates[] = {"--ram-gb-s", "--kernel-gb-s", "--drive-gb-s"};
    for (int i = 0; i < 3; i++) {
        if (opts_given(&RUN, seen, rates[i]) && a->io_trace == NULL)
            return err_set(err, SL_E_ARG, rates[i], "%s is for the limit that --io-trace computes",
                           rates[i]);
    }
    return SL_OK;
}

int run_opts_parse(int argc, char **argv, struct run_args *a)
{
    struct opt_seen seen;
    struct sl_err err;
    const struct opt_cmd *cmd = run_names_command(argv[0], &RUN);
    int rc = opts_begin(cmd, argc, argv, a, &seen);
    if (rc != OPTS_GO)
        return rc;
    if (run_opts_check(cmd, &seen, a, &err) < 0 || check_own(&seen, a, &err) < 0) {
        opts_fail(&err);
        return EXIT_USAGE;
    }
    return run_names_finish(argv[0], a, &err) < 0 ? opts_fail(&err) : OPTS_GO;
}

void run_opts_each(const struct run_args *a,
                   void (*fn)(void *user, const char *name, const char *value), void *user)
{
    opts_each_value(&RUN, a, fn, user);
}

const char *run_opts_policy(int64_t place)
{
    return POLICY_WORDS[place].name;
}
