#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check_float.h"
#include "quant/quant.h"

/* One head's cache, queries and results; K and V end at guard pages. */
struct attn_case {
    struct attn_args a;
    struct check_guard k, v, q, out, scratch, parts;
    int n_tok, n_tiles, n_rows, n_chunks;
};

/* Bytes that a stored value is aligned to. */
static size_t kv_align(enum kv_type t)
{
    return t == KV_F32 ? 4 : 2;
}

static float *floats(struct check_guard *g)
{
    return (float *)(void *)g->p;
}

static void attn_buffers(struct check *c, struct attn_case *t)
{
    struct attn_args *a = &t->a;
    const size_t dk = (size_t)a->dim_k, dv = (size_t)a->dim_v, n_q = (size_t)a->n_q;
    const size_t tok = (size_t)t->n_tok, last = tok - 1, chunks = (size_t)t->n_chunks;

    a->q_stride = dk + (size_t)check_range(c, 0, 5);
    a->out_stride = dv + (size_t)check_range(c, 0, 5);
    a->q_tok = n_q * a->q_stride + (size_t)check_range(c, 0, 5);
    a->out_tok = n_q * a->out_stride + (size_t)check_range(c, 0, 5);
    check_guard_new(&t->k, (size_t)t->n_tiles * kern_kv_tile_bytes(a->k_type, a->dim_k),
                    kv_align(a->k_type), true);
    check_guard_new(&t->v, (size_t)t->n_rows * kern_kv_row_bytes(a->v_type, a->dim_v),
                    kv_align(a->v_type), true);
    check_guard_new(&t->q, (last * a->q_tok + (n_q - 1) * a->q_stride + dk) * 4, 4, true);
    check_guard_new(&t->out, (last * a->out_tok + (n_q - 1) * a->out_stride + dv) * 4, 4, true);
    check_guard_new(&t->scratch, kern_attn_scratch(a->n_q * t->n_tok, a->dim_k, a->dim_v) * 4, 64,
                    true);
    check_guard_new(&t->parts, chunks * n_q * kern_attn_part(a->dim_v) * 4, 64, true);
    a->k = t->k.p;
    a->v = t->v.p;
    a->q = floats(&t->q);
    a->out = floats(&t->out);
    a->scratch = floats(&t->scratch);
    a->parts = floats(&t->parts);
}

/* Keys up to the last token's are random; the rest of the last tile holds NaN, which nobody may
 * see. */
static void attn_new(struct check *c, struct attn_case *t, float *sinks)
{
    struct attn_args *a = &t->a;
    const int last = a->pos + (a->n_tok ? a->n_tok : 1) - 1;
    float x[1024];

    t->n_tok = a->n_tok ? a->n_tok : 1;
    t->n_tiles = last / 16 + 1;
    t->n_rows = last + 1;
    t->n_chunks = a->pos / ATTN_CHUNK - a->first / ATTN_CHUNK + 1;
    attn_buffers(c, t);
    for (int pos = 0; pos < t->n_tiles * 16; pos++) {
        for (int j = 0; j < a->dim_k; j++)
            x[j] = pos <= last ? check_float(c, 1.0f) : NAN;
        c->ref.store_k(x, a->dim_k, t->k.p, pos, a->k_type);
    }
    for (int pos = 0; pos < t->n_rows; pos++) {
        for (int j = 0; j < a->dim_v; j++)
            x[j] = check_float(c, 2.0f);
        c->ref.store_v(x, a->dim_v, t->v.p, pos, a->v_type);
    }
    for (size_t i = 0; i < t->q.n / 4; i++)
        floats(&t->q)[i] = check_float(c, 4.0f);
    for (int i = 0; i < a->n_q; i++)
        sinks[i] = check_float(c, 3.0f);
    memset(t->out.p, 0, t->out.n);
}

static void attn_free(struct attn_case *t)
{
    check_guard_free(&t->k);
    check_guard_free(&t->v);
    check_guard_free(&t->q);
    check_guard_free(&t->out);
    check_guard_free(&t->scratch);
    check_guard_free(&t->parts);
}

