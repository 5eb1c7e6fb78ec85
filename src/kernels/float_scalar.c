/* float_scalar.c: the float operations at the level that every machine has: the definition.
 *
 * The sequences of operations stand in float_body.h, math32.h and attention_body.h. Loops are over
 * sixteen lanes, so that where fma is a baseline instruction (64-bit Arm) this is vector code too.
 */
#include "kernels/attention_body.h"
#include "kernels/float_body.h"
#include "kernels/levels.h"
#include "quant/quant.h"

/* Sixteen values; scales (sixteen of them) only for KV_Q8_0. */
static inline __attribute__((always_inline)) void load16(float x[16], const uint8_t *p,
                                                         enum kv_type type, const float *scales)
{
    if (type == KV_F32) {
        memcpy(x, p, 16 * sizeof *x);
    } else if (type == KV_F16) {
        uint16_t h[16];
        memcpy(h, p, sizeof h);
        for (int j = 0; j < 16; j++)
            x[j] = math_from_f16(h[j]);
    } else {
        int8_t q[16];
        memcpy(q, p, sizeof q);
        for (int j = 0; j < 16; j++)
            x[j] = (float)q[j] * scales[j];
    }
}

/* Scores of W queries, w apart in q, with the tile at k. */
static inline __attribute__((always_inline)) void scores_tile(const float *q, int w,
                                                              const uint8_t *k, int dim,
                                                              enum kv_type type, float *s,
                                                              const int W)
{
    const int group = type == KV_Q8_0 ? ATTN_GROUP : dim;
    float acc[4][16] = {{0}}, x[16], scales[16] = {0};

    for (int g = 0; g < dim; g += group) {
        if (type == KV_Q8_0) {
            load16(scales, k, KV_F16, NULL);
            k += 32;
        }
        for (int j = 0; j < group; j++, q += w) {
            load16(x, k, type, scales);
            k += type == KV_F32 ? 64 : type == KV_F16 ? 32 : 16;
#pragma GCC unroll 4
            for (int i = 0; i < W; i++)
                for (int lane = 0; lane < 16; lane++)
                    acc[i][lane] = fmaf(q[i], x[lane], acc[i][lane]);
        }
    }
    for (int i = 0; i < W; i++)
        memcpy(s + i * ATTN_CHUNK, acc[i], sizeof acc[i]);
}

static inline __attribute__((always_inline)) void scores_type(const struct attn_args *a,
                                                              const float *q, int w, int tile0,
                                                              int n_tiles, float *s,
                                                              enum kv_type type)
{
    const size_t bytes = attn_tile_bytes(type, a->dim_k);
    const uint8_t *k = (const uint8_t *)a->k + (size_t)tile0 * bytes;

    for (int t = 0; t < n_tiles; t++, k += bytes) {
        int i = 0;
        for (; i + 4 <= w; i += 4)
            scores_tile(q + i, w, k, a->dim_k, type, s + i * ATTN_CHUNK + t * 16, 4);
        for (; i < w; i++)
            scores_tile(q + i, w, k, a->dim_k, type, s + i * ATTN_CHUNK + t * 16, 1);
    }
}

static void scores_scalar(const struct attn_args *a, const float *q, int w, int tile0, int n_tiles,
                          float *s, struct attn_ahead ahead)
{
    (void)ahead;
    if (a->k_type == KV_F32)
        scores_type(a, q, w, tile0, n_tiles, s, KV_F32);
    else if (a->k_type == KV_F16)
        scores_type(a, q, w, tile0, n_tiles, s, KV_F16);
    else
        scores_type(a, q, w, tile0, n_tiles, s, KV_Q8_0);
}

/* Dimensions [j, j + 16) of a row of V, +0 behind the last. */
static inline __attribute__((always_inline)) void load_row(float x[16], const uint8_t *row, int j,
                                                           int dim, enum kv_type type)
{
    const size_t size = type == KV_F32 ? 4 : type == KV_F16 ? 2 : 1;
    uint8_t part[64];
    float scales[16] = {0};

    if (type == KV_Q8_0) {
        uint16_t d;
        memcpy(&d, row + j / ATTN_GROUP * 2, sizeof d);
        for (int i = 0; i < 16; i++)
            scales[i] = math_from_f16(d);
        row += dim / ATTN_GROUP * 2;
    }
    row += (size_t)j * size;
    if (j + 16 > dim) {
        memset(part, 0, sizeof part);
        memcpy(part, row, (size_t)(dim - j) * size);
        row = part;
    }
    load16(x, row, type, scales);
}

/* Dimensions [j, j + 16) of W queries, n rows from v on. */
static inline __attribute__((always_inline)) void values_lanes(const uint8_t *v, int n, int dim,
                                                               int j, const float *p,
                                                               enum kv_type type, float *o,
                                                               int o_stride, const int W)
{
    const size_t row = attn_row_bytes(type, dim);
    float acc[4][16], x[16];

    for (int i = 0; i < W; i++)
        memcpy(acc[i], o + i * o_stride + j, sizeof acc[i]);
    for (int t = 0; t < n; t++, v += row) {
        load_row(x, v, j, dim, type);
#pragma GCC unroll 4
        for (int i = 0; i < W; i++)
            for (int lane = 0; lane < 16; lane++)
                acc[i][lane] = fmaf(p[i * ATTN_CHUNK + t], x[lane], acc[i][lane]);
    }
    for (int i = 0; i < W; i++)
        memcpy(o + i * o_stride + j, acc[i], sizeof acc[i]);
}

static inline __attribute__((always_inline)) void values_type(const struct attn_args *a,
                                                              const float *p, int w, int t0, int n,
                                                              float *o, int o_stride,
                                                              enum kv_type type)
{
    const int dim = a->dim_v;
    const uint8_t *v = (const uint8_t *)a->v + (size_t)t0 * attn_row_bytes(type, dim);

    for (int j = 0; j < dim; j += 16) {
        int i = 0;
        for (; i + 4 <= w; i += 4)
            values_lanes(v, n, dim, j, p + i * ATTN_CHUNK, type, o + i * o_stride, o_stride, 4);
        for (; i < w; i++)
            values_lanes(v, n, dim, j, p + i * ATTN_CHUNK, type, o + i * o_stride, o_stride, 1);
    }
}

static void values_scalar(const struct attn_args *a, const float *p, int w, int t0, int n, float *o,
                          int o_stride, struct attn_ahead ahead)
{
    (void)ahead;
    if (a->v_type == KV_F32)
        values_type(a, p, w, t0, n, o, o_stride, KV_F32);
    else if (a->v_type == KV_F16)
        values_type(a, p, w, t0, n, o, o_stride, KV_F16);
    else
        values_type(a, p, w, t0, n, o, o_stride, KV_Q8_0);
}

ATTN_LEVEL(scalar)

void kernels_float_scalar(struct kernels *k)
{
    float_fill(k);
    attention_fill(k);
}
