/* mat_dotprod_ops.h: products of int8 with the dot product instructions: four per int32 lane. */
#ifndef KERNELS_ARM_MAT_DOTPROD_OPS_H
#define KERNELS_ARM_MAT_DOTPROD_OPS_H

#include "kernels/arm/mat_types.h"

ALWAYS_INLINE int32x4_t mul_half(int8x16_t v, int8x16_t x)
{
    return vdotq_s32(vdupq_n_s32(0), v, x);
}

ALWAYS_INLINE int32x4_t mul_run(int8x16_t v0, int8x16_t v1, int8x16_t x0, int8x16_t x1, bool wide)
{
    (void)wide;
    return vdotq_s32(mul_half(v0, x0), v1, x1);
}

ALWAYS_INLINE int32x4_t mul_groups(v16_fn *v16, const uint8_t *p, const int8_t *x,
                                   const int16x8_t *scale, int group)
{
    const int chunks = group / 16, n_scales = group == 256 ? 0 : 2 / chunks;
    int32x4_t sum = vdupq_n_s32(0), sc[4];

#pragma GCC unroll 2
    for (int i = 0; i < n_scales; i++) {
        sc[2 * i] = vmovl_s16(vget_low_s16(scale[i]));
        sc[2 * i + 1] = vmovl_high_s16(scale[i]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += chunks) {
        int32x4_t s = vdupq_n_s32(0);
#pragma GCC unroll 16
        for (int j = i; j < i + chunks; j++)
            s = vdotq_s32(s, v16(p, j), vld1q_s8(x + j * 16));
        if (group == 256)
            return s;
        sum = vmlaq_n_s32(sum, s, sc[i / chunks / 4][i / chunks % 4]);
    }
    return sum;
}

#endif
