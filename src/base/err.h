/* err.h: filling struct sl_err. The convention: functions return 0 or a negative enum sl_code. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "sluice.h"

/* Fill *err (which may be NULL) and return code. where may be NULL. Control characters in the
 * result are replaced by '?': names come from files and end up on terminals. */
int err_set(struct sl_err *err, int code, const char *where, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* As err_set, with ": " and the text of a system error number appended. */
int err_sys(struct sl_err *err, int code, const char *where, int errnum, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* As err_set, about a file: where is the path, and the message begins with it, so that one line
 * says it all; of a long path the end is kept. errnum: a system error to append, 0: none. */
int err_file(struct sl_err *err, int code, const char *path, int errnum, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

#endif
