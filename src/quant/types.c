/* types.c: GGML's tensor types by id, and the exact 16-bit float conversions.
 *
 * Ids and block layouts are those of the GGUF specification. Ids 4, 5, 31 to 33 and 36 to 38 named
 * formats that were withdrawn; they stay empty here, so that a file which uses one is refused. */
#include "base/size.h"
#include "quant/quant.h"

#include <string.h>

static const struct quant_info types[QT_COUNT] = {
    [QT_F32] = {"F32", 1, 4},
    [QT_F16] = {"F16", 1, 2},
    [QT_Q4_0] = {"Q4_0", 32, 18},
    [QT_Q4_1] = {"Q4_1", 32, 20},
    [QT_Q5_0] = {"Q5_0", 32, 22},
    [QT_Q5_1] = {"Q5_1", 32, 24},
    [QT_Q8_0] = {"Q8_0", 32, 34},
    [QT_Q8_1] = {"Q8_1", 32, 36},
    [QT_Q2_K] = {"Q2_K", 256, 84},
    [QT_Q3_K] = {"Q3_K", 256, 110},
    [QT_Q4_K] = {"Q4_K", 256, 144},
    [QT_Q5_K] = {"Q5_K", 256, 176},
    [QT_Q6_K] = {"Q6_K", 256, 210},
    [QT_Q8_K] = {"Q8_K", 256, 292},
    [QT_IQ2_XXS] = {"IQ2_XXS", 256, 66},
    [QT_IQ2_XS] = {"IQ2_XS", 256, 74},
    [QT_IQ3_XXS] = {"IQ3_XXS", 256, 98},
    [QT_IQ1_S] = {"IQ1_S", 256, 50},
    [QT_IQ4_NL] = {"IQ4_NL", 32, 18},
    [QT_IQ3_S] = {"IQ3_S", 256, 110},
    [QT_IQ2_S] = {"IQ2_S", 256, 82},
    [QT_IQ4_XS] = {"IQ4_XS", 256, 136},
    [QT_I8] = {"I8", 1, 1},
    [QT_I16] = {"I16", 1, 2},
    [QT_I32] = {"I32", 1, 4},
    [QT_I64] = {"I64", 1, 8},
    [QT_F64] = {"F64", 1, 8},
    [QT_IQ1_M] = {"IQ1_M", 256, 56},
    [QT_BF16] = {"BF16", 1, 2},
    [QT_TQ1_0] = {"TQ1_0", 256, 54},
    [QT_TQ2_0] = {"TQ2_0", 256, 66},
    [QT_MXFP4] = {"MXFP4", 32, 17},
    [QT_NVFP4] = {"NVFP4", 64, 36},
    [QT_Q1_0] = {"Q1_0", 128, 18},
    [QT_Q2_0] = {"Q2_0", 64, 18},
};

const struct quant_info *quant_type_info(uint32_t type)
{
    if (type >= QT_COUNT || !types[type].name)
        return NULL;
    return &types[type];
}

uint64_t quant_row_bytes(uint32_t type, uint64_t n)
{
    const struct quant_info *t = quant_type_info(type);
    uint64_t bytes;
    if (!t || n % t->block_values != 0 || !size_mul(n / t->block_values, t->block_bytes, &bytes))
        return 0;
    return bytes;
}

static float from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

float quant_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exp = (h >> 10) & 31;
    uint32_t frac = h & 0x3ff;
    if (exp == 31) /* infinity, NaN with its payload */
        return from_bits(sign | 0x7f800000 | frac << 13);
    if (exp != 0)
        return from_bits(sign | (exp + 112) << 23 | frac << 13);
    if (frac == 0)
        return from_bits(sign);
    /* Subnormal: frac * 2^-24 with the leading one moved to the implied place. */
    int shift = __builtin_clz(frac) - 21;
    return from_bits(sign | (uint32_t)(113 - shift) << 23 | ((frac << shift) & 0x3ff) << 13);
}

uint16_t quant_f32_to_f16(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
    u &= 0x7fffffff;
    if (u >
        0x7f800000) /* NaN: the upper payload bits, made quiet so that it cannot turn into inf */
        return (uint16_t)(sign | 0x7e00 | (u >> 13 & 0x1ff));
    if (u >= 0x477ff000) /* 65520 and above round to infinity */
        return sign | 0x7c00;
    if (u >= 0x38800000) { /* normal: rebias, then round on the 13 bits that fall away */
        uint32_t v = u - (112u << 23);
        v += 0xfff + (v >> 13 & 1);
        return (uint16_t)(sign | v >> 13);
    }
    if (u <= 0x33000000) /* at most 2^-25, half of the smallest subnormal: a tie goes to zero */
        return sign;
    /* Subnormal: count units of 2^-24. */
    uint32_t frac = (u & 0x7fffff) | 0x800000;
    uint32_t shift = 126 - (u >> 23); /* 14 to 24 */
    uint32_t half = 1u << (shift - 1);
    uint32_t q = frac >> shift;
    uint32_t rest = frac & ((1u << shift) - 1);
    if (rest > half || (rest == half && (q & 1)))
        q++;
    return (uint16_t)(sign | q);
}

float quant_bf16_to_f32(uint16_t h)
{
    return from_bits((uint32_t)h << 16);
}
