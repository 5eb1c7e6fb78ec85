/* mat_wide_tile.h: GEMM tiles (see mat_wide.h): 256 values of MAT_LANES rows, unpacked once for
 * many tokens. */
#ifndef KERNELS_X86_MAT_WIDE_TILE_H
#define KERNELS_X86_MAT_WIDE_TILE_H

#include "kernels/x86/mat_wide_gemv.h"

#define TILE_BLOCKS32 8 /* blocks of 32 per tile */

struct tile {
    vint w[64]; /* dword i of the rows */
    union {
        struct k_head k;
        struct head32 b[TILE_BLOCKS32];
    };
};

/* n_blocks blocks of the rows (256-value types: always one). */
typedef void unpack_fn(const struct lanes *l, int n_blocks, struct tile *t);

ALWAYS_INLINE void emit_dword(void *w, int i, vint v, bool in_place)
{
    ((vint *)w)[i] = in_place ? V_OP(srli_epi16)(v, 4) : v;
}

ALWAYS_INLINE void unpack_k(const struct lanes *l, const struct k_type type, struct tile *t)
{
    type.head(l, &t->k);
    type.walk(l, emit_dword, t->w);
}

ALWAYS_INLINE void unpack_32(struct lanes l, int n_blocks, const struct type32 type, struct tile *t)
{
    for (int b = 0; b < n_blocks; b++, lanes_advance(&l, type.block_bytes)) {
        type.walk(&l, emit_dword, t->w + b * 8);
        type.head(&l, &t->b[b]);
    }
}

#endif
