/* dequant_k.c: super-blocks of 256 values with integer scales per group, and the ternary types. */
#include "quant/blocks.h"
#include "quant/dequant.h"
#include "quant/quant.h"

void quant_block_q2_K(const void *blk, float *y)
{
    const struct blk_q2_K *b = blk;
    float d = quant_f16_to_f32(b->d), dmin = quant_f16_to_f32(b->dmin);
    for (int i = 0; i < 256; i++) {
        uint8_t sc = b->scales[i / 16];
        float ds = d * (float)(sc & 15), dm = dmin * (float)(sc >> 4);
        int q = b->qs[i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4)) & 3;
        y[i] = ds * (float)q - dm;
    }
}

/* Scale g of 16: the low four bits are nibble g / 8 of byte g % 8, the high two are bits
 * 2 * (g / 4) of byte 8 + g % 4. */
static int q3_scale(const uint8_t *s, int g)
{
    int low = s[g % 8] >> (4 * (g / 8)) & 15;
    int high = s[8 + g % 4] >> (2 * (g / 4)) & 3;
    return (low | high << 4) - 32;
}

void quant_block_q3_K(const void *blk, float *y)
{
    const struct blk_q3_K *b = blk;
    float d = quant_f16_to_f32(b->d);
    for (int i = 0; i < 256; i++) {
        float ds = d * (float)q3_scale(b->scales, i / 16);
        int q = b->qs[i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4)) & 3;
        int high = b->hmask[i % 32] >> (i / 32) & 1;
        y[i] = ds * (float)(q + 4 * high - 4);
    }
}

/* Scale and minimum of group g of 8 (Q4_K, Q5_K): groups 0-3 are the low six bits of bytes g and
 * g + 4; groups 4-7 have their low nibbles in byte g + 4, their high two bits on top of bytes g - 4
 * and g. */
static void q4_scale(const uint8_t *s, int g, int *scale, int *min)
{
    if (g < 4) {
        *scale = s[g] & 63;
        *min = s[g + 4] & 63;
    } else {
        *scale = (s[g + 4] & 15) | s[g - 4] >> 6 << 4;
        *min = s[g + 4] >> 4 | s[g] >> 6 << 4;
    }
}

void quant_block_q4_K(const void *blk, float *y)
{
    const struct blk_q4_K *b = blk;
    float d = quant_f16_to_f32(b->d), dmin = quant_f16_to_f32(b->dmin);
    for (int g = 0; g < 8; g++) {
        int sc, m;
        q4_scale(b->scales, g, &sc, &m);
        float ds = d * (float)sc, dm = dmin * (float)m;
        for (int j = 0; j < 32; j++)
            y[32 * g + j] = ds * (float)(b->qs[g / 2 * 32 + j] >> (4 * (g % 2)) & 15) - dm;
    }
}

void quant_block_q5_K(const void *blk, float *y)
{
    const struct blk_q5_K *b = blk;
    float d = quant_f16_to_f32(b->d), dmin = quant_f16_to_f32(b->dmin);
    for (int g = 0; g < 8; g++) {
        int sc, m;
        q4_scale(b->scales, g, &sc, &m);
        float ds = d * (float)sc, dm = dmin * (float)m;
        for (int j = 0; j < 32; j++) {
            int q = (b->qs[g / 2 * 32 + j] >> (4 * (g % 2)) & 15) | (b->qh[j] >> g & 1) << 4;
            y[32 * g + j] = ds * (float)q - dm;
        }
    }
}

void quant_block_q6_K(const void *blk, float *y)
{
    const struct blk_q6_K *b = blk;
    float d = quant_f16_to_f32(b->d);
    for (int i = 0; i < 256; i++) {
        int half = i / 128, s = i / 32 % 4;
        int low = b->ql[64 * half + i % 64] >> (4 * (s / 2)) & 15;
        int high = b->qh[32 * half + i % 32] >> (2 * s) & 3;
        y[i] = d * (float)b->scales[i / 16] * (float)((low | high << 4) - 32);
    }
}

void quant_block_q8_K(const void *blk, float *y)
{
    const struct blk_q8_K *b = blk;
    for (int i = 0; i < 256; i++)
        y[i] = b->d * (float)b->qs[i];
}

/* Digit n of a byte that holds base-3 digits as a fraction of 256, minus one. */
static int trit(uint8_t byte, int n)
{
    static const uint8_t pow3[5] = {1, 3, 9, 27, 81};
    uint8_t rest = (uint8_t)(byte * pow3[n]); /* modulo 256: the digits above drop out */
    return (rest * 3 >> 8) - 1;
}

void quant_block_tq1_0(const void *blk, float *y)
{
    const struct blk_tq1_0 *b = blk;
    float d = quant_f16_to_f32(b->d);
    for (int i = 0; i < 160; i++)
        y[i] = d * (float)trit(b->qs[i % 32], i / 32);
    for (int i = 0; i < 80; i++)
        y[160 + i] = d * (float)trit(b->qs[32 + i % 16], i / 16);
    for (int i = 0; i < 16; i++)
        y[240 + i] = d * (float)trit(b->qh[i % 4], i / 4);
}

void quant_block_tq2_0(const void *blk, float *y)
{
    const struct blk_tq2_0 *b = blk;
    float d = quant_f16_to_f32(b->d);
    for (int i = 0; i < 256; i++)
        y[i] = d * (float)((b->qs[i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4)) & 3) - 1);
}
