/* vectors.h: reading the small tensors of a model, norms, biases and scales, as binary32. */
#ifndef MODEL_VECTORS_H
#define MODEL_VECTORS_H

#include "model/weights.h"

/* F32, F16 or BF16, one row. */
struct vector_read {
    const struct gguf_tensor *tensor;
    float *to;
};

/* With a reader (NULL: none), in_flight at a time: they lie all over the files, and one after the
 * other each would wait for the drive alone. */
int vectors_read(const struct model *m, const struct vector_read *v, int n,
                 struct io_reader *reader, int in_flight, struct sl_err *err);

#endif
