/* blocks.h: the bytes of one block of every quantised type, as they lie in a GGUF file.
 *
 * Little endian, no padding, any alignment: the structs are packed, so reading a member through a
 * pointer is an unaligned load. uint16_t members named d, dmin, m are binary16 bits. Nibbles:
 * unless said otherwise byte j of a run of n holds value j in its low and value j + n in its high
 * nibble. "Group" is the run of values that shares one integer scale. Value orders and the formulas
 * are in dequant*.c, the codebooks in grids.h. */
#ifndef QUANT_BLOCKS_H
#define QUANT_BLOCKS_H

#include <assert.h>
#include <stdint.h>

#define QK_K 256 /* values of a super-block (K, IQ and TQ types) */

#define BLK_PACKED __attribute__((packed))

/* ---- 32 values, one float scale ---- */

struct BLK_PACKED blk_q4_0 {
    uint16_t d;
    uint8_t qs[16]; /* q - 8 */
};
struct BLK_PACKED blk_q4_1 {
    uint16_t d, m; /* w = d*q + m */
    uint8_t qs[16];
};
struct BLK_PACKED blk_q5_0 {
    uint16_t d;
    uint8_t qh[4];  /* bit i: fifth bit of value i */
    uint8_t qs[16]; /* q - 16 */
};
struct BLK_PACKED blk_q5_1 {
    uint16_t d, m;
    uint8_t qh[4];
    uint8_t qs[16];
};
struct BLK_PACKED blk_q8_0 {
    uint16_t d;
    int8_t qs[32];
};
struct BLK_PACKED blk_iq4_nl {
    uint16_t d;
    uint8_t qs[16]; /* index into quant_iq4_values */
};
struct BLK_PACKED blk_mxfp4 {
    uint8_t e;      /* scale 2^(e - 128), to be used with doubled values */
    uint8_t qs[16]; /* E2M1: index into quant_fp4_values */
};

/* ---- other small blocks ---- */

struct BLK_PACKED blk_nvfp4 { /* 64 values */
    uint8_t d[4];             /* UE4M3, one per 16 values */
    uint8_t qs[32];           /* 8 bytes per 16 values: value j low, value j + 8 high nibble */
};
struct BLK_PACKED blk_q1_0 { /* 128 values */
    uint16_t d;
    uint8_t qs[16]; /* bit i % 8 of byte i / 8: +d where set, else -d */
};
struct BLK_PACKED blk_q2_0 { /* 64 values */
    uint16_t d;
    uint8_t qs[16]; /* bits 2 * (i % 4) of byte i / 4: q - 1 */
};

/* ---- 256 values, K types ---- */

struct BLK_PACKED blk_q2_K {
    uint8_t scales[16]; /* per 16 values: scale low, minimum high nibble */
    uint8_t qs[64];     /* per 128 values 32 bytes: value 32*s + j in bits 2*s of byte j */
    uint16_t d, dmin;
};
struct BLK_PACKED blk_q3_K {
    uint8_t hmask[32];  /* value 32*s + j: bit s of byte j; clear means minus 4 */
    uint8_t qs[64];     /* low two bits, as in Q2_K */
    uint8_t scales[12]; /* sixteen 6-bit scales - 32, see dequant_k.c */
    uint16_t d;
};
struct BLK_PACKED blk_q4_K {
    uint16_t d, dmin;
    uint8_t scales[12]; /* eight 6-bit scales and minima of 32 values, see dequant_k.c */
    uint8_t qs[128];    /* per 64 values 32 bytes: the first 32 low, the next 32 high nibbles */
};
struct BLK_PACKED blk_q5_K {
    uint16_t d, dmin;
    uint8_t scales[12]; /* as Q4_K */
    uint8_t qh[32];     /* value 32*g + j: bit g of byte j */
    uint8_t qs[128];    /* as Q4_K */
};
struct BLK_PACKED blk_q6_K {
    uint8_t ql[128];   /* per 128 values 64 bytes: values 0-63 low, 64-127 high nibbles */
    uint8_t qh[64];    /* per 128 values 32 bytes: value 32*s + j in bits 2*s of byte j */
    int8_t scales[16]; /* per 16 values; q - 32 */
    uint16_t d;
};
struct BLK_PACKED blk_q8_K {
    float d;
    int8_t qs[256];
    int16_t bsums[16]; /* sums of 16 values */
};

/* ---- 256 values, ternary ---- */

