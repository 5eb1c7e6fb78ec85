/* mat_wide_gemv.h: GEMV (see mat_wide.h), for one token, two or four: weights are multiplied as
 * they come from their block. */
#ifndef KERNELS_X86_MAT_WIDE_GEMV_H
#define KERNELS_X86_MAT_WIDE_GEMV_H

#include "kernels/x86/mat_wide_32.h"

#define MAX_GEMV 4 /* tokens */

/* A group of rows, and the tokens' activations. */
struct gemv_rows {
    struct lanes l;
    const uint8_t *x[MAX_GEMV];
    int n_blocks;
    const uint8_t *ahead; /* what to prefetch: as many bytes as the rows have, in address order */
};

/* ---- blocks of 256 ---- */

/* Takes dwords as they come. Sums of high nibbles that were multiplied in place are 16 times too
 * large: below 16 * 4 * 32 * 15 * 127 * 63 = 245,806,080 in a block, shifted down at its end. */
struct sink_k {
    struct k_type type;
    int n;
    const uint8_t *ahead;
    const struct act_q256 *x[MAX_GEMV];
    union k_sums sums[MAX_GEMV];
    vint s[16][MAX_GEMV];
    vint isum[MAX_GEMV], high[MAX_GEMV];
    struct k_head h;
};

ALWAYS_INLINE void emit_sink_k(void *p, int i, vint w, bool in_place)
{
    struct sink_k *k = p;
    const int per_group = k->type.group / 4, g = i / per_group;
    const int run = MAT_VNNI ? per_group : k->type.limit;

    w = prefetch_part(w, k->ahead, k->type.block_bytes, i, 64);
#pragma GCC unroll 4
    for (int t = 0; t < k->n; t++) {
        if (i % run == 0)
            k->s[g][t] = MAT_VNNI && k->type.bias ? v_load_dword(k->sums[t].start + g) : v_zero();
        k->s[g][t] = dot_dword(k->s[g][t], w, v_load_dword(k->x[t]->q + i * 4), k->type.is_signed);
        if (i % run == run - 1) {
            if (in_place)
                k->high[t] = v_scaled(k->high[t], k->s[g][t], k->h.scale[g]);
            else
                k->isum[t] = v_scaled(k->isum[t], k->s[g][t], k->h.scale[g]);
        }
    }
}

/* n_blocks blocks against n tokens, added to acc. */
ALWAYS_INLINE void gemv_k(struct gemv_rows g, const struct k_type type, const int n, vfloat *acc)
{
    for (int b = 0; b < g.n_blocks; b++) {
        struct sink_k k = {.type = type, .n = n, .ahead = g.ahead};

        type.head(&g.l, &k.h);
#pragma GCC unroll 4
        for (int t = 0; t < n; t++) {
            k.x[t] = (const struct act_q256 *)(const void *)g.x[t] + b;
            token_sums(k.x[t], type, &k.sums[t]);
            k.isum[t] = k.high[t] = v_zero();
        }
        type.walk(&g.l, emit_sink_k, &k);
#pragma GCC unroll 4
        for (int t = 0; t < n; t++)
            acc[t] = add_k_block(acc[t], &k.h,
                                 v_add(k.isum[t], V_OP(srai_epi32)(k.high[t], MAT_VNNI ? 4 : 0)),
                                 &k.sums[t], k.x[t]->d, type);
        lanes_advance(&g.l, type.block_bytes);
        g.ahead += MAT_LANES * type.block_bytes;
    }
}

/* ---- blocks of 32 ---- */

struct sink_32 {
    struct type32 type;
    int n;
    const uint8_t *ahead;
    const struct act_q32 *x[MAX_GEMV];
    vint s[2][MAX_GEMV]; /* two chains: the lower and the upper four dwords */
    vint isum[MAX_GEMV], high[MAX_GEMV];
};

