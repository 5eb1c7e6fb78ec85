/* attention_store.h: keys and values into the cache, compiled once per CPU level.
 *
 * F16 rounds to nearest even. Q8_0, per 32 values: d = f16(max |x| / 127), q = nearest even of x /
 * d clamped to +-127, 0 where d is 0; with a value that is not finite d is NaN and every q 0, so
 * that what is read is NaN.
 *
 * The including file may define ATTN_TO_F16(x), which rounds a float to F16 bits, faster than the
 * definition does. */
#ifndef KERNELS_ATTENTION_STORE_H
#define KERNELS_ATTENTION_STORE_H

#include "kernels/attention.h"
#include "kernels/math32.h"
#include "quant/quant.h"

#ifndef ATTN_TO_F16
#define ATTN_TO_F16(x) quant_f32_to_f16(x)
#endif

/* 32 values to q; returns d as F16 bits. */
static uint16_t attn_quantise(const float *x, int8_t *q)
{
    uint32_t max = 0;
    int32_t n[ATTN_GROUP];

    for (int i = 0; i < ATTN_GROUP; i++) {
        const uint32_t u = math_bits(x[i]) & 0x7fffffff;
        max = u > max ? u : max;
    }
    const uint16_t d = max < 0x7f800000 ? ATTN_TO_F16(math_from_bits(max) / 127.0f) : 0x7e00;
    const float scale = math_from_f16(d);
    memset(q, 0, ATTN_GROUP);
    if (d == 0 || d >= 0x7c00)
        return d;
    for (int i = 0; i < ATTN_GROUP; i++) {
        const float y = x[i] / scale;
        const float z = y > 127.0f ? 127.0f : y;
        const float c = z < -127.0f ? -127.0f : z;
        n[i] = (int32_t)(math_bits(c + MATH_ROUND) - math_bits(MATH_ROUND));
    }
    for (int i = 0; i < ATTN_GROUP; i++)
        q[i] = (int8_t)n[i];
    return d;
}

static void attn_store_k(const float *k, int dim, void *head_base, int pos, enum kv_type type)
{
    uint8_t *tile = (uint8_t *)head_base + (size_t)(pos / 16) * attn_tile_bytes(type, dim);
    const int lane = pos % 16;

    if (type == KV_Q8_0) {
        for (int j = 0; j < dim; j += ATTN_GROUP, tile += ATTN_TILE_GROUP) {
            int8_t q[ATTN_GROUP];
            const uint16_t d = attn_quantise(k + j, q);
            memcpy(tile + lane * 2, &d, sizeof d);
            for (int i = 0; i < ATTN_GROUP; i++)
                tile[32 + i * 16 + lane] = (uint8_t)q[i];
        }
        return;
    }
    for (int j = 0; j < dim; j++) {
        const size_t at = (size_t)j * 16 + (size_t)lane;
        if (type == KV_F32) {
            memcpy(tile + at * 4, k + j, 4);
        } else {
            const uint16_t h = ATTN_TO_F16(k[j]);
            memcpy(tile + at * 2, &h, sizeof h);
        }
    }
}

static void attn_store_v(const float *v, int dim, void *head_base, int pos, enum kv_type type)
{
    uint8_t *row = (uint8_t *)head_base + (size_t)pos * attn_row_bytes(type, dim);

    if (type == KV_F32) {
        memcpy(row, v, (size_t)dim * sizeof *v);
        return;
    }
    if (type == KV_Q8_0) {
        uint8_t *values = row + dim / ATTN_GROUP * 2;
        for (int j = 0; j < dim; j += ATTN_GROUP, row += 2) {
            const uint16_t d = attn_quantise(v + j, (int8_t *)values + j);
            memcpy(row, &d, sizeof d);
        }
        return;
    }
    for (int j = 0; j < dim; j++) {
        const uint16_t h = ATTN_TO_F16(v[j]);
        memcpy(row + (size_t)j * 2, &h, sizeof h);
    }
}

#endif
