#include "text/textmap.h"

#include <string.h>

#include "base/mem.h"

/* Slots for n keys: a power of two, at most half full. n is at most 2^24 (checked by the vocabulary
 * reader), so the result fits 32 bits. */
static size_t slots_for(size_t n)
{
    size_t slots = 16;
    while (slots < 2 * n)
        slots *= 2;
    return slots;
}

static int refuse(struct sl_err *err)
{
    return err_set(err, SL_E_FORMAT, NULL,
                   "the vocabulary is made so that its hash table collides; it is not used");
}

uint64_t textmap_hash(const char *s, size_t n)
{
    const uint64_t k0 = 0x9e3779b97f4a7c15u, k1 = 0xd6e8feb86659fd93u;
    uint64_t h = n * k0;
    for (; n >= 8; s += 8, n -= 8) {
        uint64_t w;
        memcpy(&w, s, 8);
        h = (h ^ w) * k1;
        h ^= h >> 29;
    }
    uint64_t w = 0;
    memcpy(&w, s, n);
    h = (h ^ w) * k1;
    h ^= h >> 32;
    h *= k0;
    return h ^ (h >> 29);
}

int textmap_init_bytes(struct textmap_bytes *m, const char *arena, const uint32_t *off, size_t n,
                       struct sl_err *err)
{
    size_t slots = slots_for(n);
    m->arena = arena;
    m->off = off;
    m->mask = (uint32_t)(slots - 1);
    m->slot = mem_alloc(slots * sizeof *m->slot);
    if (!m->slot)
        return err_set(err, SL_E_MEM, NULL, "no memory for the vocabulary's hash table");
    memset(m->slot, 0xff, slots * sizeof *m->slot);
    return 0;
}

/* The slot that holds s, or the free one where it would go; *probes counts the steps. */
static uint32_t locate(const struct textmap_bytes *m, const char *s, size_t n, unsigned *probes)
{
    uint32_t at = (uint32_t)textmap_hash(s, n) & m->mask;
    for (*probes = 0; m->slot[at] >= 0; ++*probes, at = (at + 1) & m->mask) {
        uint32_t off = m->off[m->slot[at]], end = m->off[m->slot[at] + 1];
        if (end - off == n && memcmp(m->arena + off, s, n) == 0)
            break;
    }
    return at;
}

int textmap_add_bytes(struct textmap_bytes *m, int32_t id, struct sl_err *err)
{
    unsigned probes;
    uint32_t off = m->off[id];
    uint32_t at = locate(m, m->arena + off, m->off[id + 1] - off, &probes);
    if (probes > TEXTMAP_MAX_PROBES)
        return refuse(err);
    if (m->slot[at] < 0)
        m->slot[at] = id;
    return 0;
}

int32_t textmap_find_bytes(const struct textmap_bytes *m, const char *s, size_t n)
{
    unsigned probes;
    return m->slot[locate(m, s, n, &probes)];
}

int textmap_init_pairs(struct textmap_pairs *m, size_t n, struct sl_err *err)
{
    size_t slots = slots_for(n);
    m->mask = (uint32_t)(slots - 1);
    m->slot = mem_alloc(slots * sizeof *m->slot);
    if (!m->slot)
        return err_set(err, SL_E_MEM, NULL, "no memory for the table of merges");
    memset(m->slot, 0xff, slots * sizeof *m->slot);
    return 0;
}

int textmap_add_pair(struct textmap_pairs *m, struct textmap_merge merge, struct sl_err *err)
{
    uint32_t at = textmap_hash_pair(merge.left, merge.right) & m->mask;
    for (unsigned probes = 0; m->slot[at].left != -1; at = (at + 1) & m->mask) {
        if (m->slot[at].left == merge.left && m->slot[at].right == merge.right)
            return 0;
        if (++probes > TEXTMAP_MAX_PROBES)
            return refuse(err);
    }
    m->slot[at] = merge;
    return 0;
}

void textmap_free_bytes(struct textmap_bytes *m)
{
    mem_free(m->slot);
    m->slot = NULL;
}

void textmap_free_pairs(struct textmap_pairs *m)
{
    mem_free(m->slot);
    m->slot = NULL;
}
