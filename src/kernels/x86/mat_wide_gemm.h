/* mat_wide_gemm.h: GEMM with quantised weights (see mat_wide.h). Groups of MAT_LANES rows are
 * unpacked into tiles, and every token of a run is multiplied with them. The floats follow the
 * definition: one accumulator per output, blocks in rising order.
 *
 * Accumulators lie in a buffer of their own until the last block is done: results of one row group
 * are often a power of two apart in y, and would evict each other from the L1 cache. */
#ifndef KERNELS_X86_MAT_WIDE_GEMM_H
#define KERNELS_X86_MAT_WIDE_GEMM_H

#include "kernels/x86/mat_wide_tile.h"

/* Row groups per pass: with two every dword of activations is loaded once for both. */
#define MAX_GROUPS (MAT_LANES == 16 ? 2 : 1)
#define MAX_RUN    128 /* tokens per pass */

/* What mul_k and mul_32 are told of a type. */
struct mul_type {
    int group; /* K: values that share a scale */
    int limit; /* dwords whose int16 sum is exact, where there is no VNNI */
    int bias;  /* to be taken off every unsigned weight; 2^n in K */
    bool minima;
    bool is_signed; /* weights are signed, where there is no VNNI */
};

/* Some tokens: their packed activations (from the first block of the tile on) and accumulators. */
struct tokens {
    const uint8_t *x;
    size_t x_stride;
    float *acc; /* MAX_GROUPS * MAT_LANES per token */
};

#define ACC(tok, k, g) ((tok)->acc + ((size_t)(k)*MAX_GROUPS + (size_t)(g)) * MAT_LANES)

/* n_g groups of rows times n tokens of 256-value blocks. */
ALWAYS_INLINE void mul_k(const struct tile *t, const struct tokens *tok, const int n_g, const int n,
                         const struct mul_type type)
{
    const int dwords = MAT_VNNI ? type.group / 4 : type.limit;
    const struct act_q256 *x[4];
    union k_sums sums[4];
    vint isum[2][4];

#pragma GCC unroll 4
    for (int k = 0; k < n; k++) {
        x[k] = (const void *)(tok->x + (size_t)k * tok->x_stride);
        if (type.minima)
            pair_sums32(x[k], &sums[k]);
        else if (MAT_VNNI)
            start_sums16(x[k], type.bias, &sums[k]);
        else
            pair_sums16(x[k], &sums[k]);
#pragma GCC unroll 2
        for (int g = 0; g < n_g; g++)
            isum[g][k] = v_zero();
    }
    for (int i = 0; i < 64; i += dwords) {
        vint s[2][4];
#pragma GCC unroll 4
        for (int k = 0; k < n; k++)
#pragma GCC unroll 2
            for (int g = 0; g < n_g; g++)
                s[g][k] = MAT_VNNI && type.bias ? v_load_dword(sums[k].start + i / dwords)
                                                : v_zero();
#pragma GCC unroll 8
        for (int j = i; j < i + dwords; j++)
#pragma GCC unroll 4
            for (int k = 0; k < n; k++) {
                const vint v = v_load_dword(x[k]->q + j * 4);
#pragma GCC unroll 2
                for (int g = 0; g < n_g; g++)
                    s[g][k] = v_dot(s[g][k], t[g].w[j], v);
            }
#pragma GCC unroll 4
        for (int k = 0; k < n; k++)
#pragma GCC unroll 2
            for (int g = 0; g < n_g; g++)
                isum[g][k] = v_scaled(isum[g][k], s[g][k], t[g].scale[i * 4 / type.group]);
    }
#pragma GCC unroll 4
    for (int k = 0; k < n; k++)
#pragma GCC unroll 2
        for (int g = 0; g < n_g; g++) {
            const vfloat dx = V_OP(set1_ps)(x[k]->d);
            vfloat acc = V_OP(load_ps)(ACC(tok, k, g));
            if (type.bias && !MAT_VNNI)
                isum[g][k] = V_OP(sub_epi32)(
                    isum[g][k],
                    sum_bias16(t[g].pair, &sums[k], __builtin_ctz((unsigned)type.bias)));
            acc = v_add_block(acc, t[g].d[0], dx, isum[g][k]);
            if (type.minima)
                acc = v_take_minima(acc, t[g].min[0], dx, sum_minima(t[g].pair, &sums[k]));
            V_OP(store_ps)(ACC(tok, k, g), acc);
        }
}

