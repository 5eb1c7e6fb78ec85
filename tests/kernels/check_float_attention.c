#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check_float.h"
#include "quant/quant.h"

/* One head's cache, queries and results; K and V end at guard pages. */
struct attn_case {
    struct attn_args a;
    struct check_guard k, v, q, out, scratch;
    int n_tiles, n_rows;
};

static size_t kv_bytes(enum kv_type t)
{
    return t == KV_F32 ? 4 : 2;
}

static void put(struct check_guard *g, size_t i, enum kv_type t, float x)
{
    if (t == KV_F32)
        ((float *)(void *)g->p)[i] = x;
    else
        ((uint16_t *)(void *)g->p)[i] = quant_f32_to_f16(x);
}

/* Keys up to pos are random; the rest of the last tile holds NaN, which nobody may see. */
static void attn_new(struct check *c, struct attn_case *t, float *sinks)
{
    struct attn_args *a = &t->a;
    const size_t dk = (size_t)a->dim_k, dv = (size_t)a->dim_v, n_q = (size_t)a->n_q;

    t->n_tiles = a->pos / 16 + 1;
    t->n_rows = a->pos + 1;
    a->q_stride = dk + (size_t)check_range(c, 0, 5);
    a->out_stride = dv + (size_t)check_range(c, 0, 5);
    check_guard_new(&t->k, (size_t)t->n_tiles * 16 * dk * kv_bytes(a->k_type), kv_bytes(a->k_type),
                    true);
    check_guard_new(&t->v, (size_t)t->n_rows * dv * kv_bytes(a->v_type), kv_bytes(a->v_type), true);
    check_guard_new(&t->q, ((n_q - 1) * a->q_stride + dk) * 4, 4, true);
    check_guard_new(&t->out, ((n_q - 1) * a->out_stride + dv) * 4, 4, true);
    check_guard_new(&t->scratch, kern_attn_scratch(a->n_q, a->dim_v) * 4, 64, true);
    for (int tile = 0; tile < t->n_tiles; tile++)
        for (size_t i = 0; i < dk * 16; i++) {
            const bool seen = tile * 16 + (int)(i % 16) <= a->pos;
            put(&t->k, (size_t)tile * dk * 16 + i, a->k_type, seen ? check_float(c, 1.0f) : NAN);
        }
    for (size_t i = 0; i < (size_t)t->n_rows * dv; i++)
        put(&t->v, i, a->v_type, check_float(c, 2.0f));
    for (size_t i = 0; i < t->q.n / 4; i++)
        ((float *)(void *)t->q.p)[i] = check_float(c, 4.0f);
    for (size_t i = 0; i < n_q; i++)
        sinks[i] = check_float(c, 3.0f);
    a->k = t->k.p;
    a->v = t->v.p;
    a->q = (const float *)(const void *)t->q.p;
    a->out = (float *)(void *)t->out.p;
    a->scratch = (float *)(void *)t->scratch.p;
    memset(t->out.p, 0, t->out.n);
}

static void attn_free(struct attn_case *t)
{
    check_guard_free(&t->k);
    check_guard_free(&t->v);
    check_guard_free(&t->q);
    check_guard_free(&t->out);
    check_guard_free(&t->scratch);
}

static void attn_compare(struct check *c, struct attn_case *t)
{
    uint8_t *want = malloc(t->out.n);

    c->ref.attention(&t->a);
    memcpy(want, t->out.p, t->out.n);
    memset(t->out.p, 0, t->out.n);
    memset(t->scratch.p, 0xff, t->scratch.n);
    c->k.attention(&t->a);
    check_same(c, t->out.p, want, t->out.n);
    check_true(c, check_guard_intact(&t->out) && check_guard_intact(&t->scratch), "wrote outside");
    bool finite = true;
    for (size_t i = 0; i < t->out.n / 4; i++)
        finite &= (bool)isfinite(t->a.out[i]);
    check_true(c, finite, "a hidden key or old scratch was seen");
    free(want);
}

/* Number of keys up to pos: chunk borders, tile borders, one key, and random ones. */
static int pick_keys(struct check *c, int round)
{
    static const int borders[] = {255, 256, 257, 1, 16, 17, 511, 513, 272, 31};

    return round < 10 ? borders[round] : check_range(c, 1, 600);
}

