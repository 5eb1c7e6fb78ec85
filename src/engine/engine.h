/* engine.h: the insides of the public nouns. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <stdatomic.h>

#include "cache/cache.h"
#include "model/forward.h"
#include "model/weights.h"
#include "text/vocab.h"
#include "thread/pool.h"

struct sl_engine {
    struct sl_engine_options opt;
    struct gguf *gguf;
    struct vocab *vocab; /* NULL: none in the file */
    struct model *model;
    struct pool *pool;
    struct io_reader *reader; /* NULL unless streamed */
    struct cache *cache;      /* likewise */
    struct cache_layer *cache_layers;
    struct sl_engine_plan plan;
    int n_sessions;
};

/* Decide threads, streaming, context, batch width and cache within the memory that is allowed
 * (plan.c). Weights are bound and files open, nothing is loaded yet. Fills e->plan. SL_E_BUDGET
 * with the numbers when it does not fit. */
int plan_make(struct sl_engine *e, struct sl_err *err);
/* The cache as planned. */
void plan_cache_config(const struct sl_engine *e, struct cache_config *cfg);

/* Pass a line to the caller's on_note. */
void engine_note(const struct sl_engine *e, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
