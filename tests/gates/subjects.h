/* subjects.h: the models that the gates run: all of tests/data/arch and qmodels, and the embedded
 * one; and the committed hashes of their logits. */
#ifndef GATES_SUBJECTS_H
#define GATES_SUBJECTS_H

#include "gates/axes.h"
#include "support/fixtures.h"

#define SUBJECT_HASH_POS 48 /* positions whose logits are hashed: all subjects have them */

struct subjects {
    struct subject *list; /* tiny models, the embedded model over 48 tokens, then over 308 */
    int n;
    struct fixture *sets[2];
    int set_n[2];
    int32_t *tale; /* ids of the embedded model */
};

/* with_splits: write split forms too. Trouble ends the program, as in fixtures.h. */
void subjects_load(struct subjects *s, bool with_splits);
void subjects_free(struct subjects *s);
/* The embedded model over 300 + 8 tokens. */
const struct subject *subjects_long(const struct subjects *s);

/* The committed hash of a subject's logits, "f16" or "f32" keys and values; NULL: none. The string
 * is valid until the next call. */
const char *subjects_hash(const char *name, const char *kv);
/* Replace all committed hashes: n entries. */
struct subject_hash {
    char name[64];
    uint64_t f16, f32;
};
bool subjects_record(const struct subject_hash *h, int n);

#endif
