/* kernels.h: the table of compute functions.
 *
 * kernels_init fills it with the scalar versions, which are the definition (docs/arithmetic.md),
 * then each level of the CPU overwrites what it does faster, with the same bytes. Nobody else looks
 * at CPU features. The table is read-only afterwards. Functions here run on one thread; callers cut
 * the work. No pointer needs an alignment unless said. */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include "quant/quant.h"

enum kern_level {
    KL_SCALAR,
    KL_AVX2,
    KL_AVXVNNI,
    KL_AVX512,
    KL_AVX512VNNI,
    KL_AMX,
    KL_NEON,
    KL_DOTPROD,
    KL_I8MM,
    KL_COUNT
};

/* Activations as a product wants them; which one is a property of the weight type. */
enum act_kind { ACT_NONE, ACT_F32, ACT_Q256, ACT_Q32 };

/* 256 activations: value i is d * q[i]. sum16[g]: sum of q[16g .. 16g+15]. Followed by others
 * without gap. */
struct act_q256 {
    int8_t q[256];
    int16_t sum16[16];
    float d;
    uint32_t pad[7]; /* 320 bytes, so that arrays of it keep 64-byte alignment */
};
/* 32 activations. sum: of all q. */
struct act_q32 {
    int8_t q[32];
    float d;
    int32_t sum;
    int32_t pad[2]; /* 48 bytes */
};

/* y[t * y_stride + r] = dot(row r of w, activations of token t), r < n_rows, t < n_tok. */
struct mat_args {
    const uint8_t *
        w; /* rows of row_bytes each; no byte outside the n_rows rows is touched (prefetch apart) */
    size_t row_bytes;
    int n_rows,
        n_cols; /* n_cols: values per row, a multiple of the type's block (any for float types) */
    const uint8_t *x; /* packed activations of token 0, 64-byte aligned */
    size_t x_stride;  /* bytes from token to token, a multiple of 64 */
    int n_tok;
    float *y;
    size_t y_stride; /* floats */
    /* A hint: what this thread is likely to multiply after these rows, to be prefetched while the
     * last of them are in work; NULL and 0: nothing. */
    const uint8_t *next;
    size_t next_bytes;
};
typedef void mat_fn(const struct mat_args *a);

struct mat_kernel {
    enum act_kind act; /* ACT_NONE: the type has no product here */
    mat_fn *gemv;      /* n_tok == 1 */
    mat_fn *gemm;      /* any n_tok >= 1 */
};

/* How keys and values are stored. KV_Q8_0: 32 values along the head dimension share an F16 scale d
 * and are q * d with 8-bit q; head sizes must be multiples of 32 (kern_kv_fits). */
enum kv_type { KV_F32, KV_F16, KV_Q8_0, KV_N_TYPES };

/* Attention of the query heads that share one KV head, for one token or several in a row, over the
 * keys that each may see (docs/arithmetic.md, attention). n_q query vectors of dim_k per token at q
 * (q_stride floats apart); results of dim_v at out. Fields behind n_tok may stay 0 for one token
 * that sees all keys in [first, pos]. */
struct attn_args {
    const float *q;
    size_t q_stride;
    int n_q;
    const void *k; /* this head's K: tiles of 16 positions, [tile][dim_k][16] */
    const void *v; /* this head's V: [position][dim_v] */
    enum kv_type k_type, v_type;
    int dim_k, dim_v;
    int first, pos; /* visible keys of token 0, absolute positions, both included */
    float scale;
    float softcap;      /* 0: none */
    const float *sinks; /* one per query head, or NULL */
    float *scratch;     /* kern_attn_scratch(n_q * n_tok, dim_k, dim_v) floats, 64-byte aligned */
    float *out;
    size_t out_stride;
    int n_tok;             /* 0: 1; token i is at position pos + i, all its keys are stored */
    int window;            /* 0: none; position p sees no key below p - window + 1 */
    size_t q_tok, out_tok; /* floats from token to token */
    /* attention_part and attention_merge: kern_attn_part(dim_v) floats per chunk of ATTN_CHUNK
     * keys (counted from the chunk of `first`) and query head, 64-byte aligned */
    float *parts;
};
/* Keys per chunk, at absolute positions: part of the definition of the result. */
#define ATTN_CHUNK 256

/* Elementary functions over vectors (docs/arithmetic.md); sigmoid(x) = 1 / (1 + exp(-x)), silu(x) =
 * x * sigmoid(x). */
enum math_fn {
    MF_EXP,
    MF_EXP2,
    MF_LOG,
    MF_LOG1P,
    MF_SIGMOID,
    MF_SILU,
    MF_GELU_TANH,
    MF_GELU_ERF,
    MF_TANH,
    MF_SOFTPLUS,
    MF_COUNT
};

struct kernels {
    enum kern_level level;
    struct mat_kernel mat[QT_COUNT];

