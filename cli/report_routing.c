/* report_routing.c: what options about the choice of experts did. */
#include "cli/report.h"

#include <stdio.h>

static double mib(uint64_t bytes)
{
    return (double)bytes / 1048576.0;
}

/* a / b, 0 where b is: only ever printed beside a count that says that nothing was measured. */
static double per(double a, double b)
{
    return b > 0 ? a / b : 0;
}

static void print_share(const char *label, uint64_t part, uint64_t all, const char *what)
{
    fprintf(stderr, "%s: %llu/%llu routed experts %s (%.1f%%)", label, (unsigned long long)part,
            (unsigned long long)all, what, 100 * per((double)part, (double)all));
}

static void print_guesses(const struct run_report *r)
{
    const struct sl_phase_stats *d = &r->stats.decode;
    double useful = mib(d->spec_useful_bytes), wasted = mib(d->spec_wasted_bytes);
    fprintf(
        stderr,
        "moe-prefetch: %llu experts read on a guess, %.1f MiB useful, %.1f MiB wasted (%.1f%%)\n",
        (unsigned long long)d->expected_reads, useful, wasted, 100 * per(wasted, useful + wasted));
}

/* A share in percent, "-" where there was no guess. */
static const char *share(uint64_t hit, uint64_t asked, char buf[16])
{
    snprintf(buf, 16, asked > 0 ? "%.1f%%" : "-", 100 * per((double)hit, (double)asked));
    return buf;
}

static void print_prediction(const char *label, const struct sl_prediction *p)
{
    char b[3][16];
    fprintf(stderr, "%s next layer's router %s, previous token %s, control %s", label,
            share(p->router_hit, p->router_asked, b[0]),
            share(p->previous_hit, p->previous_asked, b[1]),
            share(p->control_hit, p->control_asked, b[2]));
}

/* In total, then each layer that routes. */
static void print_predictions(const struct run_report *r)
{
    struct sl_prediction all = {0};
    const struct sl_prediction *p = r->predictions;
    for (int i = 0; i < r->info.n_layer; i++) {
        all.router_hit += p[i].router_hit;
        all.router_asked += p[i].router_asked;
        all.previous_hit += p[i].previous_hit;
        all.previous_asked += p[i].previous_asked;
        all.control_hit += p[i].control_hit;
        all.control_asked += p[i].control_asked;
    }
    print_prediction("predict-log:", &all);
    fprintf(stderr, ", of %llu routed experts\n", (unsigned long long)all.control_asked);
    for (int i = 0; i < r->info.n_layer; i++) {
        char label[40];
        snprintf(label, sizeof label, "predict-log layer %d:", i);
        if (p[i].control_asked > 0) {
            print_prediction(label, &p[i]);
            fputc('\n', stderr);
        }
    }
}

/* What options that change the routing did. */
void report_print_routing(const struct run_report *r)
{
    const struct sl_phase_stats *p = &r->stats.prompt, *d = &r->stats.decode;
    const struct sl_engine_plan *plan = &r->plan;
    if (plan->drop_cold > 0) {
        bool both = plan->drop_in_prefill;
        print_share("moe-drop", d->experts_dropped + (both ? p->experts_dropped : 0),
                    d->experts_routed + (both ? p->experts_routed : 0), "dropped");
        fprintf(stderr, ", threshold %g x uniform\n", plan->drop_cold);
    }
    if (plan->substitute > 0) {
        print_share("moe-substitute", d->experts_substituted, d->experts_routed, "substituted");
        fprintf(stderr, ", advantage of cached ones %g x score range\n", plan->substitute);
    }
    if (plan->route_ahead > 0) {
        print_share("moe-route-ahead", d->experts_ahead, d->experts_routed, "chosen early");
        fprintf(stderr, ", %d layers ahead\n", plan->route_ahead);
    }
    if (plan->guesses)
        print_guesses(r);
    if (r->predictions != NULL)
        print_predictions(r);
    if (!plan->replay)
        return;
    print_share("route-replay", p->experts_replayed + d->experts_replayed,
                p->experts_routed + d->experts_routed, "as recorded");
    fprintf(stderr, ", the others by the router");
    if (r->stats.replay_rounds)
        fprintf(stderr, "; the recorded tokens were used up %llu times and began again",
                (unsigned long long)r->stats.replay_rounds);
    fputc('\n', stderr);
}
