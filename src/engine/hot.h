/* hot.h: which experts a model used most, as a text file that outlives the run:
 *
 *     # hot_experts v1
 *     # model=0123456789abcdef... n_layer=48 n_expert=128
 *     layer,expert,uses
 *     3,17,812
 *
 * Rows by falling uses (tokens that the expert was chosen for), each expert once. */
#ifndef ENGINE_HOT_H
#define ENGINE_HOT_H

#include "base/err.h"
#include "base/sha256.h"

#include <stddef.h>
#include <stdint.h>

struct hot_shape {
    char model[SHA256_HEX]; /* its identity, as packed_identify gives it */
    int n_layer, n_expert;
};
struct hot_row {
    int32_t layer, expert;
    uint32_t uses;
};

/* Parse n bytes; name stands in messages. SL_E_FORMAT names the line, also where it is another
 * model's. Rows to be given to mem_free; none: NULL. */
int hot_parse(const char *text, size_t n, const char *name, const struct hot_shape *shape,
              struct hot_row **rows, size_t *n_rows, struct sl_err *err);
/* The text of these rows, which get sorted; to be given to mem_free. */
int hot_format(const struct hot_shape *shape, struct hot_row *rows, size_t n_rows, char **text,
               size_t *n, struct sl_err *err);

#endif
