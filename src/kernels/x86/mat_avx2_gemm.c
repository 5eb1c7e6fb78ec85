/* mat_avx2_gemm.c: GEMM with quantised weights. Eight rows are unpacked into a tile (256 values
 * each, dwords of the eight rows side by side, so that lane r belongs to row r), and every token of
 * a run is multiplied with it. The floats follow the definition: one accumulator per output, kept
 * in y between tiles, blocks in rising order.
 *
 * Sums of maddubs results stay int16 over DWORDS dwords where that is exact; then madd by the scale
 * (or by one). The bounds stand beside the DWORDS of each type. */
#include "kernels/x86/mat_avx2.h"

#define TILE_BLOCKS32 8 /* blocks of 32 per tile */

struct tile {
    __m256i w[64];     /* dword i of the eight rows, unsigned but for Q8_0 */
    __m256i scale[16]; /* per scale: int16 twice per row */
    __m256i pair[8];   /* K: minima or scales of groups 2i, 2i + 1 of 16 values, int16 pairs */
    __m256 d[TILE_BLOCKS32];   /* per block */
    __m256 min[TILE_BLOCKS32]; /* dmin, or m of Q4_1 */
};

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
            pair[j * 16] = pair[j * 16 + 1] = (int16_t)(mins & 63);
        }
    }
    t->d[0] = load_f16_rows(w, stride, offsetof(struct blk_q4_K, d));
    t->min[0] = load_f16_rows(w, stride, offsetof(struct blk_q4_K, dmin));
}

static void unpack_q4k(const uint8_t *w, size_t stride, int n_blocks, struct tile *t)
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

static void unpack_q5k(const uint8_t *w, size_t stride, int n_blocks, struct tile *t)
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

static void unpack_q6k(const uint8_t *w, size_t stride, int n_blocks, struct tile *t)
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

static void unpack_q8_0(const uint8_t *w, size_t stride, int n_blocks, struct tile *t)
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

static void unpack_q4_0(const uint8_t *w, size_t stride, int n_blocks, struct tile *t)
{
    for (int b = 0; b < n_blocks; b++, w += sizeof(struct blk_q4_0)) {
        unpack_nibbles(w, stride, offsetof(struct blk_q4_0, qs), t->w + b * 8);
        t->d[b] = load_f16_rows(w, stride, 0);
    }
}

static void unpack_q4_1(const uint8_t *w, size_t stride, int n_blocks, struct tile *t)
{
    for (int b = 0; b < n_blocks; b++, w += sizeof(struct blk_q4_1)) {
        unpack_nibbles(w, stride, offsetof(struct blk_q4_1, qs), t->w + b * 8);
        t->d[b] = load_f16_rows(w, stride, 0);
        t->min[b] = load_f16_rows(w, stride, offsetof(struct blk_q4_1, m));
    }
}

static void unpack_mxfp4(const uint8_t *w, size_t stride, int n_blocks, struct tile *t)
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

/* n tokens (1, 2 or 4), their packed activations x_stride bytes apart from x on, against a tile.
 * dwords: as said above; values: those that share a scale; minima: else 32 * the pairs are taken
 * off. */
