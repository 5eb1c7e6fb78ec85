/* kv.h: the keys and values of one session.
 *
 * Per layer and KV head: K in tiles of 16 positions, [tile][dim_k][16], V as [position][dim_v], so
 * that a kernel finds keys in SIMD lanes (docs/arithmetic.md, attention; Q8_0 in
 * kernels/attention.h). Behind them room for the pieces in which threads share one token's
 * attention. The memory is one mapping; pages that no token reached are never touched. */
#ifndef MODEL_KV_H
#define MODEL_KV_H

#include "kernels/kernels.h"
#include "model/config.h"

struct kv {
    int n_ctx; /* positions, as asked for; the layout rounds up to 16 */
    int n_layer, n_head, dim_k, dim_v;
    enum kv_type k_type, v_type;
    size_t k_head, v_head; /* bytes of one head's K, V */
    size_t part_head;      /* bytes of one KV head's pieces */
    size_t bytes;
    uint8_t *base;
};

/* Bytes that kv_open will map; UINT64_MAX when it overflows. */
uint64_t kv_bytes(const struct model_config *c, int n_ctx, enum kv_type k_type,
                  enum kv_type v_type);
int kv_open(struct kv *kv, const struct model_config *c, int n_ctx, enum kv_type k_type,
            enum kv_type v_type, struct sl_err *err);
void kv_close(struct kv *kv);
/* Can heads of this model be stored so? SL_E_UNSUPPORTED names the type and the head size. */
int kv_check(const struct model_config *c, enum kv_type k_type, enum kv_type v_type,
             struct sl_err *err);
void *kv_k(const struct kv *kv, int layer, int head);
void *kv_v(const struct kv *kv, int layer, int head);
/* Where a KV head's pieces go (struct attn_args, parts); the same for every layer. */
float *kv_parts(const struct kv *kv, int head);

#endif
