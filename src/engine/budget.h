/* budget.h: how much memory there is to take, and the expert cache's share of it while it runs. */
#ifndef ENGINE_BUDGET_H
#define ENGINE_BUDGET_H

#include "engine/engine.h"

/* Memory that may be taken beside `held` bytes that this process holds already, and what is
 * missing; one of the two is 0. What is to be left free: of the machine's memory the floor, of a
 * cgroup's a sixteenth (at most the floor), for page tables, page cache and others in it. */
struct budget_room {
    uint64_t spare, lack;
    uint64_t available; /* the smaller of what the machine and the cgroup have */
};
void budget_find_room(const struct sl_engine_options *o, uint64_t held, struct budget_room *out);

/* Between tokens: look at the system every now and then and fit the cache to it (--cache-adapt).
 * Nothing fails. */
void budget_adapt(struct sl_engine *e);

#endif
