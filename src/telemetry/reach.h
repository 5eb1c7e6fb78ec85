/* reach.h: how many of a layer's experts the tokens of one text choose between them. */
#ifndef TELEMETRY_REACH_H
#define TELEMETRY_REACH_H

#include "telemetry/trace.h"

/* Share (0 to 1) of a layer's experts that the first n >= 1 tokens of a turn choose, the mean over
 * layers and turns. *got: n, or where no turn is so long the tokens of the longest, which the share
 * is of then. Fails for want of memory. */
int trace_find_reach(const struct trace *t, int n, double *share, int *got, struct sl_err *err);

#endif
