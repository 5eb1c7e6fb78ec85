/* route.h: which experts a token gets, and with what weights.
 *
 * The usual way is the model's own: softmax, the k best, renormalised. What else there is changes
 * the text (struct route_options) and is for measurements or bought with quality; the engine marks
 * such runs. */
#ifndef MODEL_ROUTE_H
#define MODEL_ROUTE_H

#include "base/err.h"

#include <stdint.h>

struct forward;

/* A recorded routing that is followed instead of the router's choice, [phase][token][layer][k] ids
 * in order of choice; a first id of -1: not recorded, the router decides. Phase 0: the prompt's
 * tokens by position; 1: decoded tokens, which start again at the end. */
struct route_script {
    int k, n_layers;
    int64_t n_tokens[2];
    int32_t *ids[2];
};

struct route_options {
    const struct route_script *script; /* borrowed; NULL: none */
    /* An expert that is not in the cache and whose renormalised weight is below drop / k is left
     * out, never the one of highest weight; 0: none. In decode, or in prompts too. */
    float drop;
    bool drop_renorm; /* the others' weights are divided by their sum */
    bool drop_in_prompt;
    /* In decode experts in the cache are ranked as if their score were higher by this times the
     * token's score range (highest less lowest); weights stay the router's. 0: off. */
    float substitute;
    /* Decoding one token, a layer is routed by the residual that enters the FFN this many layers
     * earlier; layers that have none so early route as usual. 0: off. */
    int ahead;
    bool predict; /* score guesses of the next layer's routing (peek.h) */
    int prefetch; /* read what the previous token used, this many layers ahead */
    int guess;    /* read what the next layer's router says now, at most so many experts; 0: off */
};

/* Choices of an expert for a token in a layer, since the session was opened. */
struct route_counts {
    uint64_t routed;
    uint64_t replayed;    /* of these, the script's */
    uint64_t dropped;     /* chosen and left out */
    uint64_t substituted; /* another one would have been chosen but for the cache */
    uint64_t ahead;       /* made some layers early */
};

/* One token's choice. */
struct route_choice {
    int32_t *ids; /* room for k; -1 behind the last */
    float *weights;
    int32_t *used; /* how many */
};

/* Choose for token t of the batch in layer il. scores: the router's n_expert outputs, replaced by
 * probabilities; scratch: as many floats. Adds to *c. False: a score is not finite. */
bool route_choose(const struct forward *f, int il, int64_t t, float *scores, float *scratch,
                  struct route_choice out, struct route_counts *c);

/* Route the batch in layer il by h and x: fills ids, weights, used, the entries sorted by expert
 * and the union; *n_union distinct experts. */
int route_batch(struct forward *f, int il, int *n_union, struct sl_err *err);

#endif
