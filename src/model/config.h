/* config.h: a model's shape, read from GGUF metadata and checked. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include "gguf/gguf.h"
#include "kernels/kernels.h"

/* Bounds on what a file may claim; far above any published model, far below what overflows. */
#define MODEL_MAX_LAYERS  1024
#define MODEL_MAX_EXPERTS 65536
#define MODEL_MAX_TOPK    128
#define MODEL_MAX_DIM     (1 << 20)
#define MODEL_MAX_VOCAB   (1 << 24)

struct model_arch;

struct model_config {
    const struct model_arch *arch;
    char name[128];
    int n_layer, n_embd, n_vocab, n_ctx_train;
    int n_head, n_head_kv;                    /* n_head is a multiple of n_head_kv */
    int dim_k, dim_v;                         /* of one head */
    int n_ff;                                 /* dense FFN width; 0 where every layer has experts */
    int n_expert, n_expert_used, n_ff_expert; /* 0: no experts */
    int n_rot;                                /* rotated values of a head, even, <= dim_k */
    float rms_eps;
    float attn_scale;   /* 1 / sqrt(dim_k) */
    float expert_scale; /* multiplies the routing weights after renormalising; 1: none */
    double rope_base;
    double rope_linear; /* frequencies are divided by this; 1: none */
    bool rope_yarn;     /* frequencies are scaled by yarn */
    struct kern_yarn yarn;
    double rope_magnitude; /* of cosines and sines; 1: none */
};

/* SL_E_UNSUPPORTED names an unknown architecture with the supported list, or a feature that is not
 * there yet; SL_E_FORMAT a missing key or an impossible number. */
int model_config_read(const struct gguf *g, struct model_config *out, struct sl_err *err);

#endif
