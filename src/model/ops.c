/* The operations of a layer that have nothing to do with routing. */
#include "model/arch/arch.h"
#include "model/forward.h"
#include "model/watch.h"

/* Rows that one work item of a product covers: enough bytes for the prefetcher to run in, few
 * enough to share out evenly. A multiple of 16: rows stand in SIMD lanes. */
#define ITEM_BYTES ((size_t)48 << 10)
/* Tokens per kernel call: their packed activations should stay in the L2 cache. */
#define TOKEN_BLOCK 64

int forward_numeric(struct sl_err *err, int il, const char *what)
{
    if (il < 0)
        return err_set(err, SL_E_NUMERIC, what, "a value of the %s is not finite", what);
    return err_set(err, SL_E_NUMERIC, what, "block %d: a value of the %s is not finite", il, what);
}

/* ---- Packing ---- */

struct pack_args {
    struct forward *f;
    enum act_kind kind;
    const float *src;
    size_t stride;
    int n_values;
    _Atomic bool bad;
};

static void pack_range(void *arg, int64_t begin, int64_t end, int tid)
{
    (void)tid;
    struct pack_args *p = arg;
    for (int64_t t = begin; t < end; t++)
        if (!act_pack(p->f->k, p->kind, p->src + (size_t)t * p->stride, p->n_values,
                      p->f->packed + (size_t)t * p->f->packed_stride))
            atomic_store_explicit(&p->bad, true, memory_order_relaxed);
}

int forward_pack(struct forward *f, enum act_kind kind, const float *src, size_t stride,
                 int n_values, int n_tok, int il, const char *what, struct sl_err *err)
{
    if (f->packed_src == src && f->packed_kind == kind)
        return 0;
    struct pack_args p = {.f = f, .kind = kind, .src = src, .stride = stride, .n_values = n_values};
    pool_for(f->pool, n_tok, 4, pack_range, &p);
    f->packed_src = src;
    f->packed_kind = kind;
    return p.bad ? forward_numeric(err, il, what) : 0;
}

/* ---- Products ---- */

void forward_finish(const struct weight *w, int expert, int r0, int r1, float *y)
{
    for (int r = r0; w->scale && r < r1; r++)
        y[r - r0] = y[r - r0] * w->scale[expert];
    for (int r = r0; w->bias && r < r1; r++)
        y[r - r0] = y[r - r0] + w->bias[r];
}

struct products_args {
    const struct forward *f;
    const struct product *p;
    int n;
    const uint8_t *packed;
    size_t packed_stride;
    int n_tok, unit; /* rows per item */
};

/* Rows [r0, r1) of the i-th matrix. */
static void product_rows(const struct products_args *a, int i_product, int r0, int r1)
{
    const struct product *p = &a->p[i_product];
    const struct weight *w = p->w, *after = i_product + 1 < a->n ? p[1].w : NULL;
    bool more = r1 < w->n_out; /* the thread's next piece is most likely the next rows */
    for (int t = 0; t < a->n_tok; t += TOKEN_BLOCK) {
        int n = a->n_tok - t < TOKEN_BLOCK ? a->n_tok - t : TOKEN_BLOCK;
        struct mat_args m = {.w = w->data + (size_t)r0 * w->row_bytes,
                             .row_bytes = w->row_bytes,
                             .n_rows = r1 - r0,
                             .n_cols = w->n_in,
                             .x = a->packed + (size_t)t * a->packed_stride,
                             .x_stride = a->packed_stride,
                             .n_tok = n,
                             .y = p->y + (size_t)t * p->y_stride + r0,
                             .y_stride = p->y_stride,
                             .next = more    ? w->data + (size_t)r1 * w->row_bytes
                                     : after ? after->data
                                             : NULL,
                             .next_bytes = more    ? (size_t)(w->n_out - r1) * w->row_bytes
                                           : after ? (size_t)after->n_out * after->row_bytes
                                                   : 0};
        (n == 1 ? w->kernel->gemv : w->kernel->gemm)(&m);
        for (int i = 0; i < n; i++)
            forward_finish(w, 0, r0, r1, m.y + (size_t)i * p->y_stride);
    }
}

static int items(const struct products_args *a, int i)
{
    return (a->p[i].w->n_out + a->unit - 1) / a->unit;
}

static void products_range(void *arg, int64_t begin, int64_t end, int tid)
{
    const struct products_args *a = arg;
    int64_t at = 0;
    forward_keep_reading(a->f, tid);
    for (int i = 0; i < a->n; i++) {
        int64_t n = items(a, i), lo = begin > at ? begin - at : 0, hi = end - at < n ? end - at : n;
        if (lo < hi) {
            int64_t r1 = hi * a->unit;
            product_rows(a, i, (int)(lo * a->unit),
                         r1 < a->p[i].w->n_out ? (int)r1 : a->p[i].w->n_out);
        }
        at += n;
    }
}

