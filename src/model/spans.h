/* spans.h: the pieces of a model's files that loading brings into memory, in the order in which
 * they are needed.
 *
 * A matrix lies in memory as in its file: the outward-aligned window around it is read straight to
 * its place, so that direct reads need no buffer between. */
#ifndef MODEL_SPANS_H
#define MODEL_SPANS_H

#include "model/weights.h"

/* Bytes of a file that are wanted in one piece, and the field that will point at them. */
struct span {
    struct io_file *file; /* NULL while the files are not open */
    int nth;              /* of the model's files */
    int block;            /* -1: embeddings; n_layer: output head */
    uint64_t offset, bytes;
    size_t align; /* of the window in its file and in memory, the same of all spans */
    const uint8_t **data;
    uint8_t *window; /* where the window begins in memory; the loader's */
    int drive;       /* the loader's */
};

uint64_t spans_window_begin(const struct span *s);
uint64_t spans_window_bytes(const struct span *s);

struct span_list {
    struct span *span;
    int n;
    uint64_t window_bytes; /* of all */
};

/* By block, file and place. The caller frees span (mem_free). */
int spans_list(const struct model *m, bool experts, struct span_list *out, struct sl_err *err);

#endif
