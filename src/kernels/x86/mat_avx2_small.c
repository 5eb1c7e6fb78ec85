/* mat_avx2_small.c: products with Q5_0, Q5_1, IQ4_NL, Q1_0, Q2_0 and NVFP4 weights: small blocks
 * with float scales. A step is 32 values, eight rows in SIMD lanes; a type says what the 32 bytes
 * are. */
#include "kernels/x86/mat_avx2_gemm.h"
#include "quant/grids.h"

struct small_type {
    size_t block_bytes; /* which begins with d, for Q5_1 followed by m */
    int steps;          /* a block */
    int bias;           /* of unsigned values */
    bool is_signed;     /* values are signed, and none is below -127 */
    bool minima;
    __m256i (*values)(const uint8_t *blk, int step);
    /* NULL, or the order in which values come, and back. */
    __m256i (*order)(__m256i v);
    __m256i (*in_order)(__m256i v);
};

ALWAYS_INLINE uint16_t f16_at(const uint8_t *p, size_t at)
{
    uint16_t v;

    memcpy(&v, p + at, sizeof v);
    return v;
}

/* Products of unsigned u and signed s, summed in fours. maddubs is at most 2 * 127 * 127 = 32258
 * (IQ4_NL; all others have values up to 31). */
ALWAYS_INLINE __m256i dot4(__m256i u, __m256i s)
{
    return _mm256_madd_epi16(_mm256_maddubs_epi16(u, s), _mm256_set1_epi16(1));
}

#define EIGHT_ROWS(ROW)                                                                            \
    ROW(0);                                                                                        \
    ROW(1);                                                                                        \
    ROW(2);                                                                                        \
    ROW(3);                                                                                        \
    ROW(4);                                                                                        \
    ROW(5);                                                                                        \
    ROW(6);                                                                                        \
    ROW(7)

/* d and m of the block, then a step of it, of one row. */
#define ROW_D(r)                                                                                   \
    do {                                                                                           \
        const uint8_t *p = w + (size_t)(r)*g->stride;                                              \
        d = _mm_insert_epi16(d, f16_at(p, 0), r);                                                  \
        if (type->minima)                                                                          \
            m = _mm_insert_epi16(m, f16_at(p, 2), r);                                              \
    } while (0)
#define ROW_STEP(r)                                                                                \
    do {                                                                                           \
        const __m256i q = type->values(w + (size_t)(r)*g->stride, s);                              \
        v[r] = type->is_signed ? dot4(_mm256_abs_epi8(q), _mm256_sign_epi8(xq, q)) : dot4(q, xq);  \
    } while (0)

ALWAYS_INLINE __m256 group_small(const struct row_group *g, const struct small_type *type)
{
    const struct act_q32 *x = g->x;
    __m256 acc = _mm256_setzero_ps();
    const uint8_t *w = g->w;

    for (int b = 0; b < g->n_blocks; b++, w += type->block_bytes) {
        __m128i d = _mm_setzero_si128(), m = _mm_setzero_si128();

        prefetch_bytes(g->prefetch + (size_t)b * 8 * type->block_bytes, 8 * (int)type->block_bytes);
        EIGHT_ROWS(ROW_D);
#pragma GCC unroll 4
        for (int s = 0; s < type->steps; s++, x++) {
            const __m256 dx = _mm256_set1_ps(x->d);
            __m256i xq = load256(x->q), v[8], isum;
            if (type->order)
                xq = type->order(xq);
            EIGHT_ROWS(ROW_STEP);
            isum = sum_lanes8(v);
            if (type->bias)
                isum = _mm256_sub_epi32(isum, _mm256_set1_epi32(type->bias * x->sum));
            acc = _mm256_fmadd_ps(_mm256_mul_ps(widen_f16(d), dx), _mm256_cvtepi32_ps(isum), acc);
            if (type->minima)
                acc = _mm256_fmadd_ps(_mm256_mul_ps(widen_f16(m), dx),
                                      _mm256_set1_ps((float)x->sum), acc);
        }
    }
    return acc;
}

/* Blocks of eight rows into a tile. */
ALWAYS_INLINE void unpack_small(const uint8_t *w, size_t stride, int n_blocks,
                                const struct small_type *type, struct tile *t)
{
    int step = 0;

    for (int b = 0; b < n_blocks; b++, w += type->block_bytes) {
        uint16_t d[8], m[8];
        for (int r = 0; r < 8; r++) {
            d[r] = f16_at(w + (size_t)r * stride, 0);
            m[r] = f16_at(w + (size_t)r * stride, 2);
        }
        for (int s = 0; s < type->steps; s++, step++) {
            __m256i z[8];
            for (int r = 0; r < 8; r++) {
                z[r] = type->values(w + (size_t)r * stride, s);
                if (type->in_order)
                    z[r] = type->in_order(z[r]);
            }
            transpose8(z, t->w + 8 * step);
            t->d[step] = widen_f16(load128(d));
            if (type->minima)
                t->min[step] = widen_f16(load128(m));
        }
    }
}

