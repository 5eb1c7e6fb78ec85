/* report_sum.c: the numbers of a finished run. */
#include "cli/report.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#define MIB 1048576.0

static double mib(uint64_t bytes)
{
    return (double)bytes / MIB;
}

/* NaN where b is 0: nothing was measured. */
static double per(double a, double b)
{
    return b > 0 ? a / b : (double)NAN;
}

double report_other_s(const struct sl_phase_stats *p)
{
    double other = p->wall_s - p->compute_s - p->mgmt_s - p->stall_s;
    return other > 0 ? other : 0;
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
    if (n == 0)
        return (double)NAN;
    if ((double)rank < q * (double)n)
        rank++;
    return v[rank > 0 ? rank - 1 : 0];
}

static void sum_up_loop(const struct run_report *r, struct report_summary *s)
{
    size_t n = r->n_generated;
    double overhead = r->loop_s - r->stats.decode.wall_s;
    if (n > 0)
        qsort(r->step_s, n, sizeof *r->step_s, by_value);
    s->tokens = (double)n;
    s->s_per_token = per(r->loop_s, s->tokens);
    s->tok_s = per(s->tokens, r->loop_s);
    s->median_s = quantile(r->step_s, n, 0.5);
    s->p5_s = quantile(r->step_s, n, 0.05);
    s->p95_s = quantile(r->step_s, n, 0.95);
    s->min_s = quantile(r->step_s, n, 0);
    s->max_s = quantile(r->step_s, n, 1);
    s->overhead_s = per(overhead > 0 ? overhead : 0, s->tokens);
}

static void sum_up_decode(const struct run_report *r, struct report_summary *s)
{
    const struct sl_phase_stats *d = &r->stats.decode;
    double n = (double)d->tokens, none = (double)NAN;
    bool streamed = r->plan.streamed;
    s->occupancy_pct = 100 * per(d->cpu_s, r->plan.threads * d->wall_s);
    s->cpu_s = per(d->cpu_s, n);
    s->majflt = per((double)d->majflt, n);
    s->wall_s = per(d->wall_s, n);
    s->compute_s = per(d->compute_s, n);
    s->other_s = per(report_other_s(d), n);
    s->mgmt_s = streamed ? per(d->mgmt_s, n) : none;
    s->stall_s = streamed ? per(d->stall_s, n) : none;
    s->read_mib = streamed ? mib(d->bytes_read) : none;
    s->mib_per_token = streamed ? per(mib(d->bytes_read), n) : none;
    s->read_mib_s = streamed ? per(mib(d->bytes_read), d->read_busy_s) : none;
    s->hit_pct = 100 * per((double)d->hits, (double)d->hits + (double)d->misses);
    s->guess_useful_mib = streamed ? mib(d->spec_useful_bytes) : none;
    s->guess_wasted_mib = streamed ? mib(d->spec_wasted_bytes) : none;
    s->token_route_mib = mib(r->info.token_expert_bytes);
    s->cache_resident_mib = streamed ? mib(r->stats.cache_resident_bytes) : none;
}

void report_sum_up(const struct run_report *r, struct report_summary *s)
{
    const struct sl_phase_stats *p = &r->stats.prompt;
    sum_up_loop(r, s);
    sum_up_decode(r, s);
    s->prompt_tokens = (double)p->tokens;
    s->prompt_s = r->prompt_s;
    s->prompt_tok_s = per(s->prompt_tokens, r->prompt_s);
    s->ttft_s = r->first_s > 0 ? r->first_s : (double)NAN;
    s->load_wait_s = p->load_wait_s;
    s->prompt_read_mib = r->plan.streamed ? mib(p->bytes_read) : (double)NAN;
    s->prompt_read_mib_s = per(mib(p->bytes_read), p->read_busy_s);
    s->mem_peak_mib = mib(r->stats.mem_peak);
    s->rss_peak_mib = r->rss_known ? mib(r->rss_peak) : (double)NAN;
}

void report_each_number(const struct report_summary *s,
                        void (*fn)(void *user, const char *key, double value), void *user)
{
#define FIELD(name)                                                                                \
    {                                                                                              \
#name, offsetof(struct report_summary, name)                                               \
    }
    static const struct {
        const char *key;
        size_t at;
    } fields[] = {
        FIELD(tokens),
        FIELD(s_per_token),
        FIELD(tok_s),
        FIELD(median_s),
        FIELD(p5_s),
        FIELD(p95_s),
        FIELD(min_s),
        FIELD(max_s),
        FIELD(overhead_s),
        FIELD(prompt_tokens),
        FIELD(prompt_s),
        FIELD(prompt_tok_s),
        FIELD(ttft_s),
        FIELD(load_wait_s),
        FIELD(occupancy_pct),
        FIELD(cpu_s),
        FIELD(majflt),
        FIELD(wall_s),
        FIELD(compute_s),
        FIELD(mgmt_s),
        FIELD(stall_s),
        FIELD(other_s),
        FIELD(read_mib),
        FIELD(mib_per_token),
        FIELD(read_mib_s),
        FIELD(hit_pct),
        FIELD(token_route_mib),
        FIELD(cache_resident_mib),
        FIELD(prompt_read_mib),
        FIELD(prompt_read_mib_s),
        FIELD(mem_peak_mib),
        FIELD(rss_peak_mib),
        FIELD(guess_useful_mib),
        FIELD(guess_wasted_mib),
    };
#undef FIELD
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        fn(user, fields[i].key, *(const double *)((const char *)s + fields[i].at));
}
