/* replay.c: `sluice replay`: cache policies on a recorded routing. */
#include "cli/commands.h"
#include "cli/opts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cache/policy.h"
#include "telemetry/replay.h"

#define MAX_BUDGETS 32
#define MAX_MIB     1000000000

struct replay_args {
    const char *policy, *budgets;
    int64_t json;
};

static const struct opt_row ROWS[] = {
    {.names = "--policy",
     .type = OPT_STR,
     .offset = offsetof(struct replay_args, policy),
     .arg = "NAME|all",
     .def_say = "the one that `sluice run` uses",
     .help = "Which policy to replay: echo, lfu-decay, lru, belady (the optimum), or all of them",
     .group = "replay"},
    {.names = "--budget-mb",
     .type = OPT_STR,
     .offset = offsetof(struct replay_args, budgets),
     .arg = "N[,N...]",
     .def = "1000,2000,4000",
     .unit = "MiB",
     .help = "Sizes of the expert cache",
     .group = "replay"},
    {.names = "--json",
     .type = OPT_FLAG,
     .offset = offsetof(struct replay_args, json),
     .help = "Print one JSON object a line: policy, budget_mib, hit, lru_hit, belady_hit (0 to 1), "
             "mib_per_token",
     .group = "output"},
};

static const struct opt_cmd REPLAY_CMD = {
    .name = "replay",
    .summary = "cache policies on a recorded routing",
    .operands = "TRACE",
    .min_operands = 1,
    .max_operands = 1,
    .about =
        "Drives the expert cache with the routing that a run recorded (a file in the format "
        "route_trace v1) and says which share of the experts would have been in memory, beside "
        "least-recently-used replacement and Belady's optimum, which knows the future and which "
        "no policy can beat. Nothing is read and no memory is taken for experts.\n\n"
        "Only generated tokens count; the prompt warms the cache.",
    .rows = ROWS,
    .n_rows = sizeof ROWS / sizeof ROWS[0],
    .examples = "sluice replay qwen.route.csv\n"
                "sluice replay qwen.route.csv --policy all --budget-mb 500,1000 --json\n",
};

static int usage(struct sl_err *err)
{
    opts_fail(err);
    return EXIT_USAGE;
}

/* The policies that are asked for, NULL behind the last. */
static int choose_policies(const char *name, const char *chosen[8], struct sl_err *err)
{
    const char *names[8];
    int n = 0;
    for (; cache_policies[n]; n++)
        names[n] = cache_policies[n]->name;
    names[n++] = REPLAY_OPTIMUM;
    if (name && strcmp(name, "all") == 0) {
        memcpy(chosen, names, (size_t)n * sizeof names[0]);
        chosen[n] = NULL;
        return 0;
    }
    chosen[1] = NULL;
    for (int i = 0; i < n; i++)
        if (!name || strcmp(name, names[i]) == 0) {
            chosen[0] = names[i];
            return 0;
        }
    names[n] = "all";
    const char *near = opts_nearest(name, names, (size_t)n + 1);
    return near ? err_set(err, SL_E_ARG, "--policy",
                          "--policy: there is no policy '%.60s'; did you mean %s?", name, near)
                : err_set(err, SL_E_ARG, "--policy",
                          "--policy: there is no policy '%.60s'; 'sluice replay --help' lists them",
                          name);
}

static int parse_budgets(const char *text, int64_t mib[MAX_BUDGETS], int *n, struct sl_err *err)
{
    *n = 0;
    for (const char *s = text;; s += strcspn(s, ",") + 1) {
        char number[24];
        size_t len = strcspn(s, ",");
        if (*n == MAX_BUDGETS)
            return err_set(err, SL_E_ARG, "--budget-mb", "--budget-mb takes at most %d sizes",
                           MAX_BUDGETS);
        snprintf(number, sizeof number, "%.*s", (int)(len < 23 ? len : 23), s);
        if (len > 22 || !opts_parse_int(number, &mib[*n]) || mib[*n] < 1 || mib[*n] > MAX_MIB)
            return err_set(err, SL_E_ARG, "--budget-mb",
                           "--budget-mb: '%s' is not a whole number of MiB from 1 to %d", number,
                           MAX_MIB);
        ++*n;
        if (!s[len])
            return 0;
    }
}

