/* nfc.h: Unicode normalisation form C. */
#ifndef TEXT_NFC_H
#define TEXT_NFC_H

#include "base/err.h"

/* Scratch memory and result of normalising; zero it before the first use. */
struct nfc {
    char *out; /* the normalised text */
    size_t n, cap;
    int32_t *cp; /* one stretch of characters, decomposed */
    size_t cp_cap;
    int32_t *tmp; /* for sorting marks */
    size_t tmp_cap;
};

/* Normalise s[0..n), valid UTF-8, into b->out; *text and *len are the result, which is s itself
 * where nothing changes. Linear in n, whatever the text. */
int nfc_normalise(struct nfc *b, const char *s, size_t n, const char **text, size_t *len,
                  struct sl_err *err);
void nfc_free(struct nfc *b);

#endif
