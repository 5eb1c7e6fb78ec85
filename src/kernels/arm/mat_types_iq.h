/* mat_types_iq.h: the weight types with codebooks, as mat_types.h has the others. Entries of the
 * codebooks are spread over the bytes of a vector, then a table look-up turns codes into values. */
#ifndef KERNELS_ARM_MAT_TYPES_IQ_H
#define KERNELS_ARM_MAT_TYPES_IQ_H

#include "kernels/arm/mat_types.h"

ALWAYS_INLINE uint32_t dd_first(const uint8_t *p)
{
    return load_u16(p);
}

/* Two entries of eight 2-bit codes. */
ALWAYS_INLINE uint8x16_t spread2(uint16_t e0, uint16_t e1)
{
    const int16x8_t right = {0, -2, -4, -6, -8, -10, -12, -14};
    const uint16x8_t a = vshlq_u16(vdupq_n_u16(e0), right), b = vshlq_u16(vdupq_n_u16(e1), right);

    return vuzp1q_u8(vreinterpretq_u8_u16(a), vreinterpretq_u8_u16(b)) & 3;
}

/* Four entries of four 3-bit codes. */
ALWAYS_INLINE uint8x16_t spread3(const uint16_t *grid, unsigned i0, unsigned i1, unsigned i2,
                                 unsigned i3)
{
    const int16x8_t right = {0, -3, -6, -9, 0, -3, -6, -9};
    const uint16x8_t a = vcombine_u16(vdup_n_u16(grid[i0]), vdup_n_u16(grid[i1]));
    const uint16x8_t b = vcombine_u16(vdup_n_u16(grid[i2]), vdup_n_u16(grid[i3]));

    return vuzp1q_u8(vreinterpretq_u8_u16(vshlq_u16(a, right)),
                     vreinterpretq_u8_u16(vshlq_u16(b, right))) &
           7;
}

/* Values of codes, negative where a bit of the two sign bytes is set. */
ALWAYS_INLINE int8x16_t with_signs(int8x16_t values, uint8x16_t codes, unsigned s0, unsigned s1)
{
    const uint8x16_t bits = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t s = vcombine_u8(vdup_n_u8((uint8_t)s0), vdup_n_u8((uint8_t)s1));
    const int8x16_t minus = as_s8(vtstq_u8(s, bits));

    return (vqtbl1q_s8(values, codes) ^ minus) - minus;
}

ALWAYS_INLINE int8x16_t iq2_values(uint16_t e0, uint16_t e1, unsigned s0, unsigned s1)
{
    const int8x16_t values = {8, 25, 43};

    return with_signs(values, spread2(e0, e1), s0, s1);
}

/* 2s + 1 of eight or sixteen scales. */
ALWAYS_INLINE int16x8_t odd_scales(uint16x8_t s)
{
    return vreinterpretq_s16_u16(s + s + 1);
}

/* The nibbles of eight bytes in order. */
ALWAYS_INLINE uint8x16_t nibbles_in_order(uint8x8_t s)
{
    const uint8x8x2_t z = vzip_u8(s & 15, s >> 4);

    return vcombine_u8(z.val[0], z.val[1]);
}

ALWAYS_INLINE void odd_scales16(const uint8_t *nibbles8, struct head *h)
{
    const uint8x16_t s = nibbles_in_order(vld1_u8(nibbles8));

    h->scale[0] = odd_scales(vmovl_u8(vget_low_u8(s)));
    h->scale[1] = odd_scales(vmovl_high_u8(s));
}

/* 2s + 1, s the top four bits of eight words. */
ALWAYS_INLINE int16x8_t odd_scales_top(uint32x4_t a, uint32x4_t b)
{
    return odd_scales(vcombine_u16(vmovn_u32(a >> 28), vmovn_u32(b >> 28)));
}

ALWAYS_INLINE uint32x4_t load_words(const uint8_t *p)
{
    return vreinterpretq_u32_u8(vld1q_u8(p));
}

