/* make_vocab.h: vocabularies for tests, written as GGUF in memory and opened like files. */
#ifndef TEST_MAKE_VOCAB_H
#define TEST_MAKE_VOCAB_H

#include "text/vocab.h"

/* A vocabulary under construction; zero it, then set what is wanted. Strings are as in GGUF: bytes
 * by their stand-ins. Arrays end by their counts; counts and keys may be wrong on purpose. */
struct make_vocab {
    const char *model; /* NULL: no such key; likewise pre and chat_template */
    const char *pre;
    const char *chat_template;
    const char **tokens;
    const int32_t *types; /* NULL: no array */
    const char **merges;
    size_t n_tokens, n_types, n_merges;
    int32_t bos, eos, eot, unk; /* -2: no such key */
    int add_bos, add_eos;       /* -1: no such key */
    bool merges_are_numbers;    /* a wrong element type */
    bool no_tokens, no_merges;  /* leave the array out */
};

/* All -2, -1; model "gpt2". */
void make_vocab_init(struct make_vocab *m);

/* 256 byte tokens (id = byte) with their stand-ins, then what was added. */
struct make_list {
    const char **tokens;
    int32_t *types;
    const char **merges;
    size_t n_tokens, n_merges, cap;
};
void make_list_init(struct make_list *l);
/* Add a token, copied. Returns its id. */
int32_t make_list_add(struct make_list *l, const char *text, int32_t type);
void make_list_merge(struct make_list *l, const char *left, const char *right);
void make_list_free(struct make_list *l);
/* Point m's arrays at the list. */
void make_list_use(const struct make_list *l, struct make_vocab *m);

/* Parse. The result of gguf_parse, which must succeed. */
struct gguf *make_vocab_gguf(const struct make_vocab *m);
/* make_vocab_gguf, vocab_open; frees the gguf. */
int make_vocab_open(const struct make_vocab *m, struct vocab **v, struct sl_err *err);

#endif
