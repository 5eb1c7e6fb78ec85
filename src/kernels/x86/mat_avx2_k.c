/* mat_avx2_k.c: GEMV with Q4_K, Q5_K and Q6_K weights, eight rows in SIMD lanes.
 *
 * Inside a block of 256 everything is exact: maddubs (unsigned weight times signed activation, two
 * products per int16), then madd by the sub-block's int16 scale into int32. The bound of each
 * maddubs, which would saturate at 32767, stands beside it. */
#include "kernels/x86/mat_avx2.h"

/* Word i of v, of its two equal 128-bit halves, in all words. */
#define BROADCAST_WORD(v, i) _mm256_shuffle_epi8(v, _mm256_set1_epi16(0x100 + 0x202 * (i)))

/* d and dmin of eight blocks (dmin << 16 | d) applied to the integer sums of eight rows. */
ALWAYS_INLINE __m256 add_blocks(const uint32_t dd[8], float d_x, __m256i isum, __m256i msum,
                                __m256 acc)
{
    const __m256i v = load256(dd);
    const __m256i low = _mm256_and_si256(v, _mm256_set1_epi32(0xffff));
    const __m256i both = _mm256_permute4x64_epi64(
        _mm256_packus_epi32(low, _mm256_srli_epi32(v, 16)), 0xd8);
    const __m256 d = widen_f16(_mm256_castsi256_si128(both));
    const __m256 dmin = widen_f16(_mm256_extracti128_si256(both, 1));
    const __m256 dx = _mm256_set1_ps(d_x);

    acc = _mm256_fmadd_ps(_mm256_mul_ps(d, dx), _mm256_cvtepi32_ps(isum), acc);
    return _mm256_fnmadd_ps(_mm256_mul_ps(dmin, dx), _mm256_cvtepi32_ps(msum), acc);
}

/* Lane r: sum of the four lanes of v[r]. */
ALWAYS_INLINE __m256i sum_lanes4(const __m128i v[8])
{
    const __m128i lo = _mm_hadd_epi32(_mm_hadd_epi32(v[0], v[1]), _mm_hadd_epi32(v[2], v[3]));
    const __m128i hi = _mm_hadd_epi32(_mm_hadd_epi32(v[4], v[5]), _mm_hadd_epi32(v[6], v[7]));

    return _mm256_set_m128i(hi, lo);
}

/* Scales of a row as int16 in both halves; its minima times the sums of 32 (four partial sums). */
ALWAYS_INLINE __m256i row_scales(const uint8_t scales[12], __m128i sum32, __m128i *msum)
{
    uint64_t sc, mins;

    mat_unpack_scales(scales, &sc, &mins);
    *msum = _mm_madd_epi16(_mm_cvtepu8_epi16(_mm_cvtsi64_si128((int64_t)mins)), sum32);
    return _mm256_broadcastsi128_si256(_mm_cvtepu8_epi16(_mm_cvtsi64_si128((int64_t)sc)));
}

/* Two sub-blocks of 32, their quants in q0 and q1, times their scales: eight partial sums. */
#define SCALED_PAIR(q0, q1, x, sc, j)                                                              \
    _mm256_add_epi32(                                                                              \
        _mm256_madd_epi16(_mm256_maddubs_epi16(q0, load256(x)), BROADCAST_WORD(sc, j)),            \
        _mm256_madd_epi16(_mm256_maddubs_epi16(q1, load256((x) + 32)),                             \
                          BROADCAST_WORD(sc, (j) + 1)))

/* maddubs: 2 * 15 * 127 = 3810. */
#define Q4K_PAIR(j)                                                                                \
    do {                                                                                           \
        const __m256i q = load256(p->qs + (j)*16);                                                 \
        const __m256i q0 = _mm256_and_si256(q, m4);                                                \
        const __m256i q1 = _mm256_and_si256(_mm256_srli_epi16(q, 4), m4);                          \
        sum = _mm256_add_epi32(sum, SCALED_PAIR(q0, q1, x->q + (j)*32, sc, j));                    \
    } while (0)