ALWAYS_INLINE void mul_k(const struct tile *t, const uint8_t *x, size_t x_stride, float *y,
                         size_t y_stride, int n, int dwords, int values, bool minima)
{
    const struct act_q256 *xs[4];
    __m256i isum[4];

#pragma GCC unroll 4
    for (int k = 0; k < n; k++) {
        xs[k] = (const void *)(x + (size_t)k * x_stride);
        isum[k] = _mm256_setzero_si256();
    }
    for (int i = 0; i < 64; i += dwords) {
        __m256i s[4];
#pragma GCC unroll 4
        for (int k = 0; k < n; k++)
            s[k] = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (int j = i; j < i + dwords; j++)
#pragma GCC unroll 4
            for (int k = 0; k < n; k++)
                s[k] = _mm256_add_epi16(
                    s[k], _mm256_maddubs_epi16(t->w[j], load_dword(xs[k]->q + j * 4)));
#pragma GCC unroll 4
        for (int k = 0; k < n; k++)
            isum[k] = _mm256_add_epi32(isum[k], _mm256_madd_epi16(s[k], t->scale[i * 4 / values]));
    }
#pragma GCC unroll 4
    for (int k = 0; k < n; k++) {
        const __m256 dx = _mm256_set1_ps(xs[k]->d);
        __m256 acc = _mm256_loadu_ps(y + (size_t)k * y_stride);
        __m256i sum = _mm256_setzero_si256();
        for (int j = 0; j < 8; j++)
            sum = _mm256_add_epi32(sum,
                                   _mm256_madd_epi16(t->pair[j], load_dword(xs[k]->sum16 + 2 * j)));
        if (!minima)
            isum[k] = _mm256_sub_epi32(isum[k], _mm256_slli_epi32(sum, 5));
        acc = _mm256_fmadd_ps(_mm256_mul_ps(t->d[0], dx), _mm256_cvtepi32_ps(isum[k]), acc);
        if (minima)
            acc = _mm256_fnmadd_ps(_mm256_mul_ps(t->min[0], dx), _mm256_cvtepi32_ps(sum), acc);
        _mm256_storeu_ps(y + (size_t)k * y_stride, acc);
    }
}

/* As mul_k for up to eight blocks of 32. bias is taken off every unsigned weight; is_signed: the
 * weight's sign moves to the activation (dwords = 1). */
ALWAYS_INLINE void mul_32(const struct tile *t, const uint8_t *x, size_t x_stride, float *y,
                          size_t y_stride, int n, int n_blocks, int dwords, int bias,
                          bool is_signed, bool minima)
{
    const __m256i one = _mm256_set1_epi16(1);
    __m256 acc[4];

#pragma GCC unroll 4
    for (int k = 0; k < n; k++)
        acc[k] = _mm256_loadu_ps(y + (size_t)k * y_stride);
    for (int b = 0; b < n_blocks; b++, x += sizeof(struct act_q32)) {
        __m256i isum[4];
#pragma GCC unroll 4
        for (int k = 0; k < n; k++)
            isum[k] = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (int i = 0; i < 8; i += dwords) {
            __m256i s[4];
#pragma GCC unroll 4
            for (int k = 0; k < n; k++)
                s[k] = _mm256_setzero_si256();
#pragma GCC unroll 8
            for (int j = i; j < i + dwords; j++) {
                const __m256i w = t->w[b * 8 + j], u = is_signed ? _mm256_abs_epi8(w) : w;
#pragma GCC unroll 4
                for (int k = 0; k < n; k++) {
                    __m256i v = load_dword(x + (size_t)k * x_stride + j * 4);
                    v = is_signed ? _mm256_sign_epi8(v, w) : v;
                    s[k] = _mm256_add_epi16(s[k], _mm256_maddubs_epi16(u, v));
                }
            }
#pragma GCC unroll 4
            for (int k = 0; k < n; k++)
                isum[k] = _mm256_add_epi32(isum[k], _mm256_madd_epi16(s[k], one));
        }
#pragma GCC unroll 4
        for (int k = 0; k < n; k++) {
            const struct act_q32 *xk = (const void *)(x + (size_t)k * x_stride);
            const __m256 dx = _mm256_set1_ps(xk->d);
            if (bias)
                isum[k] = _mm256_sub_epi32(isum[k], _mm256_set1_epi32(bias * xk->sum));
            acc[k] = _mm256_fmadd_ps(_mm256_mul_ps(t->d[b], dx), _mm256_cvtepi32_ps(isum[k]),
                                     acc[k]);
            if (minima)
                acc[k] = _mm256_fmadd_ps(_mm256_mul_ps(t->min[b], dx),
                                         _mm256_set1_ps((float)xk->sum), acc[k]);
        }
    }
#pragma GCC unroll 4
    for (int k = 0; k < n; k++)
        _mm256_storeu_ps(y + (size_t)k * y_stride, acc[k]);
}