ALWAYS_INLINE void emit_sink_32(void *p, int i, vint w, bool in_place)
{
    struct sink_32 *k = p;
    const int run = MAT_VNNI || k->type.limit > 4 ? 4 : k->type.limit, c = i / 4;

    w = prefetch_part(w, k->ahead, k->type.block_bytes, i, 8);
#pragma GCC unroll 4
    for (int t = 0; t < k->n; t++) {
        if (i % run == 0)
            k->s[c][t] = v_zero();
        k->s[c][t] = dot_dword(k->s[c][t], w, v_load_dword(k->x[t]->q + i * 4), k->type.is_signed);
        if (i % run == run - 1) {
            if (in_place)
                k->high[t] = v_add(k->high[t], v_sums(k->s[c][t]));
            else
                k->isum[t] = v_add(k->isum[t], v_sums(k->s[c][t]));
        }
    }
}

ALWAYS_INLINE vfloat add_block32(vfloat acc, const struct head32 *h, vint isum,
                                 const struct act_q32 *x, const struct type32 type)
{
    const vfloat dx = V_OP(set1_ps)(x->d);

    acc = v_add_block(acc, h->d, dx, isum);
    return type.minima ? v_add_block(acc, h->min, dx, v_dwords(x->sum)) : acc;
}

ALWAYS_INLINE void gemv_32(struct gemv_rows g, const struct type32 type, const int n, vfloat *acc)
{
    for (int b = 0; b < g.n_blocks; b++) {
        struct sink_32 k = {.type = type, .n = n, .ahead = g.ahead};
        struct head32 h;

#pragma GCC unroll 4
        for (int t = 0; t < n; t++) {
            k.x[t] = (const struct act_q32 *)(const void *)g.x[t] + b;
            k.isum[t] = type.bias ? v_dwords(-type.bias * k.x[t]->sum) : v_zero();
            k.high[t] = v_zero();
        }
        type.walk(&g.l, emit_sink_32, &k);
        type.head(&g.l, &h);
#pragma GCC unroll 4
        for (int t = 0; t < n; t++)
            acc[t] = add_block32(acc[t], &h,
                                 v_add(k.isum[t], V_OP(srai_epi32)(k.high[t], MAT_VNNI ? 4 : 0)),
                                 k.x[t], type);
        lanes_advance(&g.l, type.block_bytes);
        g.ahead += MAT_LANES * type.block_bytes;
    }
}

/* ---- Q8_0, one token: eight bits leave nothing to gain from transposing before the product ----
 */

/* Lane r: sum of the eight lanes of row r. Rows 0-3 and 8-11 are the lower halves of v[0..3] and
 * v[4..7], rows 4-7 and 12-15 the upper ones (8 lanes: v[r] is row r). */
ALWAYS_INLINE vint sum_rows(const vint v[8])
{
#if MAT_LANES == 16
    __m512i a[4], b[2];

#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        a[i] = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]),
                                _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
#pragma GCC unroll 4
    for (int i = 0; i < 2; i++)
        b[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(a[2 * i], a[2 * i + 1]),
                                _mm512_unpackhi_epi64(a[2 * i], a[2 * i + 1]));
    return _mm512_add_epi32(_mm512_shuffle_i64x2(b[0], b[1], 0x88),
                            _mm512_shuffle_i64x2(b[0], b[1], 0xdd));
#else
    return sum_lanes8(v);
#endif
}

/* Eight partial sums of a row (zmm: of two rows) times x; with VNNI of the weights + 128. */
ALWAYS_INLINE vint dot_row_q8_0(const struct lanes *l, int i, vint x)
{
    const size_t at = offsetof(struct blk_q8_0, qs);
#if MAT_LANES == 16
    const int r = i % 4 + i / 4 * 8;
    const vint q = _mm512_inserti64x4(_mm512_castsi256_si512(load256(lanes_row(l, r, at))),
                                      load256(lanes_row(l, r + 4, at)), 1);
#else
    const vint q = load256(lanes_row(l, i, at));
#endif

    return v_sums(dot_dword(v_zero(), MAT_VNNI ? V_BITS(xor)(q, v_bytes(-128)) : q, x, !MAT_VNNI));
}