/* One dword of a block of 32: s + w * v. Without VNNI a signed weight's sign moves to v. */
ALWAYS_INLINE vint dot_dword(vint s, vint w, vint v, const struct mul_type type)
{
#if !MAT_VNNI
    if (type.is_signed) {
#if MAT_LANES == 16
        const vint minus = _mm512_mask_sub_epi8(v, _mm512_movepi8_mask(w), v_zero(), v);
        return v_dot(s, _mm512_abs_epi8(w), minus);
#else
        return v_dot(s, _mm256_abs_epi8(w), _mm256_sign_epi8(v, w));
#endif
    }
#endif
    (void)type;
    return v_dot(s, w, v);
}

/* As mul_k for n_blocks blocks of 32. */
ALWAYS_INLINE void mul_32(const struct tile *t, const struct tokens *tok, int n_blocks,
                          const int n_g, const int n, const struct mul_type type)
{
    const int dwords = MAT_VNNI ? 8 : type.limit;
    vfloat acc[2][4];

#pragma GCC unroll 4
    for (int k = 0; k < n; k++)
#pragma GCC unroll 2
        for (int g = 0; g < n_g; g++)
            acc[g][k] = V_OP(load_ps)(ACC(tok, k, g));
    for (int b = 0; b < n_blocks; b++) {
        const struct act_q32 *x[4];
        vint isum[2][4];
#pragma GCC unroll 4
        for (int k = 0; k < n; k++) {
            x[k] = (const struct act_q32 *)(const void *)(tok->x + (size_t)k * tok->x_stride) + b;
#pragma GCC unroll 2
            for (int g = 0; g < n_g; g++)
                isum[g][k] = type.bias ? v_dwords(-type.bias * x[k]->sum) : v_zero();
        }
#pragma GCC unroll 8
        for (int i = 0; i < 8; i += dwords) {
            vint s[2][4];
#pragma GCC unroll 4
            for (int k = 0; k < n; k++)
#pragma GCC unroll 2
                for (int g = 0; g < n_g; g++)
                    s[g][k] = MAT_VNNI ? isum[g][k] : v_zero();
#pragma GCC unroll 8
            for (int j = i; j < i + dwords; j++)
#pragma GCC unroll 4
                for (int k = 0; k < n; k++) {
                    const vint v = v_load_dword(x[k]->q + j * 4);
#pragma GCC unroll 2
                    for (int g = 0; g < n_g; g++)
                        s[g][k] = dot_dword(s[g][k], t[g].w[b * 8 + j], v, type);
                }
#pragma GCC unroll 4
            for (int k = 0; k < n; k++)
#pragma GCC unroll 2
                for (int g = 0; g < n_g; g++)
                    isum[g][k] = MAT_VNNI ? s[g][k] : v_add(isum[g][k], v_sums(s[g][k]));
        }
#pragma GCC unroll 4
        for (int k = 0; k < n; k++)
#pragma GCC unroll 2
            for (int g = 0; g < n_g; g++) {
                const vfloat dx = V_OP(set1_ps)(x[k]->d);
                acc[g][k] = v_add_block(acc[g][k], t[g].d[b], dx, isum[g][k]);
                if (type.minima)
                    acc[g][k] = v_add_block(acc[g][k], t[g].min[b], dx, v_dwords(x[k]->sum));
            }
    }
#pragma GCC unroll 4
    for (int k = 0; k < n; k++)
#pragma GCC unroll 2
        for (int g = 0; g < n_g; g++)
            V_OP(store_ps)(ACC(tok, k, g), acc[g][k]);
}

/* n_tok tokens against n_g tiles with n_blocks blocks. */
typedef void mul_fn(const struct tile *t, struct tokens tok, int n_g, int n_tok, int n_blocks);

ALWAYS_INLINE void next_tokens(struct tokens *tok, int n)
{
    tok->x += (size_t)n * tok->x_stride;
    tok->acc += n * MAX_GROUPS * MAT_LANES;
}

/* mul(n_g, n) over the tokens in fours, then a pair, then one. */
#define MUL_TOKENS(mul, n_g)                                                                       \
    do {                                                                                           \
        for (; n_tok >= 4; n_tok -= 4, next_tokens(&tok, 4))                                       \
            mul(n_g, 4);                                                                           \
        if (n_tok >= 2) {                                                                          \
            mul(n_g, 2);                                                                           \
            next_tokens(&tok, 2);                                                                  \
        }                                                                                          \
        if (n_tok & 1)                                                                             \
            mul(n_g, 1);                                                                           \
    } while (0)

#define MUL_FN(name, mul)                                                                          \
    static void mul_##name(const struct tile *t, struct tokens tok, int n_g, int n_tok,            \
                           int n_blocks)                                                           \
    {                                                                                              \
        (void)n_blocks;                                                                            \
        if (n_g == MAX_GROUPS)                                                                     \
            MUL_TOKENS(mul, MAX_GROUPS);                                                           \
        else                                                                                       \
            MUL_TOKENS(mul, 1);                                                                    \
    }

