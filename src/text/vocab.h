/* vocab.h: a model's vocabulary: text to ids and back. Immutable after open; any thread. */
#ifndef TEXT_VOCAB_H
#define TEXT_VOCAB_H

#include "gguf/gguf.h"

struct vocab;

/* 0 and *out NULL: the file has no vocabulary. SL_E_UNSUPPORTED names a tokenizer model or
 * pre-tokenizer that is not known. */
int vocab_open(const struct gguf *g, struct vocab **out, struct sl_err *err);
void vocab_close(struct vocab **v);

int vocab_size(const struct vocab *v);
/* The most bytes of text that one token can stand for: no text of n bytes has fewer than n divided
 * by this tokens. */
size_t vocab_bytes_most(const struct vocab *v);
/* flags: enum sl_tok_flags. *ids from mem_alloc. n log n in the length of the text at worst. */
int vocab_encode(const struct vocab *v, const char *text, size_t n, unsigned flags, int32_t **ids,
                 size_t *n_ids, struct sl_err *err);
/* The bytes of one token; control tokens give none. */
struct gguf_str vocab_piece(const struct vocab *v, int32_t id);
/* The bytes of any token, control tokens as they are written; for showing, not for output. */
struct gguf_str vocab_text(const struct vocab *v, int32_t id);
bool vocab_is_control(const struct vocab *v, int32_t id);
bool vocab_adds_bos(const struct vocab *v); /* SL_TOK_ADD_SPECIAL puts the BOS first */
/* The token whose bytes are exactly s, or -1. */
int32_t vocab_find(const struct vocab *v, const char *s);
bool vocab_is_eog(const struct vocab *v, int32_t id);
int32_t vocab_bos(const struct vocab *v); /* -1: none */
int32_t vocab_eos(const struct vocab *v);
const char *vocab_model(const struct vocab *v); /* "gpt2" */
const char *vocab_pre(const struct vocab *v);   /* "qwen2" */

/* A ChatML user turn, "<|im_start|>user\n" TEXT "<|im_end|>\n<|im_start|>assistant\n": control
 * tokens of the frame are ids, the user's text is encoded as plain text. SL_E_UNSUPPORTED when the
 * model's chat template is not ChatML. */
int chat_encode_user(const struct vocab *v, const struct gguf *g, const char *text, size_t n,
                     int32_t **ids, size_t *n_ids, struct sl_err *err);

/* Streaming detokenisation. */
struct detok;
int detok_open(const struct vocab *v, struct detok **out, struct sl_err *err);
int detok_feed(struct detok *d, int32_t id, const char **text, size_t *n, struct sl_err *err);
void detok_flush(struct detok *d, const char **text, size_t *n);
void detok_close(struct detok **d);

#endif
