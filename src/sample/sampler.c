/* sampler.c: from logits to the next token (docs/arithmetic.md, sampling).
 *
 * The steps are penalties, division by the temperature, top-k, top-p, min-p, draw. Candidates stay
 * in the order of their ids until top-k or top-p puts them into the order of falling logits (equal
 * logits: rising ids); of that order only the prefix that is needed is made. */
#include "sample/sampler.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "sample/rng.h"

enum {
    N_RECENT = 64,      /* tokens that the repeat penalty looks back on */
    FIRST_PREFIX = 128, /* candidates that top-p orders at first; then eight times as many */
};

struct sampler {
    struct sl_sampling par;
    const struct kernels *k;
    struct rng rng;
    int n_vocab;
    int32_t recent[N_RECENT]; /* a ring; -1: empty */
    unsigned n_accepted;
    float *logit; /* n_vocab: after penalties and temperature, by id */
    float *e;     /* n_vocab: exp(logit - max) of the candidates, in their current order */
    int32_t *id;  /* n_vocab: their ids */
};

/* The candidates of one draw: sampler.e and sampler.id up to n. */
struct candidates {
    int n;
    bool ordered; /* by falling logit; otherwise by id */
};

static int check_parameters(const struct sl_sampling *s, struct sl_err *err)
{
    const struct {
        const char *name;
        double value, min, max;
        const char *range;
    } rules[] = {
        {"temp", s->temp, 0, 1e30, "a finite number, 0 (greedy) or more"},
        {"top_k", s->top_k, 0, INT32_MAX, "0 (all) or more"},
        {"top_p", s->top_p, 0, 1, "between 0 and 1 (all)"},
        {"min_p", s->min_p, 0, 1, "between 0 (all) and 1"},
        {"repeat_penalty", s->repeat_penalty, 1e-30, 1e30, "a finite number above 0 (1: none)"},
    };

    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (!(rules[i].value >= rules[i].min && rules[i].value <= rules[i].max))
            return err_set(err, SL_E_ARG, rules[i].name, "%s is %g, must be %s", rules[i].name,
                           rules[i].value, rules[i].range);
    return 0;
}

int sampler_open(const struct sl_sampling *par, int n_vocab, const struct kernels *k,
                 struct sampler **out, struct sl_err *err)
{
    struct sampler *s;
    uint64_t bytes;
    int rc;

    *out = NULL;
    rc = check_parameters(par, err);
    if (rc)
        return rc;
    if (n_vocab < 1)
        return err_set(err, SL_E_ARG, "n_vocab", "a vocabulary of %d tokens cannot be sampled",
                       n_vocab);
    s = mem_calloc(1, sizeof *s);
    /* Three arrays in one block; each begins on a cache line. */
    const uint64_t stride = size_up((uint64_t)n_vocab, 16);
    if (s && size_mul(stride, 3 * sizeof(float), &bytes) && bytes <= SIZE_MAX)
        s->logit = mem_alloc((size_t)bytes);
    if (!s || !s->logit) {
        mem_free(s);
        return err_set(err, SL_E_MEM, "sampler", "no memory for a vocabulary of %d tokens",
                       n_vocab);
    }
    s->e = s->logit + stride;
    s->id = (int32_t *)(void *)(s->e + stride);
    s->par = *par;
    s->k = k;
    s->n_vocab = n_vocab;
    rng_seed(&s->rng, par->seed);
    for (int i = 0; i < N_RECENT; i++)
        s->recent[i] = -1;
    *out = s;
    return 0;
}

void sampler_close(struct sampler **s)
{
    if (!s || !*s)
        return;
    mem_free((*s)->logit);
    mem_free(*s);
    *s = NULL;
}

void sampler_accept(struct sampler *s, int32_t id)
{
    s->recent[s->n_accepted++ % N_RECENT] = id;
}

/* First index whose value is not finite, or -1. */
static int find_not_finite(const float *x, int n)
{
    uint32_t top = 0;

    for (int i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, x + i, sizeof u);
        u &= 0x7fffffff;
        top = u > top ? u : top;
    }
    if (top < 0x7f800000)
        return -1;
    for (int i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return i;
    return -1;
}

/* A recent token's logit is divided by the penalty when it is above 0, else multiplied; once, no
 * matter how often the token occurs. */
static void apply_penalties(struct sampler *s)
{
    const float penalty = s->par.repeat_penalty;

    if (penalty == 1.0f)
        return;
    for (int i = 0; i < N_RECENT; i++) {
        const int32_t id = s->recent[i];
        bool seen = id < 0 || id >= s->n_vocab;
        for (int j = 0; j < i && !seen; j++)
            seen = s->recent[j] == id;
        if (seen)
            continue;
        const float x = s->logit[id];
        s->logit[id] = x > 0 ? x / penalty : x * penalty;
    }
}

