/* mat_wide_k.h: weight types with blocks of 256 values (see mat_wide.h): what their scales are, and
 * what their weights are. */
#ifndef KERNELS_X86_MAT_WIDE_K_H
#define KERNELS_X86_MAT_WIDE_K_H

#include "kernels/x86/mat_wide.h"
#include "quant/grids.h"

/* Minima (or, where there is no VNNI, scales, for the bias) stand as int16 pairs in an order in
 * which they are at hand; the sums of activations are put into the same one.
 *
 *   of 32 values  pairs (0, 2) (1, 3) (4, 6) (5, 7)
 *   of 16 values  pairs (4i, 4i + 2) in [2i], (4i + 1, 4i + 3) in [2i + 1] */
struct k_head {
    vint scale[16]; /* per group, as v_scale or v_signed_scale gives it */
    vint pair[8];
    vfloat d, dmin;
};
typedef void k_head_fn(const struct lanes *l, struct k_head *h);

struct k_type {
    size_t block_bytes;
    int group;      /* values that share a scale: 32 or 16 */
    int limit;      /* dwords whose int16 sum is exact, where there is no VNNI */
    int bias;       /* 2^n, to be taken off every weight */
    bool minima;    /* one per group */
    bool is_signed; /* weights are signed (then there is no bias) */
    k_head_fn *head;
    walk_fn *walk;
};

/* Bytes of four dwords as int16 pairs. */
ALWAYS_INLINE void pair_bytes(vint v, bool is_signed, vint pair[2])
{
    pair[0] = is_signed ? V_OP(srai_epi16)(V_OP(slli_epi16)(v, 8), 8)
                        : v_and(v, v_dwords(0xff00ff));
    pair[1] = is_signed ? V_OP(srai_epi16)(v, 8) : V_OP(srli_epi16)(v, 8);
}

/* ---- Q4_K, Q5_K ---- */

ALWAYS_INLINE void head_q4k(const struct lanes *l, struct k_head *h)
{
    const vint m6 = v_dwords(0x3f3f3f3f), m4 = v_bytes(15), m2 = v_dwords(0x30303030);
    vint q[4], sc[2];

    load_dwords(l, 0, q); /* d and dmin, then twelve bytes of scales and minima */
    h->d = v_widen_f16(q[0]);
    h->dmin = v_widen_f16(V_OP(srli_epi32)(q[0], 16));
    sc[0] = v_and(q[1], m6);
    sc[1] = v_or(v_and(q[3], m4), v_and(V_OP(srli_epi32)(q[1], 2), m2));
    pair_bytes(v_and(q[2], m6), false, h->pair);
    pair_bytes(v_or(v_and(V_OP(srli_epi32)(q[3], 4), m4), v_and(V_OP(srli_epi32)(q[2], 2), m2)),
               false, h->pair + 2);
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        h->scale[j] = v_scale(sc[j / 4], j % 4);
}

ALWAYS_INLINE void walk_q4k(const struct lanes *l, emit_fn *emit, void *sink)
{
#pragma GCC unroll 8
    for (int c = 0; c < 8; c++) { /* half of sub-blocks c / 2 * 2 and the one behind */
        vint q[4];
        load_dwords(l, offsetof(struct blk_q4_K, qs) + (size_t)c * 16, q);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const int low = c / 2 * 16 + c % 2 * 4 + i;
            emit_nibbles(emit, sink, q[i], low, low + 8);
        }
    }
}

/* Bit j of every byte, moved to bit to (others remain beside it). */
ALWAYS_INLINE vint move_bit(vint v, int j, int to)
{
    return j < to ? V_OP(slli_epi16)(v, j < to ? to - j : 0)
                  : V_OP(srli_epi16)(v, j < to ? 0 : j - to);
}

ALWAYS_INLINE void walk_q5k(const struct lanes *l, emit_fn *emit, void *sink)
{
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        vint qh[4];
        load_dwords(l, offsetof(struct blk_q5_K, qh) + (size_t)half * 16, qh);
#pragma GCC unroll 4
        for (int c = 0; c < 4; c++) {
            vint q[4];
            load_dwords(l, offsetof(struct blk_q5_K, qs) + (size_t)(c * 32 + half * 16), q);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                const int low = c * 16 + half * 4 + i;
                emit(sink, low, v_merge(v_low4(q[i]), move_bit(qh[i], 2 * c, 4), 16), false);
                emit(sink, low + 8, v_merge(v_high4(q[i]), move_bit(qh[i], 2 * c + 1, 4), 16),
                     false);
            }
        }
    }
}

