#include "telemetry/replay.h"

#include "base/mem.h"
#include "base/size.h"
#include "cache/cache.h"
#include "cache/policy.h"

#include <string.h>

#define PAGE 4096

struct replay {
    const struct trace *t;
    struct cache_layer *layer;
    int32_t *first_key; /* per layer, as the cache counts */
    int64_t *first;     /* the future, by key */
    int32_t *pass;
    struct cache_future future;
    int32_t *count, *ids, *counts; /* of a pass, by expert; scratch */
    int32_t *rows;                 /* of a pass: its tokens' choices; scratch */
    struct cache *c;
    struct replay_result *out;
    struct sl_err *err;
};

static void free_all(struct replay *r)
{
    cache_destroy(&r->c);
    mem_free(r->layer);
    mem_free(r->first_key);
    mem_free(r->first);
    mem_free(r->pass);
    mem_free(r->count);
    mem_free(r->ids);
    mem_free(r->counts);
    mem_free(r->rows);
}

/* The visits from v on that the engine made in one pass: in a prompt neighbours of the same layer,
 * else one. */
static size_t pass_length(const struct trace *t, size_t v)
{
    const struct trace_visit *a = &t->visit[v];
    size_t n = 1;
    if (a->phase == TRACE_DECODE)
        return n;
    for (; v + n < t->n_visits; n++) {
        const struct trace_visit *b = &t->visit[v + n];
        if (b->phase != a->phase || b->turn != a->turn || b->layer != a->layer)
            break;
    }
    return n;
}

static int make_layers(struct replay *r)
{
    const struct trace *t = r->t;
    size_t n = (size_t)t->n_layers, e = (size_t)t->n_experts, widest = 0;
    for (size_t v = 0, len; v < t->n_visits; v += len) {
        len = pass_length(t, v);
        widest = len > widest ? len : widest;
    }
    r->layer = mem_calloc(n, sizeof *r->layer);
    r->first_key = mem_calloc(n + 1, sizeof *r->first_key);
    r->count = mem_calloc(e, sizeof *r->count);
    r->ids = mem_calloc(e, sizeof *r->ids);
    r->counts = mem_calloc(e, sizeof *r->counts);
    r->rows = mem_calloc(widest, (size_t)t->top_k * sizeof *r->rows);
    if (!r->layer || !r->first_key || !r->count || !r->ids || !r->counts || !r->rows)
        return err_set(r->err, SL_E_MEM, "replay", "no memory for the replay");
    for (size_t l = 0; l < n; l++) {
        struct cache_layer *ly = &r->layer[l];
        r->first_key[l + 1] = r->first_key[l] + (t->expert_bytes[l] ? t->n_experts : 0);
        if (!t->expert_bytes[l])
            continue;
        ly->n_parts = 1;
        ly->n_experts = t->n_experts;
        ly->top_k = t->top_k;
        ly->part[0] = (struct cache_part){.stride = size_up(t->expert_bytes[l], PAGE),
                                          .bytes = t->expert_bytes[l]};
    }
    return 0;
}

static int32_t key_of(const struct replay *r, const struct trace_visit *v, int i)
{
    return r->first_key[v->layer] + r->t->expert[v->first + i];
}

/* The passes that ask for each key, rising; an expert that several tokens of a pass chose stands
 * there several times, which does no harm. */
static int make_future(struct replay *r)
{
    const struct trace *t = r->t;
    size_t n_keys = (size_t)r->first_key[t->n_layers];
    r->first = mem_calloc(n_keys + 2, sizeof *r->first);
    r->pass = mem_calloc((size_t)t->n_choices, sizeof *r->pass);
    if (!r->first || !r->pass)
        return err_set(r->err, SL_E_MEM, "replay", "no memory for the replay");
    int64_t *at = r->first + 1; /* while filling: where the next of a key goes */
    for (size_t v = 0; v < t->n_visits; v++)
        for (int i = 0; i < t->visit[v].k; i++)
            at[key_of(r, &t->visit[v], i) + 1]++;
    for (size_t k = 1; k <= n_keys; k++)
        at[k] += at[k - 1];
    int32_t number = 0;
    for (size_t v = 0, len; v < t->n_visits; v += len, number++) {
        len = pass_length(t, v);
        for (size_t j = v; j < v + len; j++)
            for (int i = 0; i < t->visit[j].k; i++)
                r->pass[at[key_of(r, &t->visit[j], i)]++] = number;
    }
    r->future = (struct cache_future){.first = r->first, .pass = r->pass};
    return 0;
}

