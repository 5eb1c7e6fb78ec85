/* mat_avx2_ints.h: the frame of products with 256-value blocks that are written out as bytes: a
 * type says what its scales are and what 32 of its values are, and gets GEMV and GEMM.
 *
 * Values are unsigned bytes v + bias; bias * sum of scale_g * s_g is taken off the integer sum. Or
 * they are magnitudes, whose signs move to the activations. */
#ifndef KERNELS_X86_MAT_AVX2_INTS_H
#define KERNELS_X86_MAT_AVX2_INTS_H

#include "kernels/x86/mat_avx2_gemm.h"

/* What a row's block says about all of its values. */
struct row_ints {
    __m256i
        scale;   /* sixteen int16, dealt: of the even groups of 16 in the low half, then the odd */
    __m256i min; /* likewise */
    __m256i aux; /* the type's own: sign bits, or high bits */
    uint16_t index[64]; /* IQ3_S: into the codebook, computed side by side */
};

struct ints_type {
    size_t block_bytes;
    int bias;     /* of GEMV: with signs 0 */
    bool minima;  /* else row_ints.min is not looked at */
    bool unit;    /* all scales are 1, and eight maddubs of GEMV stay below 32768 */
    float factor; /* D = factor * d, exact */
    void (*open)(const uint8_t *blk, struct row_ints *r);
    __m256i (*values)(const uint8_t *blk, const struct row_ints *r, int c); /* 32c to 32c + 31 */
    __m256i (*signs)(const uint8_t *blk, const struct row_ints *r, int c);  /* +1 or -1; or NULL */
    uint16_t (*d)(const uint8_t *blk);
    uint16_t (*dmin)(const uint8_t *blk); /* with minima */
    /* NULL: values are transposed. Else the bytes of the tile by a shorter way. */
    void (*tile)(const uint8_t *blk, size_t stride, __m256i out[64]);
};

/* Four bytes, the rest 0. */
ALWAYS_INLINE __m128i load_u32_128(const uint8_t *p)
{
    int32_t v;

    memcpy(&v, p, sizeof v);
    return _mm_cvtsi32_si128(v);
}

/* d of the types whose blocks begin with it. */
ALWAYS_INLINE uint16_t first_f16(const uint8_t *p)
{
    uint16_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

/* Word i of both halves of v, in all words of that half. */
#define HALVES_WORD(v, i) _mm256_shuffle_epi8(v, _mm256_set1_epi16((int16_t)(0x100 + 0x202 * (i))))

/* Sixteen int16 in order, dealt. */
ALWAYS_INLINE __m256i deal_words(__m256i v)
{
    const __m256i even_odd = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));

    return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(v, even_odd), 0xd8);
}

/* Sixteen signed bytes in order, dealt as int16. */
ALWAYS_INLINE __m256i deal_bytes(__m128i v)
{
    const __m128i even_odd = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);

    return _mm256_cvtepi8_epi16(_mm_shuffle_epi8(v, even_odd));
}

/* Eight int16 of groups of 32, dealt: twice. */
ALWAYS_INLINE __m256i deal_pairs(__m128i v)
{
    return _mm256_broadcastsi128_si256(v);
}

/* The other way: sixteen int16 in order. */
ALWAYS_INLINE __m256i undeal_words(__m256i v)
{
    const __m128i even = _mm256_castsi256_si128(v), odd = _mm256_extracti128_si256(v, 1);

    return _mm256_set_m128i(_mm_unpackhi_epi16(even, odd), _mm_unpacklo_epi16(even, odd));
}

/* Dword c of v in all lanes. */
ALWAYS_INLINE __m256i pick_dword(__m256i v, int c)
{
    return _mm256_permutevar8x32_epi32(v, _mm256_set1_epi32(c));
}

/* Eight rows, one token. */
ALWAYS_INLINE __m256 group_ints(const struct row_group *g, const struct ints_type *type)
{
    const __m256i one = _mm256_set1_epi16(1);
    const struct act_q256 *x = g->x;
    __m256 acc = _mm256_setzero_ps();
    const uint8_t *w = g->w;

    for (int b = 0; b < g->n_blocks; b++, x++, w += type->block_bytes) {
        const __m256i sums = deal_words(load256(x->sum16));
        __m256i isum[8], msum[8];
        uint16_t d[8], dmin[8];

        for (int r = 0; r < 8; r++) {
            const uint8_t *p = w + (size_t)r * g->stride;
            struct row_ints row;
            __m256i sum = _mm256_setzero_si256();

            prefetch_bytes(g->prefetch + ((size_t)b * 8 + (size_t)r) * type->block_bytes,
                           (int)type->block_bytes);
            type->open(p, &row);
            d[r] = type->d(p);
#pragma GCC unroll 8
            for (int c = 0; c < 8; c++) {
                __m256i q = load256(x->q + 32 * c);
                if (type->signs)
                    q = _mm256_sign_epi8(q, type->signs(p, &row, c));
                q = _mm256_maddubs_epi16(type->values(p, &row, c), q);
                if (type->unit)
                    sum = _mm256_add_epi16(sum, q);
                else
                    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(q, HALVES_WORD(row.scale, c)));
            }
            isum[r] = type->unit ? _mm256_madd_epi16(sum, one) : sum;
            if (type->bias)
                isum[r] = _mm256_sub_epi32(isum[r],
                                           _mm256_mullo_epi32(_mm256_madd_epi16(row.scale, sums),
                                                              _mm256_set1_epi32(type->bias)));
            if (type->minima) {
                msum[r] = _mm256_madd_epi16(row.min, sums);
                dmin[r] = type->dmin(p);
            }
        }
        const __m256 dx = _mm256_set1_ps(x->d);
        const __m256 dd = _mm256_mul_ps(widen_f16(load128(d)), _mm256_set1_ps(type->factor));
        acc = _mm256_fmadd_ps(_mm256_mul_ps(dd, dx), _mm256_cvtepi32_ps(sum_lanes8(isum)), acc);
        if (type->minima)
            acc = _mm256_fnmadd_ps(_mm256_mul_ps(widen_f16(load128(dmin)), dx),
                                   _mm256_cvtepi32_ps(sum_lanes8(msum)), acc);
    }
    return acc;
}

