/* arch.h: one row per architecture. What differs between them is data here and the order of
 * operations in a layer; the operations are shared (model/forward.h). */
#ifndef MODEL_ARCH_ARCH_H
#define MODEL_ARCH_ARCH_H

#include "base/err.h"

struct forward;

struct model_arch {
    const char *name; /* general.architecture */
    bool rope_half;   /* rotated pairs are (i, i + n_rot/2), else (2i, 2i + 1) */
    bool qk_norm;     /* RMS norm of every query and key head */
    bool may_route;   /* layers with ffn_gate_inp route to experts */
    bool must_route;  /* and a file without experts is broken */
    /* One layer over the current batch: f->x in, f->x out. */
    int (*layer)(struct forward *f, int il, struct sl_err *err);
};

extern const struct model_arch arch_llama, arch_qwen2, arch_qwen3, arch_qwen3moe;

/* n bytes at name; NULL when unknown. */
const struct model_arch *model_arch_find(const char *name, size_t n);
/* The supported names, separated by ", ", for messages. */
const char *model_arch_list(void);

#endif
