/* float_neon.c: the float operations for 64-bit Arm. Everything but the products of attention is
 * float_body.h and attention_body.h: fma over sixteen lanes is in the baseline, and the compiler
 * uses it. */
#include <arm_neon.h>

#define ATTN_TO_F16(x) (vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(x)))[0])
#include "kernels/attention_body.h"
#include "kernels/float_body.h"
#include "kernels/levels.h"

typedef float32x4_t vec;
#define VL 4

#define VEC static inline __attribute__((always_inline)) vec
VEC vec_zero(void)
{
    return vdupq_n_f32(0);
}

VEC vec_set1(float x)
{
    return vdupq_n_f32(x);
}

VEC vec_fma(vec a, vec b, vec c)
{
    return vfmaq_f32(c, a, b);
}

VEC vec_mul(vec a, vec b)
{
    return vmulq_f32(a, b);
}

VEC vec_load(const float *p)
{
    return vld1q_f32(p);
}

VEC vec_load_f16(const uint8_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}

/* Signed bytes as floats. */
VEC vec_load_i8(const uint8_t *p)
{
    uint32_t u;

    memcpy(&u, p, sizeof u);
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(u)))));
}

/* The F16 at p in all lanes. */
VEC vec_set1_f16(const uint8_t *p)
{
    uint16_t h;

    memcpy(&h, p, sizeof h);
    return vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h)));
}

static inline __attribute__((always_inline)) void vec_store(float *p, vec x)
{
    vst1q_f32(p, x);
}

/* Sixteen accumulators of 32 registers. */
static inline __attribute__((always_inline)) int block_queries(int w)
{
    return w == 5 ? 3 : w > 4 ? 4 : w;
}

static inline __attribute__((always_inline)) int block_vecs(int w)
{
    return w > 2 ? 4 : 8;
}

static inline __attribute__((always_inline)) int block_lines(int w, enum kv_type type)
{
    return w > 1 || type != KV_F32 ? 1 : 2;
}

#define EACH_WIDTH(m) m(1) m(2) m(3) m(4)
#include "kernels/attention_simd.h"

void kernels_float_neon(struct kernels *k)
{
    float_fill(k);
    attention_fill(k);
}
