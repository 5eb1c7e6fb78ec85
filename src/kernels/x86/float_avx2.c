/* float_avx2.c: the float operations with eight lanes. Everything but the products of attention is
 * float_body.h and attention_body.h, compiled for these CPUs. */
#include <immintrin.h>

#define ATTN_TO_F16(x) ((uint16_t)_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT))
#include "kernels/attention_body.h"
#include "kernels/float_body.h"
#include "kernels/levels.h"

typedef __m256 vec;
#define VL 8

#define VEC static inline __attribute__((always_inline)) vec
VEC vec_zero(void)
{
    return _mm256_setzero_ps();
}

VEC vec_set1(float x)
{
    return _mm256_set1_ps(x);
}

VEC vec_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

VEC vec_mul(vec a, vec b)
{
    return _mm256_mul_ps(a, b);
}

VEC vec_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

VEC vec_load_f16(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/* Signed bytes as floats. */
VEC vec_load_i8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

/* The F16 at p in all lanes. */
VEC vec_set1_f16(const uint8_t *p)
{
    int16_t h;

    memcpy(&h, p, sizeof h);
    return _mm256_cvtph_ps(_mm_set1_epi16(h));
}

static inline __attribute__((always_inline)) void vec_store(float *p, vec x)
{
    _mm256_storeu_ps(p, x);
}

/* Eight accumulators of sixteen registers. */
static inline __attribute__((always_inline)) int block_queries(int w)
{
    return w == 5 ? 3 : w > 4 ? 4 : w;
}

static inline __attribute__((always_inline)) int block_vecs(int w)
{
    return w > 2 ? 2 : w == 2 ? 4 : 8;
}

static inline __attribute__((always_inline)) int block_lines(int w, enum kv_type type)
{
    return (w > 2 ? 1 : 2) * (type == KV_F32 ? 2 : 1);
}

#define EACH_WIDTH(m) m(1) m(2) m(3) m(4)
#include "kernels/attention_simd.h"

void kernels_float_avx2(struct kernels *k)
{
    float_fill(k);
    attention_fill(k);
}
