/* watch.h: telling an observer where the time of a batch goes and which weights it took.
 *
 * Nobody watching costs a branch per operation. While somebody does, the batch is always in exactly
 * one operation: entering the next one ends the last. */
#ifndef MODEL_WATCH_H
#define MODEL_WATCH_H

#include "model/forward.h"

struct forward_watch {
    struct sl_watch to;
    enum sl_op op;
    bool inside; /* an operation is open */
    double since;
    double stall_s;  /* the cache's counter when the operation began */
    bool *resident;  /* n_expert: of the block's experts, before its pass */
    bool *of_choice; /* k, scratch */
};

int watch_open(const struct model *m, const struct sl_watch *to, struct forward_watch **out,
               struct sl_err *err);
void watch_close(struct forward_watch **w);

void watch_change(struct forward *f, enum sl_op op);
void watch_tell_routes(struct forward *f);
void watch_look(struct forward *f, int n_union);
void watch_tell_block(struct forward *f, int n_union);
/* The batch is over, however it went. */
void watch_end(struct forward *f);

static inline void watch_enter(struct forward *f, enum sl_op op)
{
    if (f->watch)
        watch_change(f, op);
}
/* The router has chosen: f->ids and f->weights are still by rank. */
static inline void watch_routes(struct forward *f)
{
    if (f->watch && f->watch->to.on_route)
        watch_tell_routes(f);
}
/* The block is about to ask for its union of experts. */
static inline void watch_before_experts(struct forward *f, int n_union)
{
    if (f->watch && f->watch->to.on_block)
        watch_look(f, n_union);
}
/* The block's weights were all used. */
static inline void watch_block(struct forward *f, int n_union)
{
    if (f->watch && f->watch->to.on_block)
        watch_tell_block(f, n_union);
}

#endif
