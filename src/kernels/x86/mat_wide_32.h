/* mat_wide_32.h: weight types with blocks of 32 values (see mat_wide.h): what their floats are, and
 * what their weights are. */
#ifndef KERNELS_X86_MAT_WIDE_32_H
#define KERNELS_X86_MAT_WIDE_32_H

#include "kernels/x86/mat_wide_k.h"

struct head32 {
    vfloat d, min;
};
typedef void head32_fn(const struct lanes *l, struct head32 *h);

struct type32 {
    size_t block_bytes;
    int limit;      /* dwords whose int16 sum is exact, where there is no VNNI */
    int bias;       /* to be taken off every weight */
    bool minima;    /* min * sum of the activations is added */
    bool is_signed; /* weights are signed (then there is no bias) */
    head32_fn *head;
    walk_fn *walk;
};

/* d at the beginning of a block. */
ALWAYS_INLINE void head_d(const struct lanes *l, struct head32 *h)
{
    h->d = load_f16(l, 0);
}

/* d and m. */
ALWAYS_INLINE void head_dm(const struct lanes *l, struct head32 *h)
{
    vint q[4];

    load_dwords(l, 0, q);
    h->d = v_widen_f16(q[0]);
    h->min = v_widen_f16(V_OP(srli_epi32)(q[0], 16));
}

/* 2^(e - 128). */
ALWAYS_INLINE void head_e(const struct lanes *l, struct head32 *h)
{
    h->d = v_widen_e8m0_half(load_bytes(l, 0));
}

ALWAYS_INLINE void walk_q4_0(const struct lanes *l, emit_fn *emit, void *sink)
{
    vint q[4];

    load_dwords(l, offsetof(struct blk_q4_0, qs), q);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        emit_nibbles(emit, sink, q[i], i, 4 + i);
}

ALWAYS_INLINE void walk_q4_1(const struct lanes *l, emit_fn *emit, void *sink)
{
    vint head[4], q[4];

    /* head_dm has loaded all dwords but the last one */
    load_dwords(l, 0, head);
    load_dwords(l, offsetof(struct blk_q4_1, qs), q);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        emit_nibbles(emit, sink, i < 3 ? head[i + 1] : q[3], i, 4 + i);
}

/* Nibbles through a table. */
ALWAYS_INLINE void walk_table(const struct lanes *l, size_t at, vint table, emit_fn *emit,
                              void *sink)
{
    vint q[4];

    load_dwords(l, at, q);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        emit(sink, i, V_OP(shuffle_epi8)(table, v_low4(q[i])), false);
        emit(sink, 4 + i, V_OP(shuffle_epi8)(table, v_high4(q[i])), false);
    }
}

ALWAYS_INLINE void walk_mxfp4(const struct lanes *l, emit_fn *emit, void *sink)
{
    /* v + 12 */
    const __m128i values = _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);

    walk_table(l, offsetof(struct blk_mxfp4, qs), v_repeat128(values), emit, sink);
}

ALWAYS_INLINE void walk_iq4nl(const struct lanes *l, emit_fn *emit, void *sink)
{
    walk_table(l, offsetof(struct blk_iq4_nl, qs), iq4_values(), emit, sink);
}

/* q + 16 where bit 4 j + k of its lane of bits is set, for every byte k. */
ALWAYS_INLINE vint add_fifth_bits(vint q, vint bits, int j)
{
    const __m128i dwords = _mm_add_epi32(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c),
                                         _mm_set1_epi32(j / 2 * 0x01010101));
    const vint byte = V_OP(shuffle_epi8)(bits, v_repeat128(dwords));
    const vint bit = v_dwords(j % 2 ? (int)0x80402010 : 0x08040201);

#if MAT_LANES == 16
    return _mm512_mask_add_epi8(q, _mm512_test_epi8_mask(byte, bit), q, v_bytes(16));
#else
    return v_or(q, v_and(_mm256_cmpeq_epi8(v_and(byte, bit), bit), v_bytes(16)));
