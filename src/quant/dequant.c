/* dequant.c: dequantisation by type. */
#include "quant/dequant.h"
#include "quant/quant.h"

#include <string.h>

static quant_block_fn *const block_fns[QT_COUNT] = {
    [QT_Q4_0] = quant_block_q4_0,     [QT_Q4_1] = quant_block_q4_1,
    [QT_Q5_0] = quant_block_q5_0,     [QT_Q5_1] = quant_block_q5_1,
    [QT_Q8_0] = quant_block_q8_0,     [QT_Q2_K] = quant_block_q2_K,
    [QT_Q3_K] = quant_block_q3_K,     [QT_Q4_K] = quant_block_q4_K,
    [QT_Q5_K] = quant_block_q5_K,     [QT_Q6_K] = quant_block_q6_K,
    [QT_Q8_K] = quant_block_q8_K,     [QT_IQ2_XXS] = quant_block_iq2_xxs,
    [QT_IQ2_XS] = quant_block_iq2_xs, [QT_IQ3_XXS] = quant_block_iq3_xxs,
    [QT_IQ1_S] = quant_block_iq1_s,   [QT_IQ4_NL] = quant_block_iq4_nl,
    [QT_IQ3_S] = quant_block_iq3_s,   [QT_IQ2_S] = quant_block_iq2_s,
    [QT_IQ4_XS] = quant_block_iq4_xs, [QT_IQ1_M] = quant_block_iq1_m,
    [QT_TQ1_0] = quant_block_tq1_0,   [QT_TQ2_0] = quant_block_tq2_0,
    [QT_MXFP4] = quant_block_mxfp4,   [QT_NVFP4] = quant_block_nvfp4,
    [QT_Q1_0] = quant_block_q1_0,     [QT_Q2_0] = quant_block_q2_0,
};

static void widen_16(const uint8_t *src, float *dst, size_t n, float (*widen)(uint16_t))
{
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, src + 2 * i, sizeof h);
        dst[i] = widen(h);
    }
}

bool quant_dequant(uint32_t type, const void *src, float *dst, size_t n)
{
    const struct quant_info *info = quant_type_info(type);
    if (!info || n % info->block_values != 0)
        return false;
    switch (type) {
    case QT_F32:
        if (n > 0)
            memcpy(dst, src, n * sizeof(float));
        return true;
    case QT_F16:
        widen_16(src, dst, n, quant_f16_to_f32);
        return true;
    case QT_BF16:
        widen_16(src, dst, n, quant_bf16_to_f32);
        return true;
    default:
        break;
    }
    quant_block_fn *fn = block_fns[type];
    if (!fn)
        return false;
    const uint8_t *blk = src;
    for (size_t i = 0; i < n; i += info->block_values, blk += info->block_bytes)
        fn(blk, dst + i);
    return true;
}
