/* mat_wide_k.h: GEMV with Q4_K, Q5_K and Q6_K weights (see mat_wide.h).
 *
 * Bounds of int16 sums, where there is no VNNI: Q4_K eight dwords 8 * 2 * 15 * 127 = 30480, Q5_K
 * four 4 * 2 * 31 * 127 = 31496, Q6_K two 2 * 2 * 63 * 127 = 32004. */
#ifndef KERNELS_X86_MAT_WIDE_K_H
#define KERNELS_X86_MAT_WIDE_K_H

#include "kernels/x86/mat_wide.h"

/* Sums of a token's quants in the order in which minima and scales are at hand: see below. */
union k_sums {
    int32_t pair32[8]; /* of 32 values, pairs (0, 2) (1, 3) in [0..1], (4, 6) (5, 7) in [4..5] */
    int32_t pair16[8]; /* of 16, pairs (4i, 4i + 2) in [2i], (4i + 1, 4i + 3) in [2i + 1] */
    int32_t start[16]; /* of 16, times -bias */
};

ALWAYS_INLINE void pair_sums32(const struct act_q256 *x, union k_sums *s)
{
    const __m256i v = _mm256_madd_epi16(load256(x->sum16), _mm256_set1_epi16(1));
    const __m256i next = _mm256_slli_epi32(_mm256_srli_si256(v, 8), 16);

    _mm256_storeu_si256((void *)s->pair32, _mm256_blend_epi16(v, next, 0xaa));
}

ALWAYS_INLINE void pair_sums16(const struct act_q256 *x, union k_sums *s)
{
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));

    _mm256_storeu_si256((void *)s->pair16, _mm256_shuffle_epi8(load256(x->sum16), order));
}

/* bias is a power of two. */
ALWAYS_INLINE void start_sums16(const struct act_q256 *x, int bias, union k_sums *s)
{
    const __m256i minus = _mm256_set1_epi16((short)-bias);
    const __m256i v = load256(x->sum16);
    const __m256i lo = _mm256_mullo_epi16(v, minus), hi = _mm256_mulhi_epi16(v, minus);
    const __m256i a = _mm256_unpacklo_epi16(lo, hi), b = _mm256_unpackhi_epi16(lo, hi);

    _mm256_storeu_si256((void *)s->start, _mm256_permute2x128_si256(a, b, 0x20));
    _mm256_storeu_si256((void *)(s->start + 8), _mm256_permute2x128_si256(a, b, 0x31));
}

/* The first 16 bytes of Q4_K and Q5_K blocks. */
struct k_head {
    vint sc[2];   /* scales: byte j of [i] is that of sub-block 4i + j */
    vint mins[4]; /* int16 pairs in the order of pair32 */
    vfloat d, dmin;
};

ALWAYS_INLINE struct k_head load_k_head(const struct lanes *l)
{
    const vint m6 = v_dwords(0x3f3f3f3f), m4 = v_bytes(15), m2 = v_dwords(0x30303030);
    const vint even = v_dwords(0x00ff00ff);
    struct k_head h;
    vint q[4], m[2];

    load_dwords(l, 0, q);
    h.d = v_widen_f16(q[0]);
    h.dmin = v_widen_f16(V_OP(srli_epi32)(q[0], 16));
    h.sc[0] = v_and(q[1], m6);
    h.sc[1] = v_or(v_and(q[3], m4), v_and(V_OP(srli_epi32)(q[1], 2), m2));
    m[0] = v_and(q[2], m6);
    m[1] = v_or(v_and(V_OP(srli_epi32)(q[3], 4), m4), v_and(V_OP(srli_epi32)(q[2], 2), m2));
    for (int i = 0; i < 2; i++) {
        h.mins[2 * i] = v_and(m[i], even);
        h.mins[2 * i + 1] = V_OP(srli_epi16)(m[i], 8);
    }
    return h;
}

ALWAYS_INLINE vint sum_minima(const vint mins[4], const union k_sums *s)
{
    vint sum = v_zero();

    sum = v_dot2(sum, mins[0], v_load_dword(s->pair32));
    sum = v_dot2(sum, mins[1], v_load_dword(s->pair32 + 1));
    sum = v_dot2(sum, mins[2], v_load_dword(s->pair32 + 4));
    return v_dot2(sum, mins[3], v_load_dword(s->pair32 + 5));
}

/* ---- Quants of MAT_LANES rows, four dwords at a time ---- */

/* Sixteen bytes of Q4_K: dwords 4 half to + 3 of sub-blocks 2c (low) and 2c + 1 (high). */
ALWAYS_INLINE void load_q4k(const struct lanes *l, int c, int half, vint low[4], vint high[4])
{
    vint q[4];

    load_dwords(l, offsetof(struct blk_q4_K, qs) + (size_t)(c * 32 + half * 16), q);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        low[i] = v_low4(q[i]);
        high[i] = v_high4(q[i]);
    }
}

