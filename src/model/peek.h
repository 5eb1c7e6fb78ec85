/* peek.h: what later layers will route to, before they are reached.
 *
 * Three guesses for one token in a layer: the layer's own norm and router on the residual that
 * enters an earlier FFN; what the previous token used there; and, as a control, the first without
 * its staleness, which finds all that is chosen by plain ranking. They are used to route ahead
 * (struct route_options), to read ahead, and to be scored: only for decoding one token at a time.
 *
 * Of a prompt's batch a sample of tokens is asked, by the first way. What several tokens will
 * choose is nearly certain then, and is read while the drive has nothing to do otherwise. */
#ifndef MODEL_PEEK_H
#define MODEL_PEEK_H

#include "base/err.h"

#include <stdint.h>

struct forward;

/* Choices of one layer that guesses were scored on, and how many of them each had named. */
struct peek_score {
    uint64_t router_asked, router_hit;
    uint64_t previous_asked, previous_hit;
    uint64_t control_asked, control_hit;
};

#define PEEK_SAMPLE 64 /* tokens of a prompt's batch that are asked, at most */

/* Buffers of a session, laid out by forward.c. */
struct peek {
    float *norm;      /* [PEEK_SAMPLE or the ubatch][n_embd] */
    float *scores;    /* likewise [n_expert] */
    int32_t *counts;  /* n_expert: tokens of a prompt's batch that layer counts_layer sends there */
    int counts_layer; /* -1: not known */
    int32_t *guess;   /* k ids for layer guess_layer */
    int guess_layer;  /* -1: none */
    int32_t *control; /* k ids */
    int32_t *previous;  /* [n_layer][k]: the last token's, -1 behind the last */
    int32_t *ahead_ids; /* [n_layer][k]: this token's, decided early */
    float *ahead_weights;
    int32_t *ahead_used;      /* [n_layer]; 0: not decided */
    struct peek_score *score; /* per layer */
};

/* A batch begins: nothing is known ahead. */
void peek_begin(struct forward *f);
/* The token's routing in layer il was decided some layers ago: take it. */
bool peek_take_ahead(struct forward *f, int il);
/* The FFN of layer il begins, x is the residual that enters it: route layer il + ahead. */
int peek_route_ahead(struct forward *f, int il, struct sl_err *err);
/* Layer il was routed (by rank still): score the guesses for it. */
int peek_score_layer(struct forward *f, int il, struct sl_err *err);
/* Guess the next layer's choice. */
int peek_guess_next(struct forward *f, int il, struct sl_err *err);
/* Of a prompt's batch: count what the next layer will choose. */
void peek_count_next(struct forward *f, int il);
/* Tell the cache what the layers behind il are expected to ask for. */
void peek_tell_cache(struct forward *f, int il);
/* Remember what the batch's last token chose. */
void peek_remember(struct forward *f, int il);

#endif
