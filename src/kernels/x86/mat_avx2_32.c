/* mat_avx2_32.c: GEMV with blocks of 32 values, eight rows in SIMD lanes.
 *
 * Nibble formats enter as unsigned values v + bias; bias * sum(q) is taken off the block's integer
 * sum. Q8_0 moves the weight's sign to the activation. */
#include "kernels/x86/mat_avx2.h"

/* The block b of row r. */
#define BLOCK(type, r) ((const struct type *)(const void *)(g->w + at + (size_t)(r)*g->stride))

/* Sixteen bytes of nibbles as 32 bytes: low nibbles, then high ones. */
ALWAYS_INLINE __m256i unpack_nibbles(const uint8_t *qs)
{
    const __m256i q = _mm256_broadcastsi128_si256(load128(qs));
    const __m256i shift = _mm256_setr_epi64x(0, 0, 4, 4);

    return _mm256_and_si256(_mm256_srlv_epi64(q, shift), _mm256_set1_epi8(15));
}

/* Products of unsigned u (at most 128) and signed s (at most 127), summed in fours: maddubs gives
 * at most 2 * 128 * 127 = 32512. */
ALWAYS_INLINE __m256i dot4(__m256i u, __m256i s)
{
    return _mm256_madd_epi16(_mm256_maddubs_epi16(u, s), _mm256_set1_epi16(1));
}

ALWAYS_INLINE __m256 add_block(__m256 d, const struct act_q32 *x, __m256i isum, __m256 acc)
{
    return _mm256_fmadd_ps(_mm256_mul_ps(d, _mm256_set1_ps(x->d)), _mm256_cvtepi32_ps(isum), acc);
}

/* The rows are written out, since the insert's position must be a constant. */
#define EIGHT_ROWS(ROW)                                                                            \
    ROW(0);                                                                                        \
    ROW(1);                                                                                        \
    ROW(2);                                                                                        \
    ROW(3);                                                                                        \
    ROW(4);                                                                                        \
    ROW(5);                                                                                        \
    ROW(6);                                                                                        \
    ROW(7)

#define ROW_Q8_0(r)                                                                                \
    do {                                                                                           \
        const struct blk_q8_0 *p = BLOCK(blk_q8_0, r);                                             \
        const __m256i q = load256(p->qs);                                                          \
        v[r] = dot4(_mm256_abs_epi8(q), _mm256_sign_epi8(xq, q));                                  \
        d = _mm_insert_epi16(d, p->d, r);                                                          \
    } while (0)

ALWAYS_INLINE __m256 group_q8_0(const struct row_group *g)
{
    const struct act_q32 *x = g->x;
    __m256 acc = _mm256_setzero_ps();
    size_t at = 0;

    for (int b = 0; b < g->n_blocks; b++, x++, at += sizeof(struct blk_q8_0)) {
        const __m256i xq = load256(x->q);
        __m128i d = _mm_setzero_si128();
        __m256i v[8];

        prefetch_bytes(g->prefetch + at * 8, 8 * sizeof(struct blk_q8_0));
        EIGHT_ROWS(ROW_Q8_0);
        acc = add_block(widen_f16(d), x, sum_lanes8(v), acc);
    }
    return acc;
}

#define ROW_Q4_0(r)                                                                                \
    do {                                                                                           \
        const struct blk_q4_0 *p = BLOCK(blk_q4_0, r);                                             \
        v[r] = dot4(unpack_nibbles(p->qs), xq);                                                    \
        d = _mm_insert_epi16(d, p->d, r);                                                          \
    } while (0)

ALWAYS_INLINE __m256 group_q4_0(const struct row_group *g)
{
    const struct act_q32 *x = g->x;
    __m256 acc = _mm256_setzero_ps();
    size_t at = 0;

    for (int b = 0; b < g->n_blocks; b++, x++, at += sizeof(struct blk_q4_0)) {
        const __m256i xq = load256(x->q), bias = _mm256_set1_epi32(8 * x->sum);
        __m128i d = _mm_setzero_si128();
        __m256i v[8];

        prefetch_bytes(g->prefetch + at * 8, 8 * sizeof(struct blk_q4_0));
        EIGHT_ROWS(ROW_Q4_0);
        acc = add_block(widen_f16(d), x, _mm256_sub_epi32(sum_lanes8(v), bias), acc);
    }
    return acc;
}

#define ROW_Q4_1(r)                                                                                \
    do {                                                                                           \
        const struct blk_q4_1 *p = BLOCK(blk_q4_1, r);                                             \
        v[r] = dot4(unpack_nibbles(p->qs), xq);                                                    \
        d = _mm_insert_epi16(d, p->d, r);                                                          \
        m = _mm_insert_epi16(m, p->m, r);                                                          \
    } while (0)

ALWAYS_INLINE __m256 group_q4_1(const struct row_group *g)
{
    const struct act_q32 *x = g->x;
    __m256 acc = _mm256_setzero_ps();
    size_t at = 0;

    for (int b = 0; b < g->n_blocks; b++, x++, at += sizeof(struct blk_q4_1)) {
        const __m256i xq = load256(x->q);
        __m128i d = _mm_setzero_si128(), m = _mm_setzero_si128();
        __m256i v[8];

        prefetch_bytes(g->prefetch + at * 8, 8 * sizeof(struct blk_q4_1));
        EIGHT_ROWS(ROW_Q4_1);
        acc = add_block(widen_f16(d), x, sum_lanes8(v), acc);
        acc = add_block(widen_f16(m), x, _mm256_set1_epi32(x->sum), acc);
    }
    return acc;
}

#define ROW_MXFP4(r)                                                                               \
    do {                                                                                           \
        const struct blk_mxfp4 *p = BLOCK(blk_mxfp4, r);                                           \
        v[r] = dot4(_mm256_shuffle_epi8(values, unpack_nibbles(p->qs)), xq);                       \
        e = _mm_insert_epi8(e, p->e, r);                                                           \
    } while (0)

ALWAYS_INLINE __m256 group_mxfp4(const struct row_group *g)
{
    /* v + 12 */
    const __m256i values = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    const struct act_q32 *x = g->x;
    __m256 acc = _mm256_setzero_ps();
    size_t at = 0;

    for (int b = 0; b < g->n_blocks; b++, x++, at += sizeof(struct blk_mxfp4)) {
        const __m256i xq = load256(x->q), bias = _mm256_set1_epi32(12 * x->sum);
        __m128i e = _mm_setzero_si128();
        __m256i v[8];

        prefetch_bytes(g->prefetch + at * 8, 8 * sizeof(struct blk_mxfp4));
        EIGHT_ROWS(ROW_MXFP4);
        acc = add_block(widen_e8m0_half(e), x, _mm256_sub_epi32(sum_lanes8(v), bias), acc);
    }
    return acc;
}

#define GEMV(name)                                                                                 \
    void kernels_gemv_##name##_avx2(const struct mat_args *a)                                      \
    {                                                                                              \
        gemv_rows(a, 32, group_##name);                                                            \
    }
GEMV(q8_0)
GEMV(q4_0)
GEMV(q4_1)
GEMV(mxfp4)

void kernels_mat_avx2_32(struct kernels *k)
{
    k->mat[QT_Q8_0].gemv = kernels_gemv_q8_0_avx2;
    k->mat[QT_Q4_0].gemv = kernels_gemv_q4_0_avx2;
    k->mat[QT_Q4_1].gemv = kernels_gemv_q4_1_avx2;
    k->mat[QT_MXFP4].gemv = kernels_gemv_mxfp4_avx2;
}