static int row_unit(size_t row_bytes)
{
    size_t rows = ITEM_BYTES / row_bytes / 16 * 16;
    return rows < 16 ? 16 : rows > 512 ? 512 : (int)rows;
}

void forward_products(struct forward *f, const struct product *p, int n, const uint8_t *packed,
                      size_t packed_stride, int n_tok)
{
    struct products_args a = {.f = f,
                              .p = p,
                              .n = n,
                              .packed = packed,
                              .packed_stride = packed_stride,
                              .n_tok = n_tok,
                              .unit = row_unit(p[0].w->row_bytes)};
    int64_t total = 0;
    for (int i = 0; i < n; i++)
        total += items(&a, i);
    pool_for(f->pool, total, 1, products_range, &a);
}

/* Products whose act kinds may differ: one region per run of equal kinds, packing in between. */
static int products_of(struct forward *f, const struct product *p, int n, const float *src,
                       int n_values, int il, const char *what, struct sl_err *err)
{
    for (int i = 0; i < n;) {
        enum act_kind kind = p[i].w->kernel->act;
        int j = i + 1;
        while (j < n && p[j].w->kernel->act == kind)
            j++;
        int rc = forward_pack(f, kind, src, (size_t)n_values, n_values, f->n_tok, il, what, err);
        if (rc < 0)
            return rc;
        forward_products(f, p + i, j - i, f->packed, f->packed_stride, f->n_tok);
        i = j;
    }
    return 0;
}

/* ---- Norms and rotation ---- */

struct row_args {
    struct forward *f;
    const float *w;
    int il;
};

static void norm_range(void *arg, int64_t begin, int64_t end, int tid)
{
    (void)tid;
    const struct row_args *a = arg;
    const struct model_config *c = &a->f->m->cfg;
    size_t n = (size_t)c->n_embd;
    for (int64_t t = begin; t < end; t++)
        a->f->k->rms_norm(a->f->x + (size_t)t * n, a->w, c->n_embd, c->rms_eps,
                          a->f->h + (size_t)t * n);
}

void forward_norm(struct forward *f, const float *w)
{
    if (f->il < f->m->cfg.n_layer)
        watch_enter(f, w == f->m->layers[f->il].attn_norm ? SL_OP_ATTN_NORM : SL_OP_FFN_NORM);
    struct row_args a = {f, w, 0};
    pool_for(f->pool, f->n_tok, 4, norm_range, &a);
    f->packed_src = NULL;
}

static void qk_norm_range(void *arg, int64_t begin, int64_t end, int tid)
{
    (void)tid;
    const struct row_args *a = arg;
    struct forward *f = a->f;
    const struct model_config *c = &f->m->cfg;
    const struct layer *l = &f->m->layers[a->il];
    for (int64_t t = begin; t < end; t++) {
        float *q = f->q + (size_t)t * (size_t)(c->n_head * c->dim_k);
        float *k = f->kx + (size_t)t * (size_t)(c->n_head_kv * c->dim_k);
        for (int h = 0; h < c->n_head; h++)
            f->k->rms_norm(q + h * c->dim_k, l->q_norm, c->dim_k, c->rms_eps, q + h * c->dim_k);
        for (int h = 0; h < c->n_head_kv; h++)
            f->k->rms_norm(k + h * c->dim_k, l->k_norm, c->dim_k, c->rms_eps, k + h * c->dim_k);
    }
}

void forward_qk_norm(struct forward *f, int il)
{
    watch_enter(f, SL_OP_ROPE);
    struct row_args a = {f, NULL, il};
    pool_for(f->pool, f->n_tok, 4, qk_norm_range, &a);
}

static void rope_range(void *arg, int64_t begin, int64_t end, int tid)
{
    (void)tid;
    struct forward *f = arg;
    const struct model_config *c = &f->m->cfg;
    size_t half = (size_t)c->n_rot / 2;
    for (int64_t t = begin; t < end; t++) {
        const float *cs = f->rope_cos + (size_t)t * half, *sn = f->rope_sin + (size_t)t * half;
        float *q = f->q + (size_t)t * (size_t)(c->n_head * c->dim_k);
        float *k = f->kx + (size_t)t * (size_t)(c->n_head_kv * c->dim_k);
        for (int h = 0; h < c->n_head; h++)
            f->k->rope(q + h * c->dim_k, c->n_rot, cs, sn, c->arch->rope_half);
        for (int h = 0; h < c->n_head_kv; h++)
            f->k->rope(k + h * c->dim_k, c->n_rot, cs, sn, c->arch->rope_half);
    }
}

