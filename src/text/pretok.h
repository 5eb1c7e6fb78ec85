/* pretok.h: pre-tokenizers: how text is cut into the pieces that byte pairs are merged within. */
#ifndef TEXT_PRETOK_H
#define TEXT_PRETOK_H

#include "base/err.h"

/* What a pre-tokenizer's name says about the whole tokenizer. */
struct pretok_kind {
    const char *name;
    const char *pattern;
    bool nfc;           /* text is normalised first */
    bool ignore_merges; /* a piece that is a token is that token, whatever the merges say */
    bool add_bos;       /* where the file does not say */
};

struct pretok;

/* NULL: the name is not known. */
const struct pretok_kind *pretok_find_kind(const char *name, size_t n);
/* The names that are known, "a, b, c". */
const char *pretok_list_names(void);

int pretok_open(const struct pretok_kind *kind, struct pretok **out, struct sl_err *err);
void pretok_close(struct pretok **p);
const struct pretok_kind *pretok_get_kind(const struct pretok *p);

/* One text's matching; a struct pretok is shared by threads, this is not. */
struct pretok_run;
int pretok_start(const struct pretok *p, size_t n_text, struct pretok_run **out,
                 struct sl_err *err);
/* Length of the piece at the start of s[0..n), valid UTF-8, n > 0. At least 1. */
int pretok_next(struct pretok_run *r, const char *s, size_t n, size_t *len, struct sl_err *err);
void pretok_stop(struct pretok_run **r);

#endif
