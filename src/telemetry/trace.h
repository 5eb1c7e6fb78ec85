/* trace.h: recorded expert routing, text format "route_trace v1".
 *
 *     # route_trace v1
 *     # model=NAME arch=NAME n_layer=48 n_expert=128 n_expert_used=6
 *     # layer=0 expert_bytes=3059712 dense_bytes=11953152        (layers without a line: no
 * experts) turn,phase,step,layer,slot,expert,weight,residency,expert_bytes
 *     0,0,0,0,0,49,0.221297,0,3059712
 *
 * phase 0: the prompt, 1: generated tokens; step: the token's position in its turn; slot: the
 * choice's rank, 0 the router's first. Rows of one token in one layer stand together, slots rising.
 * Columns are found by name, others are passed over; so are preamble keys that are not known. */
#ifndef TELEMETRY_TRACE_H
#define TELEMETRY_TRACE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum trace_phase { TRACE_PROMPT = 0, TRACE_DECODE = 1 };

/* One token in one layer: its choices are expert[first] .. expert[first + k - 1], all different,
 * best first, and their weights likewise. */
struct trace_visit {
    int32_t turn, step, layer;
    uint8_t phase; /* enum trace_phase */
    int16_t k;     /* 1..top_k */
    int64_t first;
};

struct trace {
    char model[128], arch[64]; /* "" where the file does not say */
    int n_layers, n_experts, top_k;
    uint64_t *expert_bytes; /* per layer; 0: no routed experts */
    struct trace_visit *visit;
    size_t n_visits; /* at least 1, in the file's order */
    int32_t *expert;
    float *weight;
    int64_t n_choices;
};

/* Parse n bytes of text; name stands in messages. SL_E_FORMAT names the line. */
int trace_parse(const char *text, size_t n, const char *name, struct trace **out,
                struct sl_err *err);
/* The same of a file of at most 1 GiB. */
int trace_read(const char *path, struct trace **out, struct sl_err *err);
void trace_free(struct trace **t);

#endif