typedef void unpack_fn(const uint8_t *w, size_t stride, int n_blocks, struct tile *t);
/* n_tok tokens against a tile that holds n_blocks blocks. */
typedef void mul_fn(const struct tile *t, const uint8_t *x, size_t x_stride, float *y,
                    size_t y_stride, int n_tok, int n_blocks);

/* A weight type: blocks per tile, sizes, and its two steps. */
struct gemm_type {
    int tile_blocks;
    size_t block_bytes;
    size_t act_bytes;
    int block_values;
    unpack_fn *unpack;
    mul_fn *mul;
};

#define MUL_TOKENS(name, call)                                                                     \
    static void mul_##name(const struct tile *t, const uint8_t *x, size_t xs, float *y, size_t ys, \
                           int n_tok, int n_blocks)                                                \
    {                                                                                              \
        (void)n_blocks;                                                                            \
        for (; n_tok >= 4; n_tok -= 4, x += 4 * xs, y += 4 * ys)                                   \
            call(4);                                                                               \
        if (n_tok >= 2) {                                                                          \
            call(2);                                                                               \
            x += 2 * xs;                                                                           \
            y += 2 * ys;                                                                           \
        }                                                                                          \
        if (n_tok & 1)                                                                             \
            call(1);                                                                               \
    }

/* int16 sums: Q4_K 8 * 2 * 15 * 127 = 30480; Q5_K 4 * 2 * 31 * 127 = 31496; Q6_K 2 * 2 * 63 * 127 =
 * 32004. */
#define MUL_Q4K(n) mul_k(t, x, xs, y, ys, n, 8, 32, true)
#define MUL_Q5K(n) mul_k(t, x, xs, y, ys, n, 4, 32, true)
#define MUL_Q6K(n) mul_k(t, x, xs, y, ys, n, 2, 16, false)
/* Q8_0 2 * 128 * 127 = 32512; Q4_x 8 * 2 * 15 * 127 = 30480; MXFP4 4 * 2 * 24 * 127 = 24384. */
#define MUL_Q8_0(n)  mul_32(t, x, xs, y, ys, n, n_blocks, 1, 0, true, false)
#define MUL_Q4_0(n)  mul_32(t, x, xs, y, ys, n, n_blocks, 8, 8, false, false)
#define MUL_Q4_1(n)  mul_32(t, x, xs, y, ys, n, n_blocks, 8, 0, false, true)
#define MUL_MXFP4(n) mul_32(t, x, xs, y, ys, n, n_blocks, 4, 12, false, false)
MUL_TOKENS(q4k, MUL_Q4K)
MUL_TOKENS(q5k, MUL_Q5K)
MUL_TOKENS(q6k, MUL_Q6K)
MUL_TOKENS(q8_0, MUL_Q8_0)
MUL_TOKENS(q4_0, MUL_Q4_0)
MUL_TOKENS(q4_1, MUL_Q4_1)
MUL_TOKENS(mxfp4, MUL_MXFP4)

/* Eight rows at w (stride 0: one row eight times) for n_tok tokens at x, from +0. */
static void gemm_group(const struct mat_args *a, const struct gemm_type *type, const uint8_t *w,
                       size_t stride, const uint8_t *prefetch, const uint8_t *x, int n_tok,
                       float *y, size_t y_stride)
{
    const int n_blocks = a->n_cols / type->block_values;
    const size_t tile_bytes = (size_t)type->tile_blocks * type->block_bytes;
    struct tile t;

    for (int k = 0; k < n_tok; k++)
        _mm256_storeu_ps(y + (size_t)k * y_stride, _mm256_setzero_ps());
    for (int b = 0; b < n_blocks; b += type->tile_blocks) {
        const int left = n_blocks - b;
        const int n = left < type->tile_blocks ? left : type->tile_blocks;
        if (prefetch) {
            prefetch_bytes(prefetch, (int)(8 * tile_bytes));
            prefetch += 8 * tile_bytes;
        }
        type->unpack(w + (size_t)b * type->block_bytes, stride, n, &t);
        type->mul(&t, x + (size_t)b * type->act_bytes, a->x_stride, y, y_stride, n_tok, n);
    }
}

