/* open.h: opening the model that a command line names. */
#ifndef CLI_OPEN_H
#define CLI_OPEN_H

#include "cli/run.h"

struct events;

/* Open the model of -m, the environment or the default. Progress (on a terminal) and notes go to
 * standard error, and as events to v unless it is NULL. Once per process: the path stays known for
 * a message (stop_on_bad_map). */
int open_engine(const struct run_args *a, struct events *v, struct sl_engine **out,
                struct sl_err *err);

/* The model of a command whose operand, or -m (given), or else the environment or the default names
 * it. *out may be given's place. Once per process likewise. */
int open_find_model(const struct opt_seen *seen, const char *given, const char **out,
                    struct sl_err *err);

#endif
