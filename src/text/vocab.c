/* vocab.c: opening and asking a vocabulary. */
#include <string.h>

#include "base/mem.h"
#include "text/load.h"

/* The tokenizer model of byte-level BPE; the only one known. */
#define MODEL_BPE "gpt2"

static bool str_is(struct gguf_str s, const char *lit)
{
    return s.n == strlen(lit) && memcmp(s.p, lit, s.n) == 0;
}

/* 1: *kind is the pre-tokenizer; 0: the file has no vocabulary. */
static int choose_kind(const struct gguf *g, const struct pretok_kind **kind, struct sl_err *err)
{
    struct gguf_str model, pre;
    int rc = gguf_get_str(g, "tokenizer.ggml.model", &model, err);
    if (rc <= 0)
        return rc;
    if (str_is(model, "none") || str_is(model, "no_vocab"))
        return 0;
    if (!str_is(model, MODEL_BPE))
        return err_set(err, SL_E_UNSUPPORTED, "tokenizer.ggml.model",
                       "tokenizer.ggml.model: '%.*s' is not supported; supported: " MODEL_BPE,
                       (int)(model.n < 64 ? model.n : 64), model.p);
    rc = gguf_get_str(g, "tokenizer.ggml.pre", &pre, err);
    if (rc < 0)
        return rc;
    if (rc == 0)
        return err_set(
            err, SL_E_UNSUPPORTED, "tokenizer.ggml.pre",
            "tokenizer.ggml.pre: the file does not name its pre-tokenizer; supported: %s",
            pretok_list_names());
    *kind = pretok_find_kind(pre.p, pre.n);
    if (!*kind)
        return err_set(err, SL_E_UNSUPPORTED, "tokenizer.ggml.pre",
                       "tokenizer.ggml.pre: pre-tokenizer '%.*s' is not supported; supported: %s",
                       (int)(pre.n < 64 ? pre.n : 64), pre.p, pretok_list_names());
    return 1;
}

int vocab_open(const struct gguf *g, struct vocab **out, struct sl_err *err)
{
    *out = NULL;
    const struct pretok_kind *kind;
    int rc = choose_kind(g, &kind, err);
    if (rc <= 0)
        return rc;
    struct vocab *v = mem_calloc(1, sizeof *v);
    if (!v)
        return err_set(err, SL_E_MEM, NULL, "no memory for the vocabulary");
    rc = load_read_tokens(v, g, err);
    if (!rc)
        rc = load_build_lookup(v, err);
    if (!rc)
        rc = load_read_merges(v, g, err);
    if (!rc)
        rc = load_read_rules(v, g, kind, err);
    if (!rc)
        rc = pretok_open(kind, &v->pretok, err);
    if (!rc) {
        v->model = mem_strdup(MODEL_BPE);
        v->pre = mem_strdup(kind->name);
        if (!v->model || !v->pre)
            rc = err_set(err, SL_E_MEM, NULL, "no memory for the vocabulary");
    }
    if (rc)
        vocab_close(&v);
    *out = v;
    return rc;
}

void vocab_close(struct vocab **vv)
{
    struct vocab *v = *vv;
    if (v) {
        mem_free(v->arena);
        mem_free(v->off);
        mem_free(v->type);
        mem_free(v->is_eog);
        textmap_free_bytes(&v->by_bytes);
        textmap_free_pairs(&v->merges);
        special_free_index(v);
        pretok_close(&v->pretok);
        mem_free(v->model);
        mem_free(v->pre);
        mem_free(v);
    }
    *vv = NULL;
}

int vocab_size(const struct vocab *v)
{
    return v->n;
}

size_t vocab_bytes_most(const struct vocab *v)
{
    size_t most = 1;
    for (int32_t i = 0; i < v->n; i++)
        if (vocab_bytes_of(v, i).n > most)
            most = vocab_bytes_of(v, i).n;
    /* Normalising composes: three Hangul letters of 3 bytes become one of 3, the Kelvin sign of 3
     * bytes becomes a K; nothing shrinks to less than a quarter. */
    return pretok_get_kind(v->pretok)->nfc ? 4 * most : most;
}

struct gguf_str vocab_text(const struct vocab *v, int32_t id)
{
    if (id < 0 || id >= v->n)
        return (struct gguf_str){"", 0};
    return vocab_bytes_of(v, id);
}

struct gguf_str vocab_piece(const struct vocab *v, int32_t id)
{
    bool shown = id >= 0 && id < v->n &&
                 (v->type[id] == VOCAB_NORMAL || v->type[id] == VOCAB_USER ||
                  v->type[id] == VOCAB_LITERAL);
    return shown ? vocab_bytes_of(v, id) : (struct gguf_str){"", 0};
}

int32_t vocab_find(const struct vocab *v, const char *s)
{
    size_t n = strlen(s);
    if (n == 0)
        return -1;
    int32_t id = special_find_exact(v, &v->all, s, n);
    return id >= 0 ? id : textmap_find_bytes(&v->by_bytes, s, n);
}

bool vocab_is_control(const struct vocab *v, int32_t id)
{
    return id >= 0 && id < v->n && v->type[id] == VOCAB_CONTROL;
}

bool vocab_is_eog(const struct vocab *v, int32_t id)
{
    return id >= 0 && id < v->n && v->is_eog[id];
}

bool vocab_adds_bos(const struct vocab *v)
{
    return v->add_bos && v->bos >= 0;
}

int32_t vocab_bos(const struct vocab *v)
{
    return v->bos;
}

int32_t vocab_eos(const struct vocab *v)
{
    return v->eos;
}

const char *vocab_model(const struct vocab *v)
{
    return v->model;
}

const char *vocab_pre(const struct vocab *v)
{
    return v->pre;
}
