/* env.h: the one place that reads the environment. An explicit option always wins. */
#ifndef CLI_ENV_H
#define CLI_ENV_H

#include <stddef.h>
#include <stdio.h>

struct env_row {
    const char *name, *help; /* help: one sentence without a full stop */
};

/* All variables that the program reads, for the manual; ends with a NULL name. */
const struct env_row *env_rows(void);

/* $SLUICE_MODEL; NULL when unset or empty. */
const char *env_model(void);

/* Where cachebench and infer look for a model when none is named: $SLUICE_MODEL_DIR, else
 * "./model". */
const char *env_model_dir(void);

/* The model to use when no -m is given: $SLUICE_MODEL, PREFIX/share/sluice/storyteller.gguf beside
 * the program's own bin/, models/storyteller.gguf of the source tree. Writes a path to buf and
 * returns it; NULL when none of them exists. A $SLUICE_MODEL that does not exist is returned all
 * the same: the error should name it. */
const char *env_default_model(char *buf, size_t size);

#endif
