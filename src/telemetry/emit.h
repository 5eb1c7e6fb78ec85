/* emit.h: lines of text that programs read: CSV rows and JSON objects.
 *
 * Numbers are written without the locale. NaN and infinities, which stand for "not measured", are
 * empty in CSV and null in JSON. JSON strings are valid UTF-8 whatever the bytes were: what is none
 * becomes U+FFFD. A buffer that finds no memory keeps what it has and remembers the failure. */
#ifndef TELEMETRY_EMIT_H
#define TELEMETRY_EMIT_H

#include "base/err.h"

struct emit {
    char *text; /* n bytes, not terminated */
    size_t n, cap;
    bool failed; /* no memory: text is incomplete */
};

void emit_free(struct emit *e); /* a zeroed struct is empty */
void emit_clear(struct emit *e);

void emit_add_bytes(struct emit *e, const char *s, size_t n);
void emit_add_text(struct emit *e, const char *s);
void emit_add_int(struct emit *e, int64_t v);
void emit_add_uint(struct emit *e, uint64_t v);
/* Nine significant digits; nothing for NaN and infinities. */
void emit_add_number(struct emit *e, double v);
/* A number of seconds with nanoseconds: points in time that nine digits would blur. */
void emit_add_time(struct emit *e, double v);
/* With its quotes. */
void emit_add_string(struct emit *e, const char *s, size_t n);

/* Members of a JSON object, in order: emit_open, members, emit_close (which ends the line). Keys
 * are plain ASCII words. */
void emit_open(struct emit *e);
void emit_close(struct emit *e);
void emit_put_text(struct emit *e, const char *key, const char *s); /* NULL: null */
void emit_put_bytes(struct emit *e, const char *key, const char *s, size_t n);
void emit_put_int(struct emit *e, const char *key, int64_t v);
void emit_put_uint(struct emit *e, const char *key, uint64_t v);
void emit_put_number(struct emit *e, const char *key, double v);
void emit_put_bool(struct emit *e, const char *key, bool v);

#endif
