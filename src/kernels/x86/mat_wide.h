/* mat_wide.h: the vector vocabulary of the products above AVX2, and the walk over rows of GEMV.
 *
 * One source serves three levels; the file of a level says which before it includes this:
 *
 *   MAT_LANES  8 (ymm) or 16 (zmm) rows side by side
 *   MAT_VNNI   1: byte products are summed in fours into int32 (vpdpbusd), which is exact;
 *              0: in twos into int16 (vpmaddubsw), exact as long as the sums stay below 32768
 *
 * Everywhere lane r of a vector belongs to row r: rows are transposed by dwords (load_dwords) right
 * after loading, so that no sum runs across lanes and a dword of activations serves all rows. */
#ifndef KERNELS_X86_MAT_WIDE_H
#define KERNELS_X86_MAT_WIDE_H

#include "kernels/x86/mat_avx2.h"

#if MAT_LANES == 16
typedef __m512i vint;
typedef __m512 vfloat;
#define V_OP(op)   _mm512_##op
#define V_BITS(op) _mm512_##op##_si512
#define V_DOT4     _mm512_dpbusd_epi32
#define V_DOT2     _mm512_dpwssd_epi32
#else
typedef __m256i vint;
typedef __m256 vfloat;
#define V_OP(op)   _mm256_##op
#define V_BITS(op) _mm256_##op##_si256
#ifdef __AVXVNNI__
#define V_DOT4 _mm256_dpbusd_avx_epi32
#define V_DOT2 _mm256_dpwssd_avx_epi32
#else
#define V_DOT4 _mm256_dpbusd_epi32
#define V_DOT2 _mm256_dpwssd_epi32
#endif
#endif

#define N_QUADS (MAT_LANES / 4)

ALWAYS_INLINE vint v_zero(void)
{
    return V_BITS(setzero)();
}

ALWAYS_INLINE vint v_and(vint a, vint b)
{
    return V_BITS(and)(a, b);
}

ALWAYS_INLINE vint v_or(vint a, vint b)
{
    return V_BITS(or)(a, b);
}

ALWAYS_INLINE vint v_add(vint a, vint b)
{
    return V_OP(add_epi32)(a, b);
}

ALWAYS_INLINE vint v_bytes(int b)
{
    return V_OP(set1_epi8)((char)b);
}

ALWAYS_INLINE vint v_dwords(int v)
{
    return V_OP(set1_epi32)(v);
}

/* The dword at p in all lanes. */
ALWAYS_INLINE vint v_load_dword(const void *p)
{
    int32_t v;

    memcpy(&v, p, sizeof v);
    return v_dwords(v);
}

/* Sixteen bytes in every 128-bit part. */
ALWAYS_INLINE vint v_repeat128(__m128i v)
{
#if MAT_LANES == 16
    return _mm512_broadcast_i32x4(v);
#else
    return _mm256_broadcastsi128_si256(v);
#endif
}

ALWAYS_INLINE vint v_low4(vint q)
{
    return v_and(q, v_bytes(15));
}

ALWAYS_INLINE vint v_high4(vint q)
{
    return v_low4(V_OP(srli_epi16)(q, 4));
}

/* low, and those bits of high that mask has. */
ALWAYS_INLINE vint v_merge(vint low, vint high, int mask)
{
#if MAT_LANES == 16
    return _mm512_ternarylogic_epi32(low, high, v_bytes(mask), 0xf8);
#else
    return v_or(low, v_and(high, v_bytes(mask)));
#endif
}

/* acc + products of four unsigned and four signed bytes per lane; without VNNI acc is two int16. */
ALWAYS_INLINE vint v_dot(vint acc, vint u, vint s)
{
#if MAT_VNNI
    return V_DOT4(acc, u, s);
#else
    return V_OP(add_epi16)(acc, V_OP(maddubs_epi16)(u, s));
#endif
}

/* isum + sums (of v_dot) * scale; the scale as v_scale and v_signed_scale give it. */
ALWAYS_INLINE vint v_scaled(vint isum, vint sums, vint scale)
{
#if MAT_VNNI
    return v_add(isum, V_OP(mullo_epi32)(sums, scale));
#else
    return v_add(isum, V_OP(madd_epi16)(sums, scale));
#endif
}

/* Sums of v_dot as int32. */
ALWAYS_INLINE vint v_sums(vint sums)
{
#if MAT_VNNI
    return sums;
#else
    return V_OP(madd_epi16)(sums, V_OP(set1_epi16)(1));
#endif
}

/* acc + products of two int16 per lane. */
ALWAYS_INLINE vint v_dot2(vint acc, vint a, vint b)
{
#if MAT_VNNI
    return V_DOT2(acc, a, b);
#else
    return v_add(acc, V_OP(madd_epi16)(a, b));
#endif
}

