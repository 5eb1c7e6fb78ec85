/* mat_wide_32.h: GEMV with blocks of 32 values (see mat_wide.h).
 *
 * Nibble formats enter as unsigned values v + bias. Bounds of int16 sums, where there is no VNNI:
 * Q4_x eight dwords 8 * 2 * 15 * 127 = 30480, MXFP4 four 4 * 2 * 24 * 127 = 24384, Q8_0 (the
 * weight's sign moved to the activation) one 2 * 128 * 127 = 32512. */
#ifndef KERNELS_X86_MAT_WIDE_32_H
#define KERNELS_X86_MAT_WIDE_32_H

#include "kernels/x86/mat_wide.h"

/* v + 12 of every E2M1 nibble. */
ALWAYS_INLINE vint fp4_values(void)
{
    return v_repeat128(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
}

/* Sixteen bytes of nibbles at offset at: values 0-15 low, 16-31 high; through a table or not. */
ALWAYS_INLINE void load_nibbles(const struct lanes *l, size_t at, bool is_fp4, vint low[4],
                                vint high[4])
{
    vint q[4];

    load_dwords(l, at, q);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        low[i] = v_low4(q[i]);
        high[i] = v_high4(q[i]);
        if (is_fp4) {
            low[i] = V_OP(shuffle_epi8)(fp4_values(), low[i]);
            high[i] = V_OP(shuffle_epi8)(fp4_values(), high[i]);
        }
    }
}

/* Sum of a block of nibbles, bias not yet taken off. */
ALWAYS_INLINE vint sum_nibbles(const struct lanes *l, size_t at, bool is_fp4, const int8_t *x)
{
    vint low[4], high[4], s0 = v_zero(), s1 = v_zero();

    load_nibbles(l, at, is_fp4, low, high);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        s0 = v_dot(s0, low[i], v_load_dword(x + i * 4));
        s1 = v_dot(s1, high[i], v_load_dword(x + 16 + i * 4));
    }
    return is_fp4 || MAT_VNNI ? v_add(v_sums(s0), v_sums(s1)) : v_sums(V_OP(add_epi16)(s0, s1));
}

ALWAYS_INLINE vfloat gemv_q4_0(struct lanes l, const void *x8, int n_blocks,
                               const uint8_t *prefetch, vfloat acc)
{
    const struct act_q32 *x = x8;

    for (int b = 0; b < n_blocks; b++, x++, lanes_advance(&l, sizeof(struct blk_q4_0))) {
        const vint s = sum_nibbles(&l, offsetof(struct blk_q4_0, qs), false, x->q);
        prefetch_block(prefetch, b, sizeof(struct blk_q4_0));
        acc = v_add_block(acc, load_f16(&l, 0), V_OP(set1_ps)(x->d),
                          v_add(s, v_dwords(-8 * x->sum)));
    }
    return acc;
}

ALWAYS_INLINE vfloat gemv_q4_1(struct lanes l, const void *x8, int n_blocks,
                               const uint8_t *prefetch, vfloat acc)
{
    const struct act_q32 *x = x8;

    for (int b = 0; b < n_blocks; b++, x++, lanes_advance(&l, sizeof(struct blk_q4_1))) {
        const vint s = sum_nibbles(&l, offsetof(struct blk_q4_1, qs), false, x->q);
        const vfloat dx = V_OP(set1_ps)(x->d);
        prefetch_block(prefetch, b, sizeof(struct blk_q4_1));
        acc = v_add_block(acc, load_f16(&l, 0), dx, s);
        acc = v_add_block(acc, load_f16(&l, offsetof(struct blk_q4_1, m)), dx, v_dwords(x->sum));
    }
    return acc;
}

ALWAYS_INLINE vfloat gemv_mxfp4(struct lanes l, const void *x8, int n_blocks,
                                const uint8_t *prefetch, vfloat acc)
{
    const struct act_q32 *x = x8;

    for (int b = 0; b < n_blocks; b++, x++, lanes_advance(&l, sizeof(struct blk_mxfp4))) {
        const vint s = sum_nibbles(&l, offsetof(struct blk_mxfp4, qs), true, x->q);
        prefetch_block(prefetch, b, sizeof(struct blk_mxfp4));
        acc = v_add_block(acc, v_widen_e8m0_half(load_bytes(&l, 0)), V_OP(set1_ps)(x->d),
                          v_add(s, v_dwords(-12 * x->sum)));
    }
    return acc;
}

/* ---- Q8_0: eight bits leave nothing to gain from transposing before the product ---- */

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
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        b[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(a[2 * i], a[2 * i + 1]),
                                _mm512_unpackhi_epi64(a[2 * i], a[2 * i + 1]));
    return _mm512_add_epi32(_mm512_shuffle_i64x2(b[0], b[1], 0x88),
                            _mm512_shuffle_i64x2(b[0], b[1], 0xdd));
#else
    return sum_lanes8(v);
#endif
}

/* Eight partial sums of a row (two rows) times x; with VNNI of the weights + 128. */
ALWAYS_INLINE vint dot_q8_0(const struct lanes *l, int i, size_t at, vint x)
{
#if MAT_LANES == 16
    const int r = i % 4 + i / 4 * 8;
    const vint q = _mm512_inserti64x4(_mm512_castsi256_si512(load256(lanes_row(l, r, at))),
                                      load256(lanes_row(l, r + 4, at)), 1);
#else
    const vint q = load256(lanes_row(l, i, at));
#endif
#if MAT_VNNI
    return v_dot(v_zero(), V_BITS(xor)(q, v_bytes(-128)), x);
#elif MAT_LANES == 16
    const vint s = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(q), v_zero(), x);
    return v_sums(v_dot(v_zero(), _mm512_abs_epi8(q), s));
#else
    return v_sums(v_dot(v_zero(), _mm256_abs_epi8(q), _mm256_sign_epi8(x, q)));
#endif
}

ALWAYS_INLINE vfloat gemv_q8_0(struct lanes l, const void *x8, int n_blocks,
                               const uint8_t *prefetch, vfloat acc)
{
    const struct act_q32 *x = x8;

    for (int b = 0; b < n_blocks; b++, x++, lanes_advance(&l, sizeof(struct blk_q8_0))) {
#if MAT_LANES == 16
        const vint xq = _mm512_broadcast_i64x4(load256(x->q));
#else
        const vint xq = load256(x->q);
#endif
        vint v[8], isum;

        prefetch_block(prefetch, b, sizeof(struct blk_q8_0));
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++)
            v[i] = dot_q8_0(&l, i, offsetof(struct blk_q8_0, qs), xq);
        isum = sum_rows(v);
        if (MAT_VNNI)
            isum = v_add(isum, v_dwords(-128 * x->sum));
        acc = v_add_block(acc, load_f16(&l, 0), V_OP(set1_ps)(x->d), isum);
    }
    return acc;
}

#endif