/* Visits v .. v + len - 1 as one pass. */
static int run_pass(struct replay *r, size_t v, size_t len)
{
    const struct trace *t = r->t;
    int layer = t->visit[v].layer, n = 0, index, rc;
    memset(r->count, 0, (size_t)t->n_experts * sizeof *r->count);
    for (size_t j = 0; j < len; j++)
        for (int i = 0; i < t->top_k; i++) {
            const struct trace_visit *a = &t->visit[v + j];
            int32_t e = i < a->k ? t->expert[a->first + i] : -1;
            r->rows[j * (size_t)t->top_k + (size_t)i] = e;
            if (e >= 0)
                r->count[e]++;
        }
    for (int e = 0; e < t->n_experts; e++)
        if (r->count[e]) {
            r->ids[n] = e;
            r->counts[n++] = r->count[e];
        }
    cache_note_routing(r->c, layer, r->rows, (int)len, t->top_k);
    rc = cache_pass_begin(r->c, layer, r->ids, r->counts, n, CACHE_AS_READY, r->err);
    if (rc < 0)
        return rc;
    struct expert_view view;
    while ((rc = cache_pass_next(r->c, &index, &view, r->err)) > 0)
        cache_pass_release(r->c, index);
    cache_pass_end(r->c);
    return rc;
}

static int run_all(struct replay *r)
{
    const struct trace *t = r->t;
    const struct trace_visit *last = NULL;
    for (size_t v = 0, len; v < t->n_visits; v += len) {
        const struct trace_visit *a = &t->visit[v];
        struct cache_stats s0, s1;
        bool decode = a->phase == TRACE_DECODE, turn = last && last->turn != a->turn;
        len = pass_length(t, v);
        if (!decode && (!last || turn || last->phase == TRACE_DECODE))
            cache_prompt_begin(r->c);
        if (decode && last && last->phase == TRACE_PROMPT)
            cache_prompt_end(r->c);
        if (decode && (!last || turn || last->phase != a->phase || last->step != a->step))
            r->out->tokens++;
        cache_get_stats(r->c, &s0);
        int rc = run_pass(r, v, len);
        if (rc < 0)
            return rc;
        cache_get_stats(r->c, &s1);
        if (decode) {
            r->out->hits += s1.hits - s0.hits;
            r->out->misses += s1.misses - s0.misses;
            r->out->bytes_read += s1.bytes_read - s0.bytes_read;
        }
        last = &t->visit[v + len - 1];
    }
    return 0;
}

int replay_run(const struct trace *t, const char *policy, uint64_t budget,
               struct replay_result *out, struct sl_err *err)
{
    *out = (struct replay_result){0};
    struct replay r = {.t = t, .out = out, .err = err};
    bool optimum = policy && strcmp(policy, REPLAY_OPTIMUM) == 0;
    int rc = make_layers(&r);
    if (rc == 0 && optimum)
        rc = make_future(&r);
    if (rc == 0) {
        struct cache_config cfg = {.layers = r.layer,
                                   .n_layers = t->n_layers,
                                   .align = PAGE,
                                   .budget = budget < INT64_MAX ? (int64_t)budget : INT64_MAX,
                                   .slots = -1,
                                   .in_flight = 4,
                                   .threads = 1,
                                   .split = 1,
                                   .overlap = true,
                                   .policy = optimum ? NULL : policy,
                                   .dry = true,
                                   .future = optimum ? &r.future : NULL};
        rc = cache_create(&cfg, NULL, &r.c, err);
    }
    if (rc == 0)
        rc = run_all(&r);
    free_all(&r);
    return rc;
}