/* Byte j of every dword as a scale: int32, or the same int16 twice. */
ALWAYS_INLINE vint v_scale(vint v, int j)
{
#if MAT_VNNI
    return j == 3 ? V_OP(srli_epi32)(v, 24) : v_and(V_OP(srli_epi32)(v, 8 * j), v_dwords(255));
#else
    const __m128i pick = _mm_add_epi32(_mm_setr_epi32(0, 4, 8, 12),
                                       _mm_set1_epi32((int)0x80008000 + j));
    return V_OP(shuffle_epi8)(v, v_repeat128(_mm_or_si128(pick, _mm_slli_epi32(pick, 16))));
#endif
}

ALWAYS_INLINE vint v_signed_scale(vint v, int j)
{
#if MAT_VNNI
    return V_OP(srai_epi32)(V_OP(slli_epi32)(v, 24 - 8 * j), 24);
#else
    return V_OP(srai_epi16)(V_OP(slli_epi16)(v_scale(v, j), 8), 8);
#endif
}

/* Eight or sixteen F16, one in the low half of each dword, as floats (exact). */
ALWAYS_INLINE vfloat v_widen_f16(vint v)
{
#if MAT_LANES == 16
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
#else
    const __m256i low = _mm256_and_si256(v, _mm256_set1_epi32(0xffff));
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0xd8);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(words));
#endif
}

/* 2^(e - 128) for e in 0..255: e < 2 is subnormal. */
ALWAYS_INLINE vfloat v_widen_e8m0_half(vint e)
{
    const vint normal = V_OP(slli_epi32)(V_OP(sub_epi32)(e, v_dwords(1)), 23);
    const vint subnormal = V_OP(sllv_epi32)(v_dwords(0x200000), e);

#if MAT_LANES == 16
    return _mm512_castsi512_ps(
        _mm512_mask_mov_epi32(normal, _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2)), subnormal));
#else
    return _mm256_castsi256_ps(
        _mm256_blendv_epi8(normal, subnormal, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
#endif
}

/* fma(d * d_x, (float)sum, acc), the product d * d_x rounded. */
ALWAYS_INLINE vfloat v_add_block(vfloat acc, vfloat d, vfloat d_x, vint sum)
{
    return V_OP(fmadd_ps)(V_OP(mul_ps)(d, d_x), V_OP(cvtepi32_ps)(sum), acc);
}

/* fma(-(dmin * d_x), (float)sum, acc). */
ALWAYS_INLINE vfloat v_take_minima(vfloat acc, vfloat dmin, vfloat d_x, vint sum)
{
    return V_OP(fnmadd_ps)(V_OP(mul_ps)(dmin, d_x), V_OP(cvtepi32_ps)(sum), acc);
}

/* MAT_LANES rows. p[i]: row 4 i at the block in work; three addresses are reached from each by
 * multiples of the stride, which costs no instructions. */
struct lanes {
    const uint8_t *p[N_QUADS];
    size_t stride, stride3;
};

ALWAYS_INLINE struct lanes lanes_at(const uint8_t *w, size_t stride)
{
    struct lanes l = {.stride = stride, .stride3 = 3 * stride};

    for (int i = 0; i < N_QUADS; i++)
        l.p[i] = w + 4 * (size_t)i * stride;
    return l;
}

ALWAYS_INLINE void lanes_advance(struct lanes *l, size_t bytes)
{
    for (int i = 0; i < N_QUADS; i++)
        l->p[i] += bytes;
    /* Not loop-invariant for the compiler: it would keep dozens of sums with constants in memory,
     * where addressing modes do the same for nothing. */
    __asm__("" : "+r"(l->stride), "+r"(l->stride3));
}

/* Byte at of row r (r a constant). */
ALWAYS_INLINE const uint8_t *lanes_row(const struct lanes *l, int r, size_t at)
{
    const size_t off = r % 4 == 3 ? l->stride3 : (size_t)(r % 4) * l->stride;

    return l->p[r / 4] + off + at;
}

/* Sixteen bytes at offset at of rows r and r + 4. */
ALWAYS_INLINE __m256i load_two(const struct lanes *l, int r, size_t at)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load128(lanes_row(l, r, at))),
                                   load128(lanes_row(l, r + 4, at)), 1);
}

/* Sixteen bytes at offset at of every row: q[i] has dword i of each. */
ALWAYS_INLINE void load_dwords(const struct lanes *l, size_t at, vint q[4])
{
    vint z[4];

#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
#if MAT_LANES == 16 /* by halves: an insert from memory into the upper half is slower (Zen 4) */
        z[i] = _mm512_inserti64x4(_mm512_castsi256_si512(load_two(l, i, at)),
                                  load_two(l, i + 8, at), 1);
#else
        z[i] = load_two(l, i, at);
#endif
    const vint a = V_OP(unpacklo_epi32)(z[0], z[1]), b = V_OP(unpacklo_epi32)(z[2], z[3]);
    const vint c = V_OP(unpackhi_epi32)(z[0], z[1]), d = V_OP(unpackhi_epi32)(z[2], z[3]);
    q[0] = V_OP(unpacklo_epi64)(a, b);
    q[1] = V_OP(unpackhi_epi64)(a, b);
    q[2] = V_OP(unpacklo_epi64)(c, d);
    q[3] = V_OP(unpackhi_epi64)(c, d);
}

