/* mat_avx2_iq3.c: products with IQ3 weights, whose codebooks have four values an entry, and IQ4_XS,
 * whose codebook is a table of sixteen values (mat_avx2_ints.h). All have magnitudes and signs. */
#include "kernels/x86/mat_avx2_grids.h"
#include "kernels/x86/mat_avx2_signs.h"
#include "quant/grids.h"

ALWAYS_INLINE __m256i dwords(uint32_t v)
{
    return _mm256_set1_epi32((int32_t)v);
}

/* Entries at eight places. Broadcasts and blends, since shuffles are what runs short here. */
ALWAYS_INLINE __m256i eight_entries(uint32_t a, uint32_t b, uint32_t c, uint32_t d, uint32_t e,
                                    uint32_t f, uint32_t g, uint32_t h)
{
    const __m256i ab = _mm256_blend_epi32(dwords(a), dwords(b), 0x02);
    const __m256i cd = _mm256_blend_epi32(dwords(c), dwords(d), 0x08);
    const __m256i ef = _mm256_blend_epi32(dwords(e), dwords(f), 0x20);
    const __m256i gh = _mm256_blend_epi32(dwords(g), dwords(h), 0x80);

    return _mm256_blend_epi32(_mm256_blend_epi32(ab, cd, 0x0c), _mm256_blend_epi32(ef, gh, 0xc0),
                              0xf0);
}

/* ---- IQ3 ---- */

ALWAYS_INLINE void open_iq3_xxs(const uint8_t *p, struct row_ints *r)
{
    const __m256i sas = load256(p + offsetof(struct blk_iq3_xxs, sas));

    r->scale = scales_of_tops(sas);
    r->aux = spread_signs7(sas);
}

ALWAYS_INLINE __m256i values_iq3_xxs(const uint8_t *p, const struct row_ints *r, int c)
{
    const uint32_t *grid = kernels_grids.iq3_xxs;
    const uint8_t *i = p + offsetof(struct blk_iq3_xxs, qs) + 8 * (size_t)c;

    (void)r;
    return eight_entries(grid[i[0]], grid[i[1]], grid[i[2]], grid[i[3]], grid[i[4]], grid[i[5]],
                         grid[i[6]], grid[i[7]]);
}

static const struct ints_type type_iq3_xxs = {.block_bytes = sizeof(struct blk_iq3_xxs),
                                              .factor = 0.25f,
                                              .open = open_iq3_xxs,
                                              .values = values_iq3_xxs,
                                              .signs = signs_of_bits,
                                              .d = first_f16};

/* A scale nibble per 32 values. */
ALWAYS_INLINE void open_iq3_s(const uint8_t *p, struct row_ints *r)
{
    const __m128i v = load_u32_128(p + offsetof(struct blk_iq3_s, scales));
    const __m128i both = _mm_unpacklo_epi8(v, _mm_srli_epi16(v, 4));
    const __m128i s = _mm_cvtepu8_epi16(_mm_and_si128(both, _mm_set1_epi8(15)));

    r->scale = deal_pairs(_mm_or_si128(_mm_slli_epi16(s, 1), _mm_set1_epi16(1)));
    r->aux = load256(p + offsetof(struct blk_iq3_s, signs));
    for (int k = 0; k < 4; k++) { /* bit 8 of sixteen indices: the bits of two bytes of qh */
        const __m256i bit = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048,
                                              4096, 8192, 16384, -32768);
        uint16_t h;
        memcpy(&h, p + offsetof(struct blk_iq3_s, qh) + 2 * (size_t)k, sizeof h);
        const __m256i set = _mm256_cmpeq_epi16(_mm256_and_si256(_mm256_set1_epi16((int16_t)h), bit),
                                               bit);
        const __m256i low = _mm256_cvtepu8_epi16(
            load128(p + offsetof(struct blk_iq3_s, qs) + 16 * (size_t)k));
        _mm256_storeu_si256((void *)(r->index + 16 * k),
                            _mm256_or_si256(low, _mm256_and_si256(set, _mm256_set1_epi16(256))));
    }
}

ALWAYS_INLINE __m256i values_iq3_s(const uint8_t *p, const struct row_ints *r, int c)
{
    const uint32_t *grid = kernels_grids.iq3_s;
    const uint16_t *i = r->index + 8 * c;

    (void)p;
    return eight_entries(grid[i[0]], grid[i[1]], grid[i[2]], grid[i[3]], grid[i[4]], grid[i[5]],
                         grid[i[6]], grid[i[7]]);
}

static const struct ints_type type_iq3_s = {.block_bytes = sizeof(struct blk_iq3_s),
                                            .factor = 1,
                                            .open = open_iq3_s,
                                            .values = values_iq3_s,
                                            .signs = signs_of_bits,
                                            .d = first_f16};

