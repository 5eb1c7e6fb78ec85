/* axes.h: the ways to run one model that must not change a byte, as axes with levels. */
#ifndef GATES_AXES_H
#define GATES_AXES_H

#include "support/run.h"

enum axis {
    AX_CACHE,
    AX_THREADS,
    AX_READS,
    AX_CHUNK,
    AX_FILE,
    AX_CPU,
    AX_DENSE,
    AX_READER,
    AX_OVERLAP,
    AX_DIRECT,
    AX_PARTS,
    AX_WAVES,
    AX_CALLS,
    AX_GUESS,
    AX_ROWS,
    AX_POLICY,
    AX_RESIZE,
    AX_PACKED,
    AX_WATCH,
    AX_PIN,
    AX_LOAD,
    AX_BEHIND,
    AX_COUNT
};
#define AXIS_MAX_LEVELS 7

/* A model and the tokens it is fed. */
struct subject {
    char name[64];
    const char *path;
    char split[512], split_bare[512]; /* first shards of its split forms; "": none were made */
    char packed[512];                 /* directory of its packed experts; "": none were made */
    const int32_t *ids;
    int n_prompt, n_step, n_ctx;
    int n_expert, k; /* of a layer; 0 for dense models */
    int n_bank;      /* experts of all layers */
};

/* A way to run: a level of each axis. All 0: streamed, half of all experts cached. */
struct way {
    int level[AX_COUNT];
};

const char *axis_name(enum axis a);
const char *axis_level_name(enum axis a, int level);
int axis_levels(enum axis a);
/* Is this level something else for this subject than level 0 (or level 0 itself)? False where the
 * model is dense, the prompt shorter than the chunk, the CPU without vectors. */
bool axis_applies(const struct subject *s, enum axis a, int level);
/* "cache=k threads=3", the levels that are not 0. */
void way_describe(const struct way *w, char *text, size_t n);

/* The subject run in this way; kv: of keys and values. */
void way_spec(const struct subject *s, const struct way *w, enum sl_kv_type kv,
              struct run_spec *spec);
/* Did the engine really run in this way? NULL, or what it did not do. */
const char *way_check(const struct subject *s, const struct way *w, const struct run_result *r);

#endif
