#include "gguf/cursor.h"

#include "base/mem.h"

#include <string.h>

#define FIRST_LOAD ((uint64_t)64 << 10)
#define MAX_STEP   ((uint64_t)4 << 20) /* bounds what is read past the header's end */

void cursor_over_file(struct cursor *c, struct io_file *file)
{
    memset(c, 0, sizeof *c);
    c->file = file;
    c->size = io_file_size(file);
}

void cursor_over_bytes(struct cursor *c, const uint8_t *p, size_t n, uint64_t file_size)
{
    memset(c, 0, sizeof *c);
    c->p = p;
    c->len = n < file_size ? n : file_size;
    c->size = file_size;
}

void cursor_free(struct cursor *c)
{
    mem_free(c->own);
    c->own = NULL;
}

static bool fault(struct cursor *c, enum cursor_fault f)
{
    c->fault = f;
    return false;
}

/* Load up to byte `want` of the file (at least), which is at most CURSOR_MAX_HEADER. */
static bool load(struct cursor *c, uint64_t want)
{
    uint64_t step = c->len < FIRST_LOAD ? FIRST_LOAD : c->len;
    if (step > MAX_STEP)
        step = MAX_STEP;
    uint64_t end = c->len + step;
    if (end < want)
        end = want;
    if (end > c->size)
        end = c->size;
    if (end > c->cap) {
        uint8_t *q = mem_realloc(c->own, (size_t)end);
        if (!q)
            return fault(c, CURSOR_MEM);
        c->own = q;
        c->p = q;
        c->cap = end;
    }
    if (io_file_read_any(c->file, c->own + c->len, c->len, (size_t)(end - c->len), &c->io_err) < 0)
        return fault(c, CURSOR_IO);
    c->len = end;
    return true;
}

bool cursor_need(struct cursor *c, uint64_t n)
{
    if (c->fault != CURSOR_FINE)
        return false;
    if (n > c->size - c->pos)
        return fault(c, CURSOR_SHORT);
    if (n <= c->len - c->pos)
        return true;
    if (c->pos + n > CURSOR_MAX_HEADER)
        return fault(c, CURSOR_LONG);
    if (!c->file)
        return fault(c, CURSOR_SHORT);
    return load(c, c->pos + n);
}

void cursor_skip(struct cursor *c, uint64_t n)
{
    if (cursor_need(c, n))
        c->pos += n;
}

uint64_t cursor_le(const uint8_t *p, unsigned n)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < n; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static uint64_t take(struct cursor *c, unsigned n)
{
    if (!cursor_need(c, n))
        return 0;
    uint64_t v = cursor_le(c->p + c->pos, n);
    c->pos += n;
    return v;
}

uint32_t cursor_u32(struct cursor *c)
{
    return (uint32_t)take(c, 4);
}

uint64_t cursor_u64(struct cursor *c)
{
    return take(c, 8);
}

uint64_t cursor_left(const struct cursor *c)
{
    return c->size - c->pos;
}
