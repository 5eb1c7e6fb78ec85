/* moe.h: what forward.c needs to know of moe.c: its buffers' element. */
#ifndef MODEL_MOE_H
#define MODEL_MOE_H

#include <stdint.h>

/* One expert of a group that is computed together: rows [row, row + n) of the group's buffers,
 * entries [entry, entry + n) of the layer's routing. */
struct moe_job {
    const uint8_t *gate, *up, *down;
    int index; /* into the layer's union */
    int expert;
    int entry, row, n;
};

#endif
