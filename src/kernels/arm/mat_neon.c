/* mat_neon.c: the NEON level of the products: its table, and packing of activations. */
#include "kernels/arm/mat_arm.h"
#include "kernels/levels.h"

/* Four absolute values as integers, taken into the running maxima. Infinity and NaN are largest. */
ALWAYS_INLINE uint32x4_t max_bits(uint32x4_t top, const float *x)
{
    return vmaxq_u32(top, vreinterpretq_u32_f32(vld1q_f32(x)) & 0x7fffffff);
}

/* nearest_even(x_i * r) of 16 values as bytes. The narrowing keeps the value: |q| <= 127. */
ALWAYS_INLINE int8x16_t quantise16(const float *x, float r)
{
    int16x4_t q[4];

#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        q[i] = vmovn_s32(vcvtnq_s32_f32(vld1q_f32(x + i * 4) * r));
    return vcombine_s8(vmovn_s16(vcombine_s16(q[0], q[1])), vmovn_s16(vcombine_s16(q[2], q[3])));
}

/* d of a block and r for quantise16; a tiny block gets r = 0 (which makes every q 0 too). False:
 * not finite. */
ALWAYS_INLINE bool block_scale(uint32x4_t top, float *d, float *r)
{
    const uint32_t bits = vmaxvq_u32(top);
    float a;

    if (bits >= 0x7f800000)
        return false;
    memcpy(&a, &bits, sizeof a);
    *d = a < 0x1p-100f ? 0 : a / 127.0f;
    *r = a < 0x1p-100f ? 0 : 127.0f / a;
    return true;
}

static bool pack_f32_neon(const float *x, int n, void *dst)
{
    const int full = n / 4 * 4;
    uint32x4_t top = vdupq_n_u32(0);
    float *y = dst;
    uint32_t bits;

    for (int i = 0; i < full; i += 4) {
        top = max_bits(top, x + i);
        vst1q_f32(y + i, vld1q_f32(x + i));
    }
    bits = vmaxvq_u32(top);
    for (int i = full; i < (n + 15) / 16 * 16; i++) {
        uint32_t b = 0;
        if (i < n)
            memcpy(&b, x + i, sizeof b);
        memcpy(y + i, &b, sizeof b);
        b &= 0x7fffffff;
        bits = b > bits ? b : bits;
    }
    return bits < 0x7f800000;
}

static bool pack_q256_neon(const float *x, int n, void *dst)
{
    struct act_q256 *y = dst;

    for (int b = 0; b < n / 256; b++, x += 256, y++) {
        uint32x4_t top = vdupq_n_u32(0);
        float r;

        for (int i = 0; i < 256; i += 4)
            top = max_bits(top, x + i);
        if (!block_scale(top, &y->d, &r))
            return false;
        for (int g = 0; g < 16; g++) {
            const int8x16_t q = quantise16(x + g * 16, r);
            vst1q_s8(y->q + g * 16, q);
            y->sum16[g] = vaddlvq_s8(q);
        }
        memset(y->pad, 0, sizeof y->pad);
    }
    return true;
}

static bool pack_q32_neon(const float *x, int n, void *dst)
{
    struct act_q32 *y = dst;

    for (int b = 0; b < n / 32; b++, x += 32, y++) {
        uint32x4_t top = vdupq_n_u32(0);
        int8x16_t q[2];
        float r;

        for (int i = 0; i < 32; i += 4)
            top = max_bits(top, x + i);
        if (!block_scale(top, &y->d, &r))
            return false;
        for (int i = 0; i < 2; i++) {
            q[i] = quantise16(x + i * 16, r);
            vst1q_s8(y->q + i * 16, q[i]);
        }
        y->sum = vaddlvq_s8(q[0]) + vaddlvq_s8(q[1]);
        memset(y->pad, 0, sizeof y->pad);
    }
    return true;
}

void kernels_mat_neon(struct kernels *k)
{
    k->pack_f32 = pack_f32_neon;
    k->pack_q256 = pack_q256_neon;
    k->pack_q32 = pack_q32_neon;
    kernels_mat_neon_float(k);
    kernels_mat_neon_gemv(k);
    kernels_mat_neon_gemm(k);
}
