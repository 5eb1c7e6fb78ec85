/* weights.h: a model's tensors, bound to their places: dense ones in memory, routed experts as
 * slices of files or, when everything is resident, of memory. */
#ifndef MODEL_WEIGHTS_H
#define MODEL_WEIGHTS_H

#include "cache/cache.h"
#include "kernels/kernels.h"
#include "model/config.h"

/* A matrix y = W x (+ bias): n_out rows of n_in values. */
struct weight {
    const struct gguf_tensor *tensor;
    const struct mat_kernel *kernel;
    int n_in, n_out;
    size_t row_bytes;
    const uint8_t *data; /* NULL until loaded; for experts: of expert 0 when resident, else NULL */
    const float
        *scale; /* multiplies the finished sums: one per expert, one of a plain matrix; or NULL */
    const float *bias; /* n_out floats or NULL */
};

struct layer {
    const float *attn_norm, *q_norm, *k_norm, *ffn_norm;
    struct weight q, k, v, o;
    struct weight gate, up, down;                /* dense FFN; tensor NULL in routed layers */
    struct weight router;                        /* tensor NULL in dense layers */
    struct weight gate_exps, up_exps, down_exps; /* n_out and row_bytes of one expert */
    size_t gate_stride, up_stride, down_stride;  /* bytes of one expert's slice */
    struct io_file *packed; /* where the experts are instead of their tensors, or NULL (borrowed) */
    size_t packed_stride;   /* bytes from expert to expert there */
};

struct model {
    struct model_config cfg;
    const struct gguf *gguf; /* borrowed */
    struct kernels kernels;
    struct layer *layers;
    struct weight embd, head; /* head may be embd's tensor */
    const float *output_norm;
    double *rope_freqs; /* n_rot / 2 */
    /* Loading */
    struct io_file **files; /* one per shard, then those of packed layers; owned */
    int n_files;
    uint8_t *anon; /* matrices in our own memory */
    size_t anon_bytes;
    float *vectors; /* norms, biases: always copied, as binary32 */
    size_t vector_floats;
    int n_vectors;
    struct loading *loading; /* NULL: everything that is to be in memory is */
    bool experts_resident;
    bool row_stream; /* embedding rows are read when a token wants them; set before sizes are asked
                        for, and only where the head is a matrix of its own */
};

/* Bind every tensor that the architecture wants: shapes and types are checked, nothing is loaded.
 * gguf is borrowed. */
int model_bind(const struct gguf *g, enum kern_level max_level, struct model **out,
               struct sl_err *err);
void model_free(struct model **m);

/* With row_stream: alignment and bytes of the window that a row is read through. */
size_t model_row_align(const struct model *m);
size_t model_row_window(const struct model *m);

/* What loading takes (spans.c): of matrices that every token needs with the copied vectors, and of
 * all routed experts. Matrices keep their place in the alignment blocks of the file, which are
 * known once it is open; before that the page's are assumed. */
uint64_t model_dense_bytes(const struct model *m);
uint64_t model_expert_room(const struct model *m);
uint64_t model_expert_bytes(const struct model *m); /* of the experts themselves */
/* Slices of the experts that one token routes to, all layers. */
uint64_t model_token_expert_bytes(const struct model *m);

/* Of one block: matrices that every token needs, and one expert. Block n_layer is the output head.
 */
uint64_t model_block_bytes(const struct model *m, int block);
uint64_t model_block_expert_bytes(const struct model *m, int block);
int model_routed_layers(const struct model *m);
/* The part (0 to 1) of the dense matrices that is in memory, from about n_probes pages; NaN: the
 * system does not say. */
double model_find_resident(const struct model *m, int n_probes);

/* Open the shards. direct: try O_DIRECT. */
int model_open_files(struct model *m, bool direct, struct sl_err *err);

/* Experts from the tree of this kind in dir instead of the model's own tensors; after
 * model_open_files. Refuses trees that do not belong to the model (packed_bind.c). */
int model_use_packed(struct model *m, const char *dir, enum sl_packed kind, bool direct,
                     struct sl_err *err);

struct load_options {
    enum sl_dense_mode mode;
    bool experts; /* load routed experts too */
    /* SL_DENSE_ANON: return at once, and read on a thread of its own until model_end_loading. */
    bool behind;
    /* Nothing of it is open. SL_DENSE_ANON needs it. Borrowed, or with behind given away, however
     * model_load ends. */
    struct io_reader *reader;
    int in_flight; /* reads of one drive that it has under way */
    /* By the thread that loads; with behind, by those that wait for a block. */
    void (*on_load)(void *user, uint64_t done, uint64_t total);
    void *user;
    /* The weights' own memory, if any, is touched, or loading gave up; once, from any thread, not
     * after model_end_loading, and without behind before model_load returns; not when it fails
     * before it reads. May be NULL. */
    void (*on_touched)(void *user);
    void *touched_user;
};
int model_load(struct model *m, const struct load_options *opt, struct sl_err *err);
/* While a model is loaded behind: wait until a block's matrices are in memory, with those of the
 * blocks before; -1: the embeddings, n_layer: the output head. Fails as the reads did, and with
 * SL_E_CANCELLED when *cancel (NULL: nobody cancels) is not 0, at the latest with the next read
 * that ends. By one thread at a time. */
int model_wait_block(const struct model *m, int block, const _Atomic int *cancel,
                     struct sl_err *err);
bool model_has_block(const struct model *m, int block);
/* Nothing is read any more. Before the pointers are used again: only after all blocks came. */
void model_end_loading(struct model *m);
/* Of it: norms, biases, scales and the frequencies of RoPE, in_flight at a time. reader: borrowed,
 * nothing of it is open; NULL: one by one. */
int model_load_vectors(struct model *m, struct io_reader *reader, int in_flight,
                       struct sl_err *err);

/* Fill n_layer rows for the expert cache. */
void model_cache_layers(const struct model *m, struct cache_layer *rows);

#endif
