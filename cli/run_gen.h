/* run_gen.h: one answer: a prompt goes in, tokens come out one by one. */
#ifndef CLI_RUN_GEN_H
#define CLI_RUN_GEN_H

#include "sluice.h"

/* One turn of the loop: a token was drawn, shown and evaluated. */
struct gen_step {
    size_t step; /* from 0 */
    int32_t id;
    double loop_s;           /* wall time of the whole turn */
    struct sl_phase_stats d; /* counters of its evaluation alone */
};

enum gen_end {
    GEN_LENGTH,  /* as many tokens as asked for */
    GEN_EOG,     /* the model ended its text */
    GEN_CONTEXT, /* the context is full */
    GEN_STOPPED  /* the caller's stop said so */
};

struct gen {
    struct sl_engine *engine;
    struct sl_session *session;
    struct sl_sampler *sampler;
    struct sl_detok *detok; /* NULL: no vocabulary, ids are shown instead of text */
    int n_ctx;
    size_t n_predict; /* tokens at most */
    bool ignore_eos;

    /* What the caller wants to know; any may be NULL. Negative return values end the generation. */
    int (*on_text)(void *user, const char *text, size_t n, struct sl_err *err);
    int (*on_eval)(void *user, struct sl_err *err); /* after each evaluation, the prompt's too */
    int (*on_step)(void *user, const struct gen_step *step, struct sl_err *err);
    bool (*stop)(void *user); /* asked before each token */
    void *user;

    /* What came out */
    int32_t *ids; /* prompt, then answer; owned */
    size_t n_ids, n_prompt;
    size_t n_generated;
    double *step_s; /* wall time of each turn; owned */
    double prompt_s;
    double first_s; /* from t_request to the first token; 0: there was none */
    double loop_s;
    enum gen_end end;
    double t_request; /* set by gen_prepare */
};

/* Room for the prompt and its answer. The prompt is copied. */
int gen_prepare(struct gen *g, const int32_t *prompt, size_t n_prompt, struct sl_err *err);
/* Evaluate the prompt's tokens from n_known on: those before are in the session already. */
int gen_eval_prompt(struct gen *g, size_t n_known, struct sl_err *err);
int gen_run(struct gen *g, struct sl_err *err);
void gen_free(struct gen *g);

#endif
