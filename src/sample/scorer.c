#include "sample/scorer.h"

#include <string.h>

#include "base/mem.h"
#include "kernels/math64.h"

struct scorer {
    const struct kernels *k;
    int n_vocab;
    uint64_t tokens, hits;
    double nll; /* sum */
    float *p;   /* n_vocab: probabilities */
};

int scorer_open(int n_vocab, const struct kernels *k, struct scorer **out, struct sl_err *err)
{
    *out = NULL;
    struct scorer *s = mem_calloc(1, sizeof *s);
    float *p = mem_alloc((size_t)n_vocab * sizeof *p);
    if (!s || !p) {
        mem_free(s);
        mem_free(p);
        return err_set(err, SL_E_MEM, "perplexity", "no memory for %d probabilities", n_vocab);
    }
    *s = (struct scorer){.k = k, .n_vocab = n_vocab, .p = p};
    *out = s;
    return 0;
}

/* -log p of a token is (max - its logit) - log p of the best one: p itself may be too small for
 * binary32, the best one's is at least 1 / n_vocab. */
int scorer_add(struct scorer *s, const float *logits, int32_t id, struct sl_err *err)
{
    if (id < 0 || id >= s->n_vocab)
        return err_set(err, SL_E_ARG, "perplexity", "token id %d is outside 0 to %d", id,
                       s->n_vocab - 1);
    memcpy(s->p, logits, (size_t)s->n_vocab * sizeof *s->p);
    if (!s->k->softmax(s->p, s->n_vocab))
        return err_set(err, SL_E_NUMERIC, "logits",
                       "a logit is not finite: the model's numbers overflow");
    int32_t best = 0;
    for (int32_t i = 1; i < s->n_vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    s->nll += (double)logits[best] - (double)logits[id] - math64_log((double)s->p[best]);
    s->hits += id == best;
    s->tokens++;
    return 0;
}

void scorer_get(const struct scorer *s, struct sl_scores *out)
{
    *out = (struct sl_scores){.tokens = s->tokens, .hits = s->hits};
    if (s->tokens) {
        out->nll = s->nll / (double)s->tokens;
        out->ppl = math64_exp(out->nll);
    }
}

void scorer_close(struct scorer **ps)
{
    struct scorer *s = ps ? *ps : NULL;
    if (!s)
        return;
    mem_free(s->p);
    mem_free(s);
    *ps = NULL;
}
