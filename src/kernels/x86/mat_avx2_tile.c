/* mat_avx2_tile.c: weights of every quantised type into GEMM tiles. Exact: only moves and masks. */
#include "kernels/x86/mat_avx2_tile.h"

/* Sixteen bytes at offset at of eight rows, transposed: q[i] has dword i of each row. */
ALWAYS_INLINE void load_transposed(const uint8_t *w, size_t stride, size_t at, __m256i q[4])
{
    __m256i z[4];

    for (int i = 0; i < 4; i++) {
        const uint8_t *p = w + (size_t)i * stride + at;
        z[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(load128(p)), load128(p + 4 * stride),
                                       1);
    }
    const __m256i a = _mm256_unpacklo_epi32(z[0], z[1]), b = _mm256_unpacklo_epi32(z[2], z[3]);
    const __m256i c = _mm256_unpackhi_epi32(z[0], z[1]), d = _mm256_unpackhi_epi32(z[2], z[3]);
    q[0] = _mm256_unpacklo_epi64(a, b);
    q[1] = _mm256_unpackhi_epi64(a, b);
    q[2] = _mm256_unpacklo_epi64(c, d);
    q[3] = _mm256_unpackhi_epi64(c, d);
}

ALWAYS_INLINE __m256i low4(__m256i q)
{
    return _mm256_and_si256(q, _mm256_set1_epi8(15));
}

ALWAYS_INLINE __m256i high4(__m256i q)
{
    return low4(_mm256_srli_epi16(q, 4));
}

/* The F16 at offset at of eight rows. */
ALWAYS_INLINE __m256 load_f16_rows(const uint8_t *w, size_t stride, size_t at)
{
    uint16_t v[8];

    for (int r = 0; r < 8; r++)
        memcpy(v + r, w + (size_t)r * stride + at, sizeof *v);
    return widen_f16(load128(v));
}

/* Scales, minima and floats that Q4_K and Q5_K have in common: their first 16 bytes. */
static void unpack_k_head(const uint8_t *w, size_t stride, struct tile *t)
{
    for (int r = 0; r < 8; r++) {
        const struct blk_q4_K *p = (const void *)(w + (size_t)r * stride);
        int16_t *scale = (int16_t *)t->scale + 2 * r, *pair = (int16_t *)t->pair + 2 * r;
        uint64_t sc, mins;
        mat_unpack_scales(p->scales, &sc, &mins);
        for (int j = 0; j < 8; j++, sc >>= 8, mins >>= 8) {
            scale[j * 16] = scale[j * 16 + 1] = (int16_t)(sc & 63);
            pair[j / 2 * 16 + j % 2] = (int16_t)(mins & 63);
        }
    }
    t->d[0] = load_f16_rows(w, stride, offsetof(struct blk_q4_K, d));
    t->min[0] = load_f16_rows(w, stride, offsetof(struct blk_q4_K, dmin));
}

void kernels_unpack_q4k(const uint8_t *w, size_t stride, int n_blocks, struct tile *t)
{
    (void)n_blocks;
    unpack_k_head(w, stride, t);
    for (int c = 0; c < 8; c++) { /* 16 bytes: half of two sub-blocks */
        __m256i q[4], *out = t->w + c / 2 * 16 + c % 2 * 4;
        load_transposed(w, stride, offsetof(struct blk_q4_K, qs) + (size_t)c * 16, q);
        for (int i = 0; i < 4; i++) {
            out[i] = low4(q[i]);
            out[8 + i] = high4(q[i]);
        }
    }
}

void kernels_unpack_q5k(const uint8_t *w, size_t stride, int n_blocks, struct tile *t)
{
    const __m256i m1 = _mm256_set1_epi8(1);

    (void)n_blocks;
    unpack_k_head(w, stride, t);
    for (int half = 0; half < 2; half++) {
        __m256i qh[4];
        load_transposed(w, stride, offsetof(struct blk_q5_K, qh) + (size_t)half * 16, qh);
        for (int c = 0; c < 4; c++) {
            __m256i q[4], *out = t->w + c * 16 + half * 4;
            load_transposed(w, stride,
                            offsetof(struct blk_q5_K, qs) + (size_t)c * 32 + (size_t)half * 16, q);
            for (int i = 0; i < 4; i++) {
                const __m256i h0 = _mm256_and_si256(qh[i], m1);
                const __m256i h1 = _mm256_and_si256(_mm256_srli_epi16(qh[i], 1), m1);
                out[i] = _mm256_or_si256(low4(q[i]), _mm256_slli_epi16(h0, 4));
                out[8 + i] = _mm256_or_si256(high4(q[i]), _mm256_slli_epi16(h1, 4));
                qh[i] = _mm256_srli_epi16(qh[i], 2);
            }
        }
    }
}