/* ---- Q6_K ---- */

/* Sixteen int8 scales. */
ALWAYS_INLINE void head_scales16(const vint sc[4], struct k_head *h)
{
#pragma GCC unroll 16
    for (int g = 0; g < 16; g++)
        h->scale[g] = v_signed_scale(sc[g / 4], g % 4);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        pair_bytes(sc[i], true, h->pair + 2 * i);
}

ALWAYS_INLINE void head_q6k(const struct lanes *l, struct k_head *h)
{
    vint sc[4];

    load_dwords(l, offsetof(struct blk_q6_K, scales), sc);
    head_scales16(sc, h);
    h->d = load_f16(l, offsetof(struct blk_q6_K, d));
}

/* Parts of 16 bytes: at % 2 of half at / 2. ql0 has runs 0 and 2, ql1 1 and 3, qh two bits of each.
 */
ALWAYS_INLINE void walk_q6k(const struct lanes *l, emit_fn *emit, void *sink)
{
#pragma GCC unroll 4
    for (int at = 0; at < 4; at++) {
        const size_t ql = offsetof(struct blk_q6_K, ql) + (size_t)(at / 2 * 64 + at % 2 * 16);
        vint ql0[4], ql1[4], qh[4];
        load_dwords(l, ql, ql0);
        load_dwords(l, ql + 32, ql1);
        load_dwords(l, offsetof(struct blk_q6_K, qh) + (size_t)(at / 2 * 32 + at % 2 * 16), qh);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
#pragma GCC unroll 4
            for (int run = 0; run < 4; run++) {
                const vint q = run % 2 ? ql1[i] : ql0[i];
                const vint low = run < 2 ? v_low4(q) : v_high4(q);
                const vint high = run == 2 ? qh[i] : move_bit(qh[i], 2 * run, 4);
                emit(sink, at / 2 * 32 + run * 8 + at % 2 * 4 + i, v_merge(low, high, 48), false);
            }
    }
}

/* ---- Q2_K, Q3_K ---- */

ALWAYS_INLINE void head_q2k(const struct lanes *l, struct k_head *h)
{
    vint q[4], sc[4];

    load_dwords(l, offsetof(struct blk_q2_K, d) - 12, q);
    h->d = v_widen_f16(q[3]);
    h->dmin = v_widen_f16(V_OP(srli_epi32)(q[3], 16));
    load_dwords(l, offsetof(struct blk_q2_K, scales), sc);
#pragma GCC unroll 16
    for (int g = 0; g < 16; g++)
        h->scale[g] = v_scale(v_low4(sc[g / 4]), g % 4);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        pair_bytes(v_high4(sc[i]), false, h->pair + 2 * i);
}

ALWAYS_INLINE void walk_q2k(const struct lanes *l, emit_fn *emit, void *sink)
{
#pragma GCC unroll 4
    for (int at = 0; at < 4; at++) {
        vint q[4];
        load_dwords(l, offsetof(struct blk_q2_K, qs) + (size_t)at * 16, q);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
#pragma GCC unroll 4
            for (int run = 0; run < 4; run++)
                emit(sink, at / 2 * 32 + run * 8 + at % 2 * 4 + i,
                     v_and(run ? V_OP(srli_epi16)(q[i], 2 * run) : q[i], v_bytes(3)), false);
    }
}

/* The twelve bytes: 4 low bits of scales 0-7 in low, 8-15 in high nibbles; then 2 high bits. */
ALWAYS_INLINE void head_q3k(const struct lanes *l, struct k_head *h)
{
    const vint m2 = v_bytes(48);
    vint q[4], sc[4];

    load_dwords(l, offsetof(struct blk_q3_K, scales) - 4, q);
    sc[0] = v_or(v_low4(q[1]), v_and(V_OP(slli_epi16)(q[3], 4), m2));
    sc[1] = v_or(v_low4(q[2]), v_and(V_OP(slli_epi16)(q[3], 2), m2));
    sc[2] = v_or(v_high4(q[1]), v_and(q[3], m2));
    sc[3] = v_or(v_high4(q[2]), v_and(V_OP(srli_epi16)(q[3], 2), m2));
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        sc[i] = V_OP(sub_epi8)(sc[i], v_bytes(32));
    head_scales16(sc, h);
    h->d = load_f16(l, offsetof(struct blk_q3_K, d));
}

