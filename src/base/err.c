#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void clean(char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            *s = '?';
}

/* Returns the length written to err->msg. */
static size_t fill(struct sl_err *err, int code, const char *where, const char *fmt, va_list ap)
{
    err->code = code;
    snprintf(err->where, sizeof err->where, "%s", where ? where : "");
    vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    clean(err->where);
    clean(err->msg);
    return strlen(err->msg);
}

int err_set(struct sl_err *err, int code, const char *where, const char *fmt, ...)
{
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        fill(err, code, where, fmt, ap);
        va_end(ap);
    }
    return code;
}

int err_sys(struct sl_err *err, int code, const char *where, int errnum, const char *fmt, ...)
{
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        size_t n = fill(err, code, where, fmt, ap);
        va_end(ap);
        char text[128];
        if (strerror_r(errnum, text, sizeof text) != 0)
            snprintf(text, sizeof text, "error %d", errnum);
        snprintf(err->msg + n, sizeof err->msg - n, ": %s", text);
    }
    return code;
}

const char *sl_code_name(int code)
{
    static const char *const names[] = {"SL_OK",          "SL_E_ARG",     "SL_E_MEM",
                                        "SL_E_IO",        "SL_E_FORMAT",  "SL_E_UNSUPPORTED",
                                        "SL_E_BUDGET",    "SL_E_CONTEXT", "SL_E_NUMERIC",
                                        "SL_E_CANCELLED", "SL_E_SYSTEM",  "SL_E_INTERNAL"};
    if (code > 0 || -code >= (int)(sizeof names / sizeof *names))
        return "?";
    return names[-code];
}
