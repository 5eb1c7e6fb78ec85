#include "support/run.h"
#include "support/drives.h"

#include <stdlib.h>
#include <string.h>

static size_t expert_at(const struct run_result *r, int pos, int block)
{
    return ((size_t)pos * (size_t)r->n_layer + (size_t)block) * (size_t)r->k;
}

static float *row(const struct run_result *r, int pos)
{
    return r->logits + (size_t)pos * (size_t)r->n_vocab;
}

static void on_logits(void *user, int pos, const float *logits)
{
    struct run_result *r = user;
    if (pos < 0 || pos >= r->n_pos) {
        r->bad_calls++;
        return;
    }
    memcpy(row(r, pos), logits, (size_t)r->n_vocab * sizeof *logits);
}

static void on_experts(void *user, int pos, int block, const int32_t *ids, int k)
{
    struct run_result *r = user;
    bool good = pos >= 0 && pos < r->n_pos && block >= 0 && block < r->n_layer && k > 0 &&
                k <= r->k;
    for (int i = 0; good && i < k; i++)
        good = ids[i] >= (i > 0 ? ids[i - 1] + 1 : 0) && ids[i] < r->info.n_expert;
    if (!good) {
        r->bad_calls++;
        return;
    }
    memcpy(r->experts + expert_at(r, pos, block), ids, (size_t)k * sizeof *ids);
}

static int prepare(const struct run_spec *spec, const struct sl_engine *e, struct run_result *r)
{
    sl_engine_info(e, &r->info);
    sl_engine_get_plan(e, &r->plan);
    strncpy(r->io_engine, r->plan.io_engine ? r->plan.io_engine : "", sizeof r->io_engine - 1);
    strncpy(r->cpu_level, r->plan.cpu_level ? r->plan.cpu_level : "", sizeof r->cpu_level - 1);
    r->n_pos = spec->n_prompt + spec->n_step;
    r->n_vocab = r->info.n_vocab;
    r->n_layer = r->info.n_layer;
    r->k = r->info.n_expert_run;
    r->logits = calloc((size_t)r->n_pos * (size_t)r->n_vocab, sizeof *r->logits);
    size_t n_ids = expert_at(r, r->n_pos, 0);
    r->experts = malloc(n_ids * sizeof *r->experts + 1);
    if (!r->logits || !r->experts)
        return SL_E_MEM;
    for (size_t i = 0; i < n_ids; i++)
        r->experts[i] = -1;
    return 0;
}

/* The smallest cache, half of the bank, nothing, everything, in turn. */
static int resize(const struct run_spec *spec, struct sl_engine *e, struct run_result *r,
                  struct sl_err *err)
{
    if (!spec->resize)
        return 0;
    uint64_t least = r->plan.cache_min_bytes, most = r->plan.cache_max_bytes;
    uint64_t sizes[] = {least, least > most / 2 ? least : most / 2, 0, most};
    return sl_engine_set_cache_budget(e, sizes[r->n_resized++ % 4], err);
}

/* Tokens [from, to) as the prompt, in calls of piece. */
static int eval_prompt(struct sl_engine *e, struct sl_session *s, const struct run_spec *spec,
                       struct run_result *r, int from, int to, struct sl_err *err)
{
    int piece = spec->piece > 0 ? spec->piece : to - from;
    for (int i = from; i < to; i += piece) {
        int n = to - i < piece ? to - i : piece;
        int rc = resize(spec, e, r, err);
        if (rc == 0)
            rc = sl_session_eval(s, spec->ids + i, (size_t)n, SL_PROMPT, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* The session's last logits must be the observer's (or become the row when there is none). */
static void take_last(const struct run_spec *spec, const struct sl_session *s, struct run_result *r)
{
    const float *last = sl_session_logits(s);
    int pos = sl_session_length(s) - 1;
    size_t n = (size_t)r->n_vocab * sizeof(float);
    if (!last || pos < 0 || pos >= r->n_pos)
        r->bad_calls++;
    else if (spec->last_only)
        memcpy(row(r, pos), last, n);
    else if (memcmp(row(r, pos), last, n) != 0)
        r->bad_calls++;
}

static int feed(struct sl_engine *e, struct sl_session *s, const struct run_spec *spec,
                struct run_result *r, struct sl_err *err)
{
    int rc = eval_prompt(e, s, spec, r, 0, spec->n_prompt, err);
    if (rc == 0 && spec->rewind) {
        int half = spec->n_prompt / 2;
        sl_session_truncate(s, half);
        rc = eval_prompt(e, s, spec, r, half, spec->n_prompt, err);
    }
    if (rc != 0)
        return rc;
    take_last(spec, s, r);
    for (int i = 0; i < spec->n_step; i++) {
        rc = resize(spec, e, r, err);
        if (rc == 0)
            rc = sl_session_eval(s, spec->ids + spec->n_prompt + i, 1, SL_DECODE, err);
        if (rc != 0)
            return rc;
        take_last(spec, s, r);
    }
    sl_session_stats(s, &r->stats);
    return 0;
}

int run_model(const struct run_spec *spec, struct run_result *out, struct sl_err *err)
{
    struct sl_engine *e = NULL;
    struct sl_session *s = NULL;
    memset(out, 0, sizeof *out);
    memset(err, 0, sizeof *err);
    if (spec->drives)
        drives_pretend(spec->drives);
    int rc = sl_engine_open(spec->path, &spec->opt, &e, err);
    if (rc == 0)
        rc = prepare(spec, e, out);
    if (rc == 0)
        rc = sl_session_open(e, &s, err);
    if (rc == 0) {
        struct sl_observer obs = {
            .on_logits = spec->last_only ? NULL : on_logits, .on_experts = on_experts, .user = out};
        sl_session_observe(s, &obs);
        rc = spec->watch ? watcher_start(&out->watcher, s, err) : 0;
    }
    if (rc == 0)
        rc = feed(e, s, spec, out, err);
    sl_session_close(&s);
    sl_engine_close(&e);
    if (spec->drives)
        drives_pretend(0);
    return rc;
}

void run_free(struct run_result *r)
{
    free(r->logits);
    free(r->experts);
    r->logits = NULL;
    r->experts = NULL;
}

int run_differs(const struct run_result *a, const struct run_result *b, int first_pos)
{
    if (a->n_pos != b->n_pos || a->n_vocab != b->n_vocab || a->n_layer != b->n_layer ||
        a->k != b->k)
        return 0;
    size_t experts = (size_t)a->n_layer * (size_t)a->k * sizeof *a->experts;
    for (int pos = first_pos; pos < a->n_pos; pos++)
        if (memcmp(row(a, pos), row(b, pos), (size_t)a->n_vocab * sizeof(float)) != 0 ||
            memcmp(a->experts + expert_at(a, pos, 0), b->experts + expert_at(b, pos, 0), experts))
            return pos;
    return -1;
}

uint64_t run_hash(const struct run_result *r, int n_pos)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    const unsigned char *p = (const unsigned char *)r->logits;
    size_t n = (size_t)n_pos * (size_t)r->n_vocab * sizeof(float);
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}
