/* header.h: the state of parsing one file's header, shared by header.c and directory.c. */
#ifndef GGUF_HEADER_H
#define GGUF_HEADER_H

#include "gguf/internal.h"

#define HEADER_MIN_TENSOR_BYTES (8 + 1 + 4 + 4 + 8)

struct header {
    struct cursor *c;
    struct gguf *g;
    const char *path;
    struct sl_err *err;
    char item[128]; /* what is being read: "metadata key 'a.b'", "tensor 'x'" */
};

void header_item(struct header *h, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The error for the cursor's fault while reading h->item; returns its code. */
int header_fault(struct header *h);
/* n records of at least min_bytes each: can the rest of the file hold them, and are they at most
 * max? */
int header_check_count(struct header *h, const char *what, uint64_t n, uint64_t max,
                       uint64_t min_bytes);
bool header_name_is_clean(const uint8_t *p, uint64_t n);

int header_read_directory(struct header *h, uint64_t n_tensors);

#endif
