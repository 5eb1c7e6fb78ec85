/* attention_body.h: attention over tiles of keys, compiled once per CPU level.
 *
 * Included by the files that provide a level. A level gives two functions, the products of queries
 * with keys and with values; the softmax between them and the merging of chunks are here.
 *
 * The definition (docs/arithmetic.md, attention). Keys are taken in chunks of 256 at absolute
 * positions. Per query head and chunk, over the visible keys t, rising:
 *
 *   s_t = +0; s_t = fma(q_j, k_tj, s_t), j rising; s_t = s_t * scale; s_t = cap * tanh(s_t / cap)
 *   m = max s_t; p_t = exp(s_t - m); l = sum of p_t in sixteen lanes by position % 16, tree
 *   o_j = +0; o_j = fma(p_t, v_tj, o_j), t rising
 *   first chunk: M, L, O = m, l, o
 *   others: n = max(m, M); a = exp(M - n); b = exp(m - n); L = fma(L, a, l * b);
 *           O_j = fma(O_j, a, o_j * b); M = n
 *
 * at the end with a sink z: n = max(z, M); a = exp(M - n); L = fma(L, a, exp(z - n));
 * O_j = O_j * a; and the result is O_j / L. A score that is NaN or +inf gives a NaN result.
 *
 * Queries (heads of one token, or of several tokens in a row) are taken in blocks that share each
 * loaded key and value; chunks are the outer loop, so that a chunk is read once from memory. While
 * a chunk's scores are computed its values are prefetched, and meanwhile with the values the keys
 * of the next chunk. */
#ifndef KERNELS_ATTENTION_BODY_H
#define KERNELS_ATTENTION_BODY_H

#include "base/size.h"
#include "kernels/attention.h"
#include "kernels/attention_store.h"
#include "kernels/float_body.h"

/* What to prefetch during a pass, spread evenly over it. */
struct attn_ahead {
    const uint8_t *p;
    size_t bytes; /* 0: nothing */
};

/* The plain products of w <= ATTN_BLOCK queries (component j of query i at q[j * w + i]) with all
 * sixteen positions, visible or not, of tiles [tile0, tile0 + n_tiles), which lie in one chunk:
 * s[i * ATTN_CHUNK + 16 * (tile - tile0) + lane]. */
typedef void attn_scores_fn(const struct attn_args *a, const float *q, int w, int tile0,
                            int n_tiles, float *s, struct attn_ahead ahead);
/* o[i * o_stride + j] = fma(p[i * ATTN_CHUNK + t], v_j of position t0 + t, o[..]), t < n rising, of
 * w <= ATTN_BLOCK queries. */
typedef void attn_values_fn(const struct attn_args *a, const float *p, int w, int t0, int n,
                            float *o, int o_stride, struct attn_ahead ahead);

/* s[0 .. 16 n_tiles) of one query, of which [first, last] are visible, to p. Returns m, sets *l. */
static float attn_softmax(const struct attn_args *a, float *s, int n_tiles, int first, int last,
                          float *l)
{
    const float scale = a->scale, cap = a->softcap;
    float max[16], lanes[16] = {0};

    for (int j = 0; j < 16; j++)
        max[j] = -INFINITY;
    for (int i = 0; i < n_tiles * 16; i += 16) {
        float x[16];
        memcpy(x, s + i, sizeof x);
        for (int j = 0; j < 16; j++)
            x[j] = x[j] * scale;
        if (cap != 0)
            for (int j = 0; j < 16; j++)
                x[j] = cap * math_tanh(x[j] / cap);
        if (i < first || i + 15 > last)
            for (int j = 0; j < 16; j++)
                x[j] = i + j >= first && i + j <= last ? x[j] : -INFINITY;
        for (int j = 0; j < 16; j++)
            max[j] = x[j] > max[j] ? x[j] : max[j];
        memcpy(s + i, x, sizeof x);
    }
    for (int h = 8; h; h >>= 1)
        for (int j = 0; j < h; j++)
            max[j] = max[j + h] > max[j] ? max[j + h] : max[j];
    /* Hidden keys are -inf by now: exp makes them +0, which changes no lane. */
    for (int i = 0; i < n_tiles * 16; i += 16) {
        float x[16];
        memcpy(x, s + i, sizeof x);
        for (int j = 0; j < 16; j++)
            x[j] = math_exp(x[j] - max[0]);
        for (int j = 0; j < 16; j++)
            lanes[j] = lanes[j] + x[j];
        memcpy(s + i, x, sizeof x);
    }
    *l = lanes_reduce(lanes);
    return max[0];
}

