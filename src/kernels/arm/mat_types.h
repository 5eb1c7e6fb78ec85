/* mat_types.h: the weight types as the Arm products take them: sixteen values at a time, as int8,
 * and what they are to be scaled with. Exact: only moves, masks and table look-ups.
 *
 * Positions are constants wherever these functions are inlined, so that neighbouring values share
 * their loads. */
#ifndef KERNELS_ARM_MAT_TYPES_H
#define KERNELS_ARM_MAT_TYPES_H

#include "kernels/arm/mat_arm.h"
#include "quant/grids.h"

/* ---- blocks of 256 ---- */

/* Integer scales and minima of a block: per 16 values, or per 32 (then only [0] counts). */
struct head {
    int16x8_t scale[2], min[2];
};
typedef void head_fn(const uint8_t *p, struct head *h);
/* Values 16 i to 16 i + 15 of the block at p, plus the type's bias. */
typedef int8x16_t v16_fn(const uint8_t *p, int i);
/* The block's dmin << 16 | d, binary16 (no minima: upper half 0). */
typedef uint32_t dd_fn(const uint8_t *p);

#define MEMBER(p, type, member) ((p) + offsetof(struct type, member))

/* Bits [shift, shift + bits) of each byte, shift may be negative. */
ALWAYS_INLINE uint8x16_t shifted(uint8x16_t v, int right)
{
    return right >= 0 ? v >> (right >= 0 ? right : 0) : v << (right >= 0 ? 0 : -right);
}

/* Nibbles of sixteen bytes, the low or the high ones. */
ALWAYS_INLINE uint8x16_t nibbles(uint8x16_t q, int high)
{
    return high ? q >> 4 : q & 15;
}

ALWAYS_INLINE int8x16_t as_s8(uint8x16_t v)
{
    return vreinterpretq_s8_u8(v);
}

/* The first bytes of a Q4_K or Q5_K block. */
ALWAYS_INLINE void head_q4k(const uint8_t *p, struct head *h)
{
    uint64_t sc, mins;

    mat_unpack_scales(MEMBER(p, blk_q4_K, scales), &sc, &mins);
    h->scale[0] = vreinterpretq_s16_u16(vmovl_u8(vcreate_u8(sc)));
    h->min[0] = vreinterpretq_s16_u16(vmovl_u8(vcreate_u8(mins)));
}

ALWAYS_INLINE uint32_t dd_q4k(const uint8_t *p)
{
    return load_u32(p);
}

ALWAYS_INLINE int8x16_t v16_q4k(const uint8_t *p, int i)
{
    const uint8_t *qs = MEMBER(p, blk_q4_K, qs) + i / 4 * 32 + i % 2 * 16;

    return as_s8(nibbles(vld1q_u8(qs), i / 2 % 2));
}

/* Value i's fifth bit: bit i / 32 of qh[i % 32]. */
ALWAYS_INLINE int8x16_t v16_q5k(const uint8_t *p, int i)
{
    const uint8_t *qs = MEMBER(p, blk_q5_K, qs) + i / 4 * 32 + i % 2 * 16;
    const uint8x16_t qh = vld1q_u8(MEMBER(p, blk_q5_K, qh) + i % 2 * 16);

    return as_s8(nibbles(vld1q_u8(qs), i / 2 % 2) | (shifted(qh, i / 2 - 4) & 16));
}

/* Plus 32. */
ALWAYS_INLINE int8x16_t v16_q6k(const uint8_t *p, int i)
{
    const int half = i / 8, run = i / 2 % 4, at = i % 2 * 16;
    const uint8x16_t ql = vld1q_u8(MEMBER(p, blk_q6_K, ql) + half * 64 + run % 2 * 32 + at);
    const uint8x16_t qh = vld1q_u8(MEMBER(p, blk_q6_K, qh) + half * 32 + at);

    return as_s8(nibbles(ql, run / 2) | (shifted(qh, run * 2 - 4) & 48));
}

ALWAYS_INLINE void head_q6k(const uint8_t *p, struct head *h)
{
    const int8x16_t sc = vld1q_s8((const int8_t *)MEMBER(p, blk_q6_K, scales));

    h->scale[0] = vmovl_s8(vget_low_s8(sc));
    h->scale[1] = vmovl_high_s8(sc);
}

ALWAYS_INLINE uint32_t dd_q6k(const uint8_t *p)
{
    return load_u16(MEMBER(p, blk_q6_K, d));
}

/* Bits 2 * (i / 2 % 4) of the bytes of half i / 8. */
ALWAYS_INLINE uint8x16_t bit_pairs(const uint8_t *qs, int i)
{
    return vld1q_u8(qs + i / 8 * 32 + i % 2 * 16) >> (i / 2 % 4 * 2) & 3;
}

ALWAYS_INLINE int8x16_t v16_q2k(const uint8_t *p, int i)
{
    return as_s8(bit_pairs(MEMBER(p, blk_q2_K, qs), i));
}

