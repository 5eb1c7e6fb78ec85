#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Bytes of the UTF-8 sequence at s that may go to a terminal; 0: not well-formed, or a control
 * character (C0, DEL, C1). */
static size_t printable(const unsigned char *s)
{
    if (s[0] < 0x80)
        return s[0] >= 0x20 && s[0] != 0x7f;
    size_t n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xc2 && s[1] < 0xa0) || (s[0] == 0xe0 && s[1] < 0xa0) ||
        (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
        (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

static void clean(char *s)
{
    while (*s) {
        size_t n = printable((const unsigned char *)s);
        if (n == 0)
            *s = '?';
        s += n ? n : 1;
    }
}

/* Of a path that is too long the end is kept: that is where the file's name is. */
static void copy_where(char *out, size_t size, const char *where)
{
    size_t n = strlen(where);
    if (n < size)
        memcpy(out, where, n + 1);
    else
        snprintf(out, size, "...%s", where + n - (size - 4));
}

/* Through copies, since the arguments may be fields of *err: errors get wrapped in place. errnum 0:
 * no system error to append. */
static void fill(struct sl_err *err, int code, const char *where, int errnum, const char *fmt,
                 va_list ap) __attribute__((format(printf, 5, 0)));

static void fill(struct sl_err *err, int code, const char *where, int errnum, const char *fmt,
                 va_list ap)
{
    struct sl_err e = {.code = code};
    copy_where(e.where, sizeof e.where, where ? where : "");
    int n = vsnprintf(e.msg, sizeof e.msg, fmt, ap);
    if (errnum && n >= 0 && n < (int)sizeof e.msg) {
        char buf[128];
#if defined(__GLIBC__)
        const char *text = strerror_r(errnum, buf, sizeof buf); /* GNU: returns the text */
#else
        const char *text = strerror_r(errnum, buf, sizeof buf) == 0 ? buf : "unknown error";
#endif
        snprintf(e.msg + n, sizeof e.msg - (size_t)n, ": %s", text);
    }
    clean(e.where);
    clean(e.msg);
    *err = e;
}

int err_set(struct sl_err *err, int code, const char *where, const char *fmt, ...)
{
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        fill(err, code, where, 0, fmt, ap);
        va_end(ap);
    }
    return code;
}

int err_sys(struct sl_err *err, int code, const char *where, int errnum, const char *fmt, ...)
{
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        fill(err, code, where, errnum, fmt, ap);
        va_end(ap);
    }
    return code;
}

int err_file(struct sl_err *err, int code, const char *path, int errnum, const char *fmt, ...)
{
    if (err) {
        struct sl_err text;
        char name[192]; /* leaves the reason its room in the message */
        va_list ap;
        va_start(ap, fmt);
        fill(&text, code, path, errnum, fmt, ap);
        va_end(ap);
        copy_where(name, sizeof name, path);
        err_set(err, code, path, "%s: %s", name, text.msg);
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
