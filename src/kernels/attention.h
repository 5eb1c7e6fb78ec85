/* attention.h: what the levels of the attention operation share: the layouts of K and V, and the
 * sizes of working memory.
 *
 * K of one head, a tile of 16 positions: F32 and F16 [dim][16]; Q8_0 per 32 dimensions 16 scales
 * (F16), then [32][16] bytes. V of one head, a row per position: F32 and F16 [dim]; Q8_0
 * [dim / 32] scales (F16), then [dim] bytes. */
#ifndef KERNELS_ATTENTION_H
#define KERNELS_ATTENTION_H

#include "kernels/kernels.h"

/* Queries that are computed together: their accumulators fill the registers of the widest level. */
#define ATTN_BLOCK 8
/* Dimensions that share a scale in KV_Q8_0. */
#define ATTN_GROUP 32
/* Bytes of such a group in a tile of K. */
#define ATTN_TILE_GROUP (16 * 2 + ATTN_GROUP * 16)

static inline size_t attn_tile_bytes(enum kv_type type, int dim)
{
    const size_t n = (size_t)dim;

    return type == KV_F32 ? n * 64 : type == KV_F16 ? n * 32 : n / ATTN_GROUP * ATTN_TILE_GROUP;
}

static inline size_t attn_row_bytes(enum kv_type type, int dim)
{
    const size_t n = (size_t)dim;

    return type == KV_F32 ? n * 4 : type == KV_F16 ? n * 2 : n / ATTN_GROUP * 2 + n;
}

/* Floats from query to query in a block's sums of values. */
static inline int attn_out_stride(int dim_v)
{
    return (dim_v + 15) / 16 * 16;
}

#endif