ALWAYS_INLINE vfloat gemv_q8_0_rows(struct gemv_rows g, vfloat acc)
{
    const struct act_q32 *x = (const void *)g.x[0];

    for (int b = 0; b < g.n_blocks; b++, x++, lanes_advance(&g.l, sizeof(struct blk_q8_0))) {
#if MAT_LANES == 16
        const vint xq = _mm512_broadcast_i64x4(load256(x->q));
#else
        const vint xq = load256(x->q);
#endif
        vint v[8], isum;

#pragma GCC unroll 8
        for (int i = 0; i < 8; i++)
            v[i] = prefetch_part(dot_row_q8_0(&g.l, i, xq), g.ahead, sizeof(struct blk_q8_0), i, 8);
        isum = sum_rows(v);
        if (MAT_VNNI)
            isum = v_add(isum, v_dwords(-128 * x->sum));
        acc = v_add_block(acc, load_f16(&g.l, 0), V_OP(set1_ps)(x->d), isum);
        g.ahead += MAT_LANES * sizeof(struct blk_q8_0);
    }
    return acc;
}

/* ---- all rows ---- */

/* Blocks of a group of rows against a number of tokens, added to acc. */
typedef void gemv_fn(const struct gemv_rows *g, vfloat *acc);

/* Sizes of a type's blocks, and of the activations they meet. */
struct block_size {
    int values;
    size_t bytes, act_bytes;
};

/* The tokens of a, the last one repeated, so that there are n. */
ALWAYS_INLINE void set_tokens(struct gemv_rows *g, const struct mat_args *a, int n)
{
    for (int t = 0; t < n; t++)
        g->x[t] = a->x + (size_t)(t < a->n_tok ? t : a->n_tok - 1) * a->x_stride;
}

static inline void gemv_few_rows(const struct mat_args *a, struct block_size size, int n,
                                 gemv_fn *fn)
{
    uint8_t buf[MAT_LANES * MAX_BLOCK_BYTES];
    struct gemv_rows g = {.n_blocks = 1};
    vfloat acc[MAX_GEMV];
    float y[MAT_LANES];

    set_tokens(&g, a, n);
    for (int t = 0; t < n; t++)
        acc[t] = V_OP(setzero_ps)();
    for (int b = 0; b < a->n_cols / size.values; b++) {
        g.l = pad_rows(a, (size_t)b * size.bytes, size.bytes, buf);
        g.ahead = buf;
        fn(&g, acc);
        for (int t = 0; t < n; t++)
            g.x[t] += size.act_bytes;
    }
    for (int t = 0; t < a->n_tok; t++) {
        V_OP(storeu_ps)(y, acc[t]);
        memcpy(a->y + (size_t)t * a->y_stride, y, (size_t)a->n_rows * sizeof *y);
    }
}

/* a->n_tok tokens, at most n. When the number of rows is no multiple of the lanes the last group
 * overlaps the one before it: a row gives the same bytes in any lane. */
static inline void gemv_wide(const struct mat_args *a, struct block_size size, int n, gemv_fn *fn)
{
    struct gemv_rows g = {.n_blocks = a->n_cols / size.values};

    if (a->n_rows < MAT_LANES) {
        gemv_few_rows(a, size, n, fn);
        return;
    }
    set_tokens(&g, a, n);
    for (int r = 0; r < a->n_rows; r += MAT_LANES) {
        const int first = r + MAT_LANES <= a->n_rows ? r : a->n_rows - MAT_LANES;
        const size_t at = (size_t)first * a->row_bytes;
        vfloat acc[MAX_GEMV];

        g.l = lanes_at(a->w + at, a->row_bytes);
        g.ahead = prefetch_from(a, at, MAT_LANES * a->row_bytes, NEAR_AHEAD);
        for (int t = 0; t < n; t++)
            acc[t] = V_OP(setzero_ps)();
        fn(&g, acc);
        for (int t = 0; t < a->n_tok; t++)
            V_OP(storeu_ps)(a->y + (size_t)t * a->y_stride + first, acc[t]);
    }
}

#endif
