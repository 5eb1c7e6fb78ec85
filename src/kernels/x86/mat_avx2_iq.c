/* mat_avx2_iq.c: products with IQ1 and IQ2 weights, whose codebooks have eight values an entry
 * (mat_avx2_ints.h). IQ2: magnitudes up to 43 and signs. IQ1: 8 * value + 8 from the codebook, then
 * 2 more where the shift goes up, so that v has the bias 9. */
#include "kernels/x86/mat_avx2_grids.h"
#include "kernels/x86/mat_avx2_signs.h"

ALWAYS_INLINE __m256i four_entries(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    return _mm256_setr_epi64x((int64_t)a, (int64_t)b, (int64_t)c, (int64_t)d);
}

ALWAYS_INLINE uint32_t load_u32(const uint8_t *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

/* ---- IQ2 ---- */

/* Eight pairs of dwords: four indices; signs and scale. */
ALWAYS_INLINE void open_iq2_xxs(const uint8_t *p, struct row_ints *r)
{
    const uint8_t *qs = p + offsetof(struct blk_iq2_xxs, qs);
    const __m256 a = _mm256_castsi256_ps(load256(qs)), b = _mm256_castsi256_ps(load256(qs + 32));
    const __m256i odd = _mm256_permute4x64_epi64(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd)),
                                                 0xd8);

    r->scale = scales_of_tops(odd);
    r->aux = spread_signs7(odd);
}

ALWAYS_INLINE __m256i values_iq2_xxs(const uint8_t *p, const struct row_ints *r, int c)
{
    const uint64_t *grid = kernels_grids.iq2_xxs;
    const uint32_t q = load_u32(p + offsetof(struct blk_iq2_xxs, qs) + 8 * (size_t)c);

    (void)r;
    return four_entries(grid[q & 255], grid[q >> 8 & 255], grid[q >> 16 & 255], grid[q >> 24]);
}

static const struct ints_type type_iq2_xxs = {.block_bytes = sizeof(struct blk_iq2_xxs),
                                              .factor = 0.125f,
                                              .open = open_iq2_xxs,
                                              .values = values_iq2_xxs,
                                              .signs = signs_of_bits,
                                              .d = first_f16};

/* Words: 9 bits of index, 7 sign bits. */
ALWAYS_INLINE void open_iq2_xs(const uint8_t *p, struct row_ints *r)
{
    const uint8_t *qs = p + offsetof(struct blk_iq2_xs, qs);
    const __m256i a = _mm256_srli_epi16(load256(qs), 9), b = _mm256_srli_epi16(load256(qs + 32), 9);

    r->scale = scales_of_nibbles(p + offsetof(struct blk_iq2_xs, scales));
    r->aux = add_parity(_mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), 0xd8));
}

ALWAYS_INLINE __m256i values_iq2_xs(const uint8_t *p, const struct row_ints *r, int c)
{
    const uint64_t *grid = kernels_grids.iq2_xs;
    uint64_t q;

    (void)r;
    memcpy(&q, p + offsetof(struct blk_iq2_xs, qs) + 8 * (size_t)c, sizeof q);
    return four_entries(grid[q & 511], grid[q >> 16 & 511], grid[q >> 32 & 511],
                        grid[q >> 48 & 511]);
}

static const struct ints_type type_iq2_xs = {.block_bytes = sizeof(struct blk_iq2_xs),
                                             .factor = 0.125f,
                                             .open = open_iq2_xs,
                                             .values = values_iq2_xs,
                                             .signs = signs_of_bits,
                                             .d = first_f16};

ALWAYS_INLINE void open_iq2_s(const uint8_t *p, struct row_ints *r)
{
    r->scale = scales_of_nibbles(p + offsetof(struct blk_iq2_s, scales));
    r->aux = load256(p + offsetof(struct blk_iq2_s, signs));
}

ALWAYS_INLINE __m256i values_iq2_s(const uint8_t *p, const struct row_ints *r, int c)
{
    const struct blk_iq2_s *b = (const void *)p;
    const uint64_t *grid = kernels_grids.iq2_s;
    const uint32_t q = load_u32(b->qs + 4 * c), h = b->qh[c];

    (void)r;
    return four_entries(grid[(q & 255) | (h << 8 & 0x300)], grid[(q >> 8 & 255) | (h << 6 & 0x300)],
                        grid[(q >> 16 & 255) | (h << 4 & 0x300)], grid[q >> 24 | (h << 2 & 0x300)]);
}

static const struct ints_type type_iq2_s = {.block_bytes = sizeof(struct blk_iq2_s),
                                            .factor = 0.125f,
                                            .open = open_iq2_s,
                                            .values = values_iq2_s,
                                            .signs = signs_of_bits,
                                            .d = first_f16};

/* ---- IQ1 ---- */

/* Per 32 values a word: 3 high bits of each of four indices, scale, sign of the shift. */
ALWAYS_INLINE void open_iq1_s(const uint8_t *p, struct row_ints *r)
{
    const __m128i h = load128(p + offsetof(struct blk_iq1_s, qh));
    const __m128i s = _mm_and_si128(_mm_srli_epi16(h, 11), _mm_set1_epi16(14));

    r->scale = deal_pairs(_mm_or_si128(s, _mm_set1_epi16(1)));
    /* 2 where the top bit is clear, in both bytes */
    r->aux = deal_pairs(_mm_andnot_si128(_mm_srai_epi16(h, 15), _mm_set1_epi8(2)));
}

