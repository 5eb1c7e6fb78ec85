/* names.h: a set of names with their numbers, filled once: duplicates are found while filling. */
#ifndef GGUF_NAMES_H
#define GGUF_NAMES_H

#include <stddef.h>
#include <stdint.h>

struct names_slot {
    const char *p; /* borrowed; NULL: free */
    uint32_t n, index;
};
struct names {
    struct names_slot *slot;
    size_t n_slots; /* a power of two, at least twice the number of names; 0: empty */
};

enum { NAMES_ADDED = 0, NAMES_DUPLICATE = 1, NAMES_CROWDED = 2 };

/* Room for n names; 0 or SL_E_MEM. */
int names_init(struct names *t, size_t n);
void names_free(struct names *t);
/* NAMES_CROWDED: so many names share a hash that this is no accident. */
int names_add(struct names *t, const char *p, size_t n, size_t index);
/* The index, or -1. */
int64_t names_find(const struct names *t, const char *p, size_t n);

#endif
