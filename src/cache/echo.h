/* echo.h: the last tokens' routing, and which of them the current token resembles.
 *
 * A token that is routed like an earlier one in the layers behind it will mostly be routed like it
 * in the layers before it, and the token after it like that one's successor. Likeness of two tokens
 * is the share of experts they have in common, summed over the layers with a weight that fades. */
#ifndef CACHE_ECHO_H
#define CACHE_ECHO_H

#include "cache/policy.h"

#define ECHO_TOKENS 128 /* that are remembered, the current one among them */
#define ECHO_VOICES 16  /* earlier tokens that are listened to */

struct cache_echo {
    int n_layers, words; /* words: of a layer's set of experts */
    uint64_t *sets;      /* [n_layers][ECHO_TOKENS][words]; per layer a ring of tokens */
    int head;            /* the current token's place in the ring */
    int n_past;          /* earlier tokens that are remembered */
    int layer, group;    /* visited last; tokens that went through it together. -1: none */
    int32_t near[ECHO_TOKENS], far[ECHO_TOKENS]; /* likeness by age, 8 fraction bits */
    float *near_weight, *far_weight;             /* by how far behind the most alike */
    int n_voices;
    struct cache_echo_voice {
        int age;
        float weight; /* sum 1 */
    } voice[ECHO_VOICES];
};

/* Zeroed before; on failure cache_echo_free still wants calling. */
int cache_echo_init(struct cache_echo *h, const struct cache_shape *s, struct sl_err *err);
void cache_echo_free(struct cache_echo *h);
uint64_t cache_echo_measure(const struct cache_shape *s);

/* A layer's routing is known; the current token is the last of its tokens. */
void cache_echo_add(struct cache_echo *h, const struct cache_routing *r);

/* How likely the voices make expert e of a layer at its next visit, 0 to 1. */
float cache_echo_hear(const struct cache_echo *h, int layer, int e);
/* What share of the tokens like the current one, in a wider sense, is followed by use of each
 * expert of the layer that was visited last, per token of the next ECHO_AFTER. */
#define ECHO_AFTER 4
void cache_echo_survey(const struct cache_echo *h, int n_experts, float *share);

#endif