/* Scales of eight rows into a tile, values_per_scale: 16 or 32; minima in their place as pairs. */
ALWAYS_INLINE void tile_scales(const struct row_ints row[8], int values_per_scale, bool minima,
                               struct tile *t)
{
    __m256i z[8];

    for (int r = 0; r < 8; r++)
        z[r] = undeal_words(row[r].scale);
    transpose8(z, t->pair);
    for (int i = 0; i < 8; i++) {
        const __m256i even = _mm256_and_si256(t->pair[i], _mm256_set1_epi32(0xffff));
        const __m256i odd = _mm256_srli_epi32(t->pair[i], 16);
        if (values_per_scale == 16) {
            t->scale[2 * i] = _mm256_or_si256(even, _mm256_slli_epi32(even, 16));
            t->scale[2 * i + 1] = _mm256_or_si256(odd, _mm256_slli_epi32(odd, 16));
        } else {
            t->scale[i] = t->pair[i];
        }
    }
    if (minima) {
        for (int r = 0; r < 8; r++)
            z[r] = undeal_words(row[r].min);
        transpose8(z, t->pair);
    }
}

/* One block of eight rows into a tile. bias: of the tile, taken by values with signs too (they have
 * no bias in GEMV). */
ALWAYS_INLINE void unpack_ints(const uint8_t *w, size_t stride, const struct ints_type *type,
                               int values_per_scale, int bias, struct tile *t)
{
    struct row_ints row[8];
    __m256i z[8];
    uint16_t d[8], dmin[8];

    for (int r = 0; r < 8; r++) {
        const uint8_t *p = w + (size_t)r * stride;
        type->open(p, &row[r]);
        d[r] = type->d(p);
        dmin[r] = type->minima ? type->dmin(p) : 0;
    }
    t->d[0] = _mm256_mul_ps(widen_f16(load128(d)), _mm256_set1_ps(type->factor));
    t->min[0] = widen_f16(load128(dmin));
    if (type->unit) {
        t->scale[0] = _mm256_set1_epi16(1);
        for (int i = 0; i < 8; i++)
            t->pair[i] = _mm256_set1_epi16(1);
    } else {
        tile_scales(row, values_per_scale, type->minima, t);
    }
    if (type->tile) {
        type->tile(w, stride, t->w);
        return;
    }
#pragma GCC unroll 8
    for (int c = 0; c < 8; c++) {
        for (int r = 0; r < 8; r++) {
            const uint8_t *p = w + (size_t)r * stride;
            z[r] = type->values(p, &row[r], c);
            if (type->signs)
                z[r] = _mm256_add_epi8(_mm256_sign_epi8(z[r], type->signs(p, &row[r], c)),
                                       _mm256_set1_epi8((int8_t)bias));
        }
        transpose8(z, t->w + 8 * c);
    }
}

/* GEMV and GEMM of a type: struct ints_type type_NAME; dwords, values, bias, form as in mul_k. */
#define INTS_PRODUCTS(name, block, dwords, values, bias, form, least)                              \
    ALWAYS_INLINE __m256 group_##name(const struct row_group *g)                                   \
    {                                                                                              \
        return group_ints(g, &type_##name);                                                        \
    }                                                                                              \
    static void gemv_##name##_avx2(const struct mat_args *a)                                       \
    {                                                                                              \
        gemv_rows(a, 256, group_##name);                                                           \
    }                                                                                              \
    static void unpack_##name(const uint8_t *w, size_t stride, int n_blocks, struct tile *t)       \
    {                                                                                              \
        (void)n_blocks;                                                                            \
        unpack_ints(w, stride, &type_##name, values, bias, t);                                     \
    }                                                                                              \
    MUL_TOKENS(name, mul_k(t, x, xs, acc, n_g, n, dwords, values, bias, form))                     \
    GEMM(name, block, act_q256, 256, 1, least, unpack_##name, gemv_##name##_avx2)

#endif
