/* attention.h: what the levels of the attention operation share. */
#ifndef KERNELS_ATTENTION_H
#define KERNELS_ATTENTION_H

/* Keys per chunk, at absolute positions: part of the definition of the result. */
#define ATTN_CHUNK 256

#endif