ALWAYS_INLINE int load_word(const uint8_t *p)
{
    uint16_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

/* The word at offset at of rows first to first + 7. The lanes are written out, since an insert's
 * position must be a constant. */
#define LANES_WORD(v, i) _mm_insert_epi16(v, load_word(lanes_row(l, first + (i), at)), i)

ALWAYS_INLINE __m128i load_words8(const struct lanes *l, int first, size_t at)
{
    __m128i v = _mm_cvtsi32_si128(load_word(lanes_row(l, first, at)));

    v = LANES_WORD(LANES_WORD(LANES_WORD(v, 1), 2), 3);
    return LANES_WORD(LANES_WORD(LANES_WORD(LANES_WORD(v, 4), 5), 6), 7);
}

/* The F16 at offset at of every row. */
ALWAYS_INLINE vfloat load_f16(const struct lanes *l, size_t at)
{
#if MAT_LANES == 16
    return _mm512_cvtph_ps(_mm256_set_m128i(load_words8(l, 8, at), load_words8(l, 0, at)));
#else
    return _mm256_cvtph_ps(load_words8(l, 0, at));
#endif
}

/* The byte at offset at of rows first to first + 7. */
#define LANES_BYTE(v, i) _mm_insert_epi8(v, *lanes_row(l, first + (i), at), i)

ALWAYS_INLINE __m128i load_bytes8(const struct lanes *l, int first, size_t at)
{
    __m128i v = _mm_cvtsi32_si128(*lanes_row(l, first, at));

    v = LANES_BYTE(LANES_BYTE(LANES_BYTE(v, 1), 2), 3);
    return LANES_BYTE(LANES_BYTE(LANES_BYTE(LANES_BYTE(v, 4), 5), 6), 7);
}

/* The byte at offset at of every row, as int32. */
ALWAYS_INLINE vint load_bytes(const struct lanes *l, size_t at)
{
#if MAT_LANES == 16
    return _mm512_cvtepu8_epi32(_mm_unpacklo_epi64(load_bytes8(l, 0, at), load_bytes8(l, 8, at)));
#else
    return _mm256_cvtepu8_epi32(load_bytes8(l, 0, at));
#endif
}

/* A line that was dropped gets further chances: it is asked for three times, twice into L2 (the
 * first time the address of a coming page is translated) and, when the prefetches have come to it,
 * into L1, where it then comes from L2 at once and blocks no miss buffer (docs/experiments.md). The
 * near one is at least so many bytes ahead of the rows in work: a group or two. */
#define NEAR_AHEAD ((size_t)8 << 10)

/* Prefetch the lines at p and ahead of it when v is there: the compiler moves free prefetches, all
 * of a block to its beginning. */
#define AHEAD_OF(p, bytes) "m"(*((const uint8_t *)(p) + (bytes)))
#define PREFETCH_WITH(v, p)                                                                        \
    __asm__("prefetcht0 %1\n\tprefetcht1 %2\n\tprefetcht1 %3"                                      \
            : "+v"(v)                                                                              \
            : AHEAD_OF(p, 0), AHEAD_OF(p, 8192), AHEAD_OF(p, 16384))

/* Part i of n of prefetching MAT_LANES blocks at ahead: at most two lines, when v is there. */
ALWAYS_INLINE vint prefetch_part(vint v, const uint8_t *ahead, size_t block_bytes, int i, int n)
{
    const int bytes = MAT_LANES * (int)block_bytes;
    const int line = (i * bytes / n + 63) / 64, end = ((i + 1) * bytes / n + 63) / 64;

    if (line < end)
        PREFETCH_WITH(v, ahead + 64 * (size_t)line);
    if (line + 1 < end)
        PREFETCH_WITH(v, ahead + 64 * ((size_t)line + 1));
    return v;
}

#define MAX_BLOCK_BYTES 272 /* of 256 values of any type */

/* Bytes [at, at + n) of n_rows rows (fewer than MAT_LANES) into buf, the last row repeated. */
ALWAYS_INLINE struct lanes pad_rows(const struct mat_args *a, size_t at, size_t n, uint8_t *buf)
{
    for (int r = 0; r < MAT_LANES; r++) {
        const int from = r < a->n_rows ? r : a->n_rows - 1;
        memcpy(buf + (size_t)r * n, a->w + (size_t)from * a->row_bytes + at, n);
    }
    return lanes_at(buf, n);
}

/* Where a type's weights go: dword i of 256 (or 32) values of every row, unsigned (or signed, if
 * the type says so). in_place: w is 16 times the weights. */
typedef void emit_fn(void *sink, int i, vint w, bool in_place);
/* All dwords of a block; those of a group of values in rising order. */
typedef void walk_fn(const struct lanes *l, emit_fn *emit, void *sink);

/* One byte of nibbles each: low ones as dword low, high ones as dword high. With VNNI products can
 * be made of high nibbles where they lie. */
ALWAYS_INLINE void emit_nibbles(emit_fn *emit, void *sink, vint q, int low, int high)
{
    emit(sink, low, v_low4(q), false);
    emit(sink, high, MAT_VNNI ? v_and(q, v_bytes(0xf0)) : v_high4(q), MAT_VNNI);
}

#endif