static void check_attention(struct check *c)
{
    static const int dims[] = {32, 48, 64, 80, 96, 128, 192, 256, 20, 576};
    float sinks[16];

    for (int round = 0; round < 40; round++) {
        struct attn_case t = {0};
        struct attn_args *a = &t.a;
        a->dim_k = dims[round % 10];
        a->dim_v = round % 10 == 9 ? 512 : dims[round % 7 ? round % 10 : check_range(c, 0, 8)];
        a->n_q = round % 10 == 9 ? 2 : round < 8 ? round + 1 : check_range(c, 1, 10);
        a->pos = pick_keys(c, (round * 7) % 40) - 1;
        if (a->dim_k > 128)
            a->pos = a->pos > 300 ? 300 : a->pos;
        a->k_type = (enum kv_type)(round & 1);
        a->v_type = (enum kv_type)(round >> 1 & 1);
        a->first = round % 3 ? 0 : check_range(c, 0, a->pos);
        a->scale = 0.1f;
        a->softcap = round % 4 == 3 ? 5.0f : 0;
        a->sinks = round % 5 == 4 ? sinks : NULL;
        if (!check_begin(c, "attention dims=%d,%d heads=%d keys=%d..%d types=%d,%d cap=%g sinks=%d",
                         a->dim_k, a->dim_v, a->n_q, a->first, a->pos, a->k_type, a->v_type,
                         (double)a->softcap, a->sinks != NULL))
            continue;
        attn_new(c, &t, sinks);
        attn_compare(c, &t);
        attn_free(&t);
    }
}

/* A query that overflows must not end in a plausible number. */
static void check_overflow(struct check *c)
{
    float sinks[16];
    struct attn_case t = {.a = {.n_q = 1, .dim_k = 32, .dim_v = 32, .pos = 40, .scale = 1.0f}};

    if (!check_begin(c, "attention overflow"))
        return;
    attn_new(c, &t, sinks);
    for (int j = 0; j < 32; j++)
        ((float *)(void *)t.q.p)[j] = 3e38f;
    ((float *)(void *)t.k.p)[0] = ((float *)(void *)t.k.p)[16] = 3.0f;
    c->k.attention(&t.a);
    check_true(c, isnan(t.a.out[0]) && isnan(t.a.out[31]), "an infinite score went unnoticed");
    attn_free(&t);
}

static void check_stores(struct check *c)
{
    static const float special[] = {65504,        65519.996f,     65520,      -65520,
                                    0x1p-24f,     0x1p-25f,       0x1.8p-25f, -0x1p-24f,
                                    1 + 0x1p-11f, 1 + 0x1.8p-10f, 0,          -0.0f};
    float x[256];

    for (int round = 0; round < 32; round++) {
        const int dim = check_range(c, 1, 256), pos = check_range(c, 0, 40);
        const enum kv_type type = (enum kv_type)(round & 1);
        const bool is_k = round & 2;
        const size_t rows = is_k ? (size_t)(pos / 16 + 1) * 16 : (size_t)pos + 1;
        struct check_guard want, got;
        if (!check_begin(c, "store_%c dim=%d pos=%d type=%d", is_k ? 'k' : 'v', dim, pos, type))
            continue;
        check_guard_new(&want, rows * (size_t)dim * kv_bytes(type), kv_bytes(type), true);
        check_guard_new(&got, want.n, kv_bytes(type), true);
        for (int i = 0; i < dim; i++)
            x[i] = i % 3 ? check_float(c, 100.0f) : special[check_range(c, 0, 11)];
        (is_k ? c->ref.store_k : c->ref.store_v)(x, dim, want.p, pos, type);
        (is_k ? c->k.store_k : c->k.store_v)(x, dim, got.p, pos, type);
        check_same(c, got.p, want.p, want.n);
        check_guard_free(&want);
        check_guard_free(&got);
    }
}

static void bench_attention(void *arg)
{
    const struct attn_case *t = arg;
    const struct kernels *k = *(const struct kernels *const *)(const void *)(t + 1);

    k->attention(&t->a);
}

static void bench(struct check *c)
{
    static const int heads[] = {1, 4, 8};
    float sinks[16];
    struct {
        struct attn_case t;
        const struct kernels *k;
    } b;

    for (int i = 0; i < 6; i++) {
        const int n_q = heads[i / 2];
        memset(&b, 0, sizeof b);
        b.k = &c->k;
        b.t.a = (struct attn_args){.n_q = n_q,
                                   .dim_k = 128,
                                   .dim_v = 128,
                                   .pos = 4095,
                                   .scale = 0.088f,
                                   .k_type = (enum kv_type)(i & 1),
                                   .v_type = (enum kv_type)(i & 1)};
        if (!check_begin(c, "attention 4096 keys, %d heads, %s", n_q, i & 1 ? "f16" : "f32"))
            continue;
        attn_new(c, &b.t, sinks);
        check_bench(c, bench_attention, &b.t, (double)(b.t.k.n + b.t.v.n), 2.0 * 4096 * 128 * n_q);
        attn_free(&b.t);
    }
}

void check_float_attention(struct check *c)
{
    if (c->bench) {
        bench(c);
        return;
    }
    check_attention(c);
    check_overflow(c);
    check_stores(c);
}
