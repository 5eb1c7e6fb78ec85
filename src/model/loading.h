/* loading.h: matrices on their way into memory of our own, at once or behind an evaluation that
 * waits for each block when it comes to it. */
#ifndef MODEL_LOADING_H
#define MODEL_LOADING_H

#include "model/spans.h"

struct loading;

/* Spans get their places in m->anon, and their fields point there from now on. list is taken, and
 * with opt->behind the reader. */
int loading_begin(struct model *m, const struct load_options *opt, struct span_list *list,
                  struct loading **out, struct sl_err *err);
/* Read everything on the calling thread. */
int loading_run(struct loading *ld, struct sl_err *err);
/* Read on a thread of its own; where none can be had, as loading_run. */
int loading_run_behind(struct loading *ld, struct sl_err *err);
/* As model_wait_block. */
int loading_wait(struct loading *ld, int block, const _Atomic int *cancel, struct sl_err *err);
bool loading_has(const struct loading *ld, int block);
/* Begins no more reads and waits for those under way. */
void loading_end(struct loading **ld);

#endif