ALWAYS_INLINE void walk_q3k(const struct lanes *l, emit_fn *emit, void *sink)
{
#pragma GCC unroll 2
    for (int at = 0; at < 2; at++) {
        vint qh[4];
        load_dwords(l, offsetof(struct blk_q3_K, hmask) + (size_t)at * 16, qh);
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            vint q[4];
            load_dwords(l, offsetof(struct blk_q3_K, qs) + (size_t)(half * 32 + at * 16), q);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
#pragma GCC unroll 4
                for (int run = 0; run < 4; run++) {
                    const vint low = v_and(run ? V_OP(srli_epi16)(q[i], 2 * run) : q[i],
                                           v_bytes(3));
                    emit(sink, half * 32 + run * 8 + at * 4 + i,
                         v_merge(low, move_bit(qh[i], half * 4 + run, 2), 4), false);
                }
        }
    }
}

/* ---- IQ4_XS ---- */

/* The table of IQ4 types, with VNNI + 128. */
ALWAYS_INLINE vint iq4_values(void)
{
    const vint v = v_repeat128(load128(quant_iq4_values));

    return MAT_VNNI ? V_BITS(xor)(v, v_bytes(-128)) : v;
}

/* Scale g: nibble g of the second dword, bits 2g of the first's upper half on top, minus 32. */
ALWAYS_INLINE void head_iq4xs(const struct lanes *l, struct k_head *h)
{
    vint q[4];

    load_dwords(l, 0, q);
    h->d = v_widen_f16(q[0]);
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        const vint low = v_and(V_OP(srli_epi32)(q[1], 4 * g), v_dwords(15));
        const vint high = v_and(g < 6 ? V_OP(srli_epi32)(q[0], g < 6 ? 12 + 2 * g : 0)
                                      : V_OP(srli_epi32)(q[0], g < 6 ? 0 : 12 + 2 * g),
                                v_dwords(48));
        const vint s = V_OP(sub_epi32)(v_or(low, high), v_dwords(32));
        h->scale[g] = MAT_VNNI ? s : v_or(v_and(s, v_dwords(0xffff)), V_OP(slli_epi32)(s, 16));
    }
}

ALWAYS_INLINE void walk_iq4xs(const struct lanes *l, emit_fn *emit, void *sink)
{
    const vint table = iq4_values();

#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        vint q[4];
        load_dwords(l, offsetof(struct blk_iq4_xs, qs) + (size_t)g * 16, q);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            emit(sink, g * 8 + i, V_OP(shuffle_epi8)(table, v_low4(q[i])), false);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            emit(sink, g * 8 + 4 + i, V_OP(shuffle_epi8)(table, v_high4(q[i])), false);
    }
}

/* Bounds of int16 sums, where there is no VNNI: Q4_K eight dwords 8 * 2 * 15 * 127 = 30480, Q5_K
 * four 4 * 2 * 31 * 127 = 31496, Q6_K two 2 * 2 * 63 * 127 = 32004, Q2_K and Q3_K four
 * 4 * 2 * 7 * 127 = 7112, IQ4_XS (signed) one 2 * 127 * 127 = 32258. */
#define TYPE_Q4K                                                                                   \
    ((struct k_type){.block_bytes = sizeof(struct blk_q4_K),                                       \
                     .group = 32,                                                                  \
                     .limit = 8,                                                                   \
                     .minima = true,                                                               \
                     .head = head_q4k,                                                             \
                     .walk = walk_q4k})
#define TYPE_Q5K                                                                                   \
    ((struct k_type){.block_bytes = sizeof(struct blk_q5_K),                                       \
                     .group = 32,                                                                  \
                     .limit = 4,                                                                   \
                     .minima = true,                                                               \
                     .head = head_q4k,                                                             \
                     .walk = walk_q5k})
#define TYPE_Q6K                                                                                   \
    ((struct k_type){.block_bytes = sizeof(struct blk_q6_K),                                       \
                     .group = 16,                                                                  \
                     .limit = 2,                                                                   \
                     .bias = 32,                                                                   \
                     .head = head_q6k,                                                             \
                     .walk = walk_q6k})
