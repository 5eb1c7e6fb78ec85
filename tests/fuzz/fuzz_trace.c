/* fuzz_trace.c: any bytes as recorded routing; what the parser accepts keeps its promises and is
 * replayed where that is cheap; then the parse is repeated with failing allocations. */
#include "base/mem.h"
#include "fuzz/target.h"
#include "telemetry/replay.h"

#include <math.h>
#include <stdlib.h>

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void walk(const struct trace *t)
{
    check(t->n_visits > 0 && t->top_k >= 1 && t->top_k <= t->n_experts);
    int64_t next = 0;
    for (size_t i = 0; i < t->n_visits; i++) {
        const struct trace_visit *v = &t->visit[i];
        check(v->first == next && v->k >= 1 && v->k <= t->top_k && v->phase <= TRACE_DECODE);
        check(v->layer >= 0 && v->layer < t->n_layers && t->expert_bytes[v->layer] > 0);
        next += v->k;
        for (int j = 0; j < v->k; j++) {
            int32_t e = t->expert[v->first + j];
            check(e >= 0 && e < t->n_experts && isfinite(t->weight[v->first + j]));
            for (int l = 0; l < j; l++)
                check(t->expert[v->first + l] != e);
        }
    }
    check(next == t->n_choices);
}

static void replay(const struct trace *t)
{
    static const char *const policies[] = {NULL, "lfu-decay", "lru", REPLAY_OPTIMUM};
    if ((int64_t)t->n_layers * t->n_experts > 4096)
        return;
    for (int i = 0; i < 4; i++) {
        struct replay_result r;
        struct sl_err err;
        if (replay_run(t, policies[i], (uint64_t)1 << (13 + 5 * i), &r, &err) == 0)
            check(r.hits + r.misses <= (uint64_t)t->n_choices);
    }
}

static int parse(const uint8_t *data, size_t size, bool run)
{
    struct trace *t = NULL;
    struct sl_err err = {0};
    int rc = trace_parse((const char *)data, size, "fuzz.csv", &t, &err);
    if (rc == 0) {
        walk(t);
        if (run)
            replay(t);
    } else {
        check(t == NULL && rc == err.code && err.msg[0]);
    }
    trace_free(&t);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t before = mem_now();
    int rc = parse(data, size, true);
    mem_fail_after(size % 7);
    int failing = parse(data, size, false);
    mem_fail_after(-1);
    check(failing == rc || failing == SL_E_MEM);
    check(mem_now() == before);
    return 0;
}
