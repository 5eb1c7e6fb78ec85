/* reuse.h: how a stream of expert uses comes back to the same experts.
 *
 * The distance of a use is the number of distinct experts, of all layers, that were used since the
 * last use of the same one, itself included: a least-recently-used cache of n experts hits exactly
 * the uses of distance n or less. A miss is cold when the expert was never used before, else an
 * eviction miss. */
#ifndef TELEMETRY_REUSE_H
#define TELEMETRY_REUSE_H

#include "base/err.h"

#define REUSE_BUCKETS 32 /* bucket i counts distances of (2^(i-1), 2^i] */

struct reuse {
    int n_layer, n_expert;
    uint32_t *last; /* per expert: the time of its last use, from 1; 0: never */
    uint32_t *tree; /* sums over times (Fenwick): 1 where an expert was used last */
    uint32_t now, room;
    uint64_t uses, hits, cold, evicted; /* of those that were counted */
    uint64_t bucket[REUSE_BUCKETS];
};

int reuse_open(struct reuse *r, int n_layer, int n_expert, struct sl_err *err);
void reuse_close(struct reuse *r);
/* A use of an expert. counted: it goes into the numbers, else into the history alone. Returns its
 * distance, 0 for the first use. */
uint32_t reuse_add(struct reuse *r, int layer, int expert, bool hit, bool counted);

#endif