#define TYPE_Q2K                                                                                   \
    ((struct k_type){.block_bytes = sizeof(struct blk_q2_K),                                       \
                     .group = 16,                                                                  \
                     .limit = 4,                                                                   \
                     .minima = true,                                                               \
                     .head = head_q2k,                                                             \
                     .walk = walk_q2k})
#define TYPE_Q3K                                                                                   \
    ((struct k_type){.block_bytes = sizeof(struct blk_q3_K),                                       \
                     .group = 16,                                                                  \
                     .limit = 4,                                                                   \
                     .bias = 4,                                                                    \
                     .head = head_q3k,                                                             \
                     .walk = walk_q3k})
#define TYPE_IQ4XS                                                                                 \
    ((struct k_type){.block_bytes = sizeof(struct blk_iq4_xs),                                     \
                     .group = 32,                                                                  \
                     .limit = 1,                                                                   \
                     .bias = MAT_VNNI ? 128 : 0,                                                   \
                     .is_signed = !MAT_VNNI,                                                       \
                     .head = head_iq4xs,                                                           \
                     .walk = walk_iq4xs})

/* ---- what a token brings to a block, beside its quants ---- */

union k_sums {
    int32_t pair[8];   /* sums of 32 or 16 quants in the order of the minima (or scales) */
    int32_t start[16]; /* VNNI: -bias * sum of each group */
};

/* Sums of 32 as int32. */
ALWAYS_INLINE __m256i sums32(const struct act_q256 *x)
{
    return _mm256_madd_epi16(load256(x->sum16), _mm256_set1_epi16(1));
}

ALWAYS_INLINE void pair_sums(const struct act_q256 *x, int group, union k_sums *s)
{
    if (group == 32) { /* pairs in [0..1] and [4..5] */
        const __m256i v = sums32(x), next = _mm256_slli_epi32(_mm256_srli_si256(v, 8), 16);
        _mm256_storeu_si256((void *)s->pair, _mm256_blend_epi16(v, next, 0xaa));
    } else {
        const __m256i order = _mm256_broadcastsi128_si256(
            _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
        _mm256_storeu_si256((void *)s->pair, _mm256_shuffle_epi8(load256(x->sum16), order));
    }
}

ALWAYS_INLINE void start_sums(const struct act_q256 *x, int group, int bias, union k_sums *s)
{
    const __m256i minus = _mm256_set1_epi32(-bias);

    if (group == 32) {
        _mm256_storeu_si256((void *)s->start, _mm256_mullo_epi32(sums32(x), minus));
        return;
    }
    for (int i = 0; i < 2; i++)
        _mm256_storeu_si256(
            (void *)(s->start + 8 * i),
            _mm256_mullo_epi32(_mm256_cvtepi16_epi32(load128(x->sum16 + 8 * i)), minus));
}

ALWAYS_INLINE void token_sums(const struct act_q256 *x, const struct k_type type, union k_sums *s)
{
    if (type.minima || (type.bias && !MAT_VNNI))
        pair_sums(x, type.group, s);
    else if (type.bias)
        start_sums(x, type.group, type.bias, s);
}

/* Pairs times sums. */
ALWAYS_INLINE vint sum_pairs(const vint pair[8], const union k_sums *s, int group)
{
    vint sum = v_zero();

#pragma GCC unroll 8
    for (int i = 0; i < 128 / group; i++)
        sum = v_dot2(sum, pair[i], v_load_dword(s->pair + (group == 32 ? i / 2 * 4 + i % 2 : i)));
    return sum;
}

/* A block's integer sum, bias not yet taken off without VNNI, applied to acc. */
ALWAYS_INLINE vfloat add_k_block(vfloat acc, const struct k_head *h, vint isum,
                                 const union k_sums *s, float d_x, const struct k_type type)
{
    const vfloat dx = V_OP(set1_ps)(d_x);

    if (type.bias && !MAT_VNNI)
        isum = V_OP(sub_epi32)(isum, V_OP(slli_epi32)(sum_pairs(h->pair, s, type.group),
                                                      __builtin_ctz((unsigned)type.bias)));
    acc = v_add_block(acc, h->d, dx, isum);
    if (type.minima)
        acc = v_take_minima(acc, h->dmin, dx, sum_pairs(h->pair, s, type.group));
    return acc;
}

#endif
