/* textmap.h: two hash tables of fixed capacity: byte strings to token ids, and pairs of token ids
 * to merges. Both are filled once and then only read.
 *
 * The keys come from files: a table that needs more than TEXTMAP_MAX_PROBES steps for one key was
 * made to collide and is refused, so that no lookup is ever slow. */
#ifndef TEXT_TEXTMAP_H
#define TEXT_TEXTMAP_H

#include "base/err.h"

#define TEXTMAP_MAX_PROBES 512

uint64_t textmap_hash(const char *s, size_t n);

/* A token's bytes live in an arena: [off[id], off[id + 1]). */
struct textmap_bytes {
    const char *arena;
    const uint32_t *off;
    uint32_t mask;
    int32_t *slot; /* id, -1: free */
};
int textmap_init_bytes(struct textmap_bytes *m, const char *arena, const uint32_t *off, size_t n,
                       struct sl_err *err);
/* Add a token; one with the same bytes that was added earlier stays. */
int textmap_add_bytes(struct textmap_bytes *m, int32_t id, struct sl_err *err);
int32_t textmap_find_bytes(const struct textmap_bytes *m, const char *s, size_t n); /* -1: none */

struct textmap_merge {
    int32_t left, right; /* left -1: free */
    uint32_t rank;       /* lower ones are done first */
    int32_t id;          /* what the pair becomes */
};
struct textmap_pairs {
    uint32_t mask;
    struct textmap_merge *slot;
};
int textmap_init_pairs(struct textmap_pairs *m, size_t n, struct sl_err *err);
/* Add a merge; one of the same pair that was added earlier stays. */
int textmap_add_pair(struct textmap_pairs *m, struct textmap_merge merge, struct sl_err *err);

static inline uint32_t textmap_hash_pair(int32_t left, int32_t right)
{
    uint64_t k = ((uint64_t)(uint32_t)left << 32) | (uint32_t)right;
    k *= 0x9e3779b97f4a7c15u;
    k ^= k >> 32;
    k *= 0xd6e8feb86659fd93u;
    return (uint32_t)(k >> 32);
}

/* NULL: the pair does not merge. */
static inline const struct textmap_merge *textmap_find_pair(const struct textmap_pairs *m,
                                                            int32_t left, int32_t right)
{
    uint32_t at = textmap_hash_pair(left, right) & m->mask;
    while (m->slot[at].left != -1) {
        if (m->slot[at].left == left && m->slot[at].right == right)
            return &m->slot[at];
        at = (at + 1) & m->mask;
    }
    return NULL;
}

void textmap_free_bytes(struct textmap_bytes *m);
void textmap_free_pairs(struct textmap_pairs *m);

#endif
