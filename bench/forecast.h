/* forecast.h: how fast will a model run here, before it is loaded?
 *
 * Three steps, each of its own: the model's shape comes from its file's directory, the machine's
 * rates from short measurements, and the forecast is arithmetic on both. A token's time is the
 * layered one:
 *
 *   head / R  +  sum over layers [ dense / R + max(missed bytes / drive, hit bytes / R)
 *                                  + one expert / R if anything was missed ]  +  keys and values /
 * R
 *
 * where each R is the rate at which the kernels of that matrix's type read weights from memory, and
 * the sum is a mean over how many of a layer's experts are missed, each hit being a draw of its
 * own. A layer's first read takes as long as one that is alone, however fast the drive is with
 * many.
 */
#ifndef BENCH_FORECAST_H
#define BENCH_FORECAST_H

#include "base/err.h"
#include "quant/quant.h"

/* Bytes and multiply-adds of weights, by type. */
struct forecast_weights {
    uint64_t bytes[QT_COUNT];
    double macs; /* of one token through all of them */
};

struct forecast_shape {
    int n_block;
    int n_layer, n_expert, top_k;   /* layers with routed experts; 0, 0, 0 where there are none */
    struct forecast_weights layers; /* what every token needs in all layers */
    struct forecast_weights head;   /* the output matrix */
    struct forecast_weights bank;   /* all routed experts */
    double attention_macs;          /* per token and key, all layers */
};
struct forecast_rates {
    double ram;               /* bytes per second, all threads */
    double drive;             /* likewise, with all reads in flight; 0: nothing is read */
    double load;              /* likewise, of weights that every token needs */
    double latency;           /* seconds of a read that is alone; 0: not known */
    double touch;             /* bytes per second of memory used for the first time; 0: not known */
    double gemv[QT_COUNT];    /* bytes of weights per second from memory; 0: not measured */
    double gemm[2][QT_COUNT]; /* multiply-adds per second with FORECAST_FEW, _MANY tokens */
    double fma;               /* multiply-adds of binary32 per second; attention */
};
#define FORECAST_FEW  8   /* tokens that meet at an expert */
#define FORECAST_MANY 128 /* tokens that meet at a dense matrix */

/* Measure with threads what the shape's types need, in a few seconds; drive and load are left
 * alone. in_memory: bytes of weights that will be: what the CPU's caches hold of few is read from
 * there. ram: read rate of memory to assume, bytes per second (kernels then count as bound by it),
 * 0: measure. */
int forecast_measure(const struct forecast_shape *s, int threads, uint64_t in_memory, double ram,
                     struct forecast_rates *out, struct sl_err *err);

struct forecast_run {
    uint64_t cache_bytes; /* of experts; at least the bank: resident */
    bool streamed;
    double reach;  /* share of a layer's experts that a batch of the prompt reaches; <=0:
                      forecast_reach */
    double hit;    /* share of a decoded token's experts in the cache; <0: forecast_hit */
    int in_flight; /* reads under way at most; 0: no bound */
    int parts;     /* reads per expert */
    int n_prompt, ubatch;
    uint64_t kv_bytes;    /* of one token */
    uint64_t batch_bytes; /* buffers of a batch of ubatch tokens */
    uint64_t load_bytes;  /* of weights that every token needs, */
    uint64_t embd_bytes;  /* and of these what comes before anything is computed */
    bool load_behind;     /* read while the prompt is evaluated, not before */
};
struct forecast {
    double hit;              /* 0..1 */
    double routed_bytes;     /* of the experts that a token uses */
    double read_bytes;       /* per decoded token */
    double token_s, read_s;  /* of a decoded token; of it the drive is busy */
    double prompt_bytes;     /* experts read by the prompt */
    double prompt_s, load_s; /* load_s: in prompt_s with load_behind, else before it */
};
/* In prompt_s, once each, as measured on models of a few MiB: the loader's thread, its reader and
 * what its reads begin with; threads that begin to touch the cache's memory beside a prompt. */
#define FORECAST_BEHIND_S 1.5e-3
#define FORECAST_STREAM_S 1.5e-3
void forecast_make(const struct forecast_shape *s, const struct forecast_rates *r,
                   const struct forecast_run *run, struct forecast *out);

/* Share of the experts that a decoded token finds in a cache which holds this share of the bank,
 * with the default policy: what recorded routing of models with 128 experts gave
 * (docs/cache-policy.md), without the misses that only come first. Models with fewer experts choose
 * more evenly: of the distance to an even choice they get n_expert / 128. */
double forecast_hit(double share, int n_expert);

/* Share of a layer's experts that n tokens of one text reach, each of which uses the share `used`
 * of them; by the same recordings. */
double forecast_reach(double n, double used, int n_expert);

#endif
