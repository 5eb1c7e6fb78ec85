/* encode.c: text to ids. Special tokens are cut out first; what is left is cut into valid UTF-8 and
 * stray bytes; valid text is normalised, cut into pieces and merged, stray bytes stand alone. */
#include "base/mem.h"
#include "text/internal.h"
#include "text/nfc.h"
#include "text/utf8.h"

/* Below this the cache of pre-tokens costs more than it saves. */
#define CACHE_FROM 2048

struct encoder {
    const struct vocab *v;
    struct pretok_run *run;
    struct bpe bpe;
    struct nfc nfc;
    struct vocab_ids out;
};

static int encode_valid(struct encoder *e, const char *s, size_t n, struct sl_err *err)
{
    if (pretok_get_kind(e->v->pretok)->nfc) {
        int rc = nfc_normalise(&e->nfc, s, n, &s, &n, err);
        if (rc)
            return rc;
    }
    for (size_t len; n > 0; s += len, n -= len) {
        int rc = pretok_next(e->run, s, n, &len, err);
        if (!rc)
            rc = bpe_encode_word(&e->bpe, e->v, s, len, &e->out, err);
        if (rc)
            return rc;
    }
    return 0;
}

static int encode_plain(struct encoder *e, const char *s, size_t n, struct sl_err *err)
{
    while (n > 0) {
        size_t len = utf8_valid_prefix(s, n);
        int rc = len ? encode_valid(e, s, len, err) : 0;
        if (!rc && len < n)
            rc = bpe_encode_byte(e->v, (unsigned char)s[len++], &e->out, err);
        if (rc)
            return rc;
        s += len;
        n -= len;
    }
    return 0;
}

static int encode_all(struct encoder *e, const char *s, size_t n, unsigned flags,
                      struct sl_err *err)
{
    const struct vocab *v = e->v;
    const struct vocab_special *sp = flags & SL_TOK_PARSE_CONTROL ? &v->all : &v->user;
    bool around = flags & SL_TOK_ADD_SPECIAL;
    int rc = 0;
    if (around && v->add_bos && v->bos >= 0)
        rc = vocab_push_id(&e->out, v->bos, err);
    size_t done = 0;
    while (!rc && done < n) {
        size_t at = n;
        int32_t id = -1;
        special_find_next(v, sp, s, n, done, &at, &id);
        rc = encode_plain(e, s + done, at - done, err);
        if (!rc && id >= 0) {
            rc = vocab_push_id(&e->out, id, err);
            at += vocab_bytes_of(v, id).n;
        }
        done = at;
    }
    if (!rc && around && v->add_eos && v->eos >= 0)
        rc = vocab_push_id(&e->out, v->eos, err);
    return rc;
}

int vocab_encode(const struct vocab *v, const char *text, size_t n, unsigned flags, int32_t **ids,
                 size_t *n_ids, struct sl_err *err)
{
    *ids = NULL;
    *n_ids = 0;
    if (n > VOCAB_MAX_TEXT)
        return err_set(err, SL_E_ARG, NULL, "a text of %zu bytes is too long; at most %zu", n,
                       VOCAB_MAX_TEXT);
    struct encoder e = {.v = v};
    /* Normalising makes a character at most three times as long (UAX 15). */
    int rc = pretok_start(v->pretok, 3 * n, &e.run, err);
    if (n >= CACHE_FROM)
        bpe_init_cache(&e.bpe);
    if (!rc)
        rc = vocab_reserve_ids(&e.out, n / 4 + 1, err);
    if (!rc)
        rc = encode_all(&e, text, n, flags, err);
    pretok_stop(&e.run);
    bpe_free(&e.bpe);
    nfc_free(&e.nfc);
    if (rc) {
        mem_free(e.out.p);
        return rc;
    }
    *ids = e.out.p;
    *n_ids = e.out.n;
    return 0;
}
