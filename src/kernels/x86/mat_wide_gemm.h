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

/* Some tokens: their packed activations (from the first block of the tile on) and accumulators. */
struct tokens {
    const uint8_t *x;
    size_t x_stride;
    float *acc; /* MAX_GROUPS * MAT_LANES per token */
};

#define ACC(tok, k, g) ((tok)->acc + ((size_t)(k)*MAX_GROUPS + (size_t)(g)) * MAT_LANES)

/* n_g groups of rows times n tokens of 256-value blocks. */
ALWAYS_INLINE void mul_k(const struct tile *t, const struct tokens *tok, const int n_g, const int n,
                         const struct k_type type)
{
    const int dwords = MAT_VNNI ? type.group / 4 : type.limit;
    const struct act_q256 *x[4];
    union k_sums sums[4];
    vint isum[2][4];

#pragma GCC unroll 4
    for (int k = 0; k < n; k++) {
        x[k] = (const void *)(tok->x + (size_t)k * tok->x_stride);
        token_sums(x[k], type, &sums[k]);
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
                for (int g = 0; g < n_g; g++) {
                    s[g][k] = dot_dword(s[g][k], t[g].w[j], v, type.is_signed);
                    if (!MAT_VNNI && dwords > 2)
                        KEEP_ORDER(s[g][k]);
                }
            }
#pragma GCC unroll 4
        for (int k = 0; k < n; k++)
#pragma GCC unroll 2
            for (int g = 0; g < n_g; g++)
                isum[g][k] = v_scaled(isum[g][k], s[g][k], t[g].k.scale[i * 4 / type.group]);
    }
#pragma GCC unroll 4
    for (int k = 0; k < n; k++)
#pragma GCC unroll 2
        for (int g = 0; g < n_g; g++)
            V_OP(store_ps)
    (ACC(tok, k, g),
     add_k_block(V_OP(load_ps)(ACC(tok, k, g)), &t[g].k, isum[g][k], &sums[k], x[k]->d, type));
}

/* As mul_k for n_blocks blocks of 32. */
ALWAYS_INLINE void mul_32(const struct tile *t, const struct tokens *tok, int n_blocks,
                          const int n_g, const int n, const struct type32 type)
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
                    for (int g = 0; g < n_g; g++) {
                        s[g][k] = dot_dword(s[g][k], t[g].w[b * 8 + j], v, type.is_signed);
                        if (!MAT_VNNI && dwords > 2)
                            KEEP_ORDER(s[g][k]);
                    }
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
            for (int g = 0; g < n_g; g++)
                acc[g][k] = add_block32(acc[g][k], &t[g].b[b], isum[g][k], x[k], type);
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

/* step(n_g, n) over the tokens in fours, then a pair, then one. */
#define MUL_GROUPS(step, n_g)                                                                      \
    do {                                                                                           \
        for (; n_tok >= 4; n_tok -= 4, next_tokens(&tok, 4))                                       \
            step(n_g, 4);                                                                          \
        if (n_tok >= 2) {                                                                          \
            step(n_g, 2);                                                                          \
            next_tokens(&tok, 2);                                                                  \
        }                                                                                          \
        if (n_tok & 1)                                                                             \
            step(n_g, 1);                                                                          \
    } while (0)

#define MUL_TOKENS(step)                                                                           \
    do {                                                                                           \
        if (n_g == MAX_GROUPS)                                                                     \
            MUL_GROUPS(step, MAX_GROUPS);                                                          \
        else                                                                                       \
            MUL_GROUPS(step, 1);                                                                   \
    } while (0)

/* ---- the walk over rows and tokens ---- */

struct gemm_pass;
/* One or two groups of rows for a run of tokens, into acc. */
typedef void groups_fn(const struct gemm_pass *p, float *acc);

