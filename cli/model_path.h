/* model_path.h: the model file that a path means. */
#ifndef CLI_MODEL_PATH_H
#define CLI_MODEL_PATH_H

#include "base/err.h"

/* Of a directory: model.gguf in it (a file or a link), else its only GGUF file, of a split set the
 * first part. Anything else is the path itself, whatever it is. To buf. */
int model_path_find(const char *path, char *buf, size_t size, struct sl_err *err);
bool model_path_is_dir(const char *path);
/* The directory of a file, or the directory itself, to buf; false: it does not fit. */
bool model_path_dir(const char *path, char *buf, size_t size);

#endif