/* Sixteen bytes of nibbles as 32 bytes: low nibbles, then high ones. */
ALWAYS_INLINE __m256i unpack_nibbles(const uint8_t *qs)
{
    const __m256i q = _mm256_broadcastsi128_si256(load128(qs));

    return _mm256_and_si256(_mm256_srlv_epi64(q, _mm256_setr_epi64x(0, 0, 4, 4)),
                            _mm256_set1_epi8(15));
}

/* Nibbles with a fifth bit each. */
ALWAYS_INLINE __m256i five_bits(const uint8_t *qs, const uint8_t *qh)
{
    return _mm256_or_si256(unpack_nibbles(qs),
                           _mm256_and_si256(spread_bits(load_dword(qh)), _mm256_set1_epi8(16)));
}

ALWAYS_INLINE __m256i values_q5_0(const uint8_t *p, int s)
{
    (void)s;
    return five_bits(p + offsetof(struct blk_q5_0, qs), p + offsetof(struct blk_q5_0, qh));
}

ALWAYS_INLINE __m256i values_q5_1(const uint8_t *p, int s)
{
    (void)s;
    return five_bits(p + offsetof(struct blk_q5_1, qs), p + offsetof(struct blk_q5_1, qh));
}

ALWAYS_INLINE __m256i values_iq4_nl(const uint8_t *p, int s)
{
    (void)s;
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load128(quant_iq4_values)),
                               unpack_nibbles(p + offsetof(struct blk_iq4_nl, qs)));
}

/* 2 or 0: v + 1. */
ALWAYS_INLINE __m256i values_q1_0(const uint8_t *p, int s)
{
    return _mm256_and_si256(
        spread_bits(load_dword(p + offsetof(struct blk_q1_0, qs) + 4 * (size_t)s)),
        _mm256_set1_epi8(2));
}

/* Eight bytes of four values each, v + 1: first value of all bytes, second, third, fourth. */
ALWAYS_INLINE __m256i values_q2_0(const uint8_t *p, int s)
{
    int64_t q;

    memcpy(&q, p + offsetof(struct blk_q2_0, qs) + 8 * (size_t)s, sizeof q);
    return _mm256_and_si256(
        _mm256_srlv_epi64(_mm256_set1_epi64x(q), _mm256_setr_epi64x(0, 2, 4, 6)),
        _mm256_set1_epi8(3));
}

/* Four times four bytes transposed in each half. */
ALWAYS_INLINE __m256i transpose_fours(__m256i v)
{
    return _mm256_shuffle_epi8(v, _mm256_broadcastsi128_si256(_mm_setr_epi8(
                                      0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)));
}

ALWAYS_INLINE __m256i order_q2_0(__m256i v)
{
    return _mm256_permutevar8x32_epi32(transpose_fours(v),
                                       _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

ALWAYS_INLINE __m256i in_order_q2_0(__m256i v)
{
    return transpose_fours(
        _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7)));
}

static const struct small_type type_q5_0 = {
    .block_bytes = sizeof(struct blk_q5_0), .steps = 1, .bias = 16, .values = values_q5_0};
static const struct small_type type_q5_1 = {
    .block_bytes = sizeof(struct blk_q5_1), .steps = 1, .minima = true, .values = values_q5_1};
static const struct small_type type_iq4_nl = {.block_bytes = sizeof(struct blk_iq4_nl),
                                              .steps = 1,
                                              .is_signed = true,
                                              .values = values_iq4_nl};
static const struct small_type type_q1_0 = {
    .block_bytes = sizeof(struct blk_q1_0), .steps = 4, .bias = 1, .values = values_q1_0};
static const struct small_type type_q2_0 = {.block_bytes = sizeof(struct blk_q2_0),
                                            .steps = 2,
                                            .bias = 1,
                                            .values = values_q2_0,
                                            .order = order_q2_0,
                                            .in_order = in_order_q2_0};

