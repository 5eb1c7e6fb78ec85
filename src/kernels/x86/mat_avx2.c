/* mat_avx2.c: the AVX2 level of the products: its table, and packing of activations. */
#include "kernels/x86/mat_avx2.h"
#include "kernels/levels.h"

/* Eight absolute values as integers, taken into the running maxima. Infinity and NaN are largest.
 */
ALWAYS_INLINE __m256i max_bits(__m256i top, const float *x)
{
    const __m256i bits = _mm256_and_si256(load256(x), _mm256_set1_epi32(0x7fffffff));

    return _mm256_max_epi32(top, bits);
}

ALWAYS_INLINE uint32_t max_of_lanes(__m256i v)
{
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));

    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

/* nearest_even(x_i * r) of 32 values as bytes. The narrowing cannot saturate: |q| <= 127. */
ALWAYS_INLINE __m256i quantise32(const float *x, __m256 r)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i q[4];

    for (int i = 0; i < 4; i++)
        q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i * 8), r));
    return _mm256_permutevar8x32_epi32(
        _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3])), order);
}

/* Sums of eight bytes each, plus 8 * 128, in four 64-bit lanes. */
ALWAYS_INLINE __m256i biased_sums8(__m256i q)
{
    return _mm256_sad_epu8(_mm256_xor_si256(q, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
}

/* d of a block and r for quantise32; a tiny block gets r = 0 (which makes every q 0 too). False:
 * not finite. */
ALWAYS_INLINE bool block_scale(__m256i top, float *d, __m256 *r)
{
    const uint32_t bits = max_of_lanes(top);
    float a;

    if (bits >= 0x7f800000)
        return false;
    memcpy(&a, &bits, sizeof a);
    *d = a < 0x1p-100f ? 0 : a / 127.0f;
    *r = _mm256_set1_ps(a < 0x1p-100f ? 0 : 127.0f / a);
    return true;
}

/* The products of other threads have read what is packed over now, so the lines lie in their caches
 * too, and a store to each would wait until they have given it up. Hence lines are taken a while
 * before they are written: n of them at p, as far as they lie before end. */
#define OWN_BYTES 1280 /* taken at the beginning, and from then on so many ahead */

ALWAYS_INLINE void own_lines(const void *p, size_t n, const void *end)
{
    for (const char *line = p; n-- > 0 && line < (const char *)end; line += 64)
        __asm__ volatile("prefetchw %0" ::"m"(*line));
}

static bool pack_f32_avx2(const float *x, int n, void *dst)
{
    const int full = n / 8 * 8;
    const float *end = (const float *)dst + full;
    __m256i top = _mm256_setzero_si256();
    float *y = dst;
    uint32_t bits;

    own_lines(y, OWN_BYTES / 64, end);
    for (int i = 0; i < full; i += 8) {
        if (i % 16 == 0)
            own_lines(y + i + OWN_BYTES / sizeof *y, 1, end);
        top = max_bits(top, x + i);
        _mm256_storeu_ps(y + i, _mm256_loadu_ps(x + i));
    }
    bits = max_of_lanes(top);
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

static bool pack_q256_avx2(const float *x, int n, void *dst)
{
    struct act_q256 *y = dst;
    const struct act_q256 *end = y + n / 256;

    own_lines(y, OWN_BYTES / 64, end);
    for (; y < end; x += 256, y++) {
        __m256i top = _mm256_setzero_si256();
        __m256 r;

        own_lines((const char *)y + OWN_BYTES, sizeof *y / 64, end);
        for (int i = 0; i < 256; i += 8)
            top = max_bits(top, x + i);
        if (!block_scale(top, &y->d, &r))
            return false;
        for (int i = 0; i < 8; i++) {
            const __m256i q = quantise32(x + i * 32, r);
            const __m256i s = biased_sums8(q);
            const __m256i sum = _mm256_add_epi64(s, _mm256_srli_si256(s, 8));
            _mm256_storeu_si256((void *)(y->q + i * 32), q);
            y->sum16[2 * i] = (int16_t)(_mm_cvtsi128_si32(_mm256_castsi256_si128(sum)) - 2048);
            y->sum16[2 * i + 1] = (int16_t)(_mm_cvtsi128_si32(_mm256_extracti128_si256(sum, 1)) -
                                            2048);
        }
        memset(y->pad, 0, sizeof y->pad);
    }
    return true;
}

static bool pack_q32_avx2(const float *x, int n, void *dst)
{
    struct act_q32 *y = dst;
    const struct act_q32 *end = y + n / 32;

    own_lines(y, OWN_BYTES / 64, end);
    for (; y < end; x += 32, y++) {
        __m256i top = _mm256_setzero_si256(), q, s;
        __m256 r;

        own_lines((const char *)y + OWN_BYTES, 1, end);
        for (int i = 0; i < 32; i += 8)
            top = max_bits(top, x + i);
        if (!block_scale(top, &y->d, &r))
            return false;
        q = quantise32(x, r);
        s = biased_sums8(q);
        s = _mm256_add_epi64(s, _mm256_srli_si256(s, 8));
        _mm256_storeu_si256((void *)y->q, q);
        y->sum = _mm_cvtsi128_si32(_mm256_castsi256_si128(s)) +
                 _mm_cvtsi128_si32(_mm256_extracti128_si256(s, 1)) - 4096;
        memset(y->pad, 0, sizeof y->pad);
    }
    return true;
}

void kernels_mat_avx2(struct kernels *k)
{
    k->pack_f32 = pack_f32_avx2;
    k->pack_q256 = pack_q256_avx2;
    k->pack_q32 = pack_q32_avx2;
    kernels_mat_avx2_float(k);
    kernels_mat_avx2_k(k);
    kernels_mat_avx2_32(k);
    kernels_mat_avx2_gemm(k);
    kernels_mat_avx2_low(k);
    kernels_mat_avx2_iq(k);
    kernels_mat_avx2_iq3(k);
    kernels_mat_avx2_small(k);
}
