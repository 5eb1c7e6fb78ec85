#include "telemetry/reach.h"

#include <string.h>

#include "base/mem.h"

/* One layer's turn, and what the turns before came to. */
struct layer_turns {
    int32_t turn;
    int tokens, distinct;
    int longest, longest_seen; /* of those with fewer tokens than asked for */
    int64_t full, sum;         /* the others, and their distinct experts */
};

static void end_turn(struct layer_turns *w, int n)
{
    if (w->tokens == n) {
        w->full++;
        w->sum += w->distinct;
    } else if (w->tokens > w->longest) {
        w->longest = w->tokens;
        w->longest_seen = w->distinct;
    }
    w->tokens = w->distinct = 0;
}

static void visit(const struct trace *t, const struct trace_visit *v, int n, struct layer_turns *w,
                  uint8_t *seen)
{
    if (w->tokens > 0 && w->turn != v->turn)
        end_turn(w, n);
    if (w->tokens == n)
        return;
    if (w->tokens == 0)
        memset(seen, 0, (size_t)t->n_experts);
    w->turn = v->turn;
    w->tokens++;
    for (int i = 0; i < v->k; i++) {
        uint8_t *s = &seen[t->expert[v->first + i]];
        w->distinct += !*s;
        *s = 1;
    }
}

static void sum_up(const struct trace *t, struct layer_turns *w, int n, double *share, int *got)
{
    double sum = 0;
    int layers = 0;
    *got = 0;
    for (int il = 0; il < t->n_layers; il++) {
        end_turn(&w[il], n);
        const int tokens = w[il].full > 0 ? n : w[il].longest;
        *got = tokens > *got ? tokens : *got;
        if (tokens == 0)
            continue;
        sum += w[il].full > 0 ? (double)w[il].sum / (double)w[il].full : w[il].longest_seen;
        layers++;
    }
    *share = layers > 0 ? sum / layers / t->n_experts : 0;
}

int trace_find_reach(const struct trace *t, int n, double *share, int *got, struct sl_err *err)
{
    struct layer_turns *w = mem_calloc((size_t)t->n_layers, sizeof *w);
    uint8_t *seen = mem_calloc((size_t)t->n_layers * (size_t)t->n_experts, 1);
    int rc = w && seen ? 0 : err_set(err, SL_E_MEM, "recording", "no memory to count experts");
    for (size_t i = 0; rc == 0 && i < t->n_visits; i++) {
        const struct trace_visit *v = &t->visit[i];
        visit(t, v, n, &w[v->layer], seen + (size_t)v->layer * (size_t)t->n_experts);
    }
    if (rc == 0)
        sum_up(t, w, n, share, got);
    mem_free(w);
    mem_free(seen);
    return rc;
}