/* dwords, form: as in mul_32. */
#define SMALL_PRODUCTS(name, steps, dwords, bias, form, least)                                     \
    ALWAYS_INLINE __m256 group_##name(const struct row_group *g)                                   \
    {                                                                                              \
        return group_small(g, &type_##name);                                                       \
    }                                                                                              \
    static void gemv_##name##_avx2(const struct mat_args *a)                                       \
    {                                                                                              \
        gemv_rows(a, 32 * (steps), group_##name);                                                  \
    }                                                                                              \
    static void unpack_##name(const uint8_t *w, size_t stride, int n_blocks, struct tile *t)       \
    {                                                                                              \
        unpack_small(w, stride, n_blocks, &type_##name, t);                                        \
    }                                                                                              \
    MUL_TOKENS(name, mul_32(t, x, xs, acc, n_g, n, n_blocks *(steps), dwords, bias, form))         \
    GEMM(name, blk_##name, act_q32[steps], 32 * (steps), TILE_BLOCKS32 / (steps), least,           \
         unpack_##name, gemv_##name##_avx2)

/* int16 sums: Q5_x 4 * 2 * 31 * 127 = 31496; Q1_0 8 * 2 * 2 * 127 = 4064; Q2_0 8 * 2 * 3 * 127 =
 * 6096. */
SMALL_PRODUCTS(q5_0, 1, 4, 16, TF_PLAIN, 4)
SMALL_PRODUCTS(q5_1, 1, 4, 0, TF_MINIMA, 4)
SMALL_PRODUCTS(iq4_nl, 1, 1, 0, TF_SIGNED, 4)
SMALL_PRODUCTS(q1_0, 4, 8, 1, TF_PLAIN, 4)
SMALL_PRODUCTS(q2_0, 2, 8, 1, TF_PLAIN, 5)

/* ---- NVFP4: two floats of 16 values a step ---- */

/* v + 12 of step s: each half of the vector has one group's 16 values. */
ALWAYS_INLINE __m256i values_nvfp4(const uint8_t *p, int s)
{
    const __m256i table = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    const __m256i q = _mm256_permute4x64_epi64(
        _mm256_castsi128_si256(load128(p + offsetof(struct blk_nvfp4, qs) + 16 * (size_t)s)), 0x50);
    const __m256i nibbles = _mm256_srlv_epi64(q, _mm256_setr_epi64x(0, 4, 0, 4));

    return _mm256_shuffle_epi8(table, _mm256_and_si256(nibbles, _mm256_set1_epi8(15)));
}

/* D of the groups 2s and 2s + 1 of eight rows, whose four scales are in scales: half of an UE4M3
 * number. As F16 its bits mean 2^-7 of that; 0x7f means 0. */
ALWAYS_INLINE void widen_ue4m3_half(__m256i scales, int s, __m256 d[2])
{
    const __m256i m7 = _mm256_set1_epi16(0x7f);
    const __m256i two = _mm256_srli_epi32(scales, 16 * s); /* bytes 0 and 1 of each dword */
    const __m256i low = _mm256_and_si256(two, _mm256_set1_epi32(0x7f));
    const __m256i high = _mm256_and_si256(_mm256_srli_epi32(two, 8), _mm256_set1_epi32(0x7f));
    const __m256i v = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
    const __m256i h = _mm256_andnot_si256(_mm256_cmpeq_epi16(v, m7), _mm256_slli_epi16(v, 7));

    d[0] = _mm256_mul_ps(widen_f16(_mm256_castsi256_si128(h)), _mm256_set1_ps(128));
    d[1] = _mm256_mul_ps(widen_f16(_mm256_extracti128_si256(h, 1)), _mm256_set1_ps(128));
}

/* The scales of eight rows. */
ALWAYS_INLINE __m256i load_scales_nvfp4(const uint8_t *w, size_t stride)
{
    int32_t v[8];

    for (int r = 0; r < 8; r++)
        memcpy(v + r, w + (size_t)r * stride, sizeof *v);
    return _mm256_setr_epi32(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]);
}

/* Lane r of sums[h]: sum of the four lanes of half h of v[r]. */
ALWAYS_INLINE void sum_halves(const __m256i v[8], __m256i sums[2])
{
    const __m256i a = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]),
                                        _mm256_hadd_epi32(v[2], v[3]));
    const __m256i b = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]),
                                        _mm256_hadd_epi32(v[6], v[7]));

    sums[0] = _mm256_permute2x128_si256(a, b, 0x20);
    sums[1] = _mm256_permute2x128_si256(a, b, 0x31);
}

/* maddubs: 2 * 24 * 127 = 6096. The bias, 12 * sum of q, is a ninth row of twelves. */
ALWAYS_INLINE __m256 group_nvfp4(const struct row_group *g)
{
    const struct act_q32 *x = g->x;
    __m256 acc = _mm256_setzero_ps();
    const uint8_t *w = g->w;

    for (int b = 0; b < g->n_blocks; b++, w += sizeof(struct blk_nvfp4)) {
        const __m256i scales = load_scales_nvfp4(w, g->stride);

        prefetch_bytes(g->prefetch + (size_t)b * 8 * sizeof(struct blk_nvfp4),
                       8 * sizeof(struct blk_nvfp4));
#pragma GCC unroll 2
        for (int s = 0; s < 2; s++, x++) {
            const __m256i xq = load256(x->q);
            const __m256i bias = dot4(_mm256_set1_epi8(12), xq);
            const __m256 dx = _mm256_set1_ps(x->d);
            __m256i v[8], isum[2];
            __m256 d[2];
#pragma GCC unroll 8
            for (int r = 0; r < 8; r++)
                v[r] = _mm256_sub_epi32(dot4(values_nvfp4(w + (size_t)r * g->stride, s), xq), bias);
            sum_halves(v, isum);
            widen_ue4m3_half(scales, s, d);
            acc = _mm256_fmadd_ps(_mm256_mul_ps(d[0], dx), _mm256_cvtepi32_ps(isum[0]), acc);
            acc = _mm256_fmadd_ps(_mm256_mul_ps(d[1], dx), _mm256_cvtepi32_ps(isum[1]), acc);
        }
    }
    return acc;
}

