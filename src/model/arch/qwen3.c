/* qwen3 and qwen3moe: every query and key head is normalised before it is rotated. */
#include "model/arch/arch.h"
#include "model/forward.h"

static int layer(struct forward *f, int il, struct sl_err *err)
{
    const struct layer *l = &f->m->layers[il];
    int rc;
    forward_norm(f, l->attn_norm);
    if ((rc = forward_qkv(f, il, err)) < 0)
        return rc;
    forward_qk_norm(f, il);
    forward_rope(f);
    forward_attention(f, il);
    if ((rc = forward_attn_out(f, il, err)) < 0)
        return rc;
    forward_norm(f, l->ffn_norm);
    return l->router.tensor ? forward_moe(f, il, err) : forward_ffn(f, il, err);
}

const struct model_arch arch_qwen3 = {
    .name = "qwen3", .rope_half = true, .qk_norm = true, .layer = layer};

const struct model_arch arch_qwen3moe = {.name = "qwen3moe",
                                         .rope_half = true,
                                         .qk_norm = true,
                                         .may_route = true,
                                         .must_route = true,
                                         .layer = layer};
