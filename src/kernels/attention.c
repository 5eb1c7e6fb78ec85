/* attention.c: sizes that callers of the attention operation need. */
#include "kernels/attention.h"

#include "base/size.h"

size_t kern_attn_scratch(int n, int dim_k, int dim_v)
{
    const size_t queries = n > 0 ? (size_t)n : 0;
    const size_t block = ATTN_BLOCK * (ATTN_CHUNK + (size_t)attn_out_stride(dim_v));

    return block + (size_t)size_up(2 * queries, 16) + (size_t)size_up(queries * (size_t)dim_k, 16);
}

size_t kern_attn_part(int dim_v)
{
    return (size_t)attn_out_stride(dim_v) + 16;
}

size_t kern_kv_tile_bytes(enum kv_type type, int dim)
{
    return attn_tile_bytes(type, dim);
}

size_t kern_kv_row_bytes(enum kv_type type, int dim)
{
    return attn_row_bytes(type, dim);
}

bool kern_kv_fits(enum kv_type type, int dim)
{
    return type != KV_Q8_0 || dim % ATTN_GROUP == 0;
}