struct BLK_PACKED blk_tq1_0 {
    uint8_t qs[48]; /* five base-3 digits a byte, as a fraction of 256 */
    uint8_t qh[4];  /* four digits a byte */
    uint16_t d;
};
struct BLK_PACKED blk_tq2_0 {
    uint8_t qs[64]; /* per 128 values 32 bytes: value 32*s + j in bits 2*s of byte j; q - 1 */
    uint16_t d;
};

/* ---- 256 values, codebooks ---- */

struct BLK_PACKED blk_iq2_xxs {
    uint16_t d;
    uint8_t qs[64]; /* per 32 values: four grid indices, then u32: 4 x 7 sign bits, 4-bit scale */
};
struct BLK_PACKED blk_iq2_xs {
    uint16_t d;
    uint16_t qs[32];   /* per 8 values: 9-bit grid index, 7 sign bits */
    uint8_t scales[8]; /* a nibble per 16 values */
};
struct BLK_PACKED blk_iq2_s {
    uint16_t d;
    uint8_t qs[32];    /* per 8 values: low 8 bits of the grid index */
    uint8_t signs[32]; /* per 8 values: bit set means negative */
    uint8_t qh[8];     /* per 8 values: 2 high bits of the index */
    uint8_t scales[8]; /* a nibble per 16 values */
};
struct BLK_PACKED blk_iq3_xxs {
    uint16_t d;
    uint8_t qs[64];  /* per 4 values: grid index */
    uint8_t sas[32]; /* per 32 values u32: 4 x 7 sign bits, 4-bit scale */
};
struct BLK_PACKED blk_iq3_s {
    uint16_t d;
    uint8_t qs[64];    /* per 4 values: low 8 bits of the grid index */
    uint8_t qh[8];     /* per 4 values: ninth bit of the index */
    uint8_t signs[32]; /* per 8 values */
    uint8_t scales[4]; /* a nibble per 32 values */
};
struct BLK_PACKED blk_iq1_s {
    uint16_t d;
    uint8_t qs[32]; /* per 8 values: low 8 bits of the grid index */
    uint16_t qh[8]; /* per 32 values: 4 x 3 high index bits, 3-bit scale, sign of the shift */
};
struct BLK_PACKED blk_iq1_m {
    uint8_t qs[32]; /* per 8 values: low 8 bits of the grid index */
    uint8_t qh[16]; /* a nibble per 8 values: 3 high index bits, sign of the shift */
    uint8_t
        scales[8]; /* four u16: 4 x 3-bit scales of 16 values; top nibbles make the binary16 d */
};
struct BLK_PACKED blk_iq4_xs {
    uint16_t d;
    uint16_t scales_h;   /* 2 high bits of the scale per 32 values */
    uint8_t scales_l[4]; /* 4 low bits per 32 values; scale - 32 */
    uint8_t qs[128];     /* per 32 values 16 bytes, as IQ4_NL */
};

#define BLK_SIZE(type, bytes) static_assert(sizeof(struct type) == (bytes), "block layout")
BLK_SIZE(blk_q4_0, 18);
BLK_SIZE(blk_q4_1, 20);
BLK_SIZE(blk_q5_0, 22);
BLK_SIZE(blk_q5_1, 24);
BLK_SIZE(blk_q8_0, 34);
BLK_SIZE(blk_iq4_nl, 18);
BLK_SIZE(blk_mxfp4, 17);
BLK_SIZE(blk_nvfp4, 36);
BLK_SIZE(blk_q1_0, 18);
BLK_SIZE(blk_q2_0, 18);
BLK_SIZE(blk_q2_K, 84);
BLK_SIZE(blk_q3_K, 110);
BLK_SIZE(blk_q4_K, 144);
BLK_SIZE(blk_q5_K, 176);
BLK_SIZE(blk_q6_K, 210);
BLK_SIZE(blk_q8_K, 292);
BLK_SIZE(blk_tq1_0, 54);
BLK_SIZE(blk_tq2_0, 66);
BLK_SIZE(blk_iq2_xxs, 66);
BLK_SIZE(blk_iq2_xs, 74);
BLK_SIZE(blk_iq2_s, 82);
BLK_SIZE(blk_iq3_xxs, 98);
BLK_SIZE(blk_iq3_s, 110);
BLK_SIZE(blk_iq1_s, 50);
BLK_SIZE(blk_iq1_m, 56);
BLK_SIZE(blk_iq4_xs, 136);
#undef BLK_SIZE

#endif
