/* engine.h: the insides of the public nouns. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <stdatomic.h>

#include "cache/cache.h"
#include "engine/adapt.h"
#include "engine/hot.h"
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
    struct io_reader *reader; /* NULL unless streamed, once it is open */
    struct cache *cache;      /* likewise */
    int n_drives;             /* that the model's files lie on */
    struct cache_layer *cache_layers;
    struct route_options route;
    struct route_script script; /* what route.script points at */
    struct sl_engine_plan plan;
    struct hot_row *hot; /* what earlier runs used most; NULL: not known */
    size_t n_hot;
    struct adapt adapt;
    double adapt_at;      /* when to look at the system again */
    uint64_t cache_goal;  /* bytes that the cache returns to after a shortage */
    uint64_t cache_least; /* the smallest it has been, where it changed */
    int cache_changes;
    int model_top_k;  /* experts per token as the file says; cfg.n_expert_used: as this engine runs
                       */
    bool touch_cache; /* the first evaluation begins to touch its memory */
    int n_sessions;
    const struct engine_reader *source; /* while opening; NULL: the options' own */
};

/* Where an engine's reader comes from instead of from the options: tests put one here that
 * misbehaves. in_flight: on all drives together. */
struct engine_reader {
    int (*create)(void *user, int in_flight, struct io_reader **out, struct sl_err *err);
    void *user;
};
/* sl_engine_open, with such a source (NULL: none). */
int engine_open_with(const char *path, const struct sl_engine_options *opt,
                     const struct engine_reader *source, struct sl_engine **out,
                     struct sl_err *err);

/* Decide threads, streaming, context, batch width and cache within the memory that is allowed
 * (plan.c). Weights are bound and files open, nothing is loaded yet. Fills e->plan. SL_E_BUDGET
 * with the numbers when it does not fit. */
int plan_make(struct sl_engine *e, struct sl_err *err);
/* The cache as planned. */
void plan_cache_config(const struct sl_engine *e, struct cache_config *cfg);

/* Add to plan.marks, what every output says of this run. */
void engine_mark(struct sl_engine *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Pass a line to the caller's on_note. */
void engine_note(const struct sl_engine *e, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
