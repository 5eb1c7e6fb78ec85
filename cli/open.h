/* open.h: opening the model that a command line names. */
#ifndef CLI_OPEN_H
#define CLI_OPEN_H

#include "cli/run.h"

struct events;

/* The file of a model: as named (of a directory, the model in it), or where nothing is, the
 * environment's or the default. Once per process: the path stays known for a message
 * (stop_on_bad_map). *out may be named's place. */
int open_find_path(const char *named, const char **out, struct sl_err *err);

/* Open the model of -m, the environment or the default. Progress (on a terminal) and notes go to
 * standard error, and as events to v unless it is NULL. Once per process. */
int open_engine(const struct run_args *a, struct events *v, struct sl_engine **out,
                struct sl_err *err);
/* Weights may be loaded behind the first evaluation, with a bar on the terminal: it ends, and what
 * is printed next, an error say, stands on a line of its own. */
void open_end_bar(void);

/* The model of a command whose operand, or -m (given), or else the environment or the default names
 * it, as open_find_path. */
int open_find_model(const struct opt_seen *seen, const char *given, const char **out,
                    struct sl_err *err);

#endif
