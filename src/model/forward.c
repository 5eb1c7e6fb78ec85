/* One batch through the model; the buffers' layout. */
#include "model/forward.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/size.h"
#include "model/arch/arch.h"
#include "model/moe.h"
#include "model/watch.h"

/* ---- Buffers: one function lays them out; with base NULL it only measures ---- */

struct arena {
    uint8_t *base;
    uint64_t used;
};

static void *take(struct arena *a, uint64_t n, uint64_t size)
{
    void *p = a->base ? a->base + a->used : NULL;
    a->used += size_up(n * size, MEM_ALIGN);
    return p;
}

/* The widest packed row that n values can need, in any kind. */
static size_t widest_packed(int n)
{
    size_t best = act_bytes(ACT_F32, n);
    if (n % 32 == 0 && act_bytes(ACT_Q32, n) > best)
        best = act_bytes(ACT_Q32, n);
    return best;
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

int forward_attn_tokens(const struct model_config *c, int n_tok)
{
    int most = FORWARD_ATTN_QUERIES * c->n_head_kv / c->n_head;
    return most < 1 ? 1 : most < n_tok ? most : n_tok;
}

/* Rows of expert outputs: all of a narrow batch's, or one expert's tokens in a wide batch. */
static uint64_t expert_rows(const struct model_config *c, uint64_t tok)
{
    uint64_t rows = tok * (uint64_t)c->n_expert_used, row = (uint64_t)c->n_embd * sizeof(float);
    if (rows * row <= FORWARD_WIDE_BYTES)
        return rows;
    /* Batches below max_tok may still be narrow: room for the widest of these, too. */
    uint64_t narrow = FORWARD_WIDE_BYTES / row;
    return narrow > tok ? narrow : tok;
}

static void lay_out_peek(struct peek *p, const struct model_config *c, int max_tok, struct arena *a)
{
    uint64_t k = (uint64_t)c->n_expert_used, layers = (uint64_t)c->n_layer;
    uint64_t sample = (uint64_t)(max_tok < PEEK_SAMPLE ? max_tok : PEEK_SAMPLE);
    p->norm = take(a, sample * (uint64_t)c->n_embd, sizeof(float));
    p->scores = take(a, sample * (uint64_t)c->n_expert, sizeof(float));
    p->counts = take(a, (uint64_t)c->n_expert, sizeof(int32_t));
    p->guess = take(a, k, sizeof(int32_t));
    p->control = take(a, k, sizeof(int32_t));
    p->previous = take(a, layers * k, sizeof(int32_t));
    p->ahead_ids = take(a, layers * k, sizeof(int32_t));
    p->ahead_weights = take(a, layers * k, sizeof(float));
    p->ahead_used = take(a, layers, sizeof(int32_t));
    p->score = take(a, layers, sizeof(struct peek_score));
}

static void lay_out_experts(struct forward *f, struct arena *a, int threads)
{
    const struct model_config *c = &f->m->cfg;
    uint64_t tok = (uint64_t)f->max_tok, k = (uint64_t)c->n_expert_used, n = (uint64_t)c->n_expert;
    uint64_t rows = (uint64_t)larger(f->max_tok, c->n_expert_used);
    if (n == 0)
        return;
    f->group_rows = (int)rows;
    f->gathered_stride = widest_packed(larger(c->n_embd, c->n_ff_expert));
    f->router = take(a, tok * n, sizeof(float));
    f->weights = take(a, tok * k, sizeof(float));
    f->ranked = take(a, (uint64_t)threads * n, sizeof(float));
    f->ids = take(a, tok * k, sizeof(int32_t));
    f->used = take(a, tok, sizeof(int32_t));
    f->entry_tok = take(a, tok * k, sizeof(int32_t));
    f->entry_w = take(a, tok * k, sizeof(float));
    f->tok_entry = take(a, tok * k, sizeof(int32_t));
    f->count = take(a, n, sizeof(int32_t));
    f->first = take(a, n + 1, sizeof(int32_t));
    f->union_ids = take(a, n, sizeof(int32_t));
    f->union_counts = take(a, n, sizeof(int32_t));
    lay_out_peek(&f->peek, c, f->max_tok, a);
    f->jobs = take(a, rows, sizeof(struct moe_job));
    f->gathered = take(a, rows, f->gathered_stride);
    f->expert_out = take(a, expert_rows(c, tok), (uint64_t)c->n_embd * sizeof(float));
}

static uint64_t lay_out(struct forward *f, uint8_t *base, int threads)
{
    const struct model_config *c = &f->m->cfg;
    struct arena a = {base, 0};
    uint64_t tok = (uint64_t)f->max_tok;
    int ff = c->n_ff;
    for (int il = 0; il < c->n_layer && ff;
         il++) /* a model whose layers all route has no dense FFN */
        if (f->m->layers[il].gate.tensor)
            break;
        else if (il == c->n_layer - 1)
            ff = 0;
    int widest = larger(larger(c->n_embd, ff), c->n_head * c->dim_v);
    uint64_t ffn_rows = tok > (uint64_t)c->n_expert_used ? tok : (uint64_t)c->n_expert_used;
    f->packed_stride = widest_packed(widest);
    f->x = take(&a, tok * (uint64_t)c->n_embd, sizeof(float));
    f->h = take(&a, tok * (uint64_t)c->n_embd, sizeof(float));
    f->q = take(&a, tok * (uint64_t)(c->n_head * c->dim_k), sizeof(float));
    f->kx = take(&a, tok * (uint64_t)(c->n_head_kv * c->dim_k), sizeof(float));
    f->vx = take(&a, tok * (uint64_t)(c->n_head_kv * c->dim_v), sizeof(float));
    f->att = take(&a, tok * (uint64_t)(c->n_head * c->dim_v), sizeof(float));
    f->gate = take(&a, ffn_rows * (uint64_t)larger(ff, c->n_ff_expert), sizeof(float));
    f->up = take(&a, ffn_rows * (uint64_t)larger(ff, c->n_ff_expert), sizeof(float));
    f->rope_cos = take(&a, tok * (uint64_t)(c->n_rot / 2), sizeof(float));
    f->rope_sin = take(&a, tok * (uint64_t)(c->n_rot / 2), sizeof(float));
    f->packed = take(&a, tok, f->packed_stride);
    if (f->m->row_stream) {
        a.used = size_up(a.used, model_row_align(f->m));
        f->row_window = take(&a, model_row_window(f->m), 1);
    }
    f->logits = take(&a, FORWARD_LOGIT_ROWS * (uint64_t)c->n_vocab, sizeof(float));
    f->attn_scratch_floats = kern_attn_scratch(
        c->n_head / c->n_head_kv * forward_attn_tokens(c, f->max_tok), c->dim_k, c->dim_v);
    f->attn_scratch = take(&a, (uint64_t)threads * f->attn_scratch_floats, sizeof(float));
    lay_out_experts(f, &a, threads);
    return a.used;
}

uint64_t forward_bytes(const struct model *m, int max_tok, int threads)
{
    struct forward f = {.m = m, .max_tok = max_tok};
    return lay_out(&f, NULL, threads);
}

int forward_open(struct forward *f, const struct model *m, struct pool *pool, struct cache *cache,
                 int max_tok, int n_ctx, enum kv_type k_type, enum kv_type v_type,
                 struct sl_err *err)
{
    memset(f, 0, sizeof *f);
    f->m = m;
    f->k = &m->kernels;
    f->pool = pool;
    f->cache = cache;
    f->max_tok = max_tok;
    f->block_bytes = (size_t)forward_bytes(m, max_tok, pool_threads(pool));
    f->block = mem_map(f->block_bytes, MEM_DONTFORK);
    if (!f->block)
        return err_set(err, SL_E_MEM, "compute buffers", "no memory for %zu MiB of compute buffers",
                       f->block_bytes >> 20);
    lay_out(f, f->block, pool_threads(pool));
    for (int i = 0; m->cfg.n_expert && i < m->cfg.n_layer * m->cfg.n_expert_used; i++)
        f->peek.previous[i] = -1;
    int rc = kv_open(&f->kv, &m->cfg, n_ctx, k_type, v_type, err);
    if (rc < 0)
        forward_close(f);
    return rc;
}

void forward_close(struct forward *f)
{
    kv_close(&f->kv);
    mem_unmap(f->block, f->block_bytes);
    f->block = NULL;
}

/* ---- The batch ---- */

static bool finite_all(const float *x, size_t n)
{
    uint32_t worst = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, x + i, sizeof u);
        u &= 0x7fffffff;
        worst = u > worst ? u : worst;
    }
    return worst < 0x7f800000;
}

