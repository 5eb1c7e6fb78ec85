#include "telemetry/times.h"

#include <string.h>

#include "base/mem.h"

int times_open(struct times *t, int n_layer, struct sl_err *err)
{
    size_t rows = (size_t)n_layer + 2;
    t->n_layer = n_layer;
    t->s = mem_calloc(rows, sizeof *t->s);
    t->calls = mem_calloc(rows, sizeof *t->calls);
    if (t->s && t->calls)
        return 0;
    times_close(t);
    return err_set(err, SL_E_MEM, "timing", "no memory for the times of %d layers", n_layer);
}

void times_close(struct times *t)
{
    mem_free(t->s);
    mem_free(t->calls);
    *t = (struct times){0};
}

void times_clear(struct times *t)
{
    size_t rows = (size_t)t->n_layer + 2;
    memset(t->s, 0, rows * sizeof *t->s);
    memset(t->calls, 0, rows * sizeof *t->calls);
}

void times_add(struct times *t, const struct sl_op_event *e)
{
    if (e->block < -1 || e->block > t->n_layer || e->op < 0 || e->op >= SL_OP_COUNT)
        return;
    t->s[e->block + 1][e->op] += e->wall_s;
    t->calls[e->block + 1][e->op]++;
}

const double *times_find_block(const struct times *t, int block)
{
    return t->s[block + 1];
}

const char *times_column_name(enum times_column c)
{
    static const char *const names[TIMES_COLUMNS] = {
        [TIMES_ATTENTION] = "attention", [TIMES_ROUTING] = "routing", [TIMES_IO] = "expert I/O",
        [TIMES_CACHE] = "cache mgmt",    [TIMES_EXPERTS] = "experts", [TIMES_COMBINE] = "combine",
        [TIMES_OTHER] = "other",
    };
    return names[c];
}

void times_sum_columns(const double ops[SL_OP_COUNT], double out[TIMES_COLUMNS])
{
    static const enum times_column of[SL_OP_COUNT] = {
        [SL_OP_EMBED] = TIMES_OTHER,
        [SL_OP_ATTN_NORM] = TIMES_ATTENTION,
        [SL_OP_QKV] = TIMES_ATTENTION,
        [SL_OP_ROPE] = TIMES_ATTENTION,
        [SL_OP_ATTENTION] = TIMES_ATTENTION,
        [SL_OP_ATTN_OUT] = TIMES_ATTENTION,
        [SL_OP_FFN_NORM] = TIMES_ROUTING,
        [SL_OP_FFN] = TIMES_OTHER,
        [SL_OP_ROUTER] = TIMES_ROUTING,
        [SL_OP_CACHE] = TIMES_CACHE,
        [SL_OP_STALL] = TIMES_IO,
        [SL_OP_EXPERTS] = TIMES_EXPERTS,
        [SL_OP_COMBINE] = TIMES_COMBINE,
        [SL_OP_HEAD] = TIMES_OTHER,
    };
    memset(out, 0, TIMES_COLUMNS * sizeof *out);
    for (int op = 0; op < SL_OP_COUNT; op++)
        out[of[op]] += ops[op];
}