static void gemv_nvfp4_avx2(const struct mat_args *a)
{
    gemv_rows(a, 64, group_nvfp4);
}

static void unpack_nvfp4(const uint8_t *w, size_t stride, int n_blocks, struct tile *t)
{
    const __m256i bias = _mm256_set1_epi8(12);

    for (int b = 0; b < n_blocks; b++, w += sizeof(struct blk_nvfp4)) {
        const __m256i scales = load_scales_nvfp4(w, stride);
        for (int s = 0; s < 2; s++) {
            __m256i z[8];
            __m256 d[2];
            for (int r = 0; r < 8; r++)
                z[r] = _mm256_sub_epi8(values_nvfp4(w + (size_t)r * stride, s), bias);
            transpose8(z, t->w + 16 * b + 8 * s);
            widen_ue4m3_half(scales, s, d);
            t->d[2 * b + s] = d[0];
            t->min[2 * b + s] = d[1];
        }
    }
}

/* As mul_32 for n_blocks blocks of 64 signed values. int16 sums: 4 * 2 * 12 * 127 = 12192. */
ALWAYS_INLINE void mul_64(const struct tile *t, const uint8_t *x, size_t x_stride, float *y, int n,
                          int n_blocks)
{
    const __m256i one = _mm256_set1_epi16(1);
    __m256 acc[4];

#pragma GCC unroll 4
    for (int k = 0; k < n; k++)
        acc[k] = _mm256_load_ps(ACC(y, k, 0));
    for (int i = 0; i < 4 * n_blocks; i++) { /* 16 values */
        const uint8_t *xb = x + (size_t)(i / 2) * sizeof(struct act_q32);
        const __m256 d = i % 2 ? t->min[i / 2] : t->d[i / 2];
        __m256i s[4];
#pragma GCC unroll 4
        for (int k = 0; k < n; k++)
            s[k] = _mm256_setzero_si256();
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
#pragma GCC unroll 4
            for (int k = 0; k < n; k++) {
                const uint8_t *xk = xb + (size_t)k * x_stride + i % 2 * 16 + j * 4;
                s[k] = dot_dword(s[k], t->w[4 * i + j], load_dword(xk), true);
            }
        }
#pragma GCC unroll 4
        for (int k = 0; k < n; k++) {
            const struct act_q32 *xk = (const void *)(xb + (size_t)k * x_stride);
            acc[k] = _mm256_fmadd_ps(_mm256_mul_ps(d, _mm256_set1_ps(xk->d)),
                                     _mm256_cvtepi32_ps(_mm256_madd_epi16(s[k], one)), acc[k]);
        }
    }
#pragma GCC unroll 4
    for (int k = 0; k < n; k++)
        _mm256_store_ps(ACC(y, k, 0), acc[k]);
}

MUL_TOKENS(nvfp4, for (int g = 0; g < n_g; g++) mul_64(t + g, x, xs, ACC(acc, 0, g), n, n_blocks))
GEMM(nvfp4, blk_nvfp4, act_q32[2], 64, TILE_BLOCKS32 / 2, 4, unpack_nvfp4, gemv_nvfp4_avx2)

void kernels_mat_avx2_small(struct kernels *k)
{
    k->mat[QT_Q5_0] = (struct mat_kernel){ACT_Q32, gemv_q5_0_avx2, gemm_q5_0_avx2};
    k->mat[QT_Q5_1] = (struct mat_kernel){ACT_Q32, gemv_q5_1_avx2, gemm_q5_1_avx2};
    k->mat[QT_IQ4_NL] = (struct mat_kernel){ACT_Q32, gemv_iq4_nl_avx2, gemm_iq4_nl_avx2};
    k->mat[QT_Q1_0] = (struct mat_kernel){ACT_Q32, gemv_q1_0_avx2, gemm_q1_0_avx2};
    k->mat[QT_Q2_0] = (struct mat_kernel){ACT_Q32, gemv_q2_0_avx2, gemm_q2_0_avx2};
    k->mat[QT_NVFP4] = (struct mat_kernel){ACT_Q32, gemv_nvfp4_avx2, gemm_nvfp4_avx2};
}
