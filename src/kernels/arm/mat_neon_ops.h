/* mat_neon_ops.h: products of int8 without the dot product instructions: pairs of products in
 * int16, whose bounds stand in mat_types_list.h. */
#ifndef KERNELS_ARM_MAT_NEON_OPS_H
#define KERNELS_ARM_MAT_NEON_OPS_H

#include "kernels/arm/mat_types.h"

/* Two products per lane. */
ALWAYS_INLINE int16x8_t mul_pairs(int8x16_t v, int8x16_t x)
{
    return vmlal_high_s8(vmull_s8(vget_low_s8(v), vget_low_s8(x)), v, x);
}

ALWAYS_INLINE int16x8_t add_pairs(int16x8_t sum, int8x16_t v, int8x16_t x)
{
    return vmlal_high_s8(vmlal_s8(sum, vget_low_s8(v), vget_low_s8(x)), v, x);
}

ALWAYS_INLINE int32x4_t add_scaled(int32x4_t sum, int16x8_t s, int16_t scale)
{
    return vmlal_high_n_s16(vmlal_n_s16(sum, vget_low_s16(s), scale), s, scale);
}

ALWAYS_INLINE int32x4_t mul_half(int8x16_t v, int8x16_t x)
{
    return vpaddlq_s16(mul_pairs(v, x));
}

ALWAYS_INLINE int32x4_t mul_run(int8x16_t v0, int8x16_t v1, int8x16_t x0, int8x16_t x1, bool wide)
{
    const int16x8_t s = mul_pairs(v0, x0);

    return wide ? vpadalq_s16(vpaddlq_s16(s), mul_pairs(v1, x1))
                : vpaddlq_s16(add_pairs(s, v1, x1));
}

ALWAYS_INLINE int32x4_t mul_groups(v16_fn *v16, const uint8_t *p, const int8_t *x,
                                   const int16x8_t *scale, int group)
{
    const int chunks = group / 16;
    int32x4_t sum = vdupq_n_s32(0);

#pragma GCC unroll 16
    for (int i = 0; i < 16; i += chunks) {
        int16x8_t s = mul_pairs(v16(p, i), vld1q_s8(x + i * 16));
#pragma GCC unroll 16
        for (int j = i + 1; j < i + chunks; j++)
            s = add_pairs(s, v16(p, j), vld1q_s8(x + j * 16));
        if (group == 256)
            return vpaddlq_s16(s);
        sum = add_scaled(sum, s, scale[i / chunks / 8][i / chunks % 8]);
    }
    return sum;
}

#endif
