/* quant.h: what the bytes of a tensor mean: GGML's types, their block sizes, and exact
 * dequantisation.
 *
 * Dequantisation follows docs/arithmetic.md: (D*S)*v and (D*S)*v - (Dmin*M), each product rounded
 * to binary32, no fma. It is the definition that tests compare with and is used for embedding rows.
 */
#ifndef QUANT_QUANT_H
#define QUANT_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ids are GGML's, as stored in GGUF files. */
enum quant_type {
    QT_F32 = 0,
    QT_F16 = 1,
    QT_Q4_0 = 2,
    QT_Q4_1 = 3,
    QT_Q5_0 = 6,
    QT_Q5_1 = 7,
    QT_Q8_0 = 8,
    QT_Q8_1 = 9,
    QT_Q2_K = 10,
    QT_Q3_K = 11,
    QT_Q4_K = 12,
    QT_Q5_K = 13,
    QT_Q6_K = 14,
    QT_Q8_K = 15,
    QT_IQ2_XXS = 16,
    QT_IQ2_XS = 17,
    QT_IQ3_XXS = 18,
    QT_IQ1_S = 19,
    QT_IQ4_NL = 20,
    QT_IQ3_S = 21,
    QT_IQ2_S = 22,
    QT_IQ4_XS = 23,
    QT_I8 = 24,
    QT_I16 = 25,
    QT_I32 = 26,
    QT_I64 = 27,
    QT_F64 = 28,
    QT_IQ1_M = 29,
    QT_BF16 = 30,
    QT_TQ1_0 = 34,
    QT_TQ2_0 = 35,
    QT_MXFP4 = 39,
    QT_NVFP4 = 40,
    QT_Q1_0 = 41,
    QT_Q2_0 = 42,
    QT_COUNT = 43
};

struct quant_info {
    const char *name;      /* "Q4_K"; NULL for ids that were never used or were removed */
    uint32_t block_values; /* row lengths are multiples of this */
    uint32_t block_bytes;
};

/* NULL for an unknown or removed id. */
const struct quant_info *quant_type_info(uint32_t type);
/* Bytes of a row of n values; 0 when n is no multiple of the block or the product overflows. */
uint64_t quant_row_bytes(uint32_t type, uint64_t n);
/* n values (a multiple of the block) at src, unaligned, to floats. False: this type cannot be
 * dequantised (integer types). */
bool quant_dequant(uint32_t type, const void *src, float *dst, size_t n);

/* n values (a multiple of the block) to blocks at dst; scales are searched for the least squared
 * error. The bytes depend on nothing but src. False: there is no quantiser for type, a value is not
 * finite or too large for the type's scales. Q4_0, Q8_0 and Q2_K to Q6_K have one. */
bool quant_quantise(uint32_t type, const float *src, void *dst, size_t n);
bool quant_has_quantiser(uint32_t type);

/* Exact conversions of 16-bit floats. to_f16 rounds to nearest even; NaN stays NaN. */
float quant_f16_to_f32(uint16_t h);
uint16_t quant_f32_to_f16(float f);
float quant_bf16_to_f32(uint16_t h);

#endif
