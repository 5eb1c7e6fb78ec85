/* float_neon.c: the float operations for 64-bit Arm.
 *
 * Everything but attention's two products and the F16 stores is float_body.h, as in float_scalar.c:
 * fma over sixteen lanes is in the baseline, and the compiler uses it. Attention is bound by fma: a
 * block is HEADS x VECS sixteen-lane accumulators, sixteen registers in all, which covers the
 * latency of any core; each loaded key (value) is shared by the block's heads, each query
 * (probability) by its vectors. Inside one accumulator lane the order is the definition's: j rising
 * for scores, t rising for values. */
#include <arm_neon.h>

#include "kernels/attention_body.h"
#include "kernels/float_body.h"
#include "kernels/levels.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* Sixteen values of a cache of either type, as four vectors. */
ALWAYS_INLINE void load16(float32x4_t x[4], const void *base, size_t i, enum kv_type type)
{
    const float *f = (const float *)base + i;
    const uint16_t *h = (const uint16_t *)base + i;

#pragma GCC unroll 4
    for (int j = 0; j < 4; j++)
        x[j] = type == KV_F32 ? vld1q_f32(f + 4 * j)
                              : vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(h + 4 * j)));
}

/* acc = fma(s, x, acc), sixteen lanes. */
ALWAYS_INLINE void fma16(float32x4_t acc[4], float s, const float32x4_t x[4])
{
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++)
        acc[j] = vfmaq_n_f32(acc[j], x[j], s);
}

ALWAYS_INLINE void store16(float *p, const float32x4_t x[4])
{
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++)
        vst1q_f32(p + 4 * j, x[j]);
}

ALWAYS_INLINE void zero16(float32x4_t x[4])
{
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++)
        x[j] = vdupq_n_f32(0);
}

/* Scores of `heads` heads with `vecs` tiles at k; s: of the first head and tile. */
ALWAYS_INLINE void scores_block(const float *q, size_t q_stride, const void *k, int dim,
                                enum kv_type type, float *s, const int heads, const int vecs)
{
    float32x4_t acc[4][4][4], x[4];

#pragma GCC unroll 16
    for (int i = 0; i < heads * vecs; i++)
        zero16(acc[i / vecs][i % vecs]);
    for (int j = 0; j < dim; j++) {
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++) {
            load16(x, k, ((size_t)v * (size_t)dim + (size_t)j) * 16, type);
#pragma GCC unroll 4
            for (int h = 0; h < heads; h++)
                fma16(acc[h][v], q[(size_t)h * q_stride + (size_t)j], x);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < heads * vecs; i++)
        store16(s + i / vecs * ATTN_CHUNK + i % vecs * 16, acc[i / vecs][i % vecs]);
}

/* Heads [h, h + heads) over n_tiles tiles at k: blocks of 4 / heads tiles, then single ones. */
ALWAYS_INLINE void scores_heads(const struct attn_args *a, int h, const void *k, int n_tiles,
                                float *s, enum kv_type type, const int heads)
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

ALWAYS_INLINE void scores_all(const struct attn_args *a, int tile0, int n_tiles, float *s,
                              enum kv_type type)
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

static void scores_neon(const struct attn_args *a, int tile0, int n_tiles, float *s)
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
ALWAYS_INLINE void values_block(const struct value_args *a, int h, int j, enum kv_type type,
                                const int heads, const int vecs)
{
    const float *p = a->p + (size_t)h * ATTN_CHUNK;
    float *o = a->o + (size_t)h * (size_t)a->o_stride + j;
    float32x4_t acc[4][4][4], x[4];

#pragma GCC unroll 16
    for (int i = 0; i < heads * vecs; i++)
        zero16(acc[i / vecs][i % vecs]);
    for (int t = 0; t < a->n; t++) {
        const size_t at = (size_t)t * (size_t)a->dim + (size_t)j;
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++) {
            load16(x, a->v, at + (size_t)v * 16, type);
#pragma GCC unroll 4
            for (int g = 0; g < heads; g++)
                fma16(acc[g][v], p[g * ATTN_CHUNK + t], x);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < heads * vecs; i++)
        store16(o + (size_t)(i / vecs) * (size_t)a->o_stride + i % vecs * 16,
                acc[i / vecs][i % vecs]);
}

/* Dimension j of one head, for dimensions that are no multiple of sixteen. */
static float value_one(const struct value_args *a, int h, int j, enum kv_type type)
{
    const float *p = a->p + (size_t)h * ATTN_CHUNK;
    float o = 0;

    for (int t = 0; t < a->n; t++) {
        const size_t at = (size_t)t * (size_t)a->dim + (size_t)j;
        const float v = type == KV_F32 ? ((const float *)(const void *)a->v)[at]
                                       : math_from_f16(((const uint16_t *)(const void *)a->v)[at]);
        o = fmaf(p[t], v, o);
    }
    return o;
}

ALWAYS_INLINE void values_heads(const struct value_args *a, int h, enum kv_type type,
                                const int heads)
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

ALWAYS_INLINE void values_all(const struct value_args *a, int n_q, enum kv_type type)
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

static void values_neon(const struct attn_args *a, const float *p, int lo, int hi, float *o,
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

static void attention_neon(const struct attn_args *a)
{
    attn_run(a, scores_neon, values_neon);
}

/* Four F16, to nearest even. */
ALWAYS_INLINE uint16x4_t to_f16(float32x4_t x)
{
    return vreinterpret_u16_f16(vcvt_f16_f32(x));
}

static void store_k_neon(const float *k, int dim, void *head_base, int pos, enum kv_type type)
{
    const size_t at = (size_t)(pos / 16) * (size_t)dim * 16 + (size_t)(pos % 16);
    int j = 0;

    if (type == KV_F32) {
        float *p = (float *)head_base + at;
        for (; j < dim; j++)
            p[(size_t)j * 16] = k[j];
        return;
    }
    uint16_t *p = (uint16_t *)head_base + at;
    for (; j + 4 <= dim; j += 4) {
        const uint16x4_t h = to_f16(vld1q_f32(k + j));
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            p[(size_t)(j + i) * 16] = h[i];
    }
    for (; j < dim; j++)
        p[(size_t)j * 16] = to_f16(vdupq_n_f32(k[j]))[0];
}

static void store_v_neon(const float *v, int dim, void *head_base, int pos, enum kv_type type)
{
    const size_t at = (size_t)pos * (size_t)dim;
    int j = 0;

    if (type == KV_F32) {
        memcpy((float *)head_base + at, v, (size_t)dim * sizeof *v);
        return;
    }
    uint16_t *p = (uint16_t *)head_base + at;
    for (; j + 4 <= dim; j += 4)
        vst1_u16(p + j, to_f16(vld1q_f32(v + j)));
    for (; j < dim; j++)
        p[j] = to_f16(vdupq_n_f32(v[j]))[0];
}

void kernels_float_neon(struct kernels *k)
{
    float_fill(k);
    k->attention = attention_neon;
    k->store_k = store_k_neon;
    k->store_v = store_v_neon;
}
