/* run_input.h: the requests of --session, read by a thread of their own so that one can cancel
 * another that is running. */
#ifndef CLI_RUN_INPUT_H
#define CLI_RUN_INPUT_H

#include "cli/run_events.h"
#include "cli/run_request.h"

#define INPUT_MAX_WAITING 64                /* requests */
#define INPUT_MAX_BYTES   ((size_t)4 << 20) /* of their lines */

struct input;

/* Begin to read fd. Malformed lines, and requests that would wait behind too many, are answered
 * with an error event at once. session: whose evaluation a cancel request stops. */
int input_open(int fd, struct events *v, struct sl_session *session, const struct request *defaults,
               struct input **out, struct sl_err *err);
/* The next request, the caller's; waits. NULL at the end of the input, behind a close request, or
 * when a signal or a failure of the events ends the program. It is the running one until the next
 * call. */
struct request *input_next(struct input *in);
/* Was the running request cancelled? */
bool input_cancelled(struct input *in);
/* Negative: the input ended because it could not be read. */
int input_close(struct input **in, struct sl_err *err);

#endif