/* Up to ATTN_BLOCK queries of one call on their way through a chunk. */
struct attn_block {
    int w;
    int lo[ATTN_BLOCK], hi[ATTN_BLOCK]; /* visible keys of the chunk; none where lo > hi */
    float m[ATTN_BLOCK], l[ATTN_BLOCK];
    float *s, *o; /* scratch: w rows of ATTN_CHUNK scores, w rows of o_stride sums */
    int o_stride;
};

static inline int attn_min(int a, int b)
{
    return a < b ? a : b;
}

static inline int attn_max(int a, int b)
{
    return a > b ? a : b;
}

/* First key that the query at position pos may see. */
static inline int attn_first(const struct attn_args *a, int pos)
{
    return a->window ? attn_max(a->first, pos - a->window + 1) : a->first;
}

/* Sums of values of one block. Rows that all its queries see are shared; what comes before and
 * behind belongs to single queries: in one output t rises all the same. */
static void attn_block_values(const struct attn_args *a, const struct attn_block *b, int base,
                              attn_values_fn *values, struct attn_ahead ahead)
{
    const struct attn_ahead none = {NULL, 0};
    int lo = b->lo[0], hi = b->hi[0];
    bool same = true;

    memset(b->o, 0, (size_t)b->w * (size_t)b->o_stride * sizeof *b->o);
    for (int i = 1; i < b->w; i++) {
        same &= b->lo[i] == lo && b->hi[i] == hi;
        lo = attn_max(lo, b->lo[i]);
        hi = attn_min(hi, b->hi[i]);
    }
    if (!same && hi - lo < 15) /* too little in common */
        lo = hi = -1;
    for (int i = 0; i < b->w; i++) {
        const int end = lo < 0 ? b->hi[i] : lo - 1;
        if (b->lo[i] <= end)
            values(a, b->s + i * ATTN_CHUNK + (b->lo[i] - base), 1, b->lo[i], end - b->lo[i] + 1,
                   b->o + i * b->o_stride, b->o_stride, lo < 0 && i == 0 ? ahead : none);
    }
    if (lo < 0)
        return;
    values(a, b->s + (lo - base), b->w, lo, hi - lo + 1, b->o, b->o_stride, ahead);
    for (int i = 0; i < b->w; i++)
        if (b->hi[i] > hi)
            values(a, b->s + i * ATTN_CHUNK + (hi + 1 - base), 1, hi + 1, b->hi[i] - hi,
                   b->o + i * b->o_stride, b->o_stride, none);
}

/* A block's m, l and o of one chunk. next: the keys that come after this chunk; NULL at the end. */
static void attn_block_run(const struct attn_args *a, struct attn_block *b, const float *q,
                           attn_scores_fn *scores, attn_values_fn *values, bool ahead,
                           const uint8_t *next)
{
    int lo = INT32_MAX, hi = -1;

    for (int i = 0; i < b->w; i++)
        if (b->lo[i] <= b->hi[i]) {
            lo = attn_min(lo, b->lo[i]);
            hi = attn_max(hi, b->hi[i]);
        }
    if (hi < 0)
        return;
    const int tile0 = lo / 16, n_tiles = hi / 16 - tile0 + 1;
    const size_t row = attn_row_bytes(a->v_type, a->dim_v);
    const struct attn_ahead v = {(const uint8_t *)a->v + (size_t)lo * row,
                                 ahead ? (size_t)(hi - lo + 1) * row : 0};
    const struct attn_ahead k = {next,
                                 next ? (size_t)n_tiles * attn_tile_bytes(a->k_type, a->dim_k) : 0};

    scores(a, q, b->w, tile0, n_tiles, b->s, v);
    for (int i = 0; i < b->w; i++) {
        const int first = b->lo[i] / 16, n = b->hi[i] / 16 - first + 1, at = 16 * (first - tile0);
        if (b->lo[i] <= b->hi[i])
            b->m[i] = attn_softmax(a, b->s + i * ATTN_CHUNK + at, n, b->lo[i] - 16 * first,
                                   b->hi[i] - 16 * first, &b->l[i]);
    }
    attn_block_values(a, b, 16 * tile0, values, k);
}

