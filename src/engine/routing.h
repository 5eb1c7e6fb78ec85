/* routing.h: options that change which experts a token gets, made ready for one model. */
#ifndef ENGINE_ROUTING_H
#define ENGINE_ROUTING_H

#include "engine/engine.h"

/* After the model is bound and before the memory plan: reads a recorded routing, sets the number of
 * experts per token, and writes plan.marks. */
int routing_open(struct sl_engine *e, struct sl_err *err);
/* With the plan made: what decides by the cache has one. */
int routing_check(const struct sl_engine *e, struct sl_err *err);
void routing_close(struct sl_engine *e);

#endif
