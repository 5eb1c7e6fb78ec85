/* mat_avx2_low.c: products with Q2_K, Q3_K, TQ1_0 and TQ2_0 weights (mat_avx2_ints.h). */
#include "kernels/x86/mat_avx2_ints.h"

/* Bits of 32 bytes whose bit pairs 2s hold values 32s to 32s + 31 of a half block, s = c % 4. */
ALWAYS_INLINE __m256i bit_pairs(const uint8_t *qs, int c)
{
    const __m256i q = load256(qs + c / 4 * 32);

    return _mm256_and_si256(_mm256_srli_epi16(q, c % 4 * 2), _mm256_set1_epi8(3));
}

ALWAYS_INLINE void tile_bit_pairs(const uint8_t *w, size_t stride, __m256i out[64])
{
    for (int half = 0; half < 2; half++) {
        __m256i q[8];
        load_transposed8(w + 32 * half, stride, q);
        for (int i = 0; i < 8; i++)
            for (int s = 0; s < 4; s++)
                out[half * 32 + s * 8 + i] = _mm256_and_si256(_mm256_srli_epi16(q[i], 2 * s),
                                                              _mm256_set1_epi8(3));
    }
}

#define D_OF(name, type, member)                                                                   \
    ALWAYS_INLINE uint16_t name(const uint8_t *p)                                                  \
    {                                                                                              \
        return ((const struct type *)(const void *)p)->member;                                     \
    }
D_OF(d_q2k, blk_q2_K, d)
D_OF(dmin_q2k, blk_q2_K, dmin)
D_OF(d_q3k, blk_q3_K, d)
D_OF(d_tq1_0, blk_tq1_0, d)
D_OF(d_tq2_0, blk_tq2_0, d)

ALWAYS_INLINE void open_q2k(const uint8_t *p, struct row_ints *r)
{
    const __m128i s = load128(p + offsetof(struct blk_q2_K, scales)), m4 = _mm_set1_epi8(15);

    r->scale = deal_bytes(_mm_and_si128(s, m4));
    r->min = deal_bytes(_mm_and_si128(_mm_srli_epi16(s, 4), m4));
}

ALWAYS_INLINE __m256i values_q2k(const uint8_t *p, const struct row_ints *r, int c)
{
    (void)r;
    return bit_pairs(p + offsetof(struct blk_q2_K, qs), c);
}

ALWAYS_INLINE void tile_q2k(const uint8_t *w, size_t stride, __m256i out[64])
{
    tile_bit_pairs(w + offsetof(struct blk_q2_K, qs), stride, out);
}

static const struct ints_type type_q2k = {.block_bytes = sizeof(struct blk_q2_K),
                                          .minima = true,
                                          .factor = 1,
                                          .open = open_q2k,
                                          .values = values_q2k,
                                          .d = d_q2k,
                                          .dmin = dmin_q2k,
                                          .tile = tile_q2k};

ALWAYS_INLINE void open_q3k(const uint8_t *p, struct row_ints *r)
{
    uint32_t sc[4];

    mat_unpack_scales_q3k(p + offsetof(struct blk_q3_K, scales), sc);
    r->scale = deal_bytes(_mm_sub_epi8(load128(sc), _mm_set1_epi8(32)));
    r->aux = load256(p + offsetof(struct blk_q3_K, hmask));
}

/* Bit c of the high bits, moved to bit 2. */
ALWAYS_INLINE __m256i values_q3k(const uint8_t *p, const struct row_ints *r, int c)
{
    const __m256i high = c < 2 ? _mm256_slli_epi16(r->aux, 2 - c)
                               : _mm256_srli_epi16(r->aux, c - 2);

    return _mm256_or_si256(bit_pairs(p + offsetof(struct blk_q3_K, qs), c),
                           _mm256_and_si256(high, _mm256_set1_epi8(4)));
}

ALWAYS_INLINE void tile_q3k(const uint8_t *w, size_t stride, __m256i out[64])
{
    __m256i h[8];

    tile_bit_pairs(w + offsetof(struct blk_q3_K, qs), stride, out);
    load_transposed8(w + offsetof(struct blk_q3_K, hmask), stride, h);
    for (int i = 0; i < 8; i++)
        for (int c = 0; c < 8; c++) {
            const __m256i bit = _mm256_and_si256(_mm256_srli_epi16(h[i], c), _mm256_set1_epi8(1));
            out[c * 8 + i] = _mm256_or_si256(out[c * 8 + i], _mm256_slli_epi16(bit, 2));
        }
}

static const struct ints_type type_q3k = {.block_bytes = sizeof(struct blk_q3_K),
                                          .bias = 4,
                                          .factor = 1,
                                          .open = open_q3k,
                                          .values = values_q3k,
                                          .d = d_q3k,
                                          .tile = tile_q3k};

ALWAYS_INLINE __m256i times3(__m256i v)
{
    return _mm256_add_epi8(v, _mm256_add_epi8(v, v));
}

/* Times 3^n, n <= 4. */
ALWAYS_INLINE __m256i times_power(__m256i v, int n)
{
    v = n > 0 ? times3(v) : v;
    v = n > 1 ? times3(v) : v;
    v = n > 2 ? times3(v) : v;
    return n > 3 ? times3(v) : v;
}

/* Digits of bytes v that hold them as fractions of 256, minus 128 (modulo 256, which times3 keeps:
 * -384 is -128): 1 from 86 on, 2 from 171 on. */