/* Merge a chunk's (m, l, o) into a query's (*M, *L, O). */
static void attn_merge(float m, float l, const float *o, float *M, float *L, float *O, int dim)
{
    const float n = m > *M ? m : *M;
    const float a = math_exp(*M - n), b = math_exp(m - n);

    *L = fmaf(*L, a, l * b);
    *M = n;
    int i = 0;
    for (; i <= dim - 16; i += 16) {
        float x[16];
        for (int j = 0; j < 16; j++)
            x[j] = fmaf(O[i + j], a, o[i + j] * b);
        for (int j = 0; j < 16; j++)
            O[i + j] = x[j];
    }
    for (; i < dim; i++)
        O[i] = fmaf(O[i], a, o[i] * b);
}

static void attn_finish(const float *sink, float M, float L, float *O, int dim)
{
    if (sink) {
        const float z = *sink;
        const float n = z > M ? z : M;
        const float a = math_exp(M - n);
        L = fmaf(L, a, math_exp(z - n));
        lanes_run(scale_lanes, O, O, a, dim, O);
    }
    lanes_run(divide_lanes, O, O, L, dim, O);
}

/* The queries in blocks, component by component: query i of block b at
 * packed[b * ATTN_BLOCK * dim_k + j * w + i]. */
static void attn_pack(const struct attn_args *a, int n, float *packed)
{
    for (int i0 = 0; i0 < n; i0 += ATTN_BLOCK) {
        const int w = attn_min(ATTN_BLOCK, n - i0);
        for (int i = 0; i < w; i++) {
            const int tok = (i0 + i) / a->n_q, h = (i0 + i) % a->n_q;
            const float *q = a->q + (size_t)tok * a->q_tok + (size_t)h * a->q_stride;
            for (int j = 0; j < a->dim_k; j++)
                packed[j * w + i] = q[j];
        }
        packed += (size_t)ATTN_BLOCK * (size_t)a->dim_k;
    }
}

/* Queries [i0, i0 + w) and what they see of the chunk that begins at position begin. */
static void attn_block_set(const struct attn_args *a, struct attn_block *b, int i0, int w,
                           int begin)
{
    b->w = w;
    for (int i = 0; i < w; i++) {
        const int pos = a->pos + (i0 + i) / a->n_q;
        b->lo[i] = attn_max(attn_first(a, pos), begin);
        b->hi[i] = attn_min(pos, begin + ATTN_CHUNK - 1);
    }
}

/* Keys behind those of a chunk, where there are more. */
static const uint8_t *attn_next(const struct attn_args *a, int chunk, int last_pos)
{
    const int begin = (chunk + 1) * ATTN_CHUNK;

    return begin > last_pos
               ? NULL
               : (const uint8_t *)a->k + (size_t)begin / 16 * attn_tile_bytes(a->k_type, a->dim_k);
}

/* The scratch of one call: a block's scores and sums, M and L of all queries, the packed queries.
 */
static struct attn_block attn_scratch(const struct attn_args *a, int n, float **packed, float **M)
{
    struct attn_block b = {.s = a->scratch, .o_stride = attn_out_stride(a->dim_v)};

    b.o = b.s + ATTN_BLOCK * ATTN_CHUNK;
    *M = b.o + ATTN_BLOCK * b.o_stride;
    *packed = *M + size_up(2 * (uint64_t)n, 16);
    return b;
}

/* The whole operation; O lives in a->out. */
static void attn_run(const struct attn_args *a, attn_scores_fn *scores, attn_values_fn *values)
{
    const int n = a->n_q * attn_max(a->n_tok, 1), last = a->pos + attn_max(a->n_tok, 1) - 1;
    const int chunk0 = attn_first(a, a->pos) / ATTN_CHUNK;
    float *packed, *M;
    struct attn_block b = attn_scratch(a, n, &packed, &M);
    float *L = M + n;

    attn_pack(a, n, packed);
    for (int chunk = chunk0; chunk <= last / ATTN_CHUNK; chunk++)
        for (int i0 = 0; i0 < n; i0 += ATTN_BLOCK) {
            attn_block_set(a, &b, i0, attn_min(ATTN_BLOCK, n - i0), chunk * ATTN_CHUNK);
            attn_block_run(a, &b, packed + (size_t)i0 * (size_t)a->dim_k, scores, values, i0 == 0,
                           i0 == 0 ? attn_next(a, chunk, last) : NULL);
            for (int i = 0; i < b.w; i++) {
                const int tok = (i0 + i) / a->n_q, h = (i0 + i) % a->n_q;
                float *out = a->out + (size_t)tok * a->out_tok + (size_t)h * a->out_stride;
                const float *o = b.o + i * b.o_stride;
                if (b.lo[i] > b.hi[i])
                    continue;
                if (chunk > attn_first(a, a->pos + tok) / ATTN_CHUNK) {
                    attn_merge(b.m[i], b.l[i], o, M + i0 + i, L + i0 + i, out, a->dim_v);
                    continue;
                }
                M[i0 + i] = b.m[i];
                L[i0 + i] = b.l[i];
                memcpy(out, o, (size_t)a->dim_v * sizeof *out);
            }
        }
    for (int i = 0; i < n; i++) {
        const int tok = i / a->n_q, h = i % a->n_q;
        attn_finish(a->sinks ? a->sinks + h : NULL, M[i], L[i],
                    a->out + (size_t)tok * a->out_tok + (size_t)h * a->out_stride, a->dim_v);
    }
}