ALWAYS_INLINE void head_iq2_xxs(const uint8_t *p, struct head *h)
{
    const uint8_t *qs = MEMBER(p, blk_iq2_xxs, qs);

    h->scale[0] = odd_scales_top(vuzp2q_u32(load_words(qs), load_words(qs + 16)),
                                 vuzp2q_u32(load_words(qs + 32), load_words(qs + 48)));
}

ALWAYS_INLINE int8x16_t v16_iq2_xxs(const uint8_t *p, int i)
{
    const uint8_t *q = MEMBER(p, blk_iq2_xxs, qs) + i / 2 * 8;
    const uint32_t u = load_u32(q + 4) >> i % 2 * 14;

    q += i % 2 * 2;
    return iq2_values(quant_grid_iq2_xxs[q[0]], quant_grid_iq2_xxs[q[1]], quant_signs8(u),
                      quant_signs8(u >> 7));
}

ALWAYS_INLINE void head_iq2_xs(const uint8_t *p, struct head *h)
{
    odd_scales16(MEMBER(p, blk_iq2_xs, scales), h);
}

ALWAYS_INLINE int8x16_t v16_iq2_xs(const uint8_t *p, int i)
{
    const uint32_t u = load_u32(MEMBER(p, blk_iq2_xs, qs) + i * 4);

    return iq2_values(quant_grid_iq2_xs[u & 511], quant_grid_iq2_xs[u >> 16 & 511],
                      quant_signs8(u >> 9), quant_signs8(u >> 25));
}

ALWAYS_INLINE void head_iq2_s(const uint8_t *p, struct head *h)
{
    odd_scales16(MEMBER(p, blk_iq2_s, scales), h);
}

ALWAYS_INLINE int8x16_t v16_iq2_s(const uint8_t *p, int i)
{
    const uint8_t *qs = MEMBER(p, blk_iq2_s, qs) + i * 2;
    const uint8_t *signs = MEMBER(p, blk_iq2_s, signs) + i * 2;
    const unsigned high = (unsigned)MEMBER(p, blk_iq2_s, qh)[i / 2] >> i % 2 * 4;

    return iq2_values(quant_grid_iq2_s[qs[0] | (high & 3) << 8],
                      quant_grid_iq2_s[qs[1] | (high >> 2 & 3) << 8], signs[0], signs[1]);
}

ALWAYS_INLINE void head_iq3_xxs(const uint8_t *p, struct head *h)
{
    const uint8_t *sas = MEMBER(p, blk_iq3_xxs, sas);

    h->scale[0] = odd_scales_top(load_words(sas), load_words(sas + 16));
}

ALWAYS_INLINE int8x16_t v16_iq3_xxs(const uint8_t *p, int i)
{
    const int8x16_t values = {4, 12, 20, 28, 36, 44, 52, 62};
    const uint8_t *q = MEMBER(p, blk_iq3_xxs, qs) + i * 4;
    const uint32_t u = load_u32(MEMBER(p, blk_iq3_xxs, sas) + i / 2 * 4) >> i % 2 * 14;

    return with_signs(values, spread3(quant_grid_iq3_xxs, q[0], q[1], q[2], q[3]), quant_signs8(u),
                      quant_signs8(u >> 7));
}

ALWAYS_INLINE void head_iq3_s(const uint8_t *p, struct head *h)
{
    const uint8x8_t s = vcreate_u8(load_u32(MEMBER(p, blk_iq3_s, scales)));

    h->scale[0] = odd_scales(vmovl_u8(vget_low_u8(nibbles_in_order(s))));
}

ALWAYS_INLINE int8x16_t v16_iq3_s(const uint8_t *p, int i)
{
    const int8x16_t values = {1, 3, 5, 7, 9, 11, 13, 15};
    const uint8_t *q = MEMBER(p, blk_iq3_s, qs) + i * 4;
    const uint8_t *signs = MEMBER(p, blk_iq3_s, signs) + i * 2;
    const unsigned high = (unsigned)MEMBER(p, blk_iq3_s, qh)[i / 2] >> i % 2 * 4;
    const uint8x16_t codes = spread3(quant_grid_iq3_s, q[0] | (high & 1) << 8,
                                     q[1] | (high & 2) << 7, q[2] | (high & 4) << 6,
                                     q[3] | (high & 8) << 5);

    return with_signs(values, codes, signs[0], signs[1]);
}

