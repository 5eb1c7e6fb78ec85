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
};

/* Since the session was opened. */
struct route_counts {
    uint64_t routed;   /* choices of an expert for a token in a layer */
    uint64_t replayed; /* of these, the script's */
};

/* Route the batch in layer il by h: fills ids, weights, the entries sorted by expert and the union;
 * *n_union distinct experts. */
int route_batch(struct forward *f, int il, int *n_union, struct sl_err *err);

#endif
