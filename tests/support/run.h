/* run.h: one run of a model through the public API, and every logit and expert id that came out. */
#ifndef SUPPORT_RUN_H
#define SUPPORT_RUN_H

#include "support/watch.h"

struct run_spec {
    const char *path;
    struct sl_engine_options opt;
    const int32_t *ids; /* n_prompt + n_step of them */
    int n_prompt;       /* evaluated as the prompt */
    int n_step;         /* then one by one */
    int piece;          /* the prompt goes in calls of so many tokens; 0: in one call */
    bool rewind;        /* forget the prompt's second half once and evaluate it again */
    bool resize;        /* the cache gets another size before every call */
    bool watch;         /* somebody looks at everything that happens inside */
    int drives;         /* the shards claim to lie on so many drives, in turn; 0: they do not */
    bool last_only;     /* no logits observer: rows before n_prompt - 1 stay 0 */
};

struct run_result {
    int n_pos, n_vocab, n_layer, k;
    float *logits;    /* [n_pos][n_vocab] */
    int32_t *experts; /* [n_pos][n_layer][k], ascending; -1 behind the last */
    int n_resized;
    int bad_calls;              /* observer calls whose arguments were impossible */
    struct sl_model_info info;  /* its strings are gone */
    struct sl_engine_plan plan; /* its strings too; copies of two of them follow */
    char io_engine[16], cpu_level[16];
    struct sl_stats stats;
    struct watcher watcher; /* of watch */
};

/* Open, evaluate, close. 0 or the failing call's code, *err filled. The result is to be freed in
 * either case. */
int run_model(const struct run_spec *spec, struct run_result *out, struct sl_err *err);
void run_free(struct run_result *r);

/* First position from first_pos on whose logits or experts differ in a byte; -1: none does. */
int run_differs(const struct run_result *a, const struct run_result *b, int first_pos);

/* FNV-1a, 64 bits, over the bytes of the first n_pos rows of logits. */
uint64_t run_hash(const struct run_result *r, int n_pos);

#endif
