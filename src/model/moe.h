/* moe.h: experts that are computed together, for moe.c. */
#ifndef MODEL_MOE_H
#define MODEL_MOE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "cache/cache.h"

struct forward;
struct layer;

/* One expert of a group that is computed together: rows [row, row + n) of the group's buffers,
 * entries [entry, entry + n) of the layer's routing. */
struct moe_job {
    const uint8_t *gate, *up, *down;
    int index; /* into the layer's union */
    int expert;
    int entry, row, n;
};

struct expert_group {
    struct forward *f;
    const struct layer *l;
    int n_jobs, n_rows;
    int unit;
    const uint8_t *x; /* packed rows of the group */
    size_t x_stride;
    bool wide; /* outputs are added at once; else each entry's is kept in expert_out */
    _Atomic bool bad;
};

void experts_start(struct expert_group *g, struct forward *f, const struct layer *l, bool wide);
/* Add expert `index` of the union to the group; the caller checked that its rows fit. */
void experts_add(struct expert_group *g, int index, const struct expert_view *v);
int experts_compute(struct expert_group *g, int il, struct sl_err *err);

#endif
