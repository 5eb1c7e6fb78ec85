#include "telemetry/emit.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "text/utf8.h"

void emit_free(struct emit *e)
{
    mem_free(e->text);
    *e = (struct emit){0};
}

void emit_clear(struct emit *e)
{
    e->n = 0;
    e->failed = false;
}

void emit_add_bytes(struct emit *e, const char *s, size_t n)
{
    if (e->failed || n == 0)
        return;
    if (n > e->cap - e->n) {
        size_t cap = e->cap ? e->cap : 512;
        while (cap - e->n < n && cap <= SIZE_MAX / 4)
            cap *= 2;
        char *p = cap - e->n >= n ? mem_realloc(e->text, cap) : NULL;
        if (!p) {
            e->failed = true;
            return;
        }
        e->text = p;
        e->cap = cap;
    }
    memcpy(e->text + e->n, s, n);
    e->n += n;
}

void emit_add_text(struct emit *e, const char *s)
{
    emit_add_bytes(e, s, strlen(s));
}

void emit_add_int(struct emit *e, int64_t v)
{
    char buf[24];
    emit_add_bytes(e, buf, (size_t)snprintf(buf, sizeof buf, "%lld", (long long)v));
}

void emit_add_uint(struct emit *e, uint64_t v)
{
    char buf[24];
    emit_add_bytes(e, buf, (size_t)snprintf(buf, sizeof buf, "%llu", (unsigned long long)v));
}

/* A program that uses the library may have set a locale whose decimal point is another one. */
static void add_double(struct emit *e, const char *text)
{
    const char *point = localeconv()->decimal_point;
    const char *at = *point && strcmp(point, ".") != 0 ? strstr(text, point) : NULL;
    if (!at) {
        emit_add_text(e, text);
        return;
    }
    emit_add_bytes(e, text, (size_t)(at - text));
    emit_add_text(e, ".");
    emit_add_text(e, at + strlen(point));
}

void emit_add_number(struct emit *e, double v)
{
    char buf[48];
    if (!isfinite(v))
        return;
    snprintf(buf, sizeof buf, "%.9g", v == 0 ? 0 : v); /* -0 is 0 */
    add_double(e, buf);
}

void emit_add_time(struct emit *e, double v)
{
    char buf[352]; /* the largest double has 309 digits */
    if (!isfinite(v))
        return;
    snprintf(buf, sizeof buf, "%.9f", v);
    add_double(e, buf);
}

/* ---- JSON ---- */

static void add_escape(struct emit *e, unsigned char c)
{
    static const char plain[] = "\"\"\\\\\nn\tt\rr\bb\ff";
    for (const char *p = plain; *p; p += 2)
        if ((unsigned char)*p == c) {
            char buf[2] = {'\\', p[1]};
            emit_add_bytes(e, buf, 2);
            return;
        }
    char buf[8];
    emit_add_bytes(e, buf, (size_t)snprintf(buf, sizeof buf, "\\u%04x", c));
}

void emit_add_string(struct emit *e, const char *s, size_t n)
{
    emit_add_text(e, "\"");
    for (size_t i = 0, len; i < n; i += len) {
        int32_t c = utf8_decode_char(s + i, n - i, &len);
        if (c < 0)
            emit_add_text(e, "\xef\xbf\xbd");
        else if (c < 0x20 || c == '"' || c == '\\' || c == 0x7f)
            add_escape(e, (unsigned char)c);
        else
            emit_add_bytes(e, s + i, len);
    }
    emit_add_text(e, "\"");
}

void emit_open(struct emit *e)
{
    emit_add_text(e, "{");
}

void emit_close(struct emit *e)
{
    emit_add_text(e, "}\n");
}

static void add_key(struct emit *e, const char *key)
{
    if (e->n && e->text[e->n - 1] != '{')
        emit_add_text(e, ",");
    emit_add_text(e, "\"");
    emit_add_text(e, key);
    emit_add_text(e, "\":");
}

void emit_put_bytes(struct emit *e, const char *key, const char *s, size_t n)
{
    add_key(e, key);
    emit_add_string(e, s, n);
}

void emit_put_text(struct emit *e, const char *key, const char *s)
{
    add_key(e, key);
    if (s)
        emit_add_string(e, s, strlen(s));
    else
        emit_add_text(e, "null");
}

void emit_put_int(struct emit *e, const char *key, int64_t v)
{
    add_key(e, key);
    emit_add_int(e, v);
}

void emit_put_uint(struct emit *e, const char *key, uint64_t v)
{
    add_key(e, key);
    emit_add_uint(e, v);
}

void emit_put_number(struct emit *e, const char *key, double v)
{
    add_key(e, key);
    if (isfinite(v))
        emit_add_number(e, v);
    else
        emit_add_text(e, "null");
}

void emit_put_bool(struct emit *e, const char *key, bool v)
{
    add_key(e, key);
    emit_add_text(e, v ? "true" : "false");
}