void forward_rope(struct forward *f)
{
    watch_enter(f, SL_OP_ROPE);
    pool_for(f->pool, f->n_tok, 4, rope_range, f);
}

/* ---- Attention ---- */

int forward_qkv(struct forward *f, int il, struct sl_err *err)
{
    watch_enter(f, SL_OP_QKV);
    const struct layer *l = &f->m->layers[il];
    struct product p[3] = {{&l->q, f->q, (size_t)l->q.n_out},
                           {&l->k, f->kx, (size_t)l->k.n_out},
                           {&l->v, f->vx, (size_t)l->v.n_out}};
    return products_of(f, p, 3, f->h, f->m->cfg.n_embd, il, "attention input", err);
}

static void store_range(void *arg, int64_t begin, int64_t end, int tid)
{
    (void)tid;
    const struct row_args *a = arg;
    struct forward *f = a->f;
    const struct model_config *c = &f->m->cfg;
    for (int64_t h = begin; h < end; h++) { /* by head: tokens share K's tiles */
        void *kb = kv_k(&f->kv, a->il, (int)h), *vb = kv_v(&f->kv, a->il, (int)h);
        for (int t = 0; t < f->n_tok; t++) {
            size_t row = (size_t)t * (size_t)c->n_head_kv + (size_t)h;
            f->k->store_k(f->kx + row * (size_t)c->dim_k, c->dim_k, kb, f->pos0 + t, f->kv.k_type);
            f->k->store_v(f->vx + row * (size_t)c->dim_v, c->dim_v, vb, f->pos0 + t, f->kv.v_type);
        }
    }
}

/* Attention of n tokens from the batch's t-th on, for KV head h. */
static struct attn_args attention_args(const struct forward *f, int il, int h, int t, int n,
                                       int tid)
{
    const struct model_config *c = &f->m->cfg;
    int group = c->n_head / c->n_head_kv;
    size_t head = (size_t)t * (size_t)c->n_head + (size_t)(h * group);
    return (struct attn_args){.q = f->q + head * (size_t)c->dim_k,
                              .q_stride = (size_t)c->dim_k,
                              .q_tok = (size_t)(c->n_head * c->dim_k),
                              .n_q = group,
                              .k = kv_k(&f->kv, il, h),
                              .v = kv_v(&f->kv, il, h),
                              .k_type = f->kv.k_type,
                              .v_type = f->kv.v_type,
                              .dim_k = c->dim_k,
                              .dim_v = c->dim_v,
                              .first = 0,
                              .pos = f->pos0 + t,
                              .n_tok = n,
                              .scale = c->attn_scale,
                              .scratch = f->attn_scratch + (size_t)tid * f->attn_scratch_floats,
                              .out = f->att + head * (size_t)c->dim_v,
                              .out_stride = (size_t)c->dim_v,
                              .out_tok = (size_t)(c->n_head * c->dim_v),
                              .parts = kv_parts(&f->kv, h)};
}

/* Items are (tokens, KV head): neighbours share their tokens. */
static void attention_range(void *arg, int64_t begin, int64_t end, int tid)
{
    const struct row_args *a = arg;
    const struct forward *f = a->f;
    int heads = f->m->cfg.n_head_kv, width = forward_attn_tokens(&f->m->cfg, f->n_tok);
    forward_keep_reading(f, tid);
    for (int64_t i = begin; i < end; i++) {
        int t = (int)(i / heads) * width, n = f->n_tok - t < width ? f->n_tok - t : width;
        struct attn_args at = attention_args(f, a->il, (int)(i % heads), t, n, tid);
        f->k->attention(&at);
    }
}

/* One token's attention in pieces of whole chunks of keys: items are (KV head, piece). */
struct piece_args {
    const struct forward *f;
    int il, n_pieces, n_chunks;
};

static void piece_range(void *arg, int64_t begin, int64_t end, int tid)
{
    const struct piece_args *a = arg;
    for (int64_t i = begin; i < end; i++) {
        int piece = (int)(i % a->n_pieces);
        struct attn_args at = attention_args(a->f, a->il, (int)(i / a->n_pieces), 0, 1, tid);
        int lo = (int)((int64_t)a->n_chunks * piece / a->n_pieces);
        int hi = (int)((int64_t)a->n_chunks * (piece + 1) / a->n_pieces);
        a->f->k->attention_part(&at, lo, hi - lo);
    }
}

