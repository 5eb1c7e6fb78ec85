/* run_events.h: what happens in a run as JSON lines, one object each, for --progress and --session.
 * Lines of several threads do not mix; each is written at once. */
#ifndef CLI_RUN_EVENTS_H
#define CLI_RUN_EVENTS_H

#include "cli/report.h"
#include "cli/run_gen.h"
#include "telemetry/emit.h"

#include <pthread.h>

struct events {
    pthread_mutex_t lock;
    int fd;
    const char *name; /* of fd, for messages */
    int code;         /* first failure; nothing is written after it */
    struct sl_err err;
    struct emit line;
};

void events_open(struct events *v, int fd, const char *name);
void events_close(struct events *v);

/* Begin a line with its event and, unless NULL, the request's id; add members to the returned
 * object; end it. Nobody else can write in between. */
struct emit *events_begin(struct events *v, const char *event, const char *id);
void events_end(struct events *v);
/* What failed so far; 0: nothing. */
int events_check(struct events *v, struct sl_err *err);

void events_tell_mode(struct events *v, const struct sl_engine_plan *p,
                      const struct sl_model_info *m);
void events_tell_prompt(struct events *v, const char *id, size_t n_tokens, double wall_s);
/* text: what the token added, whole characters. */
void events_tell_token(struct events *v, const char *id, const struct gen_step *s, const char *text,
                       size_t n, bool streamed);
/* end: why; rest: text that was held back. */
void events_tell_done(struct events *v, const char *id, const char *end, size_t n_tokens,
                      const char *rest, size_t n);
void events_tell_summary(struct events *v, const struct run_report *r);
void events_tell_error(struct events *v, const char *id, const struct sl_err *err);
void events_tell_note(struct events *v, const char *text);
/* why: in words. */
void events_tell_cache(struct events *v, const struct sl_cache_change *c, const char *why);
void events_tell_load(struct events *v, uint64_t done, uint64_t total);

const char *events_end_name(enum gen_end end);

#endif
