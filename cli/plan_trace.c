/* plan_trace.c: what a recording says of a run's hits and of its prompt. */
#include "cli/plan.h"

#include "telemetry/reach.h"
#include "telemetry/replay.h"

/* By share of the bank: the recording may be of a file whose experts have other types. */
int plan_recorded_hit(const struct plan *p, uint64_t cache, double *hit, struct sl_err *err)
{
    struct replay_result r;
    *hit = -1;
    if (!p->trace)
        return SL_OK;
    double bank = 0;
    for (int i = 0; i < p->trace->n_layers; i++)
        bank += (double)p->trace->expert_bytes[i] * p->trace->n_experts;
    const double budget = (double)cache / (double)p->info.expert_bytes * bank;
    int rc = replay_run(p->trace, NULL, (uint64_t)budget, &r, err);
    if (rc == SL_E_BUDGET) { /* smaller than the recorded model can have: as good as none */
        *hit = 0;
        return SL_OK;
    }
    if (rc == SL_OK && r.hits + r.misses > 0)
        *hit = (double)r.hits / (double)(r.hits + r.misses);
    return rc;
}

/* Where no turn is so long, what it says of fewer tokens goes on as usual. */
int plan_recorded_reach(const struct plan *p, int n_tokens, double *reach, struct sl_err *err)
{
    int got = 0;
    *reach = -1;
    if (!p->trace)
        return SL_OK;
    int rc = trace_find_reach(p->trace, n_tokens, reach, &got, err);
    if (rc < 0 || got == n_tokens || got == 0)
        return rc;
    const int n = p->trace->n_experts;
    const double used = (double)p->trace->top_k / n;
    const double more = forecast_reach(n_tokens, used, n) / forecast_reach(got, used, n);
    *reach = *reach * more < 1 ? *reach * more : 1;
    return rc;
}