int forward_need_block(struct forward *f, int block, struct sl_err *err)
{
    if (!f->m->loading)
        return 0;
    bool waits = !model_has_block(f->m, block);
    double t0 = waits ? clock_now() : 0;
    int rc = model_wait_block(f->m, block, f->cancel, err);
    if (waits)
        f->load_wait_s += clock_now() - t0;
    return rc;
}

/* The next block: its matrices may still be on their way. */
static int enter_block(struct forward *f, int block, struct sl_err *err)
{
    watch_end(f); /* before the block's number changes */
    f->il = block;
    if (!model_has_block(f->m, block))
        watch_enter(f, SL_OP_STALL);
    return forward_need_block(f, block, err);
}

/* Logits of rows [from, from + n) of h (already normalised) into f->logits. */
static int head_rows(struct forward *f, int from, int n, struct sl_err *err)
{
    const struct weight *w = &f->m->head;
    size_t n_embd = (size_t)f->m->cfg.n_embd, n_vocab = (size_t)f->m->cfg.n_vocab;
    f->packed_src = NULL;
    int rc = forward_pack(f, w->kernel->act, f->h + (size_t)from * n_embd, n_embd, (int)n_embd, n,
                          -1, "output head", err);
    if (rc < 0)
        return rc;
    struct product p = {w, f->logits, n_vocab};
    forward_products(f, &p, 1, f->packed, f->packed_stride, n);
    f->packed_src = NULL;
    if (!finite_all(f->logits, (size_t)n * n_vocab))
        return forward_numeric(err, -1, "logits");
    return 0;
}

