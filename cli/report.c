#include "cli/report.h"

#include <stdio.h>
#include <stdlib.h>

#define MIB 1048576.0

static double mib(uint64_t bytes)
{
    return (double)bytes / MIB;
}

/* a / b, 0 where b is: only ever printed beside a count that says that nothing was measured. */
static double per(double a, double b)
{
    return b > 0 ? a / b : 0;
}

/* Seconds with three significant digits at least, so that a small model's times say something. */
static const char *sec(double s, char buf[24])
{
    int digits = s >= 0.1 || s <= 0 ? 3 : s >= 0.01 ? 4 : s >= 0.001 ? 5 : 6;
    snprintf(buf, 24, "%.*f", digits, s);
    return buf;
}

static const char *dense_name(enum sl_dense_mode m)
{
    return m == SL_DENSE_MMAP ? "mmap" : m == SL_DENSE_WARM ? "warm" : "anon";
}

void report_mode(const struct sl_engine_plan *p)
{
    if (p->streamed) {
        fprintf(stderr, "mode: streamed, o_direct=%d%s%s%s, engine=%s, cache %.0f MiB%s, dense %s",
                p->direct, p->direct ? "" : " (", p->direct ? "" : p->direct_note,
                p->direct ? "" : ")", p->io_engine, mib(p->cache_bytes),
                p->cache_auto ? " (auto)" : "", dense_name(p->dense_mode));
    } else {
        fprintf(stderr, "mode: resident, dense %s", dense_name(p->dense_mode));
    }
    fprintf(stderr,
            ", threads %d, cpu %s, context %d, ubatch %d; MiB: dense %.1f, KV %.1f, "
            "compute %.1f",
            p->threads, p->cpu_level, p->n_ctx, p->ubatch, mib(p->dense_bytes), mib(p->kv_bytes),
            mib(p->compute_bytes));
    if (p->streamed)
        fprintf(stderr, ", transit %.1f, cache %.1f", mib(p->transit_bytes), mib(p->cache_bytes));
    fprintf(stderr, ", total %.1f", mib(p->total_bytes));
    if (p->limit_bytes > 0)
        fprintf(stderr, " of %.1f", mib(p->limit_bytes));
    if (p->marks[0])
        fprintf(stderr, "; %s", p->marks);
    fputc('\n', stderr);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Nearest rank: the smallest of the sorted values that at least the fraction q does not exceed. */
static double quantile(const double *v, size_t n, double q)
{
    size_t rank = (size_t)(q * (double)n);
    if ((double)rank < q * (double)n)
        rank++;
    return v[rank > 0 ? rank - 1 : 0];
}

static void print_generation(struct run_report *r)
{
    char b[6][24];
    size_t n = r->n_generated;
    if (n == 0) {
        fprintf(stderr, "generation: 0 tokens\n");
        return;
    }
    double *v = r->step_s;
    qsort(v, n, sizeof *v, by_value);
    fprintf(stderr,
            "generation: %zu tokens, %s s/token (%.2f tok/s)   median %s p5 %s p95 %s min %s "
            "max %s",
            n, sec(r->loop_s / (double)n, b[0]), per((double)n, r->loop_s),
            sec(quantile(v, n, 0.5), b[1]), sec(quantile(v, n, 0.05), b[2]),
            sec(quantile(v, n, 0.95), b[3]), sec(v[0], b[4]), sec(v[n - 1], b[5]));
    double overhead = r->loop_s - r->stats.decode.wall_s;
    fprintf(stderr, "   sampling and text %s s/token\n",
            sec(overhead > 0 ? overhead / (double)n : 0, b[0]));
}

static void print_prefill(const struct run_report *r)
{
    char b[2][24];
    uint64_t n = r->stats.prompt.tokens;
    fprintf(stderr, "prefill: %llu tokens", (unsigned long long)n);
    if (n < r->n_prompt)
        fprintf(stderr, " of %zu", r->n_prompt);
    fprintf(stderr, ", %s s (%.1f tok/s)", sec(r->prompt_s, b[0]), per((double)n, r->prompt_s));
    if (r->first_s > 0)
        fprintf(stderr, ", TTFT %s s", sec(r->first_s, b[1]));
    fputc('\n', stderr);
}

static void print_compute(const struct run_report *r)
{
    char b[24];
    const struct sl_phase_stats *d = &r->stats.decode;
    if (d->tokens == 0)
        return;
    double n = (double)d->tokens;
    fprintf(stderr,
            "compute: %.1f%% CPU occupancy (%s cpu-s/token over %d threads), %.1f majflt/tok\n",
            100 * per(d->cpu_s, r->plan.threads * d->wall_s), sec(d->cpu_s / n, b), r->plan.threads,
            (double)d->majflt / n);
}

/* other: what is left of the wall time; rounding of the clocks can make it slightly negative. */
static double other_s(const struct sl_phase_stats *p)
{
    double other = p->wall_s - p->compute_s - p->mgmt_s - p->stall_s;
    return other > 0 ? other : 0;
}

static void print_stream_decode(const struct run_report *r)
{
    char b[6][24];
    const struct sl_phase_stats *d = &r->stats.decode;
    if (d->tokens == 0)
        return;
    double n = (double)d->tokens;
    fprintf(stderr,
            "moe-stream: read %.0f MiB (%.1f MiB/token), decode %s s/token (compute %s + cache "
            "mgmt %s + flash I/O %s s/token, ",
            mib(d->bytes_read), mib(d->bytes_read) / n, sec(d->wall_s / n, b[0]),
            sec(d->compute_s / n, b[1]), sec(d->mgmt_s / n, b[2]), sec(d->stall_s / n, b[3]));
    if (d->read_busy_s > 0)
        fprintf(stderr, "%.0f MiB/s", mib(d->bytes_read) / d->read_busy_s);
    else
        fprintf(stderr, "no reads");
    fprintf(stderr, "), stall %s s/tok, other %s\n", sec(d->stall_s / n, b[4]),
            sec(other_s(d) / n, b[5]));
}

static void print_stream_prompt(const struct run_report *r)
{
    char b[4][24];
    const struct sl_phase_stats *p = &r->stats.prompt;
    if (p->tokens == 0)
        return;
    fprintf(stderr,
            "moe-stream prefill: read %.0f MiB, %s s (compute %s + cache mgmt %s + flash "
            "I/O %s s",
            mib(p->bytes_read), sec(p->wall_s, b[0]), sec(p->compute_s, b[1]), sec(p->mgmt_s, b[2]),
            sec(p->stall_s, b[3]));
    if (p->read_busy_s > 0)
        fprintf(stderr, ", %.0f MiB/s", mib(p->bytes_read) / p->read_busy_s);
    fprintf(stderr, "), other %s\n", sec(other_s(p), b[0]));
}

static void print_cache(const struct run_report *r)
{
    const struct sl_phase_stats *d = &r->stats.decode;
    double asked = (double)d->hits + (double)d->misses;
    if (asked > 0)
        fprintf(stderr, "moe-cache: %.1f%% hit", 100 * (double)d->hits / asked);
    else
        fprintf(stderr, "moe-cache: no token decoded");
    fprintf(stderr,
            ", resident %.1f MiB, one token routes %.1f MiB, %llu evictions, %llu re-reads\n",
            mib(r->stats.cache_resident_bytes), mib(r->info.token_expert_bytes),
            (unsigned long long)d->evictions, (unsigned long long)d->rereads);
}

static void print_replay(const struct run_report *r)
{
    const struct sl_stats *s = &r->stats;
    if (!r->plan.replay)
        return;
    fprintf(stderr,
            "route-replay: %llu/%llu choices from the recording (%.1f%%), the others the router's",
            (unsigned long long)s->experts_replayed, (unsigned long long)s->experts_routed,
            100 * per((double)s->experts_replayed, (double)s->experts_routed));
    if (s->replay_rounds)
        fprintf(stderr, "; its decoded tokens were used up %llu times and began again",
                (unsigned long long)s->replay_rounds);
    fputc('\n', stderr);
}

static void print_memory(const struct run_report *r)
{
    fprintf(stderr, "memory: high-water mark %.1f MiB", mib(r->stats.mem_peak));
    if (r->rss_known)
        fprintf(stderr, ", RssAnon+RssShmem peak %.1f MiB (sampled)", mib(r->rss_peak));
    else
        fprintf(stderr, ", RssAnon+RssShmem not measured");
    if (r->plan.limit_bytes > 0)
        fprintf(stderr, ", limit %.1f MiB", mib(r->plan.limit_bytes));
    fputc('\n', stderr);
}

void report_print(struct run_report *r)
{
    print_generation(r);
    print_prefill(r);
    print_compute(r);
    if (r->plan.streamed) {
        print_stream_decode(r);
        print_stream_prompt(r);
        print_cache(r);
    }
    print_replay(r);
    print_memory(r);
}