/* Where a part of a->parts begins: its o, then m and l. */
static float *attn_part(const struct attn_args *a, int chunk, int h)
{
    const size_t i = (size_t)(chunk - attn_first(a, a->pos) / ATTN_CHUNK) * (size_t)a->n_q;

    return a->parts + (i + (size_t)h) * ((size_t)attn_out_stride(a->dim_v) + 16);
}

static void attn_run_part(const struct attn_args *a, int chunk, int n_chunks,
                          attn_scores_fn *scores, attn_values_fn *values)
{
    const int end = chunk + n_chunks, n = a->n_q;
    float *packed, *unused;
    struct attn_block b = attn_scratch(a, n, &packed, &unused);

    attn_pack(a, n, packed);
    for (; chunk < end; chunk++)
        for (int i0 = 0; i0 < n; i0 += ATTN_BLOCK) {
            attn_block_set(a, &b, i0, attn_min(ATTN_BLOCK, n - i0), chunk * ATTN_CHUNK);
            attn_block_run(a, &b, packed + (size_t)i0 * (size_t)a->dim_k, scores, values, i0 == 0,
                           i0 == 0 && chunk + 1 < end ? attn_next(a, chunk, a->pos) : NULL);
            for (int i = 0; i < b.w; i++) {
                float *part = attn_part(a, chunk, i0 + i);
                memcpy(part, b.o + i * b.o_stride, (size_t)b.o_stride * sizeof *part);
                part[b.o_stride] = b.m[i];
                part[b.o_stride + 1] = b.l[i];
            }
        }
}

static void attn_run_merge(const struct attn_args *a, int h0, int h1)
{
    const int o_stride = attn_out_stride(a->dim_v), chunk0 = attn_first(a, a->pos) / ATTN_CHUNK;

    for (int h = h0; h < h1; h++) {
        float *out = a->out + (size_t)h * a->out_stride;
        const float *part = attn_part(a, chunk0, h);
        float M = part[o_stride], L = part[o_stride + 1];
        memcpy(out, part, (size_t)a->dim_v * sizeof *out);
        for (int chunk = chunk0 + 1; chunk <= a->pos / ATTN_CHUNK; chunk++) {
            part = attn_part(a, chunk, h);
            attn_merge(part[o_stride], part[o_stride + 1], part, &M, &L, out, a->dim_v);
        }
        attn_finish(a->sinks ? a->sinks + h : NULL, M, L, out, a->dim_v);
    }
}

/* A level's three functions of the table: NAME is its suffix. */
#define ATTN_LEVEL(name)                                                                           \
    static void attention_##name(const struct attn_args *a)                                        \
    {                                                                                              \
        attn_run(a, scores_##name, values_##name);                                                 \
    }                                                                                              \
    static void attention_part_##name(const struct attn_args *a, int chunk, int n_chunks)          \
    {                                                                                              \
        attn_run_part(a, chunk, n_chunks, scores_##name, values_##name);                           \
    }                                                                                              \
    static void attention_fill(struct kernels *k)                                                  \
    {                                                                                              \
        k->attention = attention_##name;                                                           \
        k->attention_part = attention_part_##name;                                                 \
        k->attention_merge = attn_run_merge;                                                       \
        k->store_k = attn_store_k;                                                                 \
        k->store_v = attn_store_v;                                                                 \
    }

#endif
