/* hot.h: --hot-experts: a file from which the cache is filled at the start, and which is written at
 * the end for the next run. */
#ifndef CLI_HOT_H
#define CLI_HOT_H

#include "sluice.h"

struct hot_file;

/* path: NULL for none (*out is NULL then, and the others do nothing). Can it be written? */
int hot_open(const char *path, struct hot_file **out, struct sl_err *err);
/* Fill the engine's cache. A file that does not exist yet is no failure. */
int hot_load(const struct hot_file *h, struct sl_engine *e, struct sl_err *err);
/* Write it, whole or not at all; *h is NULL afterwards. */
int hot_save(struct hot_file **h, const struct sl_engine *e, struct sl_err *err);
void hot_close(struct hot_file **h); /* without writing */

#endif
