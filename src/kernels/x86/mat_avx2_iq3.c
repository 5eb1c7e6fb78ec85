/* mat_avx2_iq3.c: products with IQ3 weights, whose codebooks have four values an entry, and IQ4_XS,
 * whose codebook is a table of sixteen values (mat_avx2_ints.h). All have magnitudes and signs. */
#include "kernels/x86/mat_avx2_grids.h"
#include "kernels/x86/mat_avx2_signs.h"
#include "quant/grids.h"

ALWAYS_INLINE uint64_t load_u64(const uint8_t *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

ALWAYS_INLINE int64_t two_entries(uint32_t a, uint32_t b)
{
    return (int64_t)(a | (uint64_t)b << 32);
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
    const uint64_t q = load_u64(p + offsetof(struct blk_iq3_xxs, qs) + 8 * (size_t)c);

    (void)r;
    return _mm256_setr_epi64x(two_entries(grid[q & 255], grid[q >> 8 & 255]),
                              two_entries(grid[q >> 16 & 255], grid[q >> 24 & 255]),
                              two_entries(grid[q >> 32 & 255], grid[q >> 40 & 255]),
                              two_entries(grid[q >> 48 & 255], grid[q >> 56]));
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
}

ALWAYS_INLINE __m256i values_iq3_s(const uint8_t *p, const struct row_ints *r, int c)
{
    const struct blk_iq3_s *b = (const void *)p;
    const uint32_t *grid = kernels_grids.iq3_s;
    const uint64_t q = load_u64(b->qs + 8 * c);
    const uint32_t h = b->qh[c];

    (void)r;
    return _mm256_setr_epi64x(
        two_entries(grid[(q & 255) | (h << 8 & 256)], grid[(q >> 8 & 255) | (h << 7 & 256)]),
        two_entries(grid[(q >> 16 & 255) | (h << 6 & 256)], grid[(q >> 24 & 255) | (h << 5 & 256)]),
        two_entries(grid[(q >> 32 & 255) | (h << 4 & 256)], grid[(q >> 40 & 255) | (h << 3 & 256)]),
        two_entries(grid[(q >> 48 & 255) | (h << 2 & 256)], grid[q >> 56 | (h << 1 & 256)]));
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

static const struct ints_type type_iq4_xs = {.block_bytes = sizeof(struct blk_iq4_xs),
                                             .factor = 1,
                                             .open = open_iq4_xs,
                                             .values = values_iq4_xs,
                                             .signs = signed_iq4_xs,
                                             .d = first_f16};

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