static void merge_range(void *arg, int64_t begin, int64_t end, int tid)
{
    const struct piece_args *a = arg;
    int group = a->f->m->cfg.n_head / a->f->m->cfg.n_head_kv;
    for (int64_t i = begin; i < end; i++) { /* query heads */
        struct attn_args at = attention_args(a->f, a->il, (int)(i / group), 0, 1, tid);
        a->f->k->attention_merge(&at, (int)(i % group), (int)(i % group) + 1);
    }
}

/* Pieces per KV head: enough of them for threads of unequal speed, none smaller than two chunks,
 * where packing the queries would show. */
static int attention_pieces(const struct forward *f, int n_chunks)
{
    int heads = f->m->cfg.n_head_kv, want = 8 * pool_threads(f->pool);
    int n = (want + heads - 1) / heads, most = n_chunks / 2;
    return pool_threads(f->pool) == 1 || most < 1 ? 1 : n < most ? n : most;
}

void forward_attention(struct forward *f, int il)
{
    watch_enter(f, SL_OP_ATTENTION);
    struct row_args a = {f, NULL, il};
    const struct model_config *c = &f->m->cfg;
    int heads = c->n_head_kv, width = forward_attn_tokens(c, f->n_tok);
    struct piece_args p = {f, il, 1, f->pos0 / ATTN_CHUNK + 1};
    pool_for(f->pool, heads, f->n_tok > 4 ? 1 : heads, store_range, &a);
    if (f->n_tok == 1)
        p.n_pieces = attention_pieces(f, p.n_chunks);
    if (p.n_pieces > 1) {
        pool_for(f->pool, (int64_t)heads * p.n_pieces, 1, piece_range, &p);
        pool_for(f->pool, c->n_head, 1, merge_range, &p);
    } else {
        pool_for(f->pool, (int64_t)heads * ((f->n_tok + width - 1) / width), 1, attention_range,
                 &a);
    }
    f->packed_src = NULL;
}

/* x = x + y, y being rows of n_embd floats. */
struct add_args {
    struct forward *f;
    const float *y;
};

static void add_range(void *arg, int64_t begin, int64_t end, int tid)
{
    (void)tid;
    const struct add_args *a = arg;
    size_t n = (size_t)a->f->m->cfg.n_embd;
    for (int64_t t = begin; t < end; t++)
        a->f->k->add(a->f->x + (size_t)t * n, a->y + (size_t)t * n, (int)n,
                     a->f->x + (size_t)t * n);
}

int forward_attn_out(struct forward *f, int il, struct sl_err *err)
{
    watch_enter(f, SL_OP_ATTN_OUT);
    const struct layer *l = &f->m->layers[il];
    struct product p = {&l->o, f->h, (size_t)l->o.n_out};
    int rc = products_of(f, &p, 1, f->att, l->o.n_in, il, "attention output", err);
    if (rc < 0)
        return rc;
    struct add_args a = {f, f->h};
    pool_for(f->pool, f->n_tok, 4, add_range, &a);
    return 0;
}

/* ---- Dense FFN ---- */

static void swiglu_range(void *arg, int64_t begin, int64_t end, int tid)
{
    (void)tid;
    struct forward *f = arg;
    size_t n = (size_t)f->m->cfg.n_ff;
    for (int64_t t = begin; t < end; t++)
        f->k->swiglu(f->gate + (size_t)t * n, f->up + (size_t)t * n, (int)n,
                     f->gate + (size_t)t * n);
}

int forward_ffn(struct forward *f, int il, struct sl_err *err)
{
    watch_enter(f, SL_OP_FFN);
    const struct layer *l = &f->m->layers[il];
    size_t ff = (size_t)f->m->cfg.n_ff;
    struct product in[2] = {{&l->gate, f->gate, ff}, {&l->up, f->up, ff}};
    int rc = peek_route_ahead(f, il, err); /* of a routed layer behind this one */
    if (rc == 0)
        rc = products_of(f, in, 2, f->h, f->m->cfg.n_embd, il, "FFN input", err);
    if (rc < 0)
        return rc;
    pool_for(f->pool, f->n_tok, 1, swiglu_range, f);
    f->packed_src = NULL;
    struct product out = {&l->down, f->h, (size_t)l->down.n_out};
    if ((rc = products_of(f, &out, 1, f->gate, (int)ff, il, "FFN activation", err)) < 0)
        return rc;
    f->packed_src = NULL;
    struct add_args a = {f, f->h};
    pool_for(f->pool, f->n_tok, 4, add_range, &a);
    return 0;
}
