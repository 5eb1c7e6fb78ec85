/* float_avx2.c: the float operations for CPUs with AVX2, FMA and F16C.
 *
 * Everything but attention's two products and the F16 stores is float_body.h, compiled for these
 * CPUs. Attention is bound by fma: a block is HEADS x VECS sixteen-lane accumulators, eight
 * registers in all, which is what two fma units of latency four want; each loaded key (value) is
 * shared by the block's heads, each broadcast query (probability) by its vectors. Inside one
 * accumulator lane the order is the definition's: j rising for scores, t rising for values. */
#include <immintrin.h>

#include "kernels/attention_body.h"
#include "kernels/float_body.h"
#include "kernels/levels.h"

/* Sixteen values of a cache of either type, as two vectors. */
static inline __attribute__((always_inline)) void load16(__m256 x[2], const void *base, size_t i,
                                                         enum kv_type type)
{
    if (type == KV_F32) {
        const float *p = (const float *)base + i;
        x[0] = _mm256_loadu_ps(p);
        x[1] = _mm256_loadu_ps(p + 8);
    } else {
        const uint16_t *p = (const uint16_t *)base + i;
        x[0] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
        x[1] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)));
    }
}

/* Scores of `heads` heads with `vecs` tiles at k; s: of the first head and tile. */
static inline __attribute__((always_inline)) void scores_block(const float *q, size_t q_stride,
                                                               const void *k, int dim,
                                                               enum kv_type type, float *s,
                                                               const int heads, const int vecs)
{
    __m256 acc[4][4][2], x[4][2];

    for (int h = 0; h < heads; h++)
        for (int v = 0; v < vecs; v++)
            acc[h][v][0] = acc[h][v][1] = _mm256_setzero_ps();
    for (int j = 0; j < dim; j++) {
        for (int v = 0; v < vecs; v++)
            load16(x[v], k, ((size_t)v * (size_t)dim + (size_t)j) * 16, type);
        for (int h = 0; h < heads; h++) {
            const __m256 qj = _mm256_broadcast_ss(q + (size_t)h * q_stride + j);
            for (int v = 0; v < vecs; v++) {
                acc[h][v][0] = _mm256_fmadd_ps(qj, x[v][0], acc[h][v][0]);
                acc[h][v][1] = _mm256_fmadd_ps(qj, x[v][1], acc[h][v][1]);
            }
        }
    }
    for (int h = 0; h < heads; h++)
        for (int v = 0; v < vecs; v++) {
            _mm256_storeu_ps(s + h * ATTN_CHUNK + v * 16, acc[h][v][0]);
            _mm256_storeu_ps(s + h * ATTN_CHUNK + v * 16 + 8, acc[h][v][1]);
        }
}

/* Heads [h, h + heads) over n_tiles tiles at k: blocks of 4 / heads tiles, then single ones. */
static inline __attribute__((always_inline)) void scores_heads(const struct attn_args *a, int h,
                                                               const void *k, int n_tiles, float *s,
                                                               enum kv_type type, const int heads)
{
    const int vecs = 4 / heads;
    const float *q = a->q + (size_t)h * a->q_stride;
    const size_t tile_bytes = (size_t)a->dim_k * 16 * (type == KV_F32 ? 4 : 2);
    const uint8_t *p = k;
    int t = 0;

    s += (size_t)h * ATTN_CHUNK;
    for (; t + vecs <= n_tiles; t += vecs, p += (size_t)vecs * tile_bytes)
        scores_block(q, a->q_stride, p, a->dim_k, type, s + t * 16, heads, vecs);
    for (; t < n_tiles; t++, p += tile_bytes)
        scores_block(q, a->q_stride, p, a->dim_k, type, s + t * 16, heads, 1);
}

static inline __attribute__((always_inline)) void
scores_all(const struct attn_args *a, int tile0, int n_tiles, float *s, enum kv_type type)
{
    const size_t tile_bytes = (size_t)a->dim_k * 16 * (type == KV_F32 ? 4 : 2);
    const uint8_t *k = (const uint8_t *)a->k + (size_t)tile0 * tile_bytes;
    int h = 0;

    for (; a->n_q - h >= 4; h += 4)
        scores_heads(a, h, k, n_tiles, s, type, 4);
    if (a->n_q - h == 3)
        scores_heads(a, h, k, n_tiles, s, type, 3);
    else if (a->n_q - h == 2)
        scores_heads(a, h, k, n_tiles, s, type, 2);
    else if (a->n_q - h == 1)
        scores_heads(a, h, k, n_tiles, s, type, 1);
}

static void scores_avx2(const struct attn_args *a, int tile0, int n_tiles, float *s)
{
    if (a->k_type == KV_F32)
        scores_all(a, tile0, n_tiles, s, KV_F32);
    else
        scores_all(a, tile0, n_tiles, s, KV_F16);
}

/* One chunk's values and probabilities: v is row lo, p[head * ATTN_CHUNK + t], t < n. */
struct value_args {
    const uint8_t *v;
    const float *p;
    float *o;
    int n, dim, o_stride;
};

