/* mat_wide_tile.h: weights of every quantised type into GEMM tiles (see mat_wide.h): 256 values of
 * MAT_LANES rows, unpacked once for many tokens. Exact: only moves and masks. */
#ifndef KERNELS_X86_MAT_WIDE_TILE_H
#define KERNELS_X86_MAT_WIDE_TILE_H

#include "kernels/x86/mat_wide_32.h"
#include "kernels/x86/mat_wide_k.h"

#define TILE_BLOCKS32 8 /* blocks of 32 per tile */

struct tile {
    vint w[64];                /* dword i of the rows, unsigned unless said otherwise */
    vint scale[16];            /* per group of values, as v_scale gives it */
    vint pair[8];              /* K: minima in the order of pair32, or scales in that of pair16 */
    vfloat d[TILE_BLOCKS32];   /* per block */
    vfloat min[TILE_BLOCKS32]; /* dmin, or m of Q4_1 */
};

/* n_blocks blocks of the rows (256-value types: always one). */
typedef void unpack_fn(struct lanes l, int n_blocks, struct tile *t);

ALWAYS_INLINE void store4(vint *to, const vint q[4])
{
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        to[i] = q[i];
}

ALWAYS_INLINE void unpack_k_head(const struct lanes *l, struct tile *t)
{
    const struct k_head h = load_k_head(l);

#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        t->scale[j] = v_scale(h.sc[j / 4], j % 4);
    store4(t->pair, h.mins);
    t->d[0] = h.d;
    t->min[0] = h.dmin;
}

ALWAYS_INLINE void unpack_q4k(struct lanes l, int n_blocks, struct tile *t)
{
    (void)n_blocks;
    unpack_k_head(&l, t);
#pragma GCC unroll 8
    for (int c = 0; c < 8; c++) {
        vint low[4], high[4];
        load_q4k(&l, c / 2, c % 2, low, high);
        store4(t->w + c / 2 * 16 + c % 2 * 4, low);
        store4(t->w + c / 2 * 16 + 8 + c % 2 * 4, high);
    }
}

ALWAYS_INLINE void unpack_q5k(struct lanes l, int n_blocks, struct tile *t)
{
    (void)n_blocks;
    unpack_k_head(&l, t);
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        vint qh[4];
        load_dwords(&l, offsetof(struct blk_q5_K, qh) + (size_t)half * 16, qh);
#pragma GCC unroll 4
        for (int c = 0; c < 4; c++) {
            vint low[4], high[4];
            load_q5k(&l, c, half, qh, low, high);
            store4(t->w + c * 16 + half * 4, low);
            store4(t->w + c * 16 + 8 + half * 4, high);
        }
    }
}

ALWAYS_INLINE void unpack_q6k(struct lanes l, int n_blocks, struct tile *t)
{
    vint sc[4];

    (void)n_blocks;
    load_dwords(&l, offsetof(struct blk_q6_K, scales), sc);
#pragma GCC unroll 16
    for (int g = 0; g < 16; g++)
        t->scale[g] = v_signed_scale(sc[g / 4], g % 4);
    if (!MAT_VNNI)
        pair_scales16(sc, t->pair);
    t->d[0] = load_f16(&l, offsetof(struct blk_q6_K, d));
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        struct q6k_part p;
        load_q6k(&l, c / 2, c % 2, &p);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
#pragma GCC unroll 4
            for (int run = 0; run < 4; run++)
                t->w[c / 2 * 32 + run * 8 + c % 2 * 4 + i] = q6k_dword(&p, run, i);
    }
}

/* With VNNI the quants + 128. */
ALWAYS_INLINE void unpack_q8_0(struct lanes l, int n_blocks, struct tile *t)
{
    for (int b = 0; b < n_blocks; b++, lanes_advance(&l, sizeof(struct blk_q8_0))) {
        load_dwords(&l, offsetof(struct blk_q8_0, qs), t->w + b * 8);
        load_dwords(&l, offsetof(struct blk_q8_0, qs) + 16, t->w + b * 8 + 4);
        for (int i = 0; MAT_VNNI && i < 8; i++)
            t->w[b * 8 + i] = V_BITS(xor)(t->w[b * 8 + i], v_bytes(-128));
        t->d[b] = load_f16(&l, 0);
    }
}

ALWAYS_INLINE void unpack_q4_0(struct lanes l, int n_blocks, struct tile *t)
{
    for (int b = 0; b < n_blocks; b++, lanes_advance(&l, sizeof(struct blk_q4_0))) {
        load_nibbles(&l, offsetof(struct blk_q4_0, qs), false, t->w + b * 8, t->w + b * 8 + 4);
        t->d[b] = load_f16(&l, 0);
    }
}

ALWAYS_INLINE void unpack_q4_1(struct lanes l, int n_blocks, struct tile *t)
{
    for (int b = 0; b < n_blocks; b++, lanes_advance(&l, sizeof(struct blk_q4_1))) {
        load_nibbles(&l, offsetof(struct blk_q4_1, qs), false, t->w + b * 8, t->w + b * 8 + 4);
        t->d[b] = load_f16(&l, 0);
        t->min[b] = load_f16(&l, offsetof(struct blk_q4_1, m));
    }
}

ALWAYS_INLINE void unpack_mxfp4(struct lanes l, int n_blocks, struct tile *t)
{
    for (int b = 0; b < n_blocks; b++, lanes_advance(&l, sizeof(struct blk_mxfp4))) {
        load_nibbles(&l, offsetof(struct blk_mxfp4, qs), true, t->w + b * 8, t->w + b * 8 + 4);
        t->d[b] = v_widen_e8m0_half(load_bytes(&l, 0));
    }
}

#endif
