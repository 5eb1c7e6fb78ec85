#include "cli/run_tables.h"

#include <math.h>
#include <stdio.h>

#define MIB 1048576.0

static void print_row(const char *name, const double column[TIMES_COLUMNS], double per)
{
    double total = 0;
    fprintf(stderr, "timing: %6s", name);
    for (int c = 0; c < TIMES_COLUMNS; c++) {
        fprintf(stderr, " %10.3f", 1e3 * column[c] / per);
        total += column[c];
    }
    fprintf(stderr, " %10.3f\n", 1e3 * total / per);
}

/* Every block's milliseconds per token, then their sum. */
static void print_phase(const char *title, const struct times *t, double tokens,
                        double sum[TIMES_COLUMNS])
{
    fprintf(stderr, "timing: %s, ms per token\ntiming:  layer", title);
    for (int c = 0; c < TIMES_COLUMNS; c++)
        fprintf(stderr, " %10s", times_column_name((enum times_column)c));
    fprintf(stderr, "      total\n");
    for (int c = 0; c < TIMES_COLUMNS; c++)
        sum[c] = 0;
    for (int block = -1; block <= t->n_layer; block++) {
        double column[TIMES_COLUMNS];
        char name[16];
        snprintf(name, sizeof name, "%d", block);
        times_sum_columns(times_find_block(t, block), column);
        print_row(block < 0 ? "embed" : block == t->n_layer ? "head" : name, column, tokens);
        for (int c = 0; c < TIMES_COLUMNS; c++)
            sum[c] += column[c];
    }
    print_row("all", sum, tokens);
}

void tables_print_timing(const struct times *prompt, const struct times *decode,
                         const struct report_summary *s)
{
    double sum[TIMES_COLUMNS], total = 0, n = s->tokens;
    if (s->prompt_tokens > 0)
        print_phase("prefill", prompt, s->prompt_tokens, sum);
    if (!(n > 0)) {
        fprintf(stderr, "timing: no token decoded\n");
        return;
    }
    print_phase("decode", decode, n, sum);
    for (int c = 0; c < TIMES_COLUMNS; c++)
        total += sum[c];
    fprintf(stderr, "timing: expert I/O %.3f ms/token, total %.3f ms/token, TTFT %.1f ms\n",
            1e3 * sum[TIMES_IO] / n, 1e3 * total / n, 1e3 * s->ttft_s);
}

void tables_print_cache(const struct reuse *r, bool streamed, uint64_t token_bytes,
                        uint64_t token_experts)
{
    double uses = (double)r->uses, sum = 0, mib = 0;
    if (r->uses == 0) {
        fprintf(stderr, "cache-telemetry: no expert was used in decoding\n");
        return;
    }
    if (streamed)
        fprintf(stderr,
                "cache-telemetry: %llu experts asked for, %.1f%% hit, %.1f%% cold misses (first "
                "use), %.1f%% eviction misses (used before)\n",
                (unsigned long long)r->uses, 100 * (double)r->hits / uses,
                100 * (double)r->cold / uses, 100 * (double)r->evicted / uses);
    else
        fprintf(stderr, "cache-telemetry: %llu experts used, all in memory\n",
                (unsigned long long)r->uses);
    if (token_experts > 0)
        mib = (double)token_bytes / (double)token_experts / MIB;
    fprintf(stderr,
            "cache-telemetry: distance to the last use, in experts; an LRU cache of so many "
            "would hit\n");
    for (int i = 0; i < REUSE_BUCKETS; i++) {
        if (r->bucket[i] == 0)
            continue;
        sum += (double)r->bucket[i];
        double most = (double)(UINT64_C(1) << i);
        fprintf(stderr, "cache-telemetry: <= %7.0f  %9.1f MiB  %5.1f%%  hit %5.1f%%\n", most,
                most * mib, 100 * (double)r->bucket[i] / uses, 100 * sum / uses);
    }
}

void tables_print_limit(const struct limit *l, const struct report_summary *s)
{
    const struct limit_rates *r = &l->rates;
    double limit = limit_layered(l), whole = limit_whole(l);
    if (isnan(limit)) {
        fprintf(stderr, "layered-limit: not computed: it wants decoded tokens, --ram-gb-s and "
                        "--drive-gb-s\n");
        return;
    }
    char kernel[48] = "";
    if (r->kernel > 0)
        snprintf(kernel, sizeof kernel, ", kernels %.2f x %d", r->kernel / 1e9, r->threads);
    fprintf(stderr,
            "layered-limit: %.6f s/token (RAM %.2f%s, drive %.2f GB/s), measured %.6f, efficiency "
            "%.3f; max(I/O, compute) %.6f\n",
            limit, r->ram / 1e9, kernel, r->drive / 1e9, s->wall_s, limit / s->wall_s, whole);
}
