#include "text/make_vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/bytemap.h"
#include "text/utf8.h"

struct writer {
    uint8_t *p;
    size_t n, cap;
    uint64_t n_kv;
};

static void put(struct writer *w, const void *p, size_t n)
{
    if (w->n + n > w->cap) {
        w->cap = 2 * (w->n + n) + 256;
        w->p = realloc(w->p, w->cap);
        if (!w->p)
            abort();
    }
    memcpy(w->p + w->n, p, n);
    w->n += n;
}

static void put_u32(struct writer *w, uint32_t x)
{
    put(w, &x, sizeof x);
}

static void put_u64(struct writer *w, uint64_t x)
{
    put(w, &x, sizeof x);
}

static void put_str(struct writer *w, const char *s)
{
    put_u64(w, strlen(s));
    put(w, s, strlen(s));
}

static void put_key(struct writer *w, const char *key, enum gguf_type type)
{
    put_str(w, key);
    put_u32(w, (uint32_t)type);
    w->n_kv++;
}

static void put_kv_str(struct writer *w, const char *key, const char *s)
{
    if (!s)
        return;
    put_key(w, key, GGUF_STRING);
    put_str(w, s);
}

static void put_kv_id(struct writer *w, const char *key, int32_t id)
{
    if (id == -2)
        return;
    put_key(w, key, GGUF_U32);
    put_u32(w, (uint32_t)id);
}

static void put_kv_bool(struct writer *w, const char *key, int x)
{
    uint8_t b = x > 0;
    if (x < 0)
        return;
    put_key(w, key, GGUF_BOOL);
    put(w, &b, 1);
}

static void put_kv_strs(struct writer *w, const char *key, const char **s, size_t n)
{
    put_key(w, key, GGUF_ARRAY);
    put_u32(w, GGUF_STRING);
    put_u64(w, n);
    for (size_t i = 0; i < n; i++)
        put_str(w, s[i]);
}

static void put_kv_ints(struct writer *w, const char *key, const int32_t *x, size_t n)
{
    put_key(w, key, GGUF_ARRAY);
    put_u32(w, GGUF_I32);
    put_u64(w, n);
    put(w, x, n * sizeof *x);
}

void make_vocab_init(struct make_vocab *m)
{
    memset(m, 0, sizeof *m);
    m->model = "gpt2";
    m->pre = "gpt-2";
    m->bos = m->eos = m->eot = m->unk = -2;
    m->add_bos = m->add_eos = -1;
}

static void put_all(struct writer *w, const struct make_vocab *m)
{
    static const int32_t number = 1;
    put_kv_str(w, "general.architecture", "llama");
    put_kv_str(w, "tokenizer.ggml.model", m->model);
    put_kv_str(w, "tokenizer.ggml.pre", m->pre);
    put_kv_str(w, "tokenizer.chat_template", m->chat_template);
    if (!m->no_tokens)
        put_kv_strs(w, "tokenizer.ggml.tokens", m->tokens, m->n_tokens);
    if (m->types)
        put_kv_ints(w, "tokenizer.ggml.token_type", m->types, m->n_types);
    if (m->merges_are_numbers)
        put_kv_ints(w, "tokenizer.ggml.merges", &number, 1);
    else if (!m->no_merges)
        put_kv_strs(w, "tokenizer.ggml.merges", m->merges, m->n_merges);
    put_kv_id(w, "tokenizer.ggml.bos_token_id", m->bos);
    put_kv_id(w, "tokenizer.ggml.eos_token_id", m->eos);
    put_kv_id(w, "tokenizer.ggml.eot_token_id", m->eot);
    put_kv_id(w, "tokenizer.ggml.unknown_token_id", m->unk);
    put_kv_bool(w, "tokenizer.ggml.add_bos_token", m->add_bos);
    put_kv_bool(w, "tokenizer.ggml.add_eos_token", m->add_eos);
}

struct gguf *make_vocab_gguf(const struct make_vocab *m)
{
    struct writer w = {0};
    put(&w, "GGUF", 4);
    put_u32(&w, 3);
    put_u64(&w, 0);
    size_t at = w.n;
    put_u64(&w, 0);
    put_all(&w, m);
    memcpy(w.p + at, &w.n_kv, sizeof w.n_kv);
    while (w.n % 32)
        put(&w, "", 1);
    struct gguf *g = NULL;
    struct sl_err err;
    if (gguf_parse(w.p, w.n, w.n, "test.gguf", &g, &err) != 0) {
        fprintf(stderr, "a test vocabulary does not parse: %s\n", err.msg);
        abort();
    }
    free(w.p);
    return g;
}

int make_vocab_open(const struct make_vocab *m, struct vocab **v, struct sl_err *err)
{
    struct gguf *g = make_vocab_gguf(m);
    int rc = vocab_open(g, v, err);
    gguf_close(&g);
    return rc;
}

void make_list_init(struct make_list *l)
{
    memset(l, 0, sizeof *l);
    for (int b = 0; b < 256; b++) {
        char s[8] = {0};
        utf8_encode_char(bytemap_char_of((unsigned char)b), s);
        make_list_add(l, s, 1);
    }
}

static void *grow(void *p, size_t n)
{
    p = realloc(p, n);
    if (!p)
        abort();
    return p;
}

int32_t make_list_add(struct make_list *l, const char *text, int32_t type)
{
    if (l->n_tokens == l->cap) {
        l->cap = 2 * l->cap + 512;
        l->tokens = grow(l->tokens, l->cap * sizeof *l->tokens);
        l->types = grow(l->types, l->cap * sizeof *l->types);
    }
    l->tokens[l->n_tokens] = strdup(text);
    l->types[l->n_tokens] = type;
    return (int32_t)l->n_tokens++;
}

void make_list_merge(struct make_list *l, const char *left, const char *right)
{
    size_t n = strlen(left) + strlen(right) + 2;
    char *s = grow(NULL, n);
    snprintf(s, n, "%s %s", left, right);
    l->merges = grow(l->merges, (l->n_merges + 1) * sizeof *l->merges);
    l->merges[l->n_merges++] = s;
}

void make_list_free(struct make_list *l)
{
    for (size_t i = 0; i < l->n_tokens; i++)
        free((void *)(uintptr_t)l->tokens[i]);
    for (size_t i = 0; i < l->n_merges; i++)
        free((void *)(uintptr_t)l->merges[i]);
    free(l->tokens);
    free(l->types);
    free(l->merges);
    memset(l, 0, sizeof *l);
}

void make_list_use(const struct make_list *l, struct make_vocab *m)
{
    m->tokens = l->tokens;
    m->types = l->types;
    m->merges = l->merges;
    m->n_tokens = m->n_types = l->n_tokens;
    m->n_merges = l->n_merges;
}
