#include "model/kv.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"

static void lay_out(struct kv *kv, const struct model_config *c, int n_ctx, enum kv_type k_type,
                    enum kv_type v_type)
{
    *kv = (struct kv){.n_ctx = n_ctx,
                      .n_layer = c->n_layer,
                      .n_head = c->n_head_kv,
                      .dim_k = c->dim_k,
                      .dim_v = c->dim_v,
                      .k_type = k_type,
                      .v_type = v_type};
    size_t rows = (size_t)size_up((uint64_t)n_ctx, 16),
           chunks = (rows + ATTN_CHUNK - 1) / ATTN_CHUNK;
    kv->k_head = (size_t)size_up(rows / 16 * kern_kv_tile_bytes(k_type, c->dim_k), MEM_ALIGN);
    kv->v_head = (size_t)size_up(rows * kern_kv_row_bytes(v_type, c->dim_v), MEM_ALIGN);
    kv->part_head = chunks * (size_t)(c->n_head / c->n_head_kv) * kern_attn_part(c->dim_v) *
                    sizeof(float);
}

uint64_t kv_bytes(const struct model_config *c, int n_ctx, enum kv_type k_type, enum kv_type v_type)
{
    struct kv kv;
    lay_out(&kv, c, n_ctx, k_type, v_type);
    uint64_t n, parts, heads = (uint64_t)kv.n_layer * (uint64_t)kv.n_head;
    if (!size_mul(kv.k_head + kv.v_head, heads, &n) ||
        !size_mul(kv.part_head, (uint64_t)kv.n_head, &parts) || !size_add(n, parts, &n))
        return UINT64_MAX;
    return n;
}

int kv_open(struct kv *kv, const struct model_config *c, int n_ctx, enum kv_type k_type,
            enum kv_type v_type, struct sl_err *err)
{
    uint64_t n = kv_bytes(c, n_ctx, k_type, v_type);
    lay_out(kv, c, n_ctx, k_type, v_type);
    if (n <= SIZE_MAX / 2)
        kv->base = mem_map((size_t)n, MEM_DONTFORK);
    if (!kv->base)
        return err_set(err, SL_E_MEM, "KV cache", "no memory for %llu MiB of KV cache (%d tokens)",
                       (unsigned long long)(n >> 20), n_ctx);
    kv->bytes = (size_t)n;
    return 0;
}

void kv_close(struct kv *kv)
{
    mem_unmap(kv->base, kv->bytes);
    memset(kv, 0, sizeof *kv);
}

static uint8_t *head(const struct kv *kv, int layer, int h)
{
    return kv->base + (kv->k_head + kv->v_head) * ((size_t)layer * (size_t)kv->n_head + (size_t)h);
}

void *kv_k(const struct kv *kv, int layer, int h)
{
    return head(kv, layer, h);
}

void *kv_v(const struct kv *kv, int layer, int h)
{
    return head(kv, layer, h) + kv->k_head;
}

float *kv_parts(const struct kv *kv, int h)
{
    return (float *)(void *)(head(kv, kv->n_layer, 0) + kv->part_head * (size_t)h);
}

int kv_check(const struct model_config *c, enum kv_type k_type, enum kv_type v_type,
             struct sl_err *err)
{
    if (!kern_kv_fits(k_type, c->dim_k))
        return err_set(err, SL_E_UNSUPPORTED, "K cache type",
                       "keys of %d values per head cannot be stored as q8_0, which takes multiples "
                       "of 32; use f16 or f32 for the K cache",
                       c->dim_k);
    if (!kern_kv_fits(v_type, c->dim_v))
        return err_set(err, SL_E_UNSUPPORTED, "V cache type",
                       "values of %d per head cannot be stored as q8_0, which takes multiples of "
                       "32; use f16 or f32 for the V cache",
                       c->dim_v);
    return 0;
}