void kernels_unpack_q6k(const uint8_t *w, size_t stride, int n_blocks, struct tile *t)
{
    const __m256i m3 = _mm256_set1_epi8(3);

    (void)n_blocks;
    for (int c = 0; c < 4; c++) { /* dwords 4 (c % 2) to + 3 of the four runs of half c / 2 */
        const size_t half = (size_t)c / 2, at = (size_t)c % 2 * 16;
        __m256i l0[4], l1[4], qh[4], *out = t->w + half * 32 + at / 4;
        load_transposed(w, stride, offsetof(struct blk_q6_K, ql) + half * 64 + at, l0);
        load_transposed(w, stride, offsetof(struct blk_q6_K, ql) + half * 64 + 32 + at, l1);
        load_transposed(w, stride, offsetof(struct blk_q6_K, qh) + half * 32 + at, qh);
        for (int i = 0; i < 4; i++) {
            const __m256i low[4] = {low4(l0[i]), low4(l1[i]), high4(l0[i]), high4(l1[i])};
            for (int run = 0; run < 4; run++) {
                const __m256i high = _mm256_slli_epi16(_mm256_and_si256(qh[i], m3), 4);
                out[run * 8 + i] = _mm256_or_si256(low[run], high);
                qh[i] = _mm256_srli_epi16(qh[i], 2);
            }
        }
    }
    for (int r = 0; r < 8; r++) {
        const struct blk_q6_K *p = (const void *)(w + (size_t)r * stride);
        int16_t *scale = (int16_t *)t->scale + 2 * r, *pair = (int16_t *)t->pair + 2 * r;
        for (int g = 0; g < 16; g++) {
            scale[g * 16] = scale[g * 16 + 1] = p->scales[g];
            pair[g / 2 * 16 + g % 2] = p->scales[g];
        }
    }
    t->d[0] = load_f16_rows(w, stride, offsetof(struct blk_q6_K, d));
}

void kernels_unpack_q8_0(const uint8_t *w, size_t stride, int n_blocks, struct tile *t)
{
    for (int b = 0; b < n_blocks; b++, w += sizeof(struct blk_q8_0)) {
        load_transposed(w, stride, offsetof(struct blk_q8_0, qs), t->w + b * 8);
        load_transposed(w, stride, offsetof(struct blk_q8_0, qs) + 16, t->w + b * 8 + 4);
        t->d[b] = load_f16_rows(w, stride, 0);
    }
}

/* The 16 bytes of nibbles at offset at: values 0-15 low, 16-31 high. */
ALWAYS_INLINE void unpack_nibbles(const uint8_t *w, size_t stride, size_t at, __m256i out[8])
{
    __m256i q[4];

    load_transposed(w, stride, at, q);
    for (int i = 0; i < 4; i++) {
        out[i] = low4(q[i]);
        out[4 + i] = high4(q[i]);
    }
}

void kernels_unpack_q4_0(const uint8_t *w, size_t stride, int n_blocks, struct tile *t)
{
    for (int b = 0; b < n_blocks; b++, w += sizeof(struct blk_q4_0)) {
        unpack_nibbles(w, stride, offsetof(struct blk_q4_0, qs), t->w + b * 8);
        t->d[b] = load_f16_rows(w, stride, 0);
    }
}

void kernels_unpack_q4_1(const uint8_t *w, size_t stride, int n_blocks, struct tile *t)
{
    for (int b = 0; b < n_blocks; b++, w += sizeof(struct blk_q4_1)) {
        unpack_nibbles(w, stride, offsetof(struct blk_q4_1, qs), t->w + b * 8);
        t->d[b] = load_f16_rows(w, stride, 0);
        t->min[b] = load_f16_rows(w, stride, offsetof(struct blk_q4_1, m));
    }
}

void kernels_unpack_mxfp4(const uint8_t *w, size_t stride, int n_blocks, struct tile *t)
{
    /* v + 12 */
    const __m256i values = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));

    for (int b = 0; b < n_blocks; b++, w += sizeof(struct blk_mxfp4)) {
        uint64_t e = 0;
        unpack_nibbles(w, stride, offsetof(struct blk_mxfp4, qs), t->w + b * 8);
        for (int i = 0; i < 8; i++)
            t->w[b * 8 + i] = _mm256_shuffle_epi8(values, t->w[b * 8 + i]);
        for (int r = 0; r < 8; r++)
            e |= (uint64_t)w[(size_t)r * stride] << 8 * r;
        t->d[b] = widen_e8m0_half(_mm_cvtsi64_si128((int64_t)e));
    }
}
