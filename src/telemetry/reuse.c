#include "telemetry/reuse.h"

#include <string.h>

#include "base/mem.h"

int reuse_open(struct reuse *r, int n_layer, int n_expert, struct sl_err *err)
{
    size_t n = (size_t)n_layer * (size_t)n_expert;
    *r = (struct reuse){.n_layer = n_layer, .n_expert = n_expert};
    r->room = (uint32_t)(n < 1 << 20 ? 4 * n + 1024 : n + (1 << 22));
    r->last = n <= 1 << 28 ? mem_calloc(n + 1, sizeof *r->last) : NULL;
    r->tree = r->last ? mem_calloc((size_t)r->room + 1, sizeof *r->tree) : NULL;
    if (r->last && r->tree)
        return 0;
    reuse_close(r);
    return err_set(err, SL_E_MEM, "cache telemetry", "no memory for the history of %zu experts", n);
}

void reuse_close(struct reuse *r)
{
    mem_free(r->last);
    mem_free(r->tree);
    *r = (struct reuse){0};
}

static void change(struct reuse *r, uint32_t at, uint32_t by)
{
    for (; at <= r->room; at += at & -at)
        r->tree[at] += by; /* by may be -1 modulo 2^32: sums stay right */
}

/* Last uses at times up to at. */
static uint32_t count_to(const struct reuse *r, uint32_t at)
{
    uint32_t n = 0;
    for (; at > 0; at -= at & -at)
        n += r->tree[at];
    return n;
}

/* Time is at its end: last uses are numbered anew, in the same order. */
static void renumber(struct reuse *r)
{
    size_t n = (size_t)r->n_layer * (size_t)r->n_expert;
    for (size_t i = 0; i < n; i++)
        if (r->last[i])
            r->last[i] = count_to(r, r->last[i]); /* its rank: the tree still has the old times */
    memset(r->tree, 0, ((size_t)r->room + 1) * sizeof *r->tree);
    r->now = 0;
    for (size_t i = 0; i < n; i++)
        if (r->last[i]) {
            change(r, r->last[i], 1);
            r->now++;
        }
}

static int bucket_of(uint32_t distance)
{
    int i = 0;
    while (i < REUSE_BUCKETS - 1 && (UINT64_C(1) << i) < distance)
        i++;
    return i;
}

uint32_t reuse_add(struct reuse *r, int layer, int expert, bool hit, bool counted)
{
    if (layer < 0 || layer >= r->n_layer || expert < 0 || expert >= r->n_expert)
        return 0;
    uint32_t *last = &r->last[(size_t)layer * (size_t)r->n_expert + (size_t)expert], distance = 0;
    if (r->now == r->room)
        renumber(r);
    if (*last) {
        distance = count_to(r, r->now) - count_to(r, *last - 1);
        change(r, *last, (uint32_t)-1);
    }
    if (counted) {
        r->uses++;
        r->hits += hit;
        r->cold += !hit && distance == 0;
        r->evicted += !hit && distance > 0;
        if (distance > 0)
            r->bucket[bucket_of(distance)]++;
    }
    *last = ++r->now;
    change(r, r->now, 1);
    return distance;
}
