#include "model/kv.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"

static size_t elem(enum kv_type t)
{
    return t == KV_F16 ? 2 : 4;
}

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
    size_t rows = (size_t)size_up((uint64_t)n_ctx, 16);
    kv->k_head = (size_t)size_up(rows * (size_t)c->dim_k * elem(k_type), MEM_ALIGN);
    kv->v_head = (size_t)size_up(rows * (size_t)c->dim_v * elem(v_type), MEM_ALIGN);
}

uint64_t kv_bytes(const struct model_config *c, int n_ctx, enum kv_type k_type, enum kv_type v_type)
{
    struct kv kv;
    lay_out(&kv, c, n_ctx, k_type, v_type);
    uint64_t n, heads = (uint64_t)kv.n_layer * (uint64_t)kv.n_head;
    if (!size_mul(kv.k_head + kv.v_head, heads, &n))
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
