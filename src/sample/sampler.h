/* sampler.h: drawing the next token (docs/arithmetic.md, sampling). A pure function of the
 * parameters, the generator's state, the tokens accepted so far and the logits. */
#ifndef SAMPLE_SAMPLER_H
#define SAMPLE_SAMPLER_H

#include "base/err.h"
#include "kernels/kernels.h"

struct sampler;
int sampler_open(const struct sl_sampling *s, int n_vocab, const struct kernels *k,
                 struct sampler **out, struct sl_err *err);
void sampler_accept(struct sampler *s, int32_t id);
int sampler_draw(struct sampler *s, const float *logits, int32_t *id, struct sl_err *err);
void sampler_close(struct sampler **s);

#endif
