/* mat_scalar_low.c: the definition of the products with Q2_K, Q3_K, TQ1_0 and TQ2_0 weights: blocks
 * of 256 values of two or three bits (mat_scalar_ints.h has the sequence of operations). */
#include "kernels/mat_scalar_ints.h"

/* Value 32 * s + j of each half of a block: bits 2 * s of byte j of its 32 bytes. */
static inline int bit_pair(const uint8_t *qs, int i)
{
    return qs[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
}

/* Groups of 16: scale in the low, minimum in the high nibble. */
static void ints_q2k(const uint8_t *blk, struct mat_ints *b)
{
    const struct blk_q2_K *w = (const void *)blk;

    b->d = quant_f16_to_f32(w->d);
    b->dmin = quant_f16_to_f32(w->dmin);
    for (int g = 0; g < 16; g++) {
        b->scale[g] = w->scales[g] & 15;
        b->min[g] = w->scales[g] >> 4;
    }
    for (int i = 0; i < 256; i++)
        b->v[i] = (int8_t)bit_pair(w->qs, i);
}

/* v = q - 4, whose third bit is bit i / 32 of hmask[i % 32]; scales - 32. */
static void ints_q3k(const uint8_t *blk, struct mat_ints *b)
{
    const struct blk_q3_K *w = (const void *)blk;
    uint32_t scales[4];

    mat_unpack_scales_q3k(w->scales, scales);
    b->d = quant_f16_to_f32(w->d);
    for (int g = 0; g < 16; g++)
        b->scale[g] = (int8_t)((int)(scales[g / 4] >> g % 4 * 8 & 63) - 32);
    for (int i = 0; i < 256; i++) {
        const int high = w->hmask[i % 32] >> i / 32 & 1;
        b->v[i] = (int8_t)((bit_pair(w->qs, i) | high << 2) - 4);
    }
}

/* Digit n of a byte that holds base-3 digits as a fraction of 256, minus one. */
static inline int8_t trit(uint8_t byte, int n)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    const uint8_t rest = (uint8_t)(byte * power[n]); /* modulo 256: earlier digits drop out */

    return (int8_t)((rest * 3 >> 8) - 1);
}

static void ints_tq1_0(const uint8_t *blk, struct mat_ints *b)
{
    const struct blk_tq1_0 *w = (const void *)blk;

    b->d = quant_f16_to_f32(w->d);
    memset(b->scale, 1, sizeof b->scale);
    for (int i = 0; i < 160; i++)
        b->v[i] = trit(w->qs[i % 32], i / 32);
    for (int i = 0; i < 80; i++)
        b->v[160 + i] = trit(w->qs[32 + i % 16], i / 16);
    for (int i = 0; i < 16; i++)
        b->v[240 + i] = trit(w->qh[i % 4], i / 4);
}

/* v = q - 1, up to 2. */
static void ints_tq2_0(const uint8_t *blk, struct mat_ints *b)
{
    const struct blk_tq2_0 *w = (const void *)blk;

    b->d = quant_f16_to_f32(w->d);
    memset(b->scale, 1, sizeof b->scale);
    for (int i = 0; i < 256; i++)
        b->v[i] = (int8_t)(bit_pair(w->qs, i) - 1);
}

MAT_OF_INTS(q2k, blk_q2_K, true)
MAT_OF_INTS(q3k, blk_q3_K, false)
MAT_OF_INTS(tq1_0, blk_tq1_0, false)
MAT_OF_INTS(tq2_0, blk_tq2_0, false)

void kernels_mat_scalar_low(struct kernels *k)
{
    k->mat[QT_Q2_K] = (struct mat_kernel){ACT_Q256, mat_q2k, mat_q2k};
    k->mat[QT_Q3_K] = (struct mat_kernel){ACT_Q256, mat_q3k, mat_q3k};
    k->mat[QT_TQ1_0] = (struct mat_kernel){ACT_Q256, mat_tq1_0, mat_tq1_0};
    k->mat[QT_TQ2_0] = (struct mat_kernel){ACT_Q256, mat_tq2_0, mat_tq2_0};
}