ALWAYS_INLINE __m256 group_q4k(const struct row_group *g)
{
    const __m256i m4 = _mm256_set1_epi8(15);
    const struct blk_q4_K *w = (const void *)g->w;
    const struct act_q256 *x = g->x;
    __m256 acc = _mm256_setzero_ps();

    for (int b = 0; b < g->n_blocks; b++, x++) {
        const uint8_t *ahead = g->prefetch + (size_t)b * 8 * sizeof *w;
        const __m128i sum32 = _mm_hadd_epi16(load128(x->sum16), load128(x->sum16 + 8));
        __m256i isum[8];
        __m128i msum[8];
        uint32_t dd[8];

        for (int r = 0; r < 8; r++) {
            const struct blk_q4_K *p = (const void *)((const uint8_t *)(w + b) +
                                                      (size_t)r * g->stride);
            prefetch_bytes(ahead + (size_t)r * sizeof *w, sizeof *w);
            const __m256i sc = row_scales(p->scales, sum32, &msum[r]);
            __m256i sum = _mm256_setzero_si256();
            memcpy(&dd[r], p, 4);
            Q4K_PAIR(0);
            Q4K_PAIR(2);
            Q4K_PAIR(4);
            Q4K_PAIR(6);
            isum[r] = sum;
        }
        acc = add_blocks(dd, x->d, sum_lanes8(isum), sum_lanes4(msum), acc);
    }
    return acc;
}

/* Bit j of each byte of qh, moved to bit 4. */
#define FIFTH_BIT(qh, j)                                                                           \
    _mm256_and_si256((j) < 4 ? _mm256_slli_epi16(qh, ((j) < 4) ? 4 - (j) : 0)                      \
                             : _mm256_srli_epi16(qh, ((j) < 4) ? 0 : (j)-4),                       \
                     m16)

/* maddubs: 2 * 31 * 127 = 7874. */
#define Q5K_PAIR(j)                                                                                \
    do {                                                                                           \
        const __m256i q = load256(p->qs + (j)*16);                                                 \
        const __m256i q0 = _mm256_or_si256(_mm256_and_si256(q, m4), FIFTH_BIT(qh, j));             \
        const __m256i q1 = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(q, 4), m4),          \
                                           FIFTH_BIT(qh, (j) + 1));                                \
        sum = _mm256_add_epi32(sum, SCALED_PAIR(q0, q1, x->q + (j)*32, sc, j));                    \
    } while (0)

ALWAYS_INLINE __m256 group_q5k(const struct row_group *g)
{
    const __m256i m4 = _mm256_set1_epi8(15), m16 = _mm256_set1_epi8(16);
    const struct blk_q5_K *w = (const void *)g->w;
    const struct act_q256 *x = g->x;
    __m256 acc = _mm256_setzero_ps();

    for (int b = 0; b < g->n_blocks; b++, x++) {
        const uint8_t *ahead = g->prefetch + (size_t)b * 8 * sizeof *w;
        const __m128i sum32 = _mm_hadd_epi16(load128(x->sum16), load128(x->sum16 + 8));
        __m256i isum[8];
        __m128i msum[8];
        uint32_t dd[8];

        for (int r = 0; r < 8; r++) {
            const struct blk_q5_K *p = (const void *)((const uint8_t *)(w + b) +
                                                      (size_t)r * g->stride);
            prefetch_bytes(ahead + (size_t)r * sizeof *w, sizeof *w);
            const __m256i sc = row_scales(p->scales, sum32, &msum[r]);
            const __m256i qh = load256(p->qh);
            __m256i sum = _mm256_setzero_si256();
            memcpy(&dd[r], p, 4);
            Q5K_PAIR(0);
            Q5K_PAIR(2);
            Q5K_PAIR(4);
            Q5K_PAIR(6);
            isum[r] = sum;
        }
        acc = add_blocks(dd, x->d, sum_lanes8(isum), sum_lanes4(msum), acc);
    }
    return acc;
}

/* One run of 32 values, q = v + 32 in q6, times its two int16 scales (bytes 2 * run and 2 * run + 1
 * of sb): eight partial sums. maddubs: 2 * 63 * 127 = 16002. */
