/* attention_simd.h: the two products of attention, written once for vectors of any width.
 *
 * The including file defines, before including this:
 *   vec, VL             a vector of VL lanes: 4, 8 or 16
 *   vec_zero, vec_set1, vec_fma (a * b + c), vec_mul, vec_load, vec_store,
 *   vec_load_f16, vec_load_i8 (of VL values, widened), vec_set1_f16 (one F16 in all lanes)
 *   block_queries(w)    how many of w queries to take together
 *   block_vecs(W)       vectors per block of W queries, one of 2, 3 (VL 16 only), 4, 8
 *   block_lines(W, type) cache lines to prefetch per step, at most 8
 *   EACH_WIDTH(m)       m(W) for each W that block_queries gives
 *
 * Attention is bound by fma. A block is W queries times V vectors of accumulators: enough of them
 * to cover the latency of the fma units, few enough for the registers. Each key or value is loaded
 * (and widened) once for W queries, each broadcast component or probability once for V vectors.
 * Inside a lane the order is the definition's: j rising for scores, t rising for values. */
#ifndef KERNELS_ATTENTION_SIMD_H
#define KERNELS_ATTENTION_SIMD_H

#include "kernels/attention_body.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* Rows of V that are taken through all dimensions before the next ones: they stay in the L1 cache
 * between the passes, whose sums go through memory. */
#define VALUE_ROWS 64
/* Vectors in a tile of K. */
#define TILE_VECS (16 / VL)

ALWAYS_INLINE size_t kv_size(enum kv_type type)
{
    return type == KV_F32 ? 4 : type == KV_F16 ? 2 : 1;
}

/* VL values; scale only for KV_Q8_0. */
ALWAYS_INLINE vec load_kv(const uint8_t *p, enum kv_type type, vec scale)
{
    return type == KV_F32   ? vec_load((const float *)(const void *)p)
           : type == KV_F16 ? vec_load_f16(p)
                            : vec_mul(vec_load_i8(p), scale);
}

/* A pass's prefetching: at each step block_lines addresses, step bytes apart. Steps shorter than
 * a line touch lines twice, which costs less than a branch would; without anything to fetch the
 * same hot line is touched again and again. */
struct stream {
    const uint8_t *p;
    size_t step;
};

ALWAYS_INLINE struct stream stream_new(const struct attn_ahead *ahead, const void *hot, int n)
{
    return (struct stream){ahead->bytes ? ahead->p : hot,
                           (ahead->bytes + (size_t)n - 1) / (size_t)n};
}

ALWAYS_INLINE void stream_step(struct stream *s, const int lines)
{
#pragma GCC unroll 8
    for (int i = 0; i < lines; i++) {
        __builtin_prefetch(s->p, 0, 2); /* into the L2 cache: a chunk is larger than L1 */
        s->p += s->step;
    }
}

/* Queries [0, W) of a packed block of w, and where their scores go. */
struct score_job {
    const float *q;
    int w, dim;
    size_t tile_bytes;
    float *s;
    struct stream ahead;
};

/* Scores with V vectors of keys from vector P of the tile at k on. */
ALWAYS_INLINE void scores_block(struct score_job *job, const uint8_t *k, enum kv_type type,
                                float *s, const int W, const int V, const int P)
{
    const int dim = job->dim, w = job->w, group = type == KV_Q8_0 ? ATTN_GROUP : dim;
    const size_t size = kv_size(type), tile = job->tile_bytes;
    const float *q = job->q;
    struct stream ahead = job->ahead;
    vec acc[ATTN_BLOCK][8], x[8], scale[8];

#pragma GCC unroll 8
    for (int i = 0; i < W; i++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++)
            acc[i][v] = vec_zero();
    for (int g = 0; g < dim; g += group) {
        if (type == KV_Q8_0) {
#pragma GCC unroll 8
            for (int v = 0; v < V; v++)
                scale[v] = vec_load_f16(k + (size_t)((P + v) / TILE_VECS) * tile +
                                        (P + v) % TILE_VECS * VL * 2);
            k += 32;
        }
        for (int j = 0; j < group; j++) {
#pragma GCC unroll 8
            for (int v = 0; v < V; v++)
                x[v] = load_kv(k + (size_t)((P + v) / TILE_VECS) * tile +
                                   (size_t)((P + v) % TILE_VECS * VL) * size,
                               type, scale[v]);
#pragma GCC unroll 8
            for (int i = 0; i < W; i++) {
                const vec qj = vec_set1(q[i]);
#pragma GCC unroll 8
                for (int v = 0; v < V; v++)
                    acc[i][v] = vec_fma(qj, x[v], acc[i][v]);
            }
            stream_step(&ahead, block_lines(W, type));
            k += 16 * size;
            q += w;
        }
    }
    job->ahead = ahead;
#pragma GCC unroll 8
    for (int i = 0; i < W; i++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++)
            vec_store(s + i * ATTN_CHUNK + v * VL, acc[i][v]);
}

