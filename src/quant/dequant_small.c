/* dequant_small.c: types with blocks of 32 to 128 values and float scales only. */
#include "quant/blocks.h"
#include "quant/dequant.h"
#include "quant/grids.h"
#include "quant/quant.h"

#include <string.h>

void quant_block_q4_0(const void *blk, float *y)
{
    const struct blk_q4_0 *b = blk;
    float d = quant_f16_to_f32(b->d);
    for (int j = 0; j < 16; j++) {
        y[j] = d * (float)((b->qs[j] & 15) - 8);
        y[j + 16] = d * (float)((b->qs[j] >> 4) - 8);
    }
}

void quant_block_q4_1(const void *blk, float *y)
{
    const struct blk_q4_1 *b = blk;
    float d = quant_f16_to_f32(b->d), m = quant_f16_to_f32(b->m);
    for (int j = 0; j < 16; j++) {
        y[j] = d * (float)(b->qs[j] & 15) + m;
        y[j + 16] = d * (float)(b->qs[j] >> 4) + m;
    }
}

/* Value i of a Q5_0 or Q5_1 block: 0 .. 31. */
static int five_bits(const uint8_t *qh, const uint8_t *qs, int i)
{
    int low = i < 16 ? qs[i] & 15 : qs[i - 16] >> 4;
    return low | (qh[i / 8] >> (i % 8) & 1) << 4;
}

void quant_block_q5_0(const void *blk, float *y)
{
    const struct blk_q5_0 *b = blk;
    float d = quant_f16_to_f32(b->d);
    for (int i = 0; i < 32; i++)
        y[i] = d * (float)(five_bits(b->qh, b->qs, i) - 16);
}

void quant_block_q5_1(const void *blk, float *y)
{
    const struct blk_q5_1 *b = blk;
    float d = quant_f16_to_f32(b->d), m = quant_f16_to_f32(b->m);
    for (int i = 0; i < 32; i++)
        y[i] = d * (float)five_bits(b->qh, b->qs, i) + m;
}

void quant_block_q8_0(const void *blk, float *y)
{
    const struct blk_q8_0 *b = blk;
    float d = quant_f16_to_f32(b->d);
    for (int i = 0; i < 32; i++)
        y[i] = d * (float)b->qs[i];
}

void quant_block_iq4_nl(const void *blk, float *y)
{
    const struct blk_iq4_nl *b = blk;
    float d = quant_f16_to_f32(b->d);
    for (int j = 0; j < 16; j++) {
        y[j] = d * (float)quant_iq4_values[b->qs[j] & 15];
        y[j + 16] = d * (float)quant_iq4_values[b->qs[j] >> 4];
    }
}

void quant_block_mxfp4(const void *blk, float *y)
{
    const struct blk_mxfp4 *b = blk;
    /* 2^(e - 128), subnormal for e < 2: half of the E8M0 scale, since the values are doubled */
    uint32_t bits = b->e < 2 ? UINT32_C(0x200000) << b->e : (uint32_t)(b->e - 1) << 23;
    float d;
    memcpy(&d, &bits, sizeof d);
    for (int j = 0; j < 16; j++) {
        y[j] = d * (float)quant_fp4_values[b->qs[j] & 15];
        y[j + 16] = d * (float)quant_fp4_values[b->qs[j] >> 4];
    }
}

/* Half of an unsigned E4M3 scale (bias 7, no infinity; the sign bit is ignored, NaN reads as 0). */
static float half_ue4m3(uint8_t s)
{
    int e = s >> 3 & 15, m = s & 7;
    if ((s & 0x7f) == 0x7f)
        return 0.0f;
    if (e == 0)
        return (float)m * 0x1p-10f;
    uint32_t bits = (uint32_t)(e - 8 + 127) << 23 | (uint32_t)m << 20;
    float d;
    memcpy(&d, &bits, sizeof d);
    return d;
}

void quant_block_nvfp4(const void *blk, float *y)
{
    const struct blk_nvfp4 *b = blk;
    for (int g = 0; g < 4; g++, y += 16) {
        float d = half_ue4m3(b->d[g]);
        for (int j = 0; j < 8; j++) {
            y[j] = d * (float)quant_fp4_values[b->qs[8 * g + j] & 15];
            y[j + 8] = d * (float)quant_fp4_values[b->qs[8 * g + j] >> 4];
        }
    }
}

void quant_block_q1_0(const void *blk, float *y)
{
    const struct blk_q1_0 *b = blk;
    float d = quant_f16_to_f32(b->d);
    for (int i = 0; i < 128; i++)
        y[i] = b->qs[i / 8] >> (i % 8) & 1 ? d : -d;
}

void quant_block_q2_0(const void *blk, float *y)
{
    const struct blk_q2_0 *b = blk;
    float d = quant_f16_to_f32(b->d);
    for (int i = 0; i < 64; i++)
        y[i] = d * (float)((b->qs[i / 4] >> (2 * (i % 4)) & 3) - 1);
}