static int head(struct forward *f, const struct forward_sink *sink, struct sl_err *err)
{
    size_t n_vocab = (size_t)f->m->cfg.n_vocab;
    if (!sink->on_logits && !sink->last_logits)
        return 0;
    int from = sink->on_logits ? 0 : f->n_tok - 1;
    int rc = enter_block(f, f->m->cfg.n_layer, err);
    if (rc < 0)
        return rc;
    watch_enter(f, SL_OP_HEAD);
    forward_norm(f, f->m->output_norm);
    for (; from < f->n_tok; from += FORWARD_LOGIT_ROWS) {
        int n = f->n_tok - from < FORWARD_LOGIT_ROWS ? f->n_tok - from : FORWARD_LOGIT_ROWS;
        rc = head_rows(f, from, n, err);
        if (rc < 0)
            return rc;
        for (int i = 0; i < n && sink->on_logits; i++)
            sink->on_logits(sink->user, f->pos0 + from + i, f->logits + (size_t)i * n_vocab);
        if (sink->last_logits && from + n == f->n_tok)
            memcpy(sink->last_logits, f->logits + (size_t)(n - 1) * n_vocab,
                   n_vocab * sizeof(float));
    }
    watch_block(f, 0);
    return 0;
}

static int layer(struct forward *f, int il, struct sl_err *err)
{
    int rc = enter_block(f, il, err);
    if (rc == 0)
        rc = f->m->cfg.arch->layer(f, il, err);
    if (rc == 0 && !f->m->layers[il].router.tensor)
        watch_block(f, 0);
    return rc;
}

int forward_batch(struct forward *f, const int32_t *ids, int n, int pos0, bool prompt,
                  const struct forward_sink *sink, struct sl_err *err)
{
    f->n_tok = n;
    f->pos0 = pos0;
    f->prompt = prompt;
    f->packed_src = NULL;
    int rc = enter_block(f, -1, err);
    watch_enter(f, SL_OP_EMBED);
    peek_begin(f);
    if (rc == 0)
        rc = forward_embed(f, ids, err);
    for (int il = 0; il < f->m->cfg.n_layer && rc == 0; il++) {
        if (f->cancel && atomic_load(f->cancel))
            rc = err_set(err, SL_E_CANCELLED, "session", "cancelled");
        else
            rc = layer(f, il, err);
    }
    if (rc == 0)
        rc = head(f, sink, err);
    if (rc == 0 && !prompt)
        f->n_decoded += n;
    watch_end(f);
    return rc;
}