ALWAYS_INLINE __m256i first_trits(__m256i v)
{
    const __m256i from1 = _mm256_cmpgt_epi8(v, _mm256_set1_epi8(85 - 128));
    const __m256i from2 = _mm256_cmpgt_epi8(v, _mm256_set1_epi8(170 - 128));

    return _mm256_abs_epi8(_mm256_add_epi8(from1, from2));
}

ALWAYS_INLINE void open_unit(const uint8_t *p, struct row_ints *r)
{
    (void)p;
    r->scale = _mm256_set1_epi16(1);
}

/* Digit c of the first 32 bytes; then digits 0 1, 2 3, 4 of the next 16; last four digits each of
 * the four bytes qh. */
ALWAYS_INLINE __m256i values_tq1_0(const uint8_t *p, const struct row_ints *r, int c)
{
    const struct blk_tq1_0 *b = (const void *)p;
    const __m256i top = _mm256_set1_epi8(-128);

    (void)r;
    if (c < 5)
        return first_trits(times_power(_mm256_xor_si256(load256(b->qs), top), c));
    const __m256i q = _mm256_xor_si256(_mm256_broadcastsi128_si256(load128(b->qs + 32)), top);
    __m256i v = times_power(_mm256_blend_epi32(q, times3(q), 0xf0), 2 * (c - 5));
    if (c == 7) {
        const __m256i h = _mm256_xor_si256(load_dword(b->qh), top);
        const __m256i h3 = times3(h), h9 = times3(h3);
        v = _mm256_blend_epi32(v, h, 0x10);
        v = _mm256_blend_epi32(v, h3, 0x20);
        v = _mm256_blend_epi32(v, h9, 0x40);
        v = _mm256_blend_epi32(v, times3(h9), 0x80);
    }
    return first_trits(v);
}

/* n digits of dword q of eight rows, step dwords apart. */
ALWAYS_INLINE void put_trits(__m256i q, int n, int step, __m256i *out)
{
    __m256i v = _mm256_xor_si256(q, _mm256_set1_epi8(-128));

    for (int i = 0; i < n; i++, v = times3(v))
        out[i * step] = first_trits(v);
}

ALWAYS_INLINE void tile_tq1_0(const uint8_t *w, size_t stride, __m256i out[64])
{
    __m256i q[8], rest[8];

    load_transposed8(w, stride, q);
    load_transposed8(w + 20, stride, rest); /* bytes 20 to 51, where qh ends */
    for (int i = 0; i < 8; i++)
        put_trits(q[i], 5, 8, out + i);
    for (int i = 0; i < 4; i++)
        put_trits(rest[3 + i], 5, 4, out + 40 + i);
    put_trits(rest[7], 4, 1, out + 60);
}

/* int16: 8 * 2 * 2 * 127 = 4064. */
static const struct ints_type type_tq1_0 = {.block_bytes = sizeof(struct blk_tq1_0),
                                            .bias = 1,
                                            .unit = true,
                                            .factor = 1,
                                            .open = open_unit,
                                            .values = values_tq1_0,
                                            .d = d_tq1_0,
                                            .tile = tile_tq1_0};

ALWAYS_INLINE __m256i values_tq2_0(const uint8_t *p, const struct row_ints *r, int c)
{
    (void)r;
    return bit_pairs(p + offsetof(struct blk_tq2_0, qs), c);
}

ALWAYS_INLINE void tile_tq2_0(const uint8_t *w, size_t stride, __m256i out[64])
{
    tile_bit_pairs(w + offsetof(struct blk_tq2_0, qs), stride, out);
}

/* int16: 8 * 2 * 3 * 127 = 6096. */
static const struct ints_type type_tq2_0 = {.block_bytes = sizeof(struct blk_tq2_0),
                                            .bias = 1,
                                            .unit = true,
                                            .factor = 1,
                                            .open = open_unit,
                                            .values = values_tq2_0,
                                            .d = d_tq2_0,
                                            .tile = tile_tq2_0};

/* int16 sums: Q2_K 4 * 2 * 3 * 127 = 3048; Q3_K 4 * 2 * 7 * 127 = 7112; TQ1_0 32 * 2 * 2 * 127 =
 * 16256; TQ2_0 32 * 2 * 3 * 127 = 24384. */
INTS_PRODUCTS(q2k, blk_q2_K, 4, 16, 0, TF_MINIMA, 5)
INTS_PRODUCTS(q3k, blk_q3_K, 4, 16, 4, TF_PLAIN, 5)
INTS_PRODUCTS(tq1_0, blk_tq1_0, 32, 256, 1, TF_PLAIN, 4)
INTS_PRODUCTS(tq2_0, blk_tq2_0, 32, 256, 1, TF_PLAIN, 10)

void kernels_mat_avx2_low(struct kernels *k)
{
    k->mat[QT_Q2_K] = (struct mat_kernel){ACT_Q256, gemv_q2k_avx2, gemm_q2k_avx2};
    k->mat[QT_Q3_K] = (struct mat_kernel){ACT_Q256, gemv_q3k_avx2, gemm_q3k_avx2};
    k->mat[QT_TQ1_0] = (struct mat_kernel){ACT_Q256, gemv_tq1_0_avx2, gemm_tq1_0_avx2};
    k->mat[QT_TQ2_0] = (struct mat_kernel){ACT_Q256, gemv_tq2_0_avx2, gemm_tq2_0_avx2};
}