static double hit_rate(const struct replay_result *r)
{
    uint64_t all = r->hits + r->misses;
    return all ? (double)r->hits / (double)all : 0;
}

static double mib_per_token(const struct replay_result *r)
{
    return r->tokens ? (double)r->bytes_read / 1048576 / (double)r->tokens : 0;
}

/* A name from the file ends up on a terminal. */
static void print_name(const char *s)
{
    for (; *s; s++)
        putchar((unsigned char)*s < 0x20 || *s == 0x7f ? '?' : *s);
}

static void print_head(const struct trace *t)
{
    print_name(t->model[0] ? t->model : "a model without a name");
    printf(": %d layers x %d experts, %d per token\n\n", t->n_layers, t->n_experts, t->top_k);
    printf("%-10s %10s %8s %10s %8s %10s %10s\n", "policy", "budget MiB", "hit %", "MiB/token",
           "lru %", "optimum %", "closed %");
}

/* Closed: how much of the way from LRU to the optimum. */
static void print_line(const char *policy, int64_t mib, const struct replay_result *r, double lru,
                       double best, bool json)
{
    double hit = hit_rate(r);
    if (json) {
        printf("{\"policy\": \"%s\", \"budget_mib\": %" PRId64
               ", \"hit\": %.6f, \"lru_hit\": %.6f, "
               "\"belady_hit\": %.6f, \"mib_per_token\": %.3f}\n",
               policy, mib, hit, lru, best, mib_per_token(r));
        return;
    }
    printf("%-10s %10" PRId64 " %8.2f %10.1f %8.2f %10.2f ", policy, mib, 100 * hit,
           mib_per_token(r), 100 * lru, 100 * best);
    if (best > lru)
        printf("%10.1f\n", 100 * (hit - lru) / (best - lru));
    else
        printf("%10s\n", "-");
}

static int replay_budget(const struct trace *t, const char *const *policies, int64_t mib, bool json,
                         struct sl_err *err)
{
    uint64_t bytes = (uint64_t)mib << 20;
    struct replay_result lru, best, r;
    int rc = replay_run(t, "lru", bytes, &lru, err);
    if (rc == 0)
        rc = replay_run(t, REPLAY_OPTIMUM, bytes, &best, err);
    for (; rc == 0 && *policies; policies++) {
        rc = replay_run(t, *policies, bytes, &r, err);
        if (rc == 0)
            print_line(*policies, mib, &r, hit_rate(&lru), hit_rate(&best), json);
    }
    return rc;
}

static bool has_decode(const struct trace *t)
{
    for (size_t i = 0; i < t->n_visits; i++)
        if (t->visit[i].phase == TRACE_DECODE)
            return true;
    return false;
}

int cmd_replay(int argc, char **argv)
{
    struct replay_args a;
    struct opt_seen seen;
    struct sl_err err;
    int rc = opts_begin(&REPLAY_CMD, argc, argv, &a, &seen);
    if (rc != OPTS_GO)
        return rc;
    const char *policies[8];
    int64_t mib[MAX_BUDGETS];
    int n;
    if (choose_policies(a.policy, policies, &err) < 0 ||
        parse_budgets(a.budgets, mib, &n, &err) < 0)
        return usage(&err);
    struct trace *t;
    const char *path = seen.operands[0];
    rc = trace_read(path, &t, &err);
    if (rc == 0 && !has_decode(t))
        rc = err_file(&err, SL_E_FORMAT, path, 0,
                      "holds no generated tokens (rows of phase 1), so that there is nothing to "
                      "count");
    if (rc == 0 && !a.json)
        print_head(t);
    for (int i = 0; rc == 0 && i < n; i++)
        rc = replay_budget(t, policies, mib[i], a.json, &err);
    trace_free(&t);
    return rc < 0 ? opts_fail(&err) : 0;
}