/* Bit j of every byte, moved to bit 4 (others remain beside it). */
ALWAYS_INLINE vint bit_to_4(vint v, int j)
{
    return j < 4 ? V_OP(slli_epi16)(v, j < 4 ? 4 - j : 0) : V_OP(srli_epi16)(v, j < 4 ? 0 : j - 4);
}

/* As load_q4k for Q5_K; qh: the dwords of the fifth bits. */
ALWAYS_INLINE void load_q5k(const struct lanes *l, int c, int half, const vint qh[4], vint low[4],
                            vint high[4])
{
    const vint m5 = v_bytes(31);
    vint q[4];

    load_dwords(l, offsetof(struct blk_q5_K, qs) + (size_t)(c * 32 + half * 16), q);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const vint q1 = V_OP(srli_epi16)(q[i], 4);
        low[i] = v_and(v_select(q[i], bit_to_4(qh[i], 2 * c), 15), m5);
        high[i] = v_and(v_select(q1, bit_to_4(qh[i], 2 * c + 1), 15), m5);
    }
}

/* Dwords 4 at to + 3 of half a Q6_K block, still packed: runs 0 and 2, runs 1 and 3, high pairs. */
struct q6k_part {
    vint ql0[4], ql1[4], qh[4];
};

ALWAYS_INLINE void load_q6k(const struct lanes *l, int half, int at, struct q6k_part *p)
{
    const size_t ql = offsetof(struct blk_q6_K, ql) + (size_t)(half * 64 + at * 16);

    load_dwords(l, ql, p->ql0);
    load_dwords(l, ql + 32, p->ql1);
    load_dwords(l, offsetof(struct blk_q6_K, qh) + (size_t)(half * 32 + at * 16), p->qh);
}

/* Dword i of run run (of 32 values). */
ALWAYS_INLINE vint q6k_dword(const struct q6k_part *p, int run, int i)
{
    const vint ql = run % 2 ? p->ql1[i] : p->ql0[i], qh = p->qh[i];
    const vint low = run < 2 ? ql : V_OP(srli_epi16)(ql, 4);
    const vint high = run == 0   ? V_OP(slli_epi16)(qh, 4)
                      : run == 1 ? V_OP(slli_epi16)(qh, 2)
                      : run == 2 ? qh
                                 : V_OP(srli_epi16)(qh, 2);

    return v_and(v_select(low, high, 15), v_bytes(63));
}

/* ---- GEMV ---- */

/* Four dwords against the activations at x; group sums of v_dot. */
ALWAYS_INLINE vint dot_dwords(vint s, const vint q[4], const int8_t *x)
{
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        s = v_dot(s, q[i], v_load_dword(x + i * 4));
    return s;
}

/* With VNNI high nibbles are multiplied where they lie, as 16 times their value: the sum over a
 * block stays below 16 * 4 * 32 * 15 * 127 * 63 = 245,806,080 and is shifted down at its end. */
ALWAYS_INLINE vint high4_in_place(vint q)
{
    return MAT_VNNI ? v_and(q, v_bytes(0xf0)) : v_high4(q);
}

ALWAYS_INLINE vint join_high(vint low, vint high)
{
    return v_add(low, MAT_VNNI ? V_OP(srai_epi32)(high, 4) : high);
}

ALWAYS_INLINE vfloat gemv_q4k(struct lanes l, const void *x8, int n_blocks, const uint8_t *prefetch,
                              vfloat acc)
{
    const struct act_q256 *x = x8;

    for (int b = 0; b < n_blocks; b++, x++, lanes_advance(&l, sizeof(struct blk_q4_K))) {
        const struct k_head h = load_k_head(&l);
        const vfloat dx = V_OP(set1_ps)(x->d);
        vint low = v_zero(), high = v_zero();
        union k_sums s;

        prefetch_block(prefetch, b, sizeof(struct blk_q4_K));
        pair_sums32(x, &s);
#pragma GCC unroll 4
        for (int c = 0; c < 4; c++) { /* sub-blocks 2c and 2c + 1 */
            vint s0 = v_zero(), s1 = v_zero();
#pragma GCC unroll 2
            for (int half = 0; half < 2; half++) {
                const int8_t *xq = x->q + c * 64 + half * 16;
                vint q[4];
                load_dwords(&l, offsetof(struct blk_q4_K, qs) + (size_t)(c * 32 + half * 16), q);
#pragma GCC unroll 4
                for (int i = 0; i < 4; i++) {
                    s0 = v_dot(s0, v_low4(q[i]), v_load_dword(xq + i * 4));
                    s1 = v_dot(s1, high4_in_place(q[i]), v_load_dword(xq + 32 + i * 4));
                }
            }
            low = v_scaled(low, s0, v_scale(h.sc[c / 2], c % 2 * 2));
            high = v_scaled(high, s1, v_scale(h.sc[c / 2], c % 2 * 2 + 1));
        }
        acc = v_add_block(acc, h.d, dx, join_high(low, high));
        acc = v_take_minima(acc, h.dmin, dx, sum_minima(h.mins, &s));
    }
    return acc;
}