/* ---- IQ4_XS ---- */

/* Scales: a nibble and two bits of a word per 32 values. */
ALWAYS_INLINE void open_iq4_xs(const uint8_t *p, struct row_ints *r)
{
    const struct blk_iq4_xs *b = (const void *)p;
    const __m128i v = load_u32_128(b->scales_l);
    const __m128i low = _mm_and_si128(_mm_unpacklo_epi8(v, _mm_srli_epi16(v, 4)),
                                      _mm_set1_epi8(15));
    /* bits 2g of the word, moved to bits 14 by a product; then to bits 4 */
    const __m128i lift = _mm_setr_epi16(1 << 14, 1 << 12, 1 << 10, 1 << 8, 1 << 6, 1 << 4, 1 << 2,
                                        1);
    const __m128i high = _mm_slli_epi16(
        _mm_srli_epi16(_mm_mullo_epi16(_mm_set1_epi16((int16_t)b->scales_h), lift), 14), 4);

    r->scale = deal_pairs(
        _mm_sub_epi16(_mm_or_si128(_mm_cvtepu8_epi16(low), high), _mm_set1_epi16(32)));
}

/* None is 0. */
ALWAYS_INLINE __m256i signed_iq4_xs(const uint8_t *p, const struct row_ints *r, int c)
{
    const __m128i q = load128(p + offsetof(struct blk_iq4_xs, qs) + 16 * (size_t)c);
    const __m256i table = _mm256_broadcastsi128_si256(load128(quant_iq4_values));
    const __m256i both = _mm256_set_m128i(_mm_srli_epi16(q, 4), q);

    (void)r;
    return _mm256_shuffle_epi8(table, _mm256_and_si256(both, _mm256_set1_epi8(15)));
}

ALWAYS_INLINE __m256i values_iq4_xs(const uint8_t *p, const struct row_ints *r, int c)
{
    return _mm256_abs_epi8(signed_iq4_xs(p, r, c));
}

ALWAYS_INLINE void tile_iq4_xs(const uint8_t *w, size_t stride, __m256i out[64])
{
    const __m256i table = _mm256_broadcastsi128_si256(load128(quant_iq4_values));
    const __m256i m4 = _mm256_set1_epi8(15);

    for (int k = 0; k < 4; k++) { /* 32 bytes: the nibbles of two groups */
        __m256i q[8];
        load_transposed8(w + offsetof(struct blk_iq4_xs, qs) + 32 * (size_t)k, stride, q);
        for (int i = 0; i < 8; i++) {
            __m256i *o = out + k * 16 + i / 4 * 8 + i % 4;
            o[0] = _mm256_shuffle_epi8(table, _mm256_and_si256(q[i], m4));
            o[4] = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(q[i], 4), m4));
        }
    }
}

static const struct ints_type type_iq4_xs = {.block_bytes = sizeof(struct blk_iq4_xs),
                                             .factor = 1,
                                             .open = open_iq4_xs,
                                             .values = values_iq4_xs,
                                             .signs = signed_iq4_xs,
                                             .d = first_f16,
                                             .tile = tile_iq4_xs};

/* GEMV: maddubs of magnitudes, IQ3_XXS 2 * 62 * 127 = 15748, IQ3_S 2 * 15 * 127 = 3810, IQ4_XS
 * 2 * 127 * 127 = 32258. GEMM: IQ3_XXS plus 62, int16 sums 2 * 124 * 127 = 31496; IQ3_S plus 15,
 * 4 * 2 * 30 * 127 = 30480; IQ4_XS signed. */
INTS_PRODUCTS(iq3_xxs, blk_iq3_xxs, 1, 32, 62, TF_PLAIN, 3)
INTS_PRODUCTS(iq3_s, blk_iq3_s, 4, 32, 15, TF_PLAIN, 3)
INTS_PRODUCTS(iq4_xs, blk_iq4_xs, 1, 32, 0, TF_SIGNED, 4)

void kernels_mat_avx2_iq3(struct kernels *k)
{
    kernels_fill_grids();
    k->mat[QT_IQ3_XXS] = (struct mat_kernel){ACT_Q256, gemv_iq3_xxs_avx2, gemm_iq3_xxs_avx2};
    k->mat[QT_IQ3_S] = (struct mat_kernel){ACT_Q256, gemv_iq3_s_avx2, gemm_iq3_s_avx2};
    k->mat[QT_IQ4_XS] = (struct mat_kernel){ACT_Q256, gemv_iq4_xs_avx2, gemm_iq4_xs_avx2};
}
