/* limit.h: the least time that decoded tokens can take when a block's experts are known only once
 * its router has run.
 *
 *   token = head / R + sum over blocks of [dense / R + max(missed / drive, hit / R)
 *                                          + one expert / R where anything was missed]
 *
 * R is the rate at which weights are multiplied: that of memory, or of the kernels where these are
 * slower. Cached experts are multiplied while the missed ones are read; the last one to land is
 * multiplied when all else is done. Reads ahead of the router can beat this. */
#ifndef TELEMETRY_LIMIT_H
#define TELEMETRY_LIMIT_H

#include "base/err.h"

struct limit_rates {
    double ram, kernel, drive; /* bytes per second; kernel: of one thread, 0: no limit */
    int threads;
};

struct limit {
    struct limit_rates rates;
    uint64_t tokens;
    double layered_s;                /* of all tokens */
    double whole_s;                  /* max(drive, arithmetic) token by token: nothing ever waits */
    double token_io_s, token_work_s; /* of the token that is open */
    int n_layer, last_pos;           /* last_pos: of the open token; -1: none */
};

void limit_open(struct limit *l, const struct limit_rates *rates, int n_layer);
/* Blocks of one token follow each other; prompts are left out. */
void limit_add_block(struct limit *l, const struct sl_block_event *e);
/* Seconds per token, NaN when there was none or a rate is unknown (0). */
double limit_layered(const struct limit *l);
double limit_whole(const struct limit *l);

#endif