ALWAYS_INLINE vfloat gemv_q5k(struct lanes l, const void *x8, int n_blocks, const uint8_t *prefetch,
                              vfloat acc)
{
    const struct act_q256 *x = x8;

    for (int b = 0; b < n_blocks; b++, x++, lanes_advance(&l, sizeof(struct blk_q5_K))) {
        const struct k_head h = load_k_head(&l);
        const vfloat dx = V_OP(set1_ps)(x->d);
        vint isum = v_zero();
        union k_sums s;

        prefetch_block(prefetch, b, sizeof(struct blk_q5_K));
        pair_sums32(x, &s);
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            vint qh[4];
            load_dwords(&l, offsetof(struct blk_q5_K, qh) + (size_t)half * 16, qh);
#pragma GCC unroll 4
            for (int c = 0; c < 4; c++) {
                const int8_t *xq = x->q + c * 64 + half * 16;
                vint low[4], high[4];
                load_q5k(&l, c, half, qh, low, high);
                isum = v_scaled(isum, dot_dwords(v_zero(), low, xq),
                                v_scale(h.sc[c / 2], c % 2 * 2));
                isum = v_scaled(isum, dot_dwords(v_zero(), high, xq + 32),
                                v_scale(h.sc[c / 2], c % 2 * 2 + 1));
            }
        }
        acc = v_add_block(acc, h.d, dx, isum);
        acc = v_take_minima(acc, h.dmin, dx, sum_minima(h.mins, &s));
    }
    return acc;
}

/* Sixteen int8 scales as int16 pairs in the order of pair16. */
ALWAYS_INLINE void pair_scales16(const vint sc[4], vint pair[8])
{
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        pair[2 * i] = V_OP(srai_epi16)(V_OP(slli_epi16)(sc[i], 8), 8);
        pair[2 * i + 1] = V_OP(srai_epi16)(sc[i], 8);
    }
}

/* What unsigned quants are too large by: 2^shift times scales times sums. */
ALWAYS_INLINE vint sum_bias16(const vint pair[8], const union k_sums *s, int shift)
{
    vint sum = v_zero();

#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        sum = v_dot2(sum, pair[i], v_load_dword(s->pair16 + i));
    return V_OP(slli_epi32)(sum, shift);
}

/* Four groups of 16 values, g0 the first: with VNNI their sums start at start, else every two
 * dwords are scaled by themselves. */
ALWAYS_INLINE vint add_q6k_part(vint isum, const struct q6k_part *p, const int8_t *x, int g0,
                                const vint sc[4], const int32_t *start)
{
    vint s[4], scale[4];

#pragma GCC unroll 4
    for (int run = 0; run < 4; run++) {
        const int g = g0 + 2 * run;
        s[run] = MAT_VNNI ? v_load_dword(start + g) : v_zero();
        scale[run] = v_signed_scale(sc[g / 4], g % 4);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
#pragma GCC unroll 4
        for (int run = 0; run < 4; run++) {
            s[run] = v_dot(s[run], q6k_dword(p, run, i), v_load_dword(x + run * 32 + i * 4));
            if (i == 3 || (!MAT_VNNI && i == 1)) {
                isum = v_scaled(isum, s[run], scale[run]);
                s[run] = v_zero();
            }
        }
    return isum;
}

ALWAYS_INLINE vfloat gemv_q6k(struct lanes l, const void *x8, int n_blocks, const uint8_t *prefetch,
                              vfloat acc)
{
    const struct act_q256 *x = x8;

    for (int b = 0; b < n_blocks; b++, x++, lanes_advance(&l, sizeof(struct blk_q6_K))) {
        vint sc[4], pair[8], isum = v_zero();
        union k_sums s;

        prefetch_block(prefetch, b, sizeof(struct blk_q6_K));
        load_dwords(&l, offsetof(struct blk_q6_K, scales), sc);
        if (MAT_VNNI) {
            start_sums16(x, 32, &s);
        } else {
            pair_sums16(x, &s);
            pair_scales16(sc, pair);
            isum = V_OP(sub_epi32)(v_zero(), sum_bias16(pair, &s, 5));
        }
#pragma GCC unroll 4
        for (int c = 0; c < 4; c++) {
            struct q6k_part p;
            load_q6k(&l, c / 2, c % 2, &p);
            isum = add_q6k_part(isum, &p, x->q + c / 2 * 128 + c % 2 * 16, c / 2 * 8 + c % 2, sc,
                                s.start);
        }
        acc = v_add_block(acc, load_f16(&l, offsetof(struct blk_q6_K, d)), V_OP(set1_ps)(x->d),
                          isum);
    }
    return acc;
}

#endif