/* Fewer than eight rows: each on its own, through a buffer of TOKENS results of eight equal lanes.
 */
#define TOKENS 64
static void gemm_few_rows(const struct mat_args *a, const struct gemm_type *type)
{
    float y[TOKENS * 8];

    for (int r = 0; r < a->n_rows; r++)
        for (int k = 0; k < a->n_tok; k += TOKENS) {
            const int n = a->n_tok - k < TOKENS ? a->n_tok - k : TOKENS;
            gemm_group(a, type, a->w + (size_t)r * a->row_bytes, 0, NULL,
                       a->x + (size_t)k * a->x_stride, n, y, 8);
            for (int i = 0; i < n; i++)
                a->y[(size_t)(k + i) * a->y_stride + (size_t)r] = y[i * 8];
        }
}

/* Tokens are taken in runs whose activations stay in the L2 cache while all rows pass. The last
 * group of rows overlaps the one before it when their number is no multiple of eight. */
static void gemm_rows(const struct mat_args *a, const struct gemm_type *type)
{
    const size_t fit = ((size_t)512 << 10) / a->x_stride;
    const int run = fit < 64 ? 64 : fit > 1 << 20 ? 1 << 20 : (int)fit / 4 * 4;

    if (a->n_rows < 8) {
        gemm_few_rows(a, type);
        return;
    }
    for (int k = 0; k < a->n_tok; k += run) {
        const int n_tok = a->n_tok - k < run ? a->n_tok - k : run;
        for (int r = 0; r < a->n_rows; r += 8) {
            const int first = r + 8 <= a->n_rows ? r : a->n_rows - 8;
            const size_t at = (size_t)first * a->row_bytes;
            gemm_group(a, type, a->w + at, a->row_bytes, prefetch_from(a, at, 8 * a->row_bytes),
                       a->x + (size_t)k * a->x_stride, n_tok,
                       a->y + (size_t)k * a->y_stride + (size_t)first, a->y_stride);
        }
    }
}

#define GEMM(name, block, act, values, blocks)                                                     \
    static void gemm_##name##_avx2(const struct mat_args *a)                                       \
    {                                                                                              \
        static const struct gemm_type type = {blocks, sizeof(struct block), sizeof(struct act),    \
                                              values, unpack_##name,        mul_##name};           \
        gemm_rows(a, &type);                                                                       \
    }
GEMM(q4k, blk_q4_K, act_q256, 256, 1)
GEMM(q5k, blk_q5_K, act_q256, 256, 1)
GEMM(q6k, blk_q6_K, act_q256, 256, 1)
GEMM(q8_0, blk_q8_0, act_q32, 32, TILE_BLOCKS32)
GEMM(q4_0, blk_q4_0, act_q32, 32, TILE_BLOCKS32)
GEMM(q4_1, blk_q4_1, act_q32, 32, TILE_BLOCKS32)
GEMM(mxfp4, blk_mxfp4, act_q32, 32, TILE_BLOCKS32)

void kernels_mat_avx2_gemm(struct kernels *k)
{
    k->mat[QT_Q4_K].gemm = gemm_q4k_avx2;
    k->mat[QT_Q5_K].gemm = gemm_q5k_avx2;
    k->mat[QT_Q6_K].gemm = gemm_q6k_avx2;
    k->mat[QT_Q8_0].gemm = gemm_q8_0_avx2;
    k->mat[QT_Q4_0].gemm = gemm_q4_0_avx2;
    k->mat[QT_Q4_1].gemm = gemm_q4_1_avx2;
    k->mat[QT_MXFP4].gemm = gemm_mxfp4_avx2;
}