/* 8 * grid + 1, or - 1 where down. */
ALWAYS_INLINE int8x16_t iq1_values(unsigned i0, unsigned i1, unsigned down0, unsigned down1)
{
    const int8x16_t values = {-8, 0, 8};
    const int8x8_t shift0 = vdup_n_s8((int8_t)(1 - 2 * (int)down0));
    const int8x8_t shift1 = vdup_n_s8((int8_t)(1 - 2 * (int)down1));

    return vqtbl1q_s8(values, spread2(quant_grid_iq1_s[i0], quant_grid_iq1_s[i1])) +
           vcombine_s8(shift0, shift1);
}

ALWAYS_INLINE void head_iq1_s(const uint8_t *p, struct head *h)
{
    const uint16x8_t qh = vreinterpretq_u16_u8(vld1q_u8(MEMBER(p, blk_iq1_s, qh)));

    h->scale[0] = odd_scales(qh >> 12 & 7);
}

ALWAYS_INLINE int8x16_t v16_iq1_s(const uint8_t *p, int i)
{
    const uint8_t *qs = MEMBER(p, blk_iq1_s, qs) + i * 2;
    const unsigned h = load_u16(MEMBER(p, blk_iq1_s, qh) + i / 2 * 2), l = h >> i % 2 * 6;

    return iq1_values(qs[0] | (l & 7) << 8, qs[1] | (l >> 3 & 7) << 8, h >> 15, h >> 15);
}

/* Three bits for each 16 values, four in a word. */
ALWAYS_INLINE void head_iq1_m(const uint8_t *p, struct head *h)
{
    const int16x8_t right = {0, -3, -6, -9, 0, -3, -6, -9};
    const uint8_t *s = MEMBER(p, blk_iq1_m, scales);

#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        const uint16x8_t words = vcombine_u16(vdup_n_u16(load_u16(s + 4 * i)),
                                              vdup_n_u16(load_u16(s + 4 * i + 2)));
        h->scale[i] = odd_scales(vshlq_u16(words, right) & 7);
    }
}

ALWAYS_INLINE int8x16_t v16_iq1_m(const uint8_t *p, int i)
{
    const uint8_t *qs = MEMBER(p, blk_iq1_m, qs) + i * 2;
    const unsigned h = MEMBER(p, blk_iq1_m, qh)[i];

    return iq1_values(qs[0] | (h & 7) << 8, qs[1] | (h >> 4 & 7) << 8, h >> 3 & 1, h >> 7);
}

ALWAYS_INLINE uint32_t dd_iq1_m(const uint8_t *p)
{
    return mat_d_iq1_m(p);
}

/* Scales of 32 values, each for both halves: four low bits, two high ones, minus 32. */
ALWAYS_INLINE void head_iq4_xs(const uint8_t *p, struct head *h)
{
    const int16x8_t right = {0, -2, -4, -6, -8, -10, -12, -14};
    const uint16x8_t words = vdupq_n_u16(load_u16(MEMBER(p, blk_iq4_xs, scales_h)));
    const uint8x8_t high = vmovn_u16(vshlq_u16(words, right) & 3);
    const uint8x8_t bytes = vcreate_u8(load_u32(MEMBER(p, blk_iq4_xs, scales_l)));
    const uint8x8_t low = vget_low_u8(nibbles_in_order(bytes));
    const int16x8_t s = vmovl_s8(vreinterpret_s8_u8(low | high << 4) - 32);

    h->scale[0] = vzip1q_s16(s, s);
    h->scale[1] = vzip2q_s16(s, s);
}

ALWAYS_INLINE int8x16_t v16_iq4_xs(const uint8_t *p, int i)
{
    return vqtbl1q_s8(vld1q_s8(quant_iq4_values),
                      nibbles(vld1q_u8(MEMBER(p, blk_iq4_xs, qs) + i / 2 * 16), i % 2));
}

#endif