ALWAYS_INLINE void head_q2k(const uint8_t *p, struct head *h)
{
    const uint8x16_t sc = vld1q_u8(MEMBER(p, blk_q2_K, scales)), low = sc & 15, high = sc >> 4;

    h->scale[0] = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(low)));
    h->scale[1] = vreinterpretq_s16_u16(vmovl_high_u8(low));
    h->min[0] = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(high)));
    h->min[1] = vreinterpretq_s16_u16(vmovl_high_u8(high));
}

ALWAYS_INLINE uint32_t dd_q2k(const uint8_t *p)
{
    return load_u32(MEMBER(p, blk_q2_K, d));
}

/* Plus 4: the third bit is bit i / 32 of hmask[i % 32]. */
ALWAYS_INLINE int8x16_t v16_q3k(const uint8_t *p, int i)
{
    const uint8x16_t high = vld1q_u8(MEMBER(p, blk_q3_K, hmask) + i % 2 * 16);

    return as_s8(bit_pairs(MEMBER(p, blk_q3_K, qs), i) | (shifted(high, i / 2 - 2) & 4));
}

ALWAYS_INLINE void head_q3k(const uint8_t *p, struct head *h)
{
    uint32_t u[4];

    mat_unpack_scales_q3k(MEMBER(p, blk_q3_K, scales), u);
    const int8x16_t sc = as_s8(vreinterpretq_u8_u32((uint32x4_t){u[0], u[1], u[2], u[3]})) - 32;
    h->scale[0] = vmovl_s8(vget_low_s8(sc));
    h->scale[1] = vmovl_high_s8(sc);
}

ALWAYS_INLINE uint32_t dd_q3k(const uint8_t *p)
{
    return load_u16(MEMBER(p, blk_q3_K, d));
}

/* One scale, 1, for the whole block. */
ALWAYS_INLINE void head_none(const uint8_t *p, struct head *h)
{
    (void)p, (void)h;
}

/* Digit n of bytes that hold base-3 digits as a fraction of 256, minus one: the bytes times 3^n
 * modulo 256 lose the earlier digits, and three times the rest passes 256 at 86 and 512 at 171. */
ALWAYS_INLINE int8x16_t trits(uint8x16_t bytes, int n)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    const uint8x16_t rest = bytes * power[n];

    return as_s8(~(vcgeq_u8(rest, vdupq_n_u8(86)) + vcgeq_u8(rest, vdupq_n_u8(171))));
}

ALWAYS_INLINE int8x16_t v16_tq1_0(const uint8_t *p, int i)
{
    const uint8_t *qs = MEMBER(p, blk_tq1_0, qs);

    if (i < 10)
        return trits(vld1q_u8(qs + i % 2 * 16), i / 2);
    if (i < 15)
        return trits(vld1q_u8(qs + 32), i - 10);
    const uint32x4_t four = vdupq_n_u32(load_u32(MEMBER(p, blk_tq1_0, qh)));
    const uint8x16_t power = {1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27};
    return trits(vreinterpretq_u8_u32(four) * power, 0);
}

ALWAYS_INLINE uint32_t dd_tq1_0(const uint8_t *p)
{
    return load_u16(MEMBER(p, blk_tq1_0, d));
}

ALWAYS_INLINE int8x16_t v16_tq2_0(const uint8_t *p, int i)
{
    return as_s8(bit_pairs(MEMBER(p, blk_tq2_0, qs), i)) - 1;
}

ALWAYS_INLINE uint32_t dd_tq2_0(const uint8_t *p)
{
    return load_u16(MEMBER(p, blk_tq2_0, d));
}

/* ---- blocks of 32, or several such ---- */

/* Values 16 h to 16 h + 15 of the 32 values s of the block at p, plus the type's bias. */
typedef int8x16_t v16s_fn(const uint8_t *p, int s, int h);
/* D of 32 values (half h of them where D belongs to 16) in four blocks, stride bytes apart. */
typedef float32x4_t d4_fn(const uint8_t *p, size_t stride, int s, int h);

ALWAYS_INLINE float32x4_t f16_of_rows(const uint8_t *p, size_t stride)
{
    uint16x4_t v = vdup_n_u16(0);

#pragma GCC unroll 4
    for (int r = 0; r < 4; r++)
        v[r] = load_u16(p + (size_t)r * stride);
    return widen_f16(v);
}

/* Most types begin with d, then m. */
ALWAYS_INLINE float32x4_t d4_first(const uint8_t *p, size_t stride, int s, int h)
{
    (void)s, (void)h;
    return f16_of_rows(p, stride);
}

ALWAYS_INLINE float32x4_t d4_second(const uint8_t *p, size_t stride, int s, int h)
{
    (void)s, (void)h;
    return f16_of_rows(p + 2, stride);
}

