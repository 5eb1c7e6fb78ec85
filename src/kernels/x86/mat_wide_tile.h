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

/* n_blocks blocks of the rows (256-value types: always one), while as many bytes are prefetched. */
typedef void unpack_fn(const struct lanes *l, const uint8_t *ahead, int n_blocks, struct tile *t);

struct sink_tile {
    vint *w;
    const uint8_t *ahead;
    size_t block_bytes;
    int n; /* dwords in a block */
};

ALWAYS_INLINE void emit_dword(void *p, int i, vint v, bool in_place)
{
    struct sink_tile *s = p;

    v = prefetch_part(v, s->ahead, s->block_bytes, i, s->n);
    s->w[i] = in_place ? V_OP(srli_epi16)(v, 4) : v;
}

ALWAYS_INLINE void unpack_k(const struct lanes *l, const uint8_t *ahead, const struct k_type type,
                            struct tile *t)
{
    type.head(l, &t->k);
    type.walk(l, emit_dword, &(struct sink_tile){t->w, ahead, type.block_bytes, 64});
}

ALWAYS_INLINE void unpack_32(struct lanes l, const uint8_t *ahead, int n_blocks,
                             const struct type32 type, struct tile *t)
{
    struct sink_tile s = {t->w, ahead, type.block_bytes, 8};

    for (int b = 0; b < n_blocks; b++, lanes_advance(&l, type.block_bytes)) {
        type.walk(&l, emit_dword, &s);
        type.head(&l, &t->b[b]);
        s.w += 8;
        s.ahead += MAT_LANES * type.block_bytes;
    }
}

#endif
