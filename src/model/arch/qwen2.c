/* qwen2: Qwen2 and Qwen2.5, dense; biases on q, k and v. */
#include "model/arch/arch.h"
#include "model/forward.h"

static int layer(struct forward *f, int il, struct sl_err *err)
{
    const struct layer *l = &f->m->layers[il];
    int rc;
    forward_norm(f, l->attn_norm);
    if ((rc = forward_qkv(f, il, err)) < 0)
        return rc;
    forward_rope(f);
    forward_attention(f, il);
    if ((rc = forward_attn_out(f, il, err)) < 0)
        return rc;
    forward_norm(f, l->ffn_norm);
    return forward_ffn(f, il, err);
}

const struct model_arch arch_qwen2 = {.name = "qwen2", .rope_half = true, .layer = layer};
