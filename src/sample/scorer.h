/* scorer.h: how well logits foretell the tokens of a text. A pure function of logits and ids, with
 * the same bytes everywhere (docs/arithmetic.md, perplexity). */
#ifndef SAMPLE_SCORER_H
#define SAMPLE_SCORER_H

#include "base/err.h"
#include "kernels/kernels.h"

struct scorer;
int scorer_open(int n_vocab, const struct kernels *k, struct scorer **out, struct sl_err *err);
/* id came after logits. SL_E_NUMERIC when a logit is not finite; nothing is counted then. */
int scorer_add(struct scorer *s, const float *logits, int32_t id, struct sl_err *err);
void scorer_get(const struct scorer *s, struct sl_scores *out);
void scorer_close(struct scorer **s);

#endif
