/* float_scalar.c: the float operations at the level that every machine has: the definition.
 *
 * The sequences of operations stand in float_body.h, math32.h and attention_body.h. Loops are over
 * sixteen lanes, so that where fma is a baseline instruction (64-bit Arm) this is vector code too.
 */
#include "base/size.h"
#include "kernels/attention_body.h"
#include "kernels/float_body.h"
#include "kernels/levels.h"
#include "quant/quant.h"

enum { HEADS_AT_ONCE = 8 }; /* accumulators of that many heads share each loaded key or value */

/* Sixteen neighbours of a cache of either type. */
static inline void load_kv(float x[16], const void *base, size_t i, enum kv_type type)
{
    if (type == KV_F32) {
        memcpy(x, (const float *)base + i, 16 * sizeof *x);
        return;
    }
    uint16_t h[16];
    memcpy(h, (const uint16_t *)base + i, sizeof h);
    for (int j = 0; j < 16; j++)
        x[j] = math_from_f16(h[j]);
}

static void scores_scalar(const struct attn_args *a, int tile0, int n_tiles, float *s)
{
    float acc[HEADS_AT_ONCE][16], k[16];

    for (int h0 = 0; h0 < a->n_q; h0 += HEADS_AT_ONCE) {
        const int n = a->n_q - h0 < HEADS_AT_ONCE ? a->n_q - h0 : HEADS_AT_ONCE;
        const float *q = a->q + (size_t)h0 * a->q_stride;
        for (int t = 0; t < n_tiles; t++) {
            const size_t row = (size_t)(tile0 + t) * (size_t)a->dim_k;
            memset(acc, 0, sizeof acc);
            for (int j = 0; j < a->dim_k; j++) {
                load_kv(k, a->k, (row + (size_t)j) * 16, a->k_type);
                for (int h = 0; h < n; h++) {
                    const float qj = q[(size_t)h * a->q_stride + (size_t)j];
                    for (int i = 0; i < 16; i++)
                        acc[h][i] = fmaf(qj, k[i], acc[h][i]);
                }
            }
            for (int h = 0; h < n; h++)
                memcpy(s + (size_t)(h0 + h) * ATTN_CHUNK + t * 16, acc[h], sizeof acc[h]);
        }
    }
}

/* Values at [i, i + n) of a row, n <= 16, +0 behind them. */
static inline void load_kv_part(float x[16], const void *base, size_t i, int n, enum kv_type type)
{
    if (n >= 16) {
        load_kv(x, base, i, type);
        return;
    }
    memset(x, 0, 16 * sizeof *x);
    for (int j = 0; j < n; j++)
        x[j] = type == KV_F32 ? ((const float *)base)[i + (size_t)j]
                              : math_from_f16(((const uint16_t *)base)[i + (size_t)j]);
}

static void values_scalar(const struct attn_args *a, const float *p, int lo, int hi, float *o,
                          int o_stride)
{
    float acc[HEADS_AT_ONCE][16], v[16];

    for (int h0 = 0; h0 < a->n_q; h0 += HEADS_AT_ONCE) {
        const int n = a->n_q - h0 < HEADS_AT_ONCE ? a->n_q - h0 : HEADS_AT_ONCE;
        for (int j = 0; j < a->dim_v; j += 16) {
            memset(acc, 0, sizeof acc);
            for (int t = lo; t <= hi; t++) {
                const size_t at = (size_t)t * (size_t)a->dim_v + (size_t)j;
                load_kv_part(v, a->v, at, a->dim_v - j, a->v_type);
                for (int h = 0; h < n; h++) {
                    const float pt = p[(size_t)(h0 + h) * ATTN_CHUNK + (size_t)(t - lo)];
                    for (int i = 0; i < 16; i++)
                        acc[h][i] = fmaf(pt, v[i], acc[h][i]);
                }
            }
            for (int h = 0; h < n; h++)
                memcpy(o + (size_t)(h0 + h) * (size_t)o_stride + j, acc[h], sizeof acc[h]);
        }
    }
}

static void attention_scalar(const struct attn_args *a)
{
    attn_run(a, scores_scalar, values_scalar);
}

size_t kern_attn_scratch(int n_q, int dim_v)
{
    const size_t heads = n_q > 0 ? (size_t)n_q : 0, dim = dim_v > 0 ? (size_t)dim_v : 0;

    return (size_t)size_up(heads * (ATTN_CHUNK + size_up(dim, 16) + 4), 16);
}

/* F16 is rounded to nearest even. */
static void store_k_scalar(const float *k, int dim, void *head_base, int pos, enum kv_type type)
{
    const size_t at = (size_t)(pos / 16) * (size_t)dim * 16 + (size_t)(pos % 16);

    for (int j = 0; j < dim; j++)
        if (type == KV_F32)
            ((float *)head_base)[at + (size_t)j * 16] = k[j];
        else
            ((uint16_t *)head_base)[at + (size_t)j * 16] = quant_f32_to_f16(k[j]);
}

static void store_v_scalar(const float *v, int dim, void *head_base, int pos, enum kv_type type)
{
    const size_t at = (size_t)pos * (size_t)dim;

    if (type == KV_F32) {
        memcpy((float *)head_base + at, v, (size_t)dim * sizeof *v);
        return;
    }
    for (int j = 0; j < dim; j++)
        ((uint16_t *)head_base)[at + (size_t)j] = quant_f32_to_f16(v[j]);
}

void kernels_float_scalar(struct kernels *k)
{
    float_fill(k);
    k->attention = attention_scalar;
    k->store_k = store_k_scalar;
    k->store_v = store_v_scalar;
}
