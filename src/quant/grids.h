/* grids.h: codebooks that are part of the file formats, and how signs are coded. */
#ifndef QUANT_GRIDS_H
#define QUANT_GRIDS_H

#include <stdint.h>

/* Eight values an entry, 2 bits each. IQ2: 0, 1, 2 stand for 8, 25, 43. IQ1: for -1, 0, 1. */
extern const uint16_t quant_grid_iq1_s[2048]; /* IQ1_S and IQ1_M */
extern const uint16_t quant_grid_iq2_xxs[256];
extern const uint16_t quant_grid_iq2_xs[512];
extern const uint16_t quant_grid_iq2_s[1024];
/* Four values an entry, 3 bits each. XXS: code c stands for 4 + 8c, but 7 for 62. S: for 2c + 1. */
extern const uint16_t quant_grid_iq3_xxs[256];
extern const uint16_t quant_grid_iq3_s[512];

extern const int8_t quant_iq4_values[16]; /* IQ4_NL, IQ4_XS */
extern const int8_t quant_fp4_values[16]; /* E2M1, doubled: MXFP4, NVFP4 */

/* Value of a code of the IQ2, IQ1, IQ3_XXS and IQ3_S grids. */
static inline int quant_iq2_value(unsigned code)
{
    return (int)(0x2b1908u >> (8 * (code & 3)) & 0xff);
}

static inline int quant_iq1_value(unsigned code)
{
    return (int)(code & 3) - 1;
}

static inline int quant_iq3_xxs_value(unsigned code)
{
    code &= 7;
    return code == 7 ? 62 : 4 + 8 * (int)code;
}

static inline int quant_iq3_s_value(unsigned code)
{
    return 2 * (int)(code & 7) + 1;
}

/* Eight sign bits from seven stored ones: the number of minus signs is even. */
static inline unsigned quant_signs8(unsigned bits7)
{
    bits7 &= 127;
    return bits7 | (unsigned)__builtin_parity(bits7) << 7;
}

#endif