/* The level's way with several tokens: one after the other, each with the keys that it sees. */
static void attn_one_by_one(const struct kernels *k, const struct attn_case *t)
{
    for (int i = 0; i < t->n_tok; i++) {
        struct attn_args a = t->a;
        a.n_tok = a.window = 0;
        a.q += (size_t)i * t->a.q_tok;
        a.out += (size_t)i * t->a.out_tok;
        a.pos += i;
        if (t->a.window && a.pos - t->a.window + 1 > a.first)
            a.first = a.pos - t->a.window + 1;
        k->attention(&a);
    }
}

/* In pieces of a few chunks each, the last first, and heads merged apart. */
static void attn_in_parts(struct check *c, const struct kernels *k, const struct attn_args *a)
{
    int first = a->first;

    if (a->window && a->pos - a->window + 1 > first)
        first = a->pos - a->window + 1;
    for (int end = a->pos / ATTN_CHUNK + 1; end > first / ATTN_CHUNK;) {
        const int n = check_range(c, 1, end - first / ATTN_CHUNK);
        end -= n;
        k->attention_part(a, end, n);
    }
    const int half = a->n_q / 2;
    k->attention_merge(a, half, a->n_q);
    k->attention_merge(a, 0, half);
}

static void attn_compare(struct check *c, struct attn_case *t)
{
    uint8_t *want = malloc(t->out.n);

    attn_one_by_one(&c->ref, t);
    memcpy(want, t->out.p, t->out.n);
    for (int way = 0; way < (t->n_tok == 1 ? 2 : 1); way++) {
        memset(t->out.p, 0, t->out.n);
        memset(t->scratch.p, 0xff, t->scratch.n);
        memset(t->parts.p, 0xff, t->parts.n);
        if (way == 0)
            c->k.attention(&t->a);
        else
            attn_in_parts(c, &c->k, &t->a);
        check_same(c, t->out.p, want, t->out.n);
        check_true(c,
                   check_guard_intact(&t->out) && check_guard_intact(&t->scratch) &&
                       check_guard_intact(&t->parts),
                   "wrote outside");
        bool finite = true;
        for (size_t i = 0; i < t->out.n / 4; i++)
            finite &= (bool)isfinite(t->a.out[i]);
        check_true(c, finite, "a hidden key or old scratch was seen");
    }
    free(want);
}

/* Number of keys up to pos: chunk borders, tile borders, one key, and random ones. */
static int pick_keys(struct check *c, int round)
{
    static const int borders[] = {255, 256, 257, 1, 16, 17, 511, 513, 272, 31};

    return round < 10 ? borders[round] : check_range(c, 1, 600);
}

static enum kv_type pick_type(int i, int dim)
{
    const enum kv_type type = (enum kv_type)(i % KV_N_TYPES);

    return kern_kv_fits(type, dim) ? type : KV_F16;
}

