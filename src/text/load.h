/* load.h: filling a vocabulary from a file's metadata; the steps of vocab_open, in this order. */
#ifndef TEXT_LOAD_H
#define TEXT_LOAD_H

#include "text/internal.h"

/* The tokens' bytes and types. */
int load_read_tokens(struct vocab *v, const struct gguf *g, struct sl_err *err);
/* Bytes to id, single bytes, special tokens. */
int load_build_lookup(struct vocab *v, struct sl_err *err);
int load_read_merges(struct vocab *v, const struct gguf *g, struct sl_err *err);
/* Special ids, BOS and EOS rules, what ends a generation. */
int load_read_rules(struct vocab *v, const struct gguf *g, const struct pretok_kind *kind,
                    struct sl_err *err);

#endif