#endif
}

ALWAYS_INLINE void walk_five_bits(const struct lanes *l, size_t at, vint bits, emit_fn *emit,
                                  void *sink)
{
    vint q[4];

    load_dwords(l, at, q);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        emit(sink, i, add_fifth_bits(v_low4(q[i]), bits, i), false);
        emit(sink, 4 + i, add_fifth_bits(v_high4(q[i]), bits, 4 + i), false);
    }
}

ALWAYS_INLINE void walk_q5_0(const struct lanes *l, emit_fn *emit, void *sink)
{
    vint q[4];

    load_dwords(l, offsetof(struct blk_q5_0, qh), q);
    walk_five_bits(l, offsetof(struct blk_q5_0, qs), q[0], emit, sink);
}

ALWAYS_INLINE void walk_q5_1(const struct lanes *l, emit_fn *emit, void *sink)
{
    vint q[4];

    load_dwords(l, 0, q);
    walk_five_bits(l, offsetof(struct blk_q5_1, qs), q[1], emit, sink);
}

/* With VNNI the quants + 128. */
ALWAYS_INLINE void walk_q8_0(const struct lanes *l, emit_fn *emit, void *sink)
{
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        vint q[4];
        load_dwords(l, offsetof(struct blk_q8_0, qs) + (size_t)half * 16, q);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            emit(sink, half * 4 + i, MAT_VNNI ? V_BITS(xor)(q[i], v_bytes(-128)) : q[i], false);
    }
}

/* Bounds of int16 sums, where there is no VNNI: Q4_x eight dwords 8 * 2 * 15 * 127 = 30480, Q5_x
 * four 4 * 2 * 31 * 127 = 31496, MXFP4 four 4 * 2 * 24 * 127 = 24384; signed weights one: Q8_0
 * 2 * 128 * 127 = 32512. */
#define TYPE_32(block, ...) ((struct type32){.block_bytes = sizeof(struct block), __VA_ARGS__})
#define TYPE_Q4_0           TYPE_32(blk_q4_0, .limit = 8, .bias = 8, .head = head_d, .walk = walk_q4_0)
#define TYPE_Q4_1           TYPE_32(blk_q4_1, .limit = 8, .minima = true, .head = head_dm, .walk = walk_q4_1)
#define TYPE_Q5_0           TYPE_32(blk_q5_0, .limit = 4, .bias = 16, .head = head_d, .walk = walk_q5_0)
#define TYPE_Q5_1           TYPE_32(blk_q5_1, .limit = 4, .minima = true, .head = head_dm, .walk = walk_q5_1)
#define TYPE_MXFP4          TYPE_32(blk_mxfp4, .limit = 4, .bias = 12, .head = head_e, .walk = walk_mxfp4)
#define TYPE_IQ4NL                                                                                 \
    TYPE_32(blk_iq4_nl, .limit = 1, .bias = MAT_VNNI ? 128 : 0, .is_signed = !MAT_VNNI,            \
            .head = head_d, .walk = walk_iq4nl)
#define TYPE_Q8_0                                                                                  \
    TYPE_32(blk_q8_0, .limit = 1, .bias = MAT_VNNI ? 128 : 0, .is_signed = !MAT_VNNI,              \
            .head = head_d, .walk = walk_q8_0)

/* One dword: s + w * v. Without VNNI a signed weight's sign moves to v. */
ALWAYS_INLINE vint dot_dword(vint s, vint w, vint v, bool is_signed)
{
#if !MAT_VNNI
    if (is_signed) {
#if MAT_LANES == 16
        const vint moved = _mm512_mask_sub_epi8(v, _mm512_movepi8_mask(w), v_zero(), v);
        return v_dot(s, _mm512_abs_epi8(w), moved);
#else
        return v_dot(s, _mm256_abs_epi8(w), _mm256_sign_epi8(v, w));
#endif
    }
#endif
    (void)is_signed;
    return v_dot(s, w, v);
}

#endif