struct gemm_type {
    struct block_size size;
    groups_fn *groups;
    /* of gemm_groups and gemm_wide: */
    int tile_blocks; /* blocks per tile */
    unpack_fn *unpack;
    mul_fn *mul;
    gemv_fn *gemv1, *gemv2, *gemv4; /* of so many tokens; 4 may be NULL */
};

struct gemm_pass {
    const struct mat_args *a;
    const struct gemm_type *type;
    const uint8_t *w[2]; /* first row of each group */
    int n_g;
    const uint8_t *prefetch;
    int first_tok, n_tok;
};

static inline void gemm_groups(const struct gemm_pass *p, float *acc)
{
    const struct mat_args *a = p->a;
    const struct gemm_type *type = p->type;
    const int n_blocks = a->n_cols / type->size.values;
    const size_t tile_bytes = (size_t)type->tile_blocks * type->size.bytes;
    const uint8_t *ahead = p->prefetch;
    struct tokens tok = {a->x + (size_t)p->first_tok * a->x_stride, a->x_stride, acc};
    struct tile t[MAX_GROUPS];

    memset(acc, 0, (size_t)p->n_tok * MAX_GROUPS * MAT_LANES * sizeof *acc);
    for (int b = 0; b < n_blocks; b += type->tile_blocks) {
        const int left = n_blocks - b, n = left < type->tile_blocks ? left : type->tile_blocks;
        const size_t at = (size_t)b * type->size.bytes;
        struct lanes l;
        if (a->n_rows < MAT_LANES) {
            uint8_t buf[MAT_LANES * MAX_BLOCK_BYTES];
            l = pad_rows(a, at, (size_t)n * type->size.bytes, buf);
            type->unpack(&l, buf, n, t);
        } else {
            for (int g = 0; g < p->n_g; g++, ahead += tile_bytes * MAT_LANES) {
                l = lanes_at(p->w[g] + at, a->row_bytes);
                type->unpack(&l, ahead, n, t + g);
            }
        }
        type->mul(t, tok, p->n_g, p->n_tok, n);
        tok.x += (size_t)n * type->size.act_bytes;
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
ALWAYS_INLINE void gemm_runs(const struct mat_args *a, const struct gemm_type *type)
{
    _Alignas(64) float acc[MAX_RUN * MAX_GROUPS * MAT_LANES];
    const int fit = tokens_in_cache(a->x_stride, 64) / 4 * 4, run = fit < MAX_RUN ? fit : MAX_RUN;
    const int last = a->n_rows < MAT_LANES ? 0 : a->n_rows - MAT_LANES;
    struct gemm_pass p = {.a = a, .type = type};

    for (p.first_tok = 0; p.first_tok < a->n_tok; p.first_tok += run) {
        p.n_tok = a->n_tok - p.first_tok < run ? a->n_tok - p.first_tok : run;
        for (int r = 0; r < a->n_rows; r += MAT_LANES * MAX_GROUPS) {
            p.n_g = r + MAT_LANES < a->n_rows ? MAX_GROUPS : 1;
            for (int g = 0; g < p.n_g; g++) {
                const int first = r + g * MAT_LANES < last ? r + g * MAT_LANES : last;
                p.w[g] = a->w + (size_t)first * a->row_bytes;
            }
            p.prefetch = prefetch_from(a, (size_t)(p.w[0] - a->w),
                                       (size_t)(p.n_g * MAT_LANES) * a->row_bytes, NEAR_AHEAD);
            type->groups(&p, acc);
            store_rows(&p, acc);
        }
    }
}

static inline void gemm_wide(const struct mat_args *a, const struct gemm_type *type)
{
    if (a->n_tok <= 2 || (a->n_tok <= 4 && type->gemv4)) {
        const int n = a->n_tok > 2 ? 4 : a->n_tok;
        gemv_wide(a, type->size, n, n == 1 ? type->gemv1 : n == 2 ? type->gemv2 : type->gemv4);
    } else {
        gemm_runs(a, type);
    }
}

#endif
