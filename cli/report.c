#include "cli/report.h"

#include <stdio.h>

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

void report_mode(const struct sl_engine_plan *p, const char *traced)
{
    const char *packed = p->packed ? ", packed experts" : "";
    if (p->streamed) {
        fprintf(stderr,
                "mode: streamed%s, o_direct=%d%s%s%s, engine=%s, cache %.0f MiB%s, dense %s",
                packed, p->direct, p->direct ? "" : " (", p->direct ? "" : p->direct_note,
                p->direct ? "" : ")", p->io_engine, mib(p->cache_bytes),
                p->cache_auto ? " (auto)" : "", dense_name(p->dense_mode));
        if (p->n_drives > 1)
            fprintf(stderr, ", experts on %d drives", p->n_drives);
    } else {
        fprintf(stderr, "mode: resident%s, dense %s", packed, dense_name(p->dense_mode));
    }
    if (p->load_all)
        fprintf(stderr, ", all experts read");
    if (p->row_stream)
        fprintf(stderr, ", embedding rows streamed");
    fprintf(stderr,
            ", threads %d%s, cpu %s, context %d, ubatch %d; MiB: dense %.1f, KV %.1f, "
            "compute %.1f",
            p->threads, p->pinned ? " pinned" : "", p->cpu_level, p->n_ctx, p->ubatch,
            mib(p->dense_bytes), mib(p->kv_bytes), mib(p->compute_bytes));
    if (p->streamed)
        fprintf(stderr, ", transit %.1f, cache %.1f", mib(p->transit_bytes), mib(p->cache_bytes));
    fprintf(stderr, ", total %.1f", mib(p->total_bytes));
    if (p->limit_bytes > 0)
        fprintf(stderr, " of %.1f", mib(p->limit_bytes));
    if (p->marks[0])
        fprintf(stderr, "; %s", p->marks);
    if (traced[0] != '\0')
        fprintf(stderr, "; traced: %s", traced);
    fputc('\n', stderr);
}

static void print_generation(const struct report_summary *s)
{
    char b[7][24];
    if (s->tokens == 0) {
        fprintf(stderr, "generation: 0 tokens\n");
        return;
    }
    fprintf(stderr,
            "generation: %.0f tokens, %s s/token (%.2f tok/s)   median %s p5 %s p95 %s min %s "
            "max %s   loop overhead %s s/token\n",
            s->tokens, sec(s->s_per_token, b[0]), s->tok_s, sec(s->median_s, b[1]),
            sec(s->p5_s, b[2]), sec(s->p95_s, b[3]), sec(s->min_s, b[4]), sec(s->max_s, b[5]),
            sec(s->overhead_s, b[6]));
}

static void print_prefill(const struct run_report *r)
{
    char b[3][24];
    uint64_t n = r->stats.prompt.tokens;
    fprintf(stderr, "prefill: %llu tokens", (unsigned long long)n);
    if (n < r->n_prompt)
        fprintf(stderr, " of %zu", r->n_prompt);
    fprintf(stderr, ", %s s (%.1f tok/s)", sec(r->prompt_s, b[0]), per((double)n, r->prompt_s));
    if (r->first_s > 0)
        fprintf(stderr, ", TTFT %s s", sec(r->first_s, b[1]));
    if (r->stats.prompt.load_wait_s > 0)
        fprintf(stderr, ", %s s of it waiting for weights", sec(r->stats.prompt.load_wait_s, b[2]));
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

/* Where the time of a resident model's token went. */
static void print_resident_decode(const struct report_summary *s)
{
    char b[3][24];
    if (s->tokens > 0)
        fprintf(stderr, "decode: %s s/token (compute %s s/token), other %s\n", sec(s->wall_s, b[0]),
                sec(s->compute_s, b[1]), sec(s->other_s, b[2]));
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
            sec(report_other_s(d) / n, b[5]));
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
    fprintf(stderr, "), other %s\n", sec(report_other_s(p), b[0]));
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

static void print_rows(const struct run_report *r)
{
    const struct sl_phase_stats *p = &r->stats.prompt, *d = &r->stats.decode;
    if (r->plan.row_stream)
        fprintf(stderr, "row-stream: %llu embedding rows read, %.1f MiB\n",
                (unsigned long long)(p->rows_read + d->rows_read),
                mib(p->row_bytes + d->row_bytes));
}

static void print_adapt(const struct run_report *r)
{
    if (r->stats.cache_changes)
        fprintf(stderr, "moe-adapt: the cache changed its size %d times, smallest %.1f MiB\n",
                r->stats.cache_changes, mib(r->stats.cache_least_bytes));
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
    struct report_summary s;
    report_sum_up(r, &s);
    print_generation(&s);
    print_prefill(r);
    print_compute(r);
    if (r->plan.streamed) {
        print_stream_decode(r);
        print_stream_prompt(r);
        print_cache(r);
        print_adapt(r);
    } else {
        print_resident_decode(&s);
    }
    print_rows(r);
    report_print_routing(r);
    print_memory(r);
}