/* o of `heads` heads from h on, dimensions [j, j + 16 * vecs). */
static inline __attribute__((always_inline)) void values_block(const struct value_args *a, int h,
                                                               int j, enum kv_type type,
                                                               const int heads, const int vecs)
{
    const float *p = a->p + (size_t)h * ATTN_CHUNK;
    float *o = a->o + (size_t)h * (size_t)a->o_stride + j;
    __m256 acc[4][4][2], x[4][2];

    for (int g = 0; g < heads; g++)
        for (int v = 0; v < vecs; v++)
            acc[g][v][0] = acc[g][v][1] = _mm256_setzero_ps();
    for (int t = 0; t < a->n; t++) {
        const size_t at = (size_t)t * (size_t)a->dim + (size_t)j;
        for (int v = 0; v < vecs; v++)
            load16(x[v], a->v, at + (size_t)v * 16, type);
        for (int g = 0; g < heads; g++) {
            const __m256 pt = _mm256_broadcast_ss(p + g * ATTN_CHUNK + t);
            for (int v = 0; v < vecs; v++) {
                acc[g][v][0] = _mm256_fmadd_ps(pt, x[v][0], acc[g][v][0]);
                acc[g][v][1] = _mm256_fmadd_ps(pt, x[v][1], acc[g][v][1]);
            }
        }
    }
    for (int g = 0; g < heads; g++)
        for (int v = 0; v < vecs; v++) {
            _mm256_storeu_ps(o + (size_t)g * (size_t)a->o_stride + v * 16, acc[g][v][0]);
            _mm256_storeu_ps(o + (size_t)g * (size_t)a->o_stride + v * 16 + 8, acc[g][v][1]);
        }
}

/* Dimension j of one head, for dimensions that are no multiple of sixteen. */
static float value_one(const struct value_args *a, int h, int j, enum kv_type type)
{
    const float *p = a->p + (size_t)h * ATTN_CHUNK;
    float o = 0;

    for (int t = 0; t < a->n; t++) {
        const size_t at = (size_t)t * (size_t)a->dim + (size_t)j;
        const float v = type == KV_F32 ? ((const float *)a->v)[at]
                                       : _cvtsh_ss(((const uint16_t *)a->v)[at]);
        o = fmaf(p[t], v, o);
    }
    return o;
}

static inline __attribute__((always_inline)) void values_heads(const struct value_args *a, int h,
                                                               enum kv_type type, const int heads)
{
    const int vecs = 4 / heads;
    int j = 0;

    for (; j + 16 * vecs <= a->dim; j += 16 * vecs)
        values_block(a, h, j, type, heads, vecs);
    for (; j + 16 <= a->dim; j += 16)
        values_block(a, h, j, type, heads, 1);
    for (; j < a->dim; j++)
        for (int g = h; g < h + heads; g++)
            a->o[(size_t)g * (size_t)a->o_stride + (size_t)j] = value_one(a, g, j, type);
}

static inline __attribute__((always_inline)) void values_all(const struct value_args *a, int n_q,
                                                             enum kv_type type)
{
    int h = 0;

    for (; n_q - h >= 4; h += 4)
        values_heads(a, h, type, 4);
    if (n_q - h == 3)
        values_heads(a, h, type, 3);
    else if (n_q - h == 2)
        values_heads(a, h, type, 2);
    else if (n_q - h == 1)
        values_heads(a, h, type, 1);
}

static void values_avx2(const struct attn_args *a, const float *p, int lo, int hi, float *o,
                        int o_stride)
{
    const size_t row_bytes = (size_t)a->dim_v * (a->v_type == KV_F32 ? 4 : 2);
    const struct value_args va = {
        (const uint8_t *)a->v + (size_t)lo * row_bytes, p, o, hi - lo + 1, a->dim_v, o_stride};

    if (a->v_type == KV_F32)
        values_all(&va, a->n_q, KV_F32);
    else
        values_all(&va, a->n_q, KV_F16);
}

static void attention_avx2(const struct attn_args *a)
{
    attn_run(a, scores_avx2, values_avx2);
}

static uint16_t to_f16(float x)
{
    return (uint16_t)_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
}

static void store_k_avx2(const float *k, int dim, void *head_base, int pos, enum kv_type type)
{
    const size_t at = (size_t)(pos / 16) * (size_t)dim * 16 + (size_t)(pos % 16);

    if (type == KV_F32) {
        float *p = (float *)head_base + at;
        for (int j = 0; j < dim; j++)
            p[(size_t)j * 16] = k[j];
        return;
    }
    uint16_t *p = (uint16_t *)head_base + at;
    for (int j = 0; j < dim; j++)
        p[(size_t)j * 16] = to_f16(k[j]);
}

static void store_v_avx2(const float *v, int dim, void *head_base, int pos, enum kv_type type)
{
    const size_t at = (size_t)pos * (size_t)dim;
    int j = 0;

    if (type == KV_F32) {
        memcpy((float *)head_base + at, v, (size_t)dim * sizeof *v);
        return;
    }
    uint16_t *p = (uint16_t *)head_base + at;
    for (; j + 8 <= dim; j += 8)
        _mm_storeu_si128((__m128i *)(p + j),
                         _mm256_cvtps_ph(_mm256_loadu_ps(v + j), _MM_FROUND_TO_NEAREST_INT));
    for (; j < dim; j++)
        p[j] = to_f16(v[j]);
}

void kernels_float_avx2(struct kernels *k)
{
    float_fill(k);
    k->attention = attention_avx2;
    k->store_k = store_k_avx2;
    k->store_v = store_v_avx2;
}
