/* forward.h: the operations that layers are made of, over the current batch of tokens.
 *
 * A struct forward owns the buffers of one session's batches, all in one block whose size is known
 * beforehand (forward_bytes). Rows are tokens: x is [n_tok][n_embd]. The operations cut their work
 * over the pool; no result depends on the cutting, the number of threads or the batch's width. */
#ifndef MODEL_FORWARD_H
#define MODEL_FORWARD_H

#include <stdatomic.h>

#include "cache/cache.h"
#include "model/kv.h"
#include "model/peek.h"
#include "model/route.h"
#include "model/weights.h"
#include "thread/pool.h"

/* Batches whose expert outputs (tokens x k x n_embd floats) are larger than this take a layer's
 * experts in strictly rising id and need no buffer for them. */
#define FORWARD_WIDE_BYTES ((size_t)32 << 20)
/* Query vectors of one KV head that share each read of its keys and values. */
#define FORWARD_ATTN_QUERIES 32
/* Tokens whose logits are computed together when all are asked for. */
#define FORWARD_LOGIT_ROWS 8

struct moe_job;

/* Embedding rows that were read when a token wanted them. */
struct row_counts {
    uint64_t n, bytes;
    double wait_s; /* wall time of these reads */
};
struct forward_watch;

struct forward {
    const struct model *m;
    const struct kernels *k;
    struct pool *pool;
    struct cache *cache; /* NULL: experts are resident */
    struct kv kv;
    int max_tok; /* ubatch */

    /* The current batch */
    int n_tok, pos0;
    bool prompt;
    int il; /* the block that is being computed; -1: embedding, n_layer: head */

    /* Buffers; see forward.c for shapes */
    float *x, *h, *q, *kx, *vx, *att, *up, *gate, *rope_cos, *rope_sin;
    float *router, *weights, *expert_out, *logits;
    int32_t *ids, *used, *entry_tok, *tok_entry; /* used: choices of each token, <= k */
    float *ranked;                               /* n_expert for each thread */
    struct peek peek;
    float *entry_w;
    int32_t *count, *first, *union_ids, *union_counts;
    struct moe_job *jobs;
    uint8_t *packed, *gathered;
    size_t packed_stride, gathered_stride;
    uint8_t *row_window; /* one row of the embeddings as it is read; NULL: the table is in memory */
    float *attn_scratch; /* one piece per thread */
    size_t attn_scratch_floats;
    int group_rows; /* rows of gate, up, gathered */
    void *block;
    size_t block_bytes;

    /* What `packed` holds */
    const float *packed_src;
    enum act_kind packed_kind;

    bool load_all; /* a layer asks its cache for every expert; set by the session, likewise */
    struct route_options route; /* set by the session after forward_open */
    struct route_counts route_counts;
    struct row_counts rows;
    double load_wait_s; /* wall time of waiting for matrices that were still being loaded */
    int64_t n_decoded;  /* tokens of decode batches, in total */

    _Atomic int *cancel; /* owned by the session; not 0: stop at the next layer */
    void (*on_experts)(void *user, int pos, int block, const int32_t *ids, int k);
    void *user;
    struct forward_watch *watch; /* owned by the session; NULL: nobody watches (watch.h) */
};

/* Bytes of the buffers for batches of max_tok tokens. */
uint64_t forward_bytes(const struct model *m, int max_tok, int threads);
int forward_open(struct forward *f, const struct model *m, struct pool *pool, struct cache *cache,
                 int max_tok, int n_ctx, enum kv_type k_type, enum kv_type v_type,
                 struct sl_err *err);
void forward_close(struct forward *f);

/* Compute n <= max_tok tokens at positions pos0 .. pos0 + n - 1. on_logits (may be NULL) is called
 * for every position; last_logits (may be NULL, n_vocab floats) receives the last one's. */
struct forward_sink {
    void (*on_logits)(void *user, int pos, const float *logits);
    void *user;
    float *last_logits;
};
int forward_batch(struct forward *f, const int32_t *ids, int n, int pos0, bool prompt,
                  const struct forward_sink *sink, struct sl_err *err);

/* x = the embeddings of the batch's tokens; tables of angles for its positions. */
int forward_embed(struct forward *f, const int32_t *ids, struct sl_err *err);

/* ---- Operations, for arch/ files. il: the layer's number, for messages and the KV cache. ---- */

/* h = rms_norm(x) * w */
void forward_norm(struct forward *f, const float *w);
/* q, kx, vx = projections of h, with biases */
int forward_qkv(struct forward *f, int il, struct sl_err *err);
/* RMS norm of each query and key head */
void forward_qk_norm(struct forward *f, int il);
/* rotate q and kx */
void forward_rope(struct forward *f);
/* kx, vx into the KV cache; att = attention of q */
void forward_attention(struct forward *f, int il);
/* x = x + o(att) */
int forward_attn_out(struct forward *f, int il, struct sl_err *err);
/* x = x + down(silu(gate(h)) * up(h)) */
int forward_ffn(struct forward *f, int il, struct sl_err *err);
/* x = x + sum of the routed experts of h */
int forward_moe(struct forward *f, int il, struct sl_err *err);

/* ---- Shared by the files of the operations ---- */

/* A block's matrices are about to be used; -1: the embeddings, n_layer: the head. */
int forward_need_block(struct forward *f, int block, struct sl_err *err);

/* Between two pieces of its work the thread that drives the cache (0) lets the drive go on. */
static inline void forward_keep_reading(const struct forward *f, int tid)
{
    if (tid == 0 && f->cache)
        cache_keep_reading(f->cache);
}

/* One matrix of a joint product: y[t] = W x[t] (+ bias), rows y_stride floats apart. */
struct product {
    const struct weight *w;
    float *y;
    size_t y_stride;
};
/* Products of the same n_tok packed rows (all of one act kind) with n matrices, in one parallel
 * region. */
void forward_products(struct forward *f, const struct product *p, int n, const uint8_t *packed,
                      size_t packed_stride, int n_tok);
/* What comes behind the sums of rows [r0, r1) of one token, at y: the matrix's (or expert's) scale,
 * then the bias. */
void forward_finish(const struct weight *w, int expert, int r0, int r1, float *y);
/* Pack n_tok rows of src (stride floats apart) into f->packed unless it holds them already. what,
 * il: for the message. */
int forward_pack(struct forward *f, enum act_kind kind, const float *src, size_t stride,
                 int n_values, int n_tok, int il, const char *what, struct sl_err *err);
/* Tokens of a batch of n_tok whose attention is computed together. */
int forward_attn_tokens(const struct model_config *c, int n_tok);
/* Row i of f->packed; rows are f->packed_stride apart. */
int forward_numeric(struct sl_err *err, int il, const char *what);

#endif
