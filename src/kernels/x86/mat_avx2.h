/* mat_avx2.h: what the AVX2 products share. Included only by files compiled for AVX2, FMA, F16C. */
#ifndef KERNELS_X86_MAT_AVX2_H
#define KERNELS_X86_MAT_AVX2_H

#include <immintrin.h>

#include "kernels/mat.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* The parts of kernels_mat_avx2. */
void kernels_mat_avx2_k(struct kernels *k);
void kernels_mat_avx2_32(struct kernels *k);
void kernels_mat_avx2_float(struct kernels *k);
void kernels_mat_avx2_gemm(struct kernels *k);
void kernels_mat_avx2_low(struct kernels *k);
void kernels_mat_avx2_iq(struct kernels *k);
void kernels_mat_avx2_iq3(struct kernels *k);
void kernels_mat_avx2_small(struct kernels *k);

/* The compiler rearranges sums of integers: it computes all products first and adds them up as a
 * tree, for which the registers don't suffice. A value that went through here is one of its own. */
#define KEEP_ORDER(v) __asm__("" : "+v"(v))

ALWAYS_INLINE __m128i load128(const void *p)
{
    return _mm_loadu_si128(p);
}

ALWAYS_INLINE __m256i load256(const void *p)
{
    return _mm256_loadu_si256(p);
}

/* The dword at p in all lanes. */
ALWAYS_INLINE __m256i load_dword(const void *p)
{
    int32_t v;

    memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
}

/* Byte i of the result: -1 where bit i of the dword that fills all lanes is set, else 0. */
ALWAYS_INLINE __m256i spread_bits(__m256i dword)
{
    const int64_t ones = 0x0101010101010101;
    const __m256i which = _mm256_setr_epi64x(0, ones, 2 * ones, 3 * ones);
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201);

    return _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(dword, which), bit), bit);
}

/* Lane r of the result: sum of the eight lanes of v[r]. */
ALWAYS_INLINE __m256i sum_lanes8(const __m256i v[8])
{
    __m256i a[4], b[2];

#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        a[i] = _mm256_add_epi32(_mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]),
                                _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        b[i] = _mm256_add_epi32(_mm256_unpacklo_epi64(a[2 * i], a[2 * i + 1]),
                                _mm256_unpackhi_epi64(a[2 * i], a[2 * i + 1]));
    return _mm256_add_epi32(_mm256_permute2x128_si256(b[0], b[1], 0x20),
                            _mm256_permute2x128_si256(b[0], b[1], 0x31));
}

/* The eight F16 of v as floats (exact). */
ALWAYS_INLINE __m256 widen_f16(__m128i v)
{
    return _mm256_cvtph_ps(v);
}

/* 2^(e - 128) for eight bytes e: e < 2 is subnormal. */
ALWAYS_INLINE __m256 widen_e8m0_half(__m128i e)
{
    const __m256i v = _mm256_cvtepu8_epi32(e);
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(v, _mm256_set1_epi32(1)), 23);
    const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), v);

    return _mm256_castsi256_ps(
        _mm256_blendv_epi8(normal, subnormal, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), v)));
}

/* Prefetches go into the L2 cache. One into L1 would occupy one of that cache's few miss buffers
 * (24 on Zen 4) until the line is there, and the loads of the rows in work would wait behind it.
 * Those into L2 are dropped where too many come at once or where their page is not yet in the TLB;
 * so they are spread over the work. (Zen 4, one thread, GB/s of Q4_K and Q6_K from memory that is
 * read at 32: sixteen rows' block at once into L1 9 and 7, into L2 21 and 12, spread 31 and 24.) */
ALWAYS_INLINE void prefetch_bytes(const uint8_t *p, int bytes)
{
#pragma GCC unroll 32
    for (int i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)(p + i), _MM_HINT_T1);
}

/* Rows are taken in groups that fill the SIMD lanes. While one group is multiplied, a coming group
 * is prefetched whole and in address order: that keeps the DRAM page streams few, where a prefetch
 * per row would open eight. How far ahead: whole groups, at least this many bytes (measured: 24 to
 * 150 KiB make no difference; 12 cost a tenth with rows of 2048 columns). */
#define PREFETCH_AHEAD ((size_t)24 << 10)

ALWAYS_INLINE size_t groups_ahead(size_t group_bytes, size_t least)
{
    return (least + group_bytes - 1) / group_bytes * group_bytes;
}

/* What to prefetch while the group at `at` is in work: a group at least `least` bytes ahead, behind
 * the last one the caller's `next`; where there is nothing the group itself, which costs next to
 * nothing. */
ALWAYS_INLINE const uint8_t *prefetch_from(const struct mat_args *a, size_t at, size_t group_bytes,
                                           size_t least)
{
    const size_t from = at + groups_ahead(group_bytes, least),
                 end = (size_t)a->n_rows * a->row_bytes;

    if (from + group_bytes <= end)
        return a->w + from;
    return from >= end && from - end + group_bytes <= a->next_bytes ? a->next + (from - end)
                                                                    : a->w + at;
}

/* Eight rows of weights, stride bytes apart (0: eight times the same row, for what is left over),
 * against the packed activations of one token; lane r of the result belongs to row r. */
struct row_group {
    const uint8_t *w;
    size_t stride;
    const void *x;
    int n_blocks;
    const uint8_t *prefetch; /* as many bytes as the rows have */
};
typedef __m256 gemv_group_fn(const struct row_group *g);

/* All rows, for one token or a few: those share the cached rows of a group. When the number of rows
 * is no multiple of eight the last group overlaps the one before it: a row gives the same bytes in
 * any lane. */
ALWAYS_INLINE void gemv_rows(const struct mat_args *a, int block_values, gemv_group_fn *group)
{
    const bool few = a->n_rows < 8; /* row by row */
    struct row_group g = {NULL, few ? 0 : a->row_bytes, NULL, a->n_cols / block_values, NULL};

    for (int r = 0; r < a->n_rows; r += few ? 1 : 8) {
        const int first = few || r + 8 <= a->n_rows ? r : a->n_rows - 8;
        const size_t at = (size_t)first * a->row_bytes;
        float *y = a->y + first;
        g.w = a->w + at;
        g.x = a->x;
        g.prefetch = few ? g.w : prefetch_from(a, at, 8 * a->row_bytes, PREFETCH_AHEAD);
        for (int t = 0; t < a->n_tok; t++, y += a->y_stride) {
            const __m256 sums = group(&g);
            if (few)
                *y = _mm256_cvtss_f32(sums);
            else
                _mm256_storeu_ps(y, sums);
            g.x = (const uint8_t *)g.x + a->x_stride;
            g.prefetch = g.w;
        }
    }
}

/* How many tokens' activations fit into the L2 cache beside the weights; at least least. */
ALWAYS_INLINE int tokens_in_cache(size_t x_stride, int least)
{
    const size_t budget = (size_t)512 << 10;

    return x_stride * (size_t)least >= budget ? least
                                              : (int)(budget / (x_stride > 64 ? x_stride : 64));
}

/* Functions of several files: GEMM gives a few tokens to GEMV. */
mat_fn kernels_gemv_q4k_avx2;
mat_fn kernels_gemv_q5k_avx2;
mat_fn kernels_gemv_q6k_avx2;
mat_fn kernels_gemv_q8_0_avx2;
mat_fn kernels_gemv_q4_0_avx2;
mat_fn kernels_gemv_q4_1_avx2;
mat_fn kernels_gemv_mxfp4_avx2;

#endif