ALWAYS_INLINE __m256i q6k_run(__m256i q6, const int8_t *x, __m128i sb, int run)
{
    const int64_t ones = 0x0101010101010101;
    const __m128i pick = _mm_set_epi64x(ones * (2 * run + 1), ones * (2 * run));

    return _mm256_madd_epi16(_mm256_maddubs_epi16(q6, load256(x + run * 32)),
                             _mm256_cvtepi8_epi16(_mm_shuffle_epi8(sb, pick)));
}

/* Half h (128 values) of a block: runs 4h to 4h + 3. */
ALWAYS_INLINE __m256i q6k_half(const struct blk_q6_K *p, const int8_t *x, __m128i sb, int h)
{
    const __m256i m4 = _mm256_set1_epi8(15), m48 = _mm256_set1_epi8(48);
    const __m256i l0 = load256(p->ql + h * 64), l1 = load256(p->ql + h * 64 + 32);
    const __m256i qh = load256(p->qh + h * 32);
    const __m256i q0 = _mm256_or_si256(_mm256_and_si256(l0, m4),
                                       _mm256_and_si256(_mm256_slli_epi16(qh, 4), m48));
    const __m256i q1 = _mm256_or_si256(_mm256_and_si256(l1, m4),
                                       _mm256_and_si256(_mm256_slli_epi16(qh, 2), m48));
    const __m256i q2 = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(l0, 4), m4),
                                       _mm256_and_si256(qh, m48));
    const __m256i q3 = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(l1, 4), m4),
                                       _mm256_and_si256(_mm256_srli_epi16(qh, 2), m48));

    return _mm256_add_epi32(
        _mm256_add_epi32(q6k_run(q0, x, sb, 4 * h), q6k_run(q1, x, sb, 4 * h + 1)),
        _mm256_add_epi32(q6k_run(q2, x, sb, 4 * h + 2), q6k_run(q3, x, sb, 4 * h + 3)));
}

/* sc * 32 * sum16 takes the 32 off again. With q up to 63 the sums stay below 256 * 63 * 128 * 127
 * = 262,160,000. */
ALWAYS_INLINE __m256 group_q6k(const struct row_group *g)
{
    const struct blk_q6_K *w = (const void *)g->w;
    const struct act_q256 *x = g->x;
    __m256 acc = _mm256_setzero_ps();

    for (int b = 0; b < g->n_blocks; b++, x++) {
        const uint8_t *ahead = g->prefetch + (size_t)b * 8 * sizeof *w;
        const __m256i sum16 = load256(x->sum16);
        __m256i isum[8];
        uint16_t d[8];

        for (int r = 0; r < 8; r++) {
            const struct blk_q6_K *p = (const void *)((const uint8_t *)(w + b) +
                                                      (size_t)r * g->stride);
            prefetch_bytes(ahead + (size_t)r * sizeof *w, sizeof *w);
            const __m128i sb = load128(p->scales);
            const __m256i off = _mm256_slli_epi32(
                _mm256_madd_epi16(_mm256_cvtepi8_epi16(sb), sum16), 5);
            isum[r] = _mm256_sub_epi32(
                _mm256_add_epi32(q6k_half(p, x->q, sb, 0), q6k_half(p, x->q, sb, 1)), off);
            d[r] = p->d;
        }
        acc = _mm256_fmadd_ps(_mm256_mul_ps(widen_f16(load128(d)), _mm256_set1_ps(x->d)),
                              _mm256_cvtepi32_ps(sum_lanes8(isum)), acc);
    }
    return acc;
}

void kernels_gemv_q4k_avx2(const struct mat_args *a)
{
    gemv_rows(a, 256, group_q4k);
}

void kernels_gemv_q5k_avx2(const struct mat_args *a)
{
    gemv_rows(a, 256, group_q5k);
}

void kernels_gemv_q6k_avx2(const struct mat_args *a)
{
    gemv_rows(a, 256, group_q6k);
}

void kernels_mat_avx2_k(struct kernels *k)
{
    k->mat[QT_Q4_K].gemv = kernels_gemv_q4k_avx2;
    k->mat[QT_Q5_K].gemv = kernels_gemv_q5k_avx2;
    k->mat[QT_Q6_K].gemv = kernels_gemv_q6k_avx2;
}