/* All vectors of n_tiles tiles at k: blocks of V, then halves of that. */
ALWAYS_INLINE void scores_queries(struct score_job *job, const uint8_t *k, int n_tiles,
                                  enum kv_type type, const int W)
{
    const int V = block_vecs(W), n = n_tiles * TILE_VECS;
    const size_t tile = job->tile_bytes;
    int v = 0;

#define BLOCK(count)                                                                               \
    do {                                                                                           \
        const uint8_t *at = k + (size_t)(v / TILE_VECS) * tile;                                    \
        if (v % TILE_VECS == 0)                                                                    \
            scores_block(job, at, type, job->s + v * VL, W, count, 0);                             \
        else                                                                                       \
            scores_block(job, at, type, job->s + v * VL, W, count, TILE_VECS - 1);                 \
        v += count;                                                                                \
    } while (0)
    while (v + V <= n)
        BLOCK(V);
    if (V > 4 && v + 4 <= n)
        BLOCK(4);
    if (V > 2 && v + 2 <= n)
        BLOCK(2);
    if (v < n)
        BLOCK(1);
#undef BLOCK
}

ALWAYS_INLINE void scores_type(const struct attn_args *a, const float *q, int w, int tile0,
                               int n_tiles, float *s, struct attn_ahead ahead, enum kv_type type)
{
    const size_t tile = attn_tile_bytes(type, a->dim_k);
    const uint8_t *k = (const uint8_t *)a->k + (size_t)tile0 * tile;
    const int W = block_queries(w), V = block_vecs(W), vecs = n_tiles * TILE_VECS;
    const int passes = ((vecs + V - 1) / V) * ((w + W - 1) / W);
    struct score_job job = {
        q, w, a->dim_k, tile, s, stream_new(&ahead, q, passes * a->dim_k * block_lines(W, type))};

    for (int n; w > 0; w -= n, job.q += n, job.s += n * ATTN_CHUNK) {
        n = block_queries(w);
        switch (n) {
#define CASE(count)                                                                                \
    case count:                                                                                    \
        scores_queries(&job, k, n_tiles, type, count);                                             \
        break;
            EACH_WIDTH(CASE)
#undef CASE
        }
    }
}

static void scores_simd(const struct attn_args *a, const float *q, int w, int tile0, int n_tiles,
                        float *s, struct attn_ahead ahead)
{
    if (a->k_type == KV_F32)
        scores_type(a, q, w, tile0, n_tiles, s, ahead, KV_F32);
    else if (a->k_type == KV_F16)
        scores_type(a, q, w, tile0, n_tiles, s, ahead, KV_F16);
    else
        scores_type(a, q, w, tile0, n_tiles, s, ahead, KV_Q8_0);
}

/* n rows of V from v on, row bytes apart; probability t of query i at p[i * ATTN_CHUNK + t]; sums
 * of query i at o[i * o_stride]. */
struct value_job {
    const uint8_t *v;
    size_t row;
    const float *p;
    int n, dim;
    float *o;
    int o_stride;
    struct stream ahead;
};

/* V vectors of a row; d: the scales of their groups, for KV_Q8_0. */
ALWAYS_INLINE void load_row(vec x[8], const uint8_t *v, const uint8_t *d, enum kv_type type,
                            const int P, const int V)
{
    const int per_group = ATTN_GROUP / VL;
    vec scale = vec_zero();

#pragma GCC unroll 8
    for (int u = 0; u < V; u++) {
        if (type == KV_Q8_0 && (u == 0 || (P + u) % per_group == 0))
            scale = vec_set1_f16(d + (P + u) / per_group * 2);
        x[u] = load_kv(v + (size_t)(VL * u) * kv_size(type), type, scale);
    }
}

