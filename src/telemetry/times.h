/* times.h: where the time of evaluations went, by block and operation. */
#ifndef TELEMETRY_TIMES_H
#define TELEMETRY_TIMES_H

#include "base/err.h"

struct times {
    int n_layer;
    double (*s)[SL_OP_COUNT]; /* [n_layer + 2]: embedding, blocks, head */
    uint32_t (*calls)[SL_OP_COUNT];
};

int times_open(struct times *t, int n_layer, struct sl_err *err);
void times_close(struct times *t);
void times_clear(struct times *t);
void times_add(struct times *t, const struct sl_op_event *e);
/* Rows of s and calls by block: -1 is the embedding, n_layer the head. */
const double *times_find_block(const struct times *t, int block);

/* The columns of a table for people. */
enum times_column {
    TIMES_ATTENTION, /* norm, projections, attention, output */
    TIMES_ROUTING,   /* norm, router */
    TIMES_IO,        /* waiting for reads */
    TIMES_CACHE,     /* managing the cache */
    TIMES_EXPERTS,   /* products of experts */
    TIMES_COMBINE,
    TIMES_OTHER, /* embedding, dense FFN, head */
    TIMES_COLUMNS
};
const char *times_column_name(enum times_column c);
void times_sum_columns(const double ops[SL_OP_COUNT], double out[TIMES_COLUMNS]);

#endif