ALWAYS_INLINE __m256i values_iq1_s(const uint8_t *p, const struct row_ints *r, int c)
{
    const struct blk_iq1_s *b = (const void *)p;
    const uint64_t *grid = kernels_grids.iq1;
    const uint32_t q = load_u32(b->qs + 4 * c), h = b->qh[c];
    const __m256i v = four_entries(
        grid[(q & 255) | (h << 8 & 0x700)], grid[(q >> 8 & 255) | (h << 5 & 0x700)],
        grid[(q >> 16 & 255) | (h << 2 & 0x700)], grid[q >> 24 | (h >> 1 & 0x700)]);

    return _mm256_add_epi8(v, HALVES_WORD(r->aux, c));
}

static const struct ints_type type_iq1_s = {.block_bytes = sizeof(struct blk_iq1_s),
                                            .bias = 9,
                                            .factor = 0.125f,
                                            .open = open_iq1_s,
                                            .values = values_iq1_s,
                                            .d = first_f16};

/* Four words of four 3-bit scales. aux: the sixteen bytes of qh, twice. */
ALWAYS_INLINE void open_iq1_m(const uint8_t *p, struct row_ints *r)
{
    const uint8_t *sc = p + offsetof(struct blk_iq1_m, scales);
    /* even groups 0 2, odd groups 1 3 of each word */
    const __m256i words = _mm256_broadcastsi128_si256(
        _mm_shuffle_epi8(_mm_loadl_epi64((const void *)sc),
                         _mm_setr_epi8(0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7, 6, 7)));
    /* bits 3g of a word, moved to bits 9 by a product; then to bits 1 */
    const __m256i lift = _mm256_setr_epi16(512, 8, 512, 8, 512, 8, 512, 8, 64, 1, 64, 1, 64, 1, 64,
                                           1);
    const __m256i s = _mm256_srli_epi16(_mm256_mullo_epi16(words, lift), 8);

    r->scale = _mm256_or_si256(_mm256_and_si256(s, _mm256_set1_epi16(14)), _mm256_set1_epi16(1));
    r->aux = _mm256_broadcastsi128_si256(load128(p + offsetof(struct blk_iq1_m, qh)));
}

ALWAYS_INLINE __m256i values_iq1_m(const uint8_t *p, const struct row_ints *r, int c)
{
    const struct blk_iq1_m *b = (const void *)p;
    const uint64_t *grid = kernels_grids.iq1;
    const uint32_t q = load_u32(b->qs + 4 * c), h = b->qh[2 * c] | (uint32_t)b->qh[2 * c + 1] << 8;
    const __m256i v = four_entries(
        grid[(q & 255) | (h << 8 & 0x700)], grid[(q >> 8 & 255) | (h << 4 & 0x700)],
        grid[(q >> 16 & 255) | (h & 0x700)], grid[q >> 24 | (h >> 4 & 0x700)]);
    /* bit 3 of each nibble: byte 2c for the first 16 values, 2c + 1 for the others */
    const __m256i which = _mm256_set_m128i(_mm_set1_epi8((int8_t)(2 * c + 1)),
                                           _mm_set1_epi8((int8_t)(2 * c)));
    const __m256i bit = _mm256_set_epi64x((int64_t)0x8080808080808080, 0x0808080808080808,
                                          (int64_t)0x8080808080808080, 0x0808080808080808);
    const __m256i down = _mm256_and_si256(_mm256_shuffle_epi8(r->aux, which), bit);
    const __m256i up = _mm256_cmpeq_epi8(down, _mm256_setzero_si256());

    return _mm256_sub_epi8(v, _mm256_add_epi8(up, up));
}

static const struct ints_type type_iq1_m = {.block_bytes = sizeof(struct blk_iq1_m),
                                            .bias = 9,
                                            .factor = 0.125f,
                                            .open = open_iq1_m,
                                            .values = values_iq1_m,
                                            .d = mat_d_iq1_m};

/* GEMV: maddubs of magnitudes 2 * 43 * 127 = 10922, of IQ1 2 * 18 * 127 = 4572. GEMM: IQ2 plus 43,
 * int16 sums 2 * 86 * 127 = 21844; IQ1 4 * 2 * 18 * 127 = 18288. */
INTS_PRODUCTS(iq2_xxs, blk_iq2_xxs, 1, 32, 43, TF_PLAIN, 3)
INTS_PRODUCTS(iq2_xs, blk_iq2_xs, 1, 16, 43, TF_PLAIN, 3)
INTS_PRODUCTS(iq2_s, blk_iq2_s, 1, 16, 43, TF_PLAIN, 3)
INTS_PRODUCTS(iq1_s, blk_iq1_s, 4, 32, 9, TF_PLAIN, 4)
INTS_PRODUCTS(iq1_m, blk_iq1_m, 4, 16, 9, TF_PLAIN, 3)

void kernels_mat_avx2_iq(struct kernels *k)
{
    kernels_fill_grids();
    k->mat[QT_IQ2_XXS] = (struct mat_kernel){ACT_Q256, gemv_iq2_xxs_avx2, gemm_iq2_xxs_avx2};
    k->mat[QT_IQ2_XS] = (struct mat_kernel){ACT_Q256, gemv_iq2_xs_avx2, gemm_iq2_xs_avx2};
    k->mat[QT_IQ2_S] = (struct mat_kernel){ACT_Q256, gemv_iq2_s_avx2, gemm_iq2_s_avx2};
    k->mat[QT_IQ1_S] = (struct mat_kernel){ACT_Q256, gemv_iq1_s_avx2, gemm_iq1_s_avx2};
    k->mat[QT_IQ1_M] = (struct mat_kernel){ACT_Q256, gemv_iq1_m_avx2, gemm_iq1_m_avx2};
}
