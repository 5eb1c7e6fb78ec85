/* llama: Llama 2, 3 and kin; with experts, Mixtral. */
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
    return l->router.tensor ? forward_moe(f, il, err) : forward_ffn(f, il, err);
}

const struct model_arch arch_llama = {
    .name = "llama", .rope_half = false, .may_route = true, .layer = layer};
