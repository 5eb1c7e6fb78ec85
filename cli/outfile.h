/* outfile.h: result files that appear whole or not at all. Data go to NAME.tmp.PID (NAME.tmp.PID-1
 * ... where that is left over) in the same folder, which is renamed at the end and removed when the
 * run fails or is killed by a signal that can be caught. What is no regular file (/dev/null, a
 * pipe) is written directly. */
#ifndef CLI_OUTFILE_H
#define CLI_OUTFILE_H

#include "base/err.h"

struct outfile;

/* option: the option that named it, for messages. */
int outfile_open(const char *path, const char *option, struct outfile **out, struct sl_err *err);
/* The same for what will be read again: refuses a pipe, which would wait, and a device. */
int outfile_open_regular(const char *path, const char *option, struct outfile **out,
                         struct sl_err *err);
int outfile_write(struct outfile *f, const void *data, size_t n, struct sl_err *err);
/* Onto the drive, and out of the page cache: before the name of a file that must be whole. */
int outfile_sync(struct outfile *f, struct sl_err *err);
/* Flush, give it its name, close; on failure it is removed. *f is NULL afterwards. */
int outfile_commit(struct outfile **f, struct sl_err *err);
void outfile_discard(struct outfile **f); /* close and remove */
/* Remove the temporary files of this process; async-signal-safe, for a handler that exits. */
void outfile_remove_all(void);

#endif