static void check_attention(struct check *c)
{
    static const int dims[] = {32, 48, 64, 80, 96, 128, 192, 256, 20, 576};
    float sinks[16];

    for (int round = 0; round < 60; round++) {
        struct attn_case t = {0};
        struct attn_args *a = &t.a;
        a->dim_k = dims[round % 10];
        a->dim_v = round % 10 == 9 ? 512 : dims[round % 7 ? round % 10 : check_range(c, 0, 8)];
        a->n_q = round % 10 == 9 ? 2 : round < 8 ? round + 1 : check_range(c, 1, 10);
        a->pos = pick_keys(c, (round * 7) % 40) - 1;
        if (a->dim_k > 128)
            a->pos = a->pos > 300 ? 300 : a->pos;
        a->k_type = pick_type(round, a->dim_k);
        a->v_type = pick_type(round / 3, a->dim_v);
        a->first = round % 3 ? 0 : check_range(c, 0, a->pos);
        a->scale = 0.1f;
        a->softcap = round % 4 == 3 ? 5.0f : 0;
        a->sinks = round % 5 == 4 ? sinks : NULL;
        if (round >= 40) { /* several tokens, some across a chunk's border */
            a->n_tok = check_range(c, 2, 40 / a->n_q);
            a->window = round % 2 ? check_range(c, 1, 300) : 0;
        }
        if (!check_begin(
                c,
                "attention dims=%d,%d heads=%d keys=%d..%d tok=%d win=%d types=%d,%d cap=%g "
                "sinks=%d",
                a->dim_k, a->dim_v, a->n_q, a->first, a->pos, a->n_tok, a->window, a->k_type,
                a->v_type, (double)a->softcap, a->sinks != NULL))
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
        floats(&t.q)[j] = 3e38f;
    floats(&t.k)[0] = floats(&t.k)[16] = 3.0f;
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

    for (int round = 0; round < 48; round++) {
        const enum kv_type type = (enum kv_type)(round % KV_N_TYPES);
        const int d = check_range(c, 1, 256), dim = type == KV_Q8_0 ? (d + 31) / 32 * 32 : d;
        const int pos = check_range(c, 0, 40);
        const bool is_k = round / 3 & 1;
        const float scale = (const float[]){100, 1e-6f, 0x1p-140f, 1e7f}[round / 6 % 4];
        struct check_guard want, got;
        if (!check_begin(c, "store_%c dim=%d pos=%d type=%d", is_k ? 'k' : 'v', dim, pos, type))
            continue;
        check_guard_new(&want,
                        is_k ? (size_t)(pos / 16 + 1) * kern_kv_tile_bytes(type, dim)
                             : (size_t)(pos + 1) * kern_kv_row_bytes(type, dim),
                        kv_align(type), true);
        check_guard_new(&got, want.n, kv_align(type), true);
        for (int i = 0; i < dim; i++)
            x[i] = scale != 100 || i % 3 ? check_float(c, scale) : special[check_range(c, 0, 11)];
        if (type == KV_Q8_0 && round % 4 == 3)
            x[dim / 2] = round % 8 == 3 ? NAN : -INFINITY;
        (is_k ? c->ref.store_k : c->ref.store_v)(x, dim, want.p, pos, type);
        (is_k ? c->k.store_k : c->k.store_v)(x, dim, got.p, pos, type);
        check_same(c, got.p, want.p, want.n);
        check_true(c, check_guard_intact(&got) && check_guard_intact(&want), "wrote outside");
        check_guard_free(&want);
        check_guard_free(&got);
    }
}

/* The definition of KV_Q8_0 in other words: for V the row is scales, then values. */
static void check_q8_meaning(struct check *c)
{
    float x[64];
    uint8_t row[2 * 2 + 64];

    for (int round = 0; round < 20; round++) {
        if (!check_begin(c, "Q8_0 row"))
            return;
        for (int i = 0; i < 64; i++)
            x[i] = check_float(c, round % 5 ? 3.0f : 1e-6f);
        if (round == 1)
            for (int i = 0; i < 32; i++) /* ties: halves of d = 1 */
                x[i] = i == 0 ? 127.0f : (float)i - 16.5f;
        c->k.store_v(x, 64, row, 0, KV_Q8_0);
        for (int g = 0; g < 2; g++) {
            float max = 0;
            uint16_t h;
            for (int i = 0; i < 32; i++)
                max = fabsf(x[32 * g + i]) > max ? fabsf(x[32 * g + i]) : max;
            memcpy(&h, row + 2 * g, sizeof h);
            check_true(c, h == quant_f32_to_f16(max / 127), "another scale");
            const float d = quant_f16_to_f32(h);
            for (int i = 0; i < 32; i++) {
                const double y = d == 0 ? 0 : nearbyint((double)(x[32 * g + i] / d));
                const double want = y > 127 ? 127 : y < -127 ? -127 : y;
                check_true(c, (int8_t)row[4 + 32 * g + i] == (int)want, "another value");
            }
        }
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

    for (int i = 0; i < 3 * KV_N_TYPES; i++) {
        const int n_q = heads[i / KV_N_TYPES], type = i % KV_N_TYPES;
        memset(&b, 0, sizeof b);
        b.k = &c->k;
        b.t.a = (struct attn_args){.n_q = n_q,
                                   .dim_k = 128,
                                   .dim_v = 128,
                                   .pos = 4095,
                                   .scale = 0.088f,
                                   .k_type = (enum kv_type)type,
                                   .v_type = (enum kv_type)type};
        if (!check_begin(c, "attention 4096 keys, %d heads, %s", n_q,
                         (const char *[]){"f32", "f16", "q8_0"}[type]))
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
    check_q8_meaning(c);
}
