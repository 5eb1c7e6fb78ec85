/* replay.h: the expert cache driven by a recorded routing, without a model and without reads. */
#ifndef TELEMETRY_REPLAY_H
#define TELEMETRY_REPLAY_H

#include "telemetry/trace.h"

#define REPLAY_OPTIMUM "belady" /* as a policy: Belady's, which knows the future */

/* Of the generated tokens; prompts only warm the cache. */
struct replay_result {
    uint64_t tokens, hits, misses, bytes_read;
};

/* The cache is the engine's own, made for experts that are one slice of whole pages each; budget in
 * bytes. policy: a name of cache/policy.h, REPLAY_OPTIMUM, or NULL: the default. */
int replay_run(const struct trace *t, const char *policy, uint64_t budget,
               struct replay_result *out, struct sl_err *err);

#endif