    /* Pack one token's n activations for a product. dst: act_bytes(kind, n), 64-byte aligned.
     * False: a value was not finite. ACT_F32 pads with +0 to a multiple of 16. n is a multiple of
     * the block for the others. */
    bool (*pack_f32)(const float *x, int n, void *dst);
    bool (*pack_q256)(const float *x, int n, void *dst);
    bool (*pack_q32)(const float *x, int n, void *dst);

    /* y_i = (x_i * r) * w_i, r = 1 / sqrt(dot(x, x) / n + eps); w NULL: no weights. y may be x. */
    void (*rms_norm)(const float *x, const float *w, int n, float eps, float *y);
    void (*add)(const float *x, const float *y, int n, float *z); /* z = x + y; z may be either */
    void (*axpy)(float a, const float *x, int n, float *y);       /* y = fma(a, x, y) */
    void (*swiglu)(const float *g, const float *u, int n,
                   float *y); /* silu(g) * u; y may be either */
    /* Rotate n_rot values of x with n_rot / 2 cosines and sines. half: pairs (i, i + n_rot/2), else
     * (2i, 2i+1). */
    void (*rope)(float *x, int n_rot, const float *cosines, const float *sines, bool half);
    /* In place. False: the maximum was not finite. */
    bool (*softmax)(float *x, int n);
    void (*attention)(const struct attn_args *a);
    /* The same for one token in pieces, for threads to share: part fills a->parts of n_chunks
     * chunks from chunk on (absolute numbers, position / ATTN_CHUNK); when all are there, merge
     * computes the results of query heads [h0, h1). */
    void (*attention_part)(const struct attn_args *a, int chunk, int n_chunks);
    void (*attention_merge)(const struct attn_args *a, int h0, int h1);
    /* One head's K or V of one position into the cache (layouts as in struct attn_args). */
    void (*store_k)(const float *k, int dim, void *head_base, int pos, enum kv_type type);
    void (*store_v)(const float *v, int dim, void *head_base, int pos, enum kv_type type);
    float (*dot)(const float *a, const float *b, int n); /* sixteen lanes, padded by +0 */
    float (*sum)(const float *a, int n);                 /* sixteen lanes */
    float (*exp1)(float x);
    void (*map[MF_COUNT])(const float *x, int n, float *y); /* y_i = f(x_i); y may be x */
};

/* max_level: upper bound (KL_COUNT: none). Levels of another architecture than this CPU's mean
 * scalar. */
void kernels_init(struct kernels *k, enum kern_level max_level);
enum kern_level kernels_cpu_level(void); /* the best that this CPU and build have */
const char *kernels_level_name(enum kern_level level);

/* Bytes of n packed activations, a multiple of 64. */
size_t act_bytes(enum act_kind kind, int n);
/* Call the pack function of kind. */
bool act_pack(const struct kernels *k, enum act_kind kind, const float *x, int n, void *dst);
/* Floats of struct attn_args: scratch for n queries (heads times tokens), one part. */
size_t kern_attn_scratch(int n, int dim_k, int dim_v);
size_t kern_attn_part(int dim_v);
/* Bytes of 16 positions of K, of one position of V; can heads of dim values be stored so? */
size_t kern_kv_tile_bytes(enum kv_type type, int dim);
size_t kern_kv_row_bytes(enum kv_type type, int dim);
bool kern_kv_fits(enum kv_type type, int dim);
/* Indices of the k highest scores, higher first, equal scores lower index first; scores finite. k
 * <= n. */
void kern_topk(const float *scores, int n, int k, int32_t *ids);
/* Cosines and sines for one position, n_rot / 2 each: angle position * frequency[i] in binary64,
 * times mscale, rounded to binary32. freqs from kern_rope_freqs: base^(-2i/n_rot) in binary64 with
 * our own pow. */
void kern_rope_freqs(double base, int n_rot, double *freqs);
/* YaRN (Peng and others, 2023): pairs that turn often over the context of training keep their
 * frequency, those that turn rarely are slowed down by factor, a ramp lies in between. */
struct kern_yarn {
    double factor;               /* how much longer the context is */
    double ext;                  /* weight of the ramp; 0: every pair is slowed down */
    double n_ctx;                /* positions of training */
    double beta_fast, beta_slow; /* turns over them from which on, and up to which */
};
/* Scale the frequencies that kern_rope_freqs gave. base above 1. */
void kern_rope_yarn(const struct kern_yarn *y, double base, int n_rot, double *freqs);
/* 1 + 0.1 mul ln(factor), 1 for factors up to 1: what YaRN multiplies cosines and sines with. */
double kern_yarn_magnitude(double factor, double mul);
void kern_rope_table(int64_t pos, const double *freqs, int n_half, double mscale, float *cosines,
                     float *sines);

#endif
