/* run_request.h: one line of --session's standard input, which may be anything. */
#ifndef CLI_RUN_REQUEST_H
#define CLI_RUN_REQUEST_H

#include "sluice.h"

#define REQUEST_MAX_LINE ((size_t)1 << 20) /* bytes */
#define REQUEST_MAX_ID   64                /* bytes */

enum request_op { REQUEST_GENERATE, REQUEST_CANCEL, REQUEST_BUDGET, REQUEST_CLOSE };

struct request {
    enum request_op op;
    bool has_id;
    char id[REQUEST_MAX_ID + 1];
    size_t bytes; /* of the line, for bounds on what waits */
    /* generate */
    char *prompt; /* n_prompt bytes; NULL: ids are given. Owned */
    size_t n_prompt;
    int32_t *ids; /* owned */
    size_t n_ids;
    bool chat, keep, ignore_eos;
    size_t n_predict;
    struct sl_sampling sampling;
    /* budget */
    uint64_t cache_mb;
    struct request *next;
};

/* Parse n bytes without the line's end. defaults: n_predict, ignore_eos and sampling of requests
 * that don't say. Free *out with request_free. SL_E_FORMAT and SL_E_ARG name what is wrong. */
int request_parse(const char *line, size_t n, const struct request *defaults, struct request **out,
                  struct sl_err *err);
void request_free(struct request **r);

#endif
