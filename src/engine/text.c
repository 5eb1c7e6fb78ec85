/* The public text and sampling functions: thin over src/text and src/sample. */
#include "base/err.h"
#include "base/fpenv.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "sample/sampler.h"
#include "sample/scorer.h"

static int no_vocab(struct sl_err *err)
{
    return err_set(err, SL_E_UNSUPPORTED, "vocabulary",
                   "the model file has no vocabulary: give token ids instead of text");
}

int sl_tokenize(const struct sl_engine *e, const char *text, size_t n_bytes, unsigned flags,
                int32_t **ids, size_t *n_ids, struct sl_err *err)
{
    *ids = NULL;
    *n_ids = 0;
    return e->vocab ? vocab_encode(e->vocab, text, n_bytes, flags, ids, n_ids, err) : no_vocab(err);
}

int sl_chat_tokenize(const struct sl_engine *e, const char *user, size_t n_bytes, int32_t **ids,
                     size_t *n_ids, struct sl_err *err)
{
    *ids = NULL;
    *n_ids = 0;
    return e->vocab ? chat_encode_user(e->vocab, e->gguf, user, n_bytes, ids, n_ids, err)
                    : no_vocab(err);
}

bool sl_is_eog(const struct sl_engine *e, int32_t id)
{
    return e->vocab && vocab_is_eog(e->vocab, id);
}

void sl_free(void *p)
{
    mem_free(p);
}

struct sl_detok {
    struct detok *d;
};

int sl_detok_open(const struct sl_engine *e, struct sl_detok **out, struct sl_err *err)
{
    *out = NULL;
    if (!e->vocab)
        return no_vocab(err);
    struct sl_detok *d = mem_calloc(1, sizeof *d);
    if (!d)
        return err_set(err, SL_E_MEM, "detokeniser", "no memory");
    int rc = detok_open(e->vocab, &d->d, err);
    if (rc < 0) {
        mem_free(d);
        return rc;
    }
    *out = d;
    return 0;
}

int sl_detok_feed(struct sl_detok *d, int32_t id, const char **text, size_t *n, struct sl_err *err)
{
    return detok_feed(d->d, id, text, n, err);
}

void sl_detok_flush(struct sl_detok *d, const char **text, size_t *n)
{
    detok_flush(d->d, text, n);
}

void sl_detok_close(struct sl_detok **d)
{
    if (!d || !*d)
        return;
    detok_close(&(*d)->d);
    mem_free(*d);
    *d = NULL;
}

struct sl_sampler {
    struct sampler *s;
};

void sl_sampling_init(struct sl_sampling *s)
{
    *s = (struct sl_sampling){.top_p = 1, .repeat_penalty = 1};
}

int sl_sampler_open(const struct sl_engine *e, const struct sl_sampling *params,
                    struct sl_sampler **out, struct sl_err *err)
{
    *out = NULL;
    struct sl_sampler *s = mem_calloc(1, sizeof *s);
    if (!s)
        return err_set(err, SL_E_MEM, "sampler", "no memory");
    int rc = sampler_open(params, e->model->cfg.n_vocab, &e->model->kernels, &s->s, err);
    if (rc < 0) {
        mem_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

void sl_sampler_accept(struct sl_sampler *s, int32_t id)
{
    sampler_accept(s->s, id);
}

int sl_sampler_draw(struct sl_sampler *s, const float *logits, int32_t *id, struct sl_err *err)
{
    uint64_t fp = fpenv_enter();
    int rc = sampler_draw(s->s, logits, id, err);
    fpenv_restore(fp);
    return rc;
}

void sl_sampler_close(struct sl_sampler **s)
{
    if (!s || !*s)
        return;
    sampler_close(&(*s)->s);
    mem_free(*s);
    *s = NULL;
}

struct sl_scorer {
    struct scorer *s;
};

int sl_scorer_open(const struct sl_engine *e, struct sl_scorer **out, struct sl_err *err)
{
    *out = NULL;
    struct sl_scorer *s = mem_calloc(1, sizeof *s);
    if (!s)
        return err_set(err, SL_E_MEM, "perplexity", "no memory");
    int rc = scorer_open(e->model->cfg.n_vocab, &e->model->kernels, &s->s, err);
    if (rc < 0) {
        mem_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

int sl_scorer_add(struct sl_scorer *s, const float *logits, int32_t id, struct sl_err *err)
{
    uint64_t fp = fpenv_enter();
    int rc = scorer_add(s->s, logits, id, err);
    fpenv_restore(fp);
    return rc;
}

void sl_scorer_get(const struct sl_scorer *s, struct sl_scores *out)
{
    uint64_t fp = fpenv_enter();
    scorer_get(s->s, out);
    fpenv_restore(fp);
}

void sl_scorer_close(struct sl_scorer **s)
{
    if (!s || !*s)
        return;
    scorer_close(&(*s)->s);
    mem_free(*s);
    *s = NULL;
}
