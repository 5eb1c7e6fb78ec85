#include "support/ggufsplit.h"
#include "support/fixtures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { T_U16 = 2, T_I32 = 5, T_STRING = 8, T_ARRAY = 9 };

static const size_t scalar_bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

struct tensor {
    const unsigned char *info; /* name, dimensions, type: all but the offset */
    size_t info_bytes;
    uint64_t offset, bytes; /* in the data section; up to the next tensor, padding included */
};

struct source {
    unsigned char *p;
    size_t n, kv_start, kv_end, data, alignment;
    uint64_t n_kv;
    struct tensor *t;
    int n_tensors;
};

static uint64_t get_u64(const unsigned char *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static uint32_t get_u32(const unsigned char *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static size_t skip_value(const unsigned char *p, size_t at, uint32_t type)
{
    if (type == T_STRING)
        return at + 8 + get_u64(p + at);
    if (type != T_ARRAY)
        return at + scalar_bytes[type];
    uint32_t elem = get_u32(p + at);
    uint64_t n = get_u64(p + at + 4);
    at += 12;
    if (elem != T_STRING)
        return at + n * scalar_bytes[elem];
    while (n-- > 0)
        at += 8 + get_u64(p + at);
    return at;
}

static uint64_t next_offset(const struct source *s, uint64_t offset)
{
    uint64_t next = s->n - s->data;
    for (int i = 0; i < s->n_tensors; i++)
        if (s->t[i].offset > offset && s->t[i].offset < next)
            next = s->t[i].offset;
    return next;
}

static bool parse(const char *path, struct source *s)
{
    memset(s, 0, sizeof *s);
    s->alignment = 32;
    s->p = fixture_read_file(path, &s->n);
    if (!s->p || s->n < 24 || memcmp(s->p, "GGUF", 4) != 0)
        return false;
    s->n_tensors = (int)get_u64(s->p + 8);
    s->n_kv = get_u64(s->p + 16);
    size_t at = s->kv_start = 24;
    for (uint64_t i = 0; i < s->n_kv; i++) {
        size_t key = at + 8, key_bytes = get_u64(s->p + at);
        at = key + key_bytes + 4;
        if (key_bytes == 17 && memcmp(s->p + key, "general.alignment", 17) == 0)
            s->alignment = get_u32(s->p + at);
        at = skip_value(s->p, at, get_u32(s->p + at - 4));
    }
    s->kv_end = at;
    s->t = calloc((size_t)s->n_tensors + 1, sizeof *s->t);
    for (int i = 0; s->t && i < s->n_tensors; i++) {
        size_t start = at;
        at += 8 + get_u64(s->p + at);
        at += 4 + 8 * (size_t)get_u32(s->p + at) + 4;
        s->t[i].info = s->p + start;
        s->t[i].info_bytes = at - start;
        s->t[i].offset = get_u64(s->p + at);
        at += 8;
    }
    s->data = (at + s->alignment - 1) / s->alignment * s->alignment;
    for (int i = 0; s->t && i < s->n_tensors; i++)
        s->t[i].bytes = next_offset(s, s->t[i].offset) - s->t[i].offset;
    return s->t != NULL;
}

static void put(FILE *f, const void *p, size_t n)
{
    fwrite(p, 1, n, f);
}

static void put_u64(FILE *f, uint64_t v)
{
    put(f, &v, sizeof v);
}

static void put_u32(FILE *f, uint32_t v)
{
    put(f, &v, sizeof v);
}

static void put_key(FILE *f, const char *key, uint32_t type, const void *value, size_t bytes)
{
    put_u64(f, strlen(key));
    put(f, key, strlen(key));
    put_u32(f, type);
    put(f, value, bytes);
}

static void put_padding(FILE *f, size_t multiple)
{
    static const char zeros[4096];
    size_t over = (size_t)ftell(f) % multiple;
    if (over != 0)
        put(f, zeros, multiple - over);
}

/* Tensors [begin, end) as shard no of count. Later shards carry no metadata, so they use the
 * default alignment of 32 bytes. */
static bool write_shard(const struct source *s, const char *path, int no, int count, int begin,
                        int end)
{
    FILE *f = fopen(path, "wb");
    if (!f)
        return false;
    size_t align = no == 0 ? s->alignment : 32;
    uint16_t no16 = (uint16_t)no, count16 = (uint16_t)count;
    int32_t total = s->n_tensors;
    put(f, "GGUF", 4);
    put_u32(f, 3);
    put_u64(f, (uint64_t)(end - begin));
    put_u64(f, (no == 0 ? s->n_kv : 0) + 3);
    if (no == 0)
        put(f, s->p + s->kv_start, s->kv_end - s->kv_start);
    put_key(f, "split.no", T_U16, &no16, sizeof no16);
    put_key(f, "split.count", T_U16, &count16, sizeof count16);
    put_key(f, "split.tensors.count", T_I32, &total, sizeof total);
    uint64_t offset = 0;
    for (int i = begin; i < end; i++) {
        put(f, s->t[i].info, s->t[i].info_bytes);
        put_u64(f, offset);
        offset += (s->t[i].bytes + align - 1) / align * align;
    }
    put_padding(f, align);
    for (int i = begin; i < end; i++) {
        put(f, s->p + s->data + s->t[i].offset, s->t[i].bytes);
        put_padding(f, align);
    }
    bool good = !ferror(f);
    return fclose(f) == 0 && good;
}

bool ggufsplit_write(const char *source, const char *prefix, int n_shards, bool bare_first,
                     char *first, size_t first_bytes)
{
    struct source s;
    bool good = parse(source, &s) && s.n_tensors >= n_shards;
    int holders = n_shards - (bare_first ? 1 : 0), done = 0;
    for (int no = 0; good && no < n_shards; no++) {
        char path[512];
        int rank = no - (bare_first ? 1 : 0);
        int end = rank < 0 ? 0 : (int)((int64_t)s.n_tensors * (rank + 1) / holders);
        snprintf(path, sizeof path, "%s-%05d-of-%05d.gguf", prefix, no + 1, n_shards);
        if (no == 0)
            snprintf(first, first_bytes, "%s", path);
        good = write_shard(&s, path, no, n_shards, done, end);
        done = end;
    }
    free(s.t);
    free(s.p);
    return good;
}