/* ---- the walk over rows and tokens ---- */

struct gemm_type {
    struct wide_type type;
    int tile_blocks; /* blocks per tile */
    unpack_fn *unpack;
    mul_fn *mul;
    mat_fn *gemv;
    int least_tokens; /* below it unpacking costs more than it saves (measured) */
};

struct gemm_pass {
    const struct mat_args *a;
    const struct gemm_type *type;
    const uint8_t *w[2]; /* first row of each group */
    int n_g;
    const uint8_t *prefetch;
    int first_tok, n_tok;
};

/* One or two groups of rows for a run of tokens, into acc. */
ALWAYS_INLINE void gemm_groups(const struct gemm_pass *p, float *acc)
{
    const struct mat_args *a = p->a;
    const struct gemm_type *type = p->type;
    const int n_blocks = a->n_cols / type->type.block_values;
    const size_t tile_bytes = (size_t)type->tile_blocks * type->type.block_bytes;
    const uint8_t *prefetch = p->prefetch;
    struct tokens tok = {a->x + (size_t)p->first_tok * a->x_stride, a->x_stride, acc};
    struct tile t[MAX_GROUPS];

    memset(acc, 0, (size_t)p->n_tok * MAX_GROUPS * MAT_LANES * sizeof *acc);
    for (int b = 0; b < n_blocks; b += type->tile_blocks) {
        const int left = n_blocks - b, n = left < type->tile_blocks ? left : type->tile_blocks;
        const size_t at = (size_t)b * type->type.block_bytes;
        if (a->n_rows < MAT_LANES) {
            uint8_t buf[MAT_LANES * MAX_BLOCK_BYTES];
            type->unpack(pad_rows(a, at, (size_t)n * type->type.block_bytes, buf), n, t);
        } else {
            for (int g = 0; g < p->n_g; g++)
                type->unpack(lanes_at(p->w[g] + at, a->row_bytes), n, t + g);
        }
        if (prefetch)
            prefetch_bytes(prefetch + at * MAT_LANES * (size_t)p->n_g,
                           (int)(tile_bytes * MAT_LANES) * p->n_g);
        type->mul(t, tok, p->n_g, p->n_tok, n);
        tok.x += (size_t)n * type->type.act_bytes;
    }
}

static void store_rows(const struct gemm_pass *p, const float *acc)
{
    const struct mat_args *a = p->a;
    const size_t n = (size_t)(a->n_rows < MAT_LANES ? a->n_rows : MAT_LANES);

    for (int k = 0; k < p->n_tok; k++)
        for (int g = 0; g < p->n_g; g++) {
            const size_t first = (size_t)(p->w[g] - a->w) / a->row_bytes;
            memcpy(a->y + (size_t)(p->first_tok + k) * a->y_stride + first,
                   acc + (k * MAX_GROUPS + g) * MAT_LANES, n * sizeof *acc);
        }
}

/* Tokens are taken in runs whose activations stay in the L2 cache while all rows pass. The last
 * group of rows overlaps the one before it when their number is no multiple of MAT_LANES. */
ALWAYS_INLINE void gemm_wide(const struct mat_args *a, const struct gemm_type *type)
{
    _Alignas(64) float acc[MAX_RUN * MAX_GROUPS * MAT_LANES];
    const int fit = tokens_in_cache(a->x_stride, 64) / 4 * 4, run = fit < MAX_RUN ? fit : MAX_RUN;
    const int last = a->n_rows < MAT_LANES ? 0 : a->n_rows - MAT_LANES;
    struct gemm_pass p = {.a = a, .type = type};

    if (a->n_tok < type->least_tokens) {
        struct mat_args one = *a;
        one.n_tok = 1;
        for (int k = 0; k < a->n_tok; k++, one.x += a->x_stride, one.y += a->y_stride)
            type->gemv(&one);
        return;
    }
    for (p.first_tok = 0; p.first_tok < a->n_tok; p.first_tok += run) {
        p.n_tok = a->n_tok - p.first_tok < run ? a->n_tok - p.first_tok : run;
        for (int r = 0; r < a->n_rows; r += MAT_LANES * MAX_GROUPS) {
            p.n_g = r + MAT_LANES < a->n_rows ? MAX_GROUPS : 1;
            for (int g = 0; g < p.n_g; g++) {
                const int first = r + g * MAT_LANES < last ? r + g * MAT_LANES : last;
                p.w[g] = a->w + (size_t)first * a->row_bytes;
            }
            p.prefetch = prefetch_from(a, (size_t)(p.w[0] - a->w),
                                       (size_t)(p.n_g * MAT_LANES) * a->row_bytes);
            gemm_groups(&p, acc);
            store_rows(&p, acc);
        }
    }
}

#endif
