#include "gguf/names.h"

#include "base/mem.h"
#include "sluice.h"

#include <string.h>

/* At half load a good hash needs some dozens of probes at worst for a million names. A file whose
 * names were chosen to collide would need time quadratic in their number; this bounds it. */
#define MAX_PROBES 1024

int names_init(struct names *t, size_t n)
{
    size_t slots = 16;
    while (slots < 2 * n)
        slots *= 2;
    t->slot = mem_calloc(slots, sizeof *t->slot);
    t->n_slots = t->slot ? slots : 0;
    return t->slot ? 0 : SL_E_MEM;
}

void names_free(struct names *t)
{
    mem_free(t->slot);
    t->slot = NULL;
    t->n_slots = 0;
}

/* FNV-1a, then the finaliser of splitmix64, so that the low bits depend on every byte. */
static uint64_t hash(const char *p, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)p[i]) * 0x100000001b3u;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
    return h ^ (h >> 31);
}

static int equal(const struct names_slot *s, const char *p, size_t n)
{
    return s->n == n && memcmp(s->p, p, n) == 0;
}

int names_add(struct names *t, const char *p, size_t n, size_t index)
{
    size_t at = hash(p, n) & (t->n_slots - 1);
    for (int probes = 0; t->slot[at].p; probes++) {
        if (equal(&t->slot[at], p, n))
            return NAMES_DUPLICATE;
        if (probes == MAX_PROBES)
            return NAMES_CROWDED;
        at = (at + 1) & (t->n_slots - 1);
    }
    t->slot[at] = (struct names_slot){.p = p, .n = (uint32_t)n, .index = (uint32_t)index};
    return NAMES_ADDED;
}

int64_t names_find(const struct names *t, const char *p, size_t n)
{
    if (t->n_slots == 0)
        return -1;
    for (size_t at = hash(p, n) & (t->n_slots - 1); t->slot[at].p; at = (at + 1) & (t->n_slots - 1))
        if (equal(&t->slot[at], p, n))
            return t->slot[at].index;
    return -1;
}