/* Id of the highest logit; the lowest of equals. */
static int32_t find_highest(const float *x, int n)
{
    float max[8] = {x[0], x[0], x[0], x[0], x[0], x[0], x[0], x[0]}; /* independent chains */
    int32_t best = 0;
    int i = 0;

    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++)
            max[j] = x[i + j] > max[j] ? x[i + j] : max[j];
    for (; i < n; i++)
        max[0] = x[i] > max[0] ? x[i] : max[0];
    for (int j = 1; j < 8; j++)
        max[0] = max[j] > max[0] ? max[j] : max[0];
    while (x[best] < max[0])
        best++;
    return best;
}

/* e_i = exp(logit_i - max) for the candidates in their current order. */
static void weigh(struct sampler *s, const struct candidates *c, float max)
{
    for (int i = 0; i < c->n; i++)
        s->e[i] = s->logit[s->id[i]] - max;
    s->k->map[MF_EXP](s->e, c->n, s->e);
}

/* Length of the shortest prefix of e, in falling order, whose probabilities e_i / sum add up (one
 * after the other, in binary32) to at least top_p; n + 1 when the n do not reach it. */
static int count_prefix(const float *e, int n, float sum, float top_p)
{
    float total = 0;

    for (int i = 0; i < n; i++) {
        total = total + e[i] / sum;
        if (total >= top_p)
            return i + 1;
    }
    return n + 1;
}

static void keep_top_p(struct sampler *s, struct candidates *c, float max)
{
    const float sum = s->k->sum(s->e, c->n);
    int n = c->n, kept;

    if (c->ordered) {
        kept = count_prefix(s->e, n, sum, s->par.top_p);
        c->n = kept < n ? kept : n;
        return;
    }
    /* All ids are candidates here: top-k would have ordered them. */
    for (n = FIRST_PREFIX < c->n ? FIRST_PREFIX : c->n;;) {
        const struct candidates prefix = {n, true};
        kern_topk(s->logit, s->n_vocab, n, s->id);
        weigh(s, &prefix, max);
        kept = count_prefix(s->e, n, sum, s->par.top_p);
        if (kept <= n || n == c->n)
            break;
        n = n < c->n / 8 ? n * 8 : c->n;
    }
    c->n = kept < n ? kept : n;
    c->ordered = true;
}

/* Keep e_i >= min_p; e of the most probable candidate is 1. */
static void keep_min_p(struct sampler *s, struct candidates *c)
{
    int n = 0;

    for (int i = 0; i < c->n; i++)
        if (s->e[i] >= s->par.min_p) {
            s->e[n] = s->e[i];
            s->id[n++] = s->id[i];
        }
    c->n = n;
}

/* A point below the sum of the weights; the candidate whose weight covers it, walking in the
 * current order. The walk adds in binary64, so that rounding favours nobody; should the point lie
 * behind the last, the last candidate with any weight is it. */
static int32_t draw(struct sampler *s, const struct candidates *c)
{
    const double point = rng_uniform(&s->rng) * (double)s->k->sum(s->e, c->n);
    double at = 0;
    int last = 0;

    for (int i = 0; i < c->n; i++) {
        if (s->e[i] == 0)
            continue;
        at = at + (double)s->e[i];
        last = i;
        if (at > point)
            break;
    }
    return s->id[last];
}

int sampler_draw(struct sampler *s, const float *logits, int32_t *id, struct sl_err *err)
{
    const struct sl_sampling *par = &s->par;
    struct candidates c = {s->n_vocab, false};
    const int bad = find_not_finite(logits, s->n_vocab);

    if (bad >= 0)
        return err_set(err, SL_E_NUMERIC, "sampling", "the logit of token %d is %f", bad,
                       (double)logits[bad]);
    memcpy(s->logit, logits, (size_t)s->n_vocab * sizeof *logits);
    apply_penalties(s);
    const int32_t best = find_highest(s->logit, s->n_vocab);
    if (par->temp == 0) {
        *id = best;
        return 0;
    }
    for (int i = 0; i < s->n_vocab; i++)
        s->logit[i] = s->logit[i] / par->temp;
    const float max = s->logit[best];
    if (!isfinite(max))
        return err_set(err, SL_E_NUMERIC, "sampling",
                       "the highest logit is not finite after division by temperature %g",
                       (double)par->temp);
    if (par->top_k > 0 && par->top_k < c.n) {
        kern_topk(s->logit, s->n_vocab, par->top_k, s->id);
        c = (struct candidates){par->top_k, true};
    } else {
        for (int i = 0; i < c.n; i++)
            s->id[i] = i;
    }
    weigh(s, &c, max);
    if (par->top_p < 1.0f)
        keep_top_p(s, &c, max);
    if (par->min_p > 0)
        keep_min_p(s, &c);
    *id = draw(s, &c);
    return 0;
}