ALWAYS_INLINE int8x16_t v16_q8_0(const uint8_t *p, int s, int h)
{
    (void)s;
    return vld1q_s8((const int8_t *)MEMBER(p, blk_q8_0, qs) + h * 16);
}

ALWAYS_INLINE int8x16_t v16_q4_0(const uint8_t *p, int s, int h)
{
    (void)s;
    return as_s8(nibbles(vld1q_u8(MEMBER(p, blk_q4_0, qs)), h));
}

ALWAYS_INLINE int8x16_t v16_q4_1(const uint8_t *p, int s, int h)
{
    (void)s;
    return as_s8(nibbles(vld1q_u8(MEMBER(p, blk_q4_1, qs)), h));
}

/* -1 where bit i of the two bytes at p is set, else 0. */
ALWAYS_INLINE uint8x16_t bit_mask(const uint8_t *p)
{
    const uint8x16_t bits = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};

    return vtstq_u8(vcombine_u8(vdup_n_u8(p[0]), vdup_n_u8(p[1])), bits);
}

ALWAYS_INLINE int8x16_t v16_q5_0(const uint8_t *p, int s, int h)
{
    const uint8x16_t q = nibbles(vld1q_u8(MEMBER(p, blk_q5_0, qs)), h);

    (void)s;
    return as_s8(q | (bit_mask(MEMBER(p, blk_q5_0, qh) + 2 * h) & 16));
}

ALWAYS_INLINE int8x16_t v16_q5_1(const uint8_t *p, int s, int h)
{
    const uint8x16_t q = nibbles(vld1q_u8(MEMBER(p, blk_q5_1, qs)), h);

    (void)s;
    return as_s8(q | (bit_mask(MEMBER(p, blk_q5_1, qh) + 2 * h) & 16));
}

ALWAYS_INLINE int8x16_t v16_iq4_nl(const uint8_t *p, int s, int h)
{
    (void)s;
    return vqtbl1q_s8(vld1q_s8(quant_iq4_values), nibbles(vld1q_u8(MEMBER(p, blk_iq4_nl, qs)), h));
}

ALWAYS_INLINE int8x16_t v16_mxfp4(const uint8_t *p, int s, int h)
{
    (void)s;
    return vqtbl1q_s8(vld1q_s8(quant_fp4_values), nibbles(vld1q_u8(MEMBER(p, blk_mxfp4, qs)), h));
}

/* 2^(e - 128); e < 2 is subnormal. */
ALWAYS_INLINE float32x4_t d4_mxfp4(const uint8_t *p, size_t stride, int s, int h)
{
    uint32x4_t e = vdupq_n_u32(0);

    (void)s, (void)h;
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++)
        e[r] = p[(size_t)r * stride];
    const uint32x4_t subnormal = vshlq_u32(vdupq_n_u32(0x200000), vreinterpretq_s32_u32(e));
    const uint32x4_t normal = (e - 1) << 23;
    return vreinterpretq_f32_u32(vbslq_u32(vcltq_u32(e, vdupq_n_u32(2)), subnormal, normal));
}

/* 64 values: 8 bytes per 16, low nibbles first. */
ALWAYS_INLINE int8x16_t v16_nvfp4(const uint8_t *p, int s, int h)
{
    const uint8x8_t q = vld1_u8(MEMBER(p, blk_nvfp4, qs) + (2 * s + h) * 8);

    return vqtbl1q_s8(vld1q_s8(quant_fp4_values), vcombine_u8(q & 15, q >> 4));
}

/* Half of an unsigned E4M3 number: the sign bit is ignored, 0x7f reads as +0; as binary16 bits one
 * place lower it is 2^-7 times as large. */
ALWAYS_INLINE float32x4_t d4_nvfp4(const uint8_t *p, size_t stride, int s, int h)
{
    uint16x4_t e = vdup_n_u16(0);

#pragma GCC unroll 4
    for (int r = 0; r < 4; r++)
        e[r] = p[(size_t)r * stride + (size_t)(2 * s + h)];
    e &= 0x7f;
    e = vbic_u16(e, vceq_u16(e, vdup_n_u16(0x7f)));
    return widen_f16(e << 7) * 128.0f;
}

/* 128 values: +1 where the bit is set, else -1. */
ALWAYS_INLINE int8x16_t v16_q1_0(const uint8_t *p, int s, int h)
{
    return as_s8(~(bit_mask(MEMBER(p, blk_q1_0, qs) + 4 * s + 2 * h) << 1));
}

/* 64 values: bits 2 * (i % 4) of byte i / 4, plus 1. */
ALWAYS_INLINE int8x16_t v16_q2_0(const uint8_t *p, int s, int h)
{
    const uint32x4_t four = vdupq_n_u32(load_u32(MEMBER(p, blk_q2_0, qs) + 8 * s + 4 * h));
    const uint8x16_t index = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
    const int8x16_t right = {0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6};

    return as_s8(vshlq_u8(vqtbl1q_u8(vreinterpretq_u8_u32(four), index), right) & 3);
}

#endif