/* Dimensions [j, j + V * VL) of W queries; P: vectors of the first one's group before it. */
ALWAYS_INLINE void values_block(struct value_job *job, int j, enum kv_type type, const int W,
                                const int V, const int P)
{
    const uint8_t *d = job->v + j / ATTN_GROUP * 2;
    const uint8_t *v = job->v + (size_t)j * kv_size(type) +
                       (type == KV_Q8_0 ? job->dim / ATTN_GROUP * 2 : 0);
    const float *p = job->p;
    const size_t row = job->row;
    const int n = job->n;
    float *o = job->o + j;
    struct stream ahead = job->ahead;
    vec acc[ATTN_BLOCK][8], x[8];

#pragma GCC unroll 8
    for (int i = 0; i < W; i++)
#pragma GCC unroll 8
        for (int u = 0; u < V; u++)
            acc[i][u] = vec_load(o + i * job->o_stride + VL * u);
    for (int t = 0; t < n; t++) {
        load_row(x, v, d, type, P, V);
#pragma GCC unroll 8
        for (int i = 0; i < W; i++) {
            const vec pt = vec_set1(p[i * ATTN_CHUNK + t]);
#pragma GCC unroll 8
            for (int u = 0; u < V; u++)
                acc[i][u] = vec_fma(pt, x[u], acc[i][u]);
        }
        stream_step(&ahead, block_lines(W, type));
        v += row;
        d += row;
    }
    job->ahead = ahead;
#pragma GCC unroll 8
    for (int i = 0; i < W; i++)
#pragma GCC unroll 8
        for (int u = 0; u < V; u++)
            vec_store(o + i * job->o_stride + VL * u, acc[i][u]);
}

/* The last dimensions, fewer than a vector; KV_Q8_0 has none. Sums have room for a whole one. */
static void values_rest(const struct value_job *job, int j, enum kv_type type, int W)
{
    const uint8_t *v = job->v + (size_t)j * kv_size(type);
    float x[VL] = {0};

    for (int t = 0; t < job->n; t++, v += job->row) {
        for (int i = 0; i < job->dim - j; i++) {
            uint16_t h;
            memcpy(&h, v + i * 2, sizeof h);
            x[i] = math_from_f16(h);
            if (type == KV_F32)
                memcpy(&x[i], v + i * 4, sizeof x[i]);
        }
        for (int i = 0; i < W; i++) {
            float *o = job->o + i * job->o_stride + j;
            vec_store(o, vec_fma(vec_set1(job->p[i * ATTN_CHUNK + t]), vec_load(x), vec_load(o)));
        }
    }
}

/* Three vectors of sixteen may begin in the middle of a group of KV_Q8_0; blocks of a power of two
 * lie in one group or begin with one. */
ALWAYS_INLINE void values_place(struct value_job *job, int j, enum kv_type type, const int W,
                                const int V)
{
    if (type == KV_Q8_0 && V == 3 && j % ATTN_GROUP != 0)
        values_block(job, j, type, W, V, ATTN_GROUP / VL / 2);
    else
        values_block(job, j, type, W, V, 0);
}

ALWAYS_INLINE void values_queries(struct value_job *job, enum kv_type type, const int W)
{
    const int V = block_vecs(W), dim = job->dim;
    int j = 0;

    for (; j + V * VL <= dim; j += V * VL)
        values_place(job, j, type, W, V);
    if (V > 4 && j + 4 * VL <= dim) {
        values_place(job, j, type, W, 4);
        j += 4 * VL;
    }
    if (V > 2 && j + 2 * VL <= dim) {
        values_place(job, j, type, W, 2);
        j += 2 * VL;
    }
    if (j + VL <= dim) {
        values_place(job, j, type, W, 1);
        j += VL;
    }
    if (type != KV_Q8_0 && j < dim)
        values_rest(job, j, type, W);
}

ALWAYS_INLINE void values_type(struct value_job *job, int w, enum kv_type type)
{
    for (int n; w > 0; w -= n, job->p += n * ATTN_CHUNK, job->o += n * job->o_stride) {
        n = block_queries(w);
        switch (n) {
#define CASE(count)                                                                                \
    case count:                                                                                    \
        values_queries(job, type, count);                                                          \
        break;
            EACH_WIDTH(CASE)
#undef CASE
        }
    }
}

static void values_simd(const struct attn_args *a, const float *p, int w, int t0, int n, float *o,
                        int o_stride, struct attn_ahead ahead)
{
    const size_t row = attn_row_bytes(a->v_type, a->dim_v);
    const int W = block_queries(w), V = block_vecs(W);
    const int passes = (a->dim_v + V * VL - 1) / (V * VL) * ((w + W - 1) / W);
    struct value_job job = {.v = (const uint8_t *)a->v + (size_t)t0 * row,
                            .row = row,
                            .dim = a->dim_v,
                            .o_stride = o_stride,
                            .ahead = stream_new(&ahead, p, passes * n * block_lines(W, a->v_type))};

    for (int t = 0; t < n; t += VALUE_ROWS, job.v += VALUE_ROWS * row) {
        job.n = n - t < VALUE_ROWS ? n - t : VALUE_ROWS;
        job.p = p + t;
        job.o = o;
        if (a->v_type == KV_F32)
            values_type(&job, w, KV_F32);
        else if (a->v_type == KV_F16)
            values_type(&job, w, KV_F16);
        else
            values_type(&job, w, KV_Q8_0);
    }
}

ATTN_LEVEL(simd)

#endif
