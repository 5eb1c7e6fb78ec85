/* quantise.c: floats to blocks by type; the blocks of 32 values with one scale. */
#include "quant/quantise.h"

#include "quant/blocks.h"
#include "quant/quant.h"

#include <string.h>

static quant_pack_fn *const pack_fns[QT_COUNT] = {
    [QT_Q4_0] = quant_pack_q4_0, [QT_Q8_0] = quant_pack_q8_0, [QT_Q2_K] = quant_pack_q2_K,
    [QT_Q3_K] = quant_pack_q3_K, [QT_Q4_K] = quant_pack_q4_K, [QT_Q5_K] = quant_pack_q5_K,
    [QT_Q6_K] = quant_pack_q6_K,
};

bool quant_has_quantiser(uint32_t type)
{
    return type < QT_COUNT && pack_fns[type] != NULL;
}

/* No type's block reaches 2^29 (Q6_K: 65504 * 128 * 32); below it no sum of squares overflows. */
static bool all_in_range(const float *x, size_t n)
{
    const uint32_t limit = (127u + 29) << 23;
    bool good = true;
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, x + i, sizeof u);
        good &= (u & 0x7fffffff) < limit;
    }
    return good;
}

bool quant_quantise(uint32_t type, const float *src, void *dst, size_t n)
{
    const struct quant_info *info = quant_type_info(type);
    if (!quant_has_quantiser(type) || n % info->block_values != 0 || !all_in_range(src, n))
        return false;
    uint8_t *blk = dst;
    for (size_t i = 0; i < n; i += info->block_values, blk += info->block_bytes)
        if (!pack_fns[type](src + i, blk))
            return false;
    return true;
}

/* Rounding a scale to binary16 moves it; the integers are those of the rounded one. */
bool quant_pack_q4_0(const float *x, void *blk)
{
    struct blk_q4_0 *b = blk;
    int8_t q[32];
    b->d = quant_f32_to_f16(quant_fit_signed(x, 32, -8, 7));
    quant_round_signed(x, 32, quant_f16_to_f32(b->d), -8, 7, q, NULL);
    for (int j = 0; j < 16; j++)
        b->qs[j] = (uint8_t)((q[j] + 8) | (q[j + 16] + 8) << 4);
    return (b->d & 0x7c00) != 0x7c00;
}

bool quant_pack_q8_0(const float *x, void *blk)
{
    struct blk_q8_0 *b = blk;
    b->d = quant_f32_to_f16(quant_fit_signed(x, 32, -127, 127));
    quant_round_signed(x, 32, quant_f16_to_f32(b->d), -127, 127, b->qs, NULL);
    return (b->d & 0x7c00) != 0x7c00;
}
