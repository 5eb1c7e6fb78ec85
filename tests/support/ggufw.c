#include "support/ggufw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { W_U8, W_I8, W_U16, W_I16, W_U32, W_I32, W_F32, W_BOOL, W_STR, W_ARR, W_U64, W_I64, W_F64 };

static void die(const char *what)
{
    fprintf(stderr, "ggufw: %s\n", what);
    exit(1);
}

static void put(struct ggufw_buf *b, const void *p, size_t n)
{
    if (b->n + n > b->cap) {
        b->cap = (b->n + n) * 2 + 64;
        b->p = realloc(b->p, b->cap);
        if (!b->p)
            die("no memory");
    }
    if (n && p)
        memcpy(b->p + b->n, p, n);
    else if (n)
        memset(b->p + b->n, 0, n);
    b->n += n;
}

/* The tests run on little-endian machines alone, as the engine does. */
static void put_u32(struct ggufw_buf *b, uint32_t v)
{
    put(b, &v, 4);
}

static void put_u64(struct ggufw_buf *b, uint64_t v)
{
    put(b, &v, 8);
}

static void put_str(struct ggufw_buf *b, const char *s, size_t n)
{
    put_u64(b, n);
    put(b, s, n);
}

void ggufw_init(struct ggufw *w)
{
    *w = (struct ggufw){.version = 3, .align = 32, .n_kv = -1, .n_tensors = -1};
}

void ggufw_free(struct ggufw *w)
{
    free(w->kv.p);
    free(w->infos.p);
    free(w->data.p);
    memset(w, 0, sizeof *w);
}

void ggufw_raw(struct ggufw *w, const char *key, uint32_t type, const void *bytes, size_t n)
{
    put_str(&w->kv, key, strlen(key));
    put_u32(&w->kv, type);
    put(&w->kv, bytes, n);
    w->kv_added++;
}

void ggufw_u8(struct ggufw *w, const char *key, uint8_t v)
{
    ggufw_raw(w, key, W_U8, &v, sizeof v);
}

void ggufw_i8(struct ggufw *w, const char *key, int8_t v)
{
    ggufw_raw(w, key, W_I8, &v, sizeof v);
}

void ggufw_u16(struct ggufw *w, const char *key, uint16_t v)
{
    ggufw_raw(w, key, W_U16, &v, sizeof v);
}

void ggufw_i16(struct ggufw *w, const char *key, int16_t v)
{
    ggufw_raw(w, key, W_I16, &v, sizeof v);
}

void ggufw_u32(struct ggufw *w, const char *key, uint32_t v)
{
    ggufw_raw(w, key, W_U32, &v, sizeof v);
}

void ggufw_i32(struct ggufw *w, const char *key, int32_t v)
{
    ggufw_raw(w, key, W_I32, &v, sizeof v);
}

void ggufw_u64(struct ggufw *w, const char *key, uint64_t v)
{
    ggufw_raw(w, key, W_U64, &v, sizeof v);
}

void ggufw_i64(struct ggufw *w, const char *key, int64_t v)
{
    ggufw_raw(w, key, W_I64, &v, sizeof v);
}

void ggufw_f32(struct ggufw *w, const char *key, float v)
{
    ggufw_raw(w, key, W_F32, &v, sizeof v);
}

void ggufw_f64(struct ggufw *w, const char *key, double v)
{
    ggufw_raw(w, key, W_F64, &v, sizeof v);
}

void ggufw_bool(struct ggufw *w, const char *key, uint8_t v)
{
    ggufw_raw(w, key, W_BOOL, &v, sizeof v);
}

void ggufw_str(struct ggufw *w, const char *key, const char *v)
{
    struct ggufw_buf b = {0};
    put_str(&b, v, strlen(v));
    ggufw_raw(w, key, W_STR, b.p, b.n);
    free(b.p);
}

void ggufw_arr(struct ggufw *w, const char *key, uint32_t elem, uint64_t count, const void *bytes,
               size_t n)
{
    struct ggufw_buf b = {0};
    put_u32(&b, elem);
    put_u64(&b, count);
    put(&b, bytes, n);
    ggufw_raw(w, key, W_ARR, b.p, b.n);
    free(b.p);
}

void ggufw_arr_str(struct ggufw *w, const char *key, const char *const *s, size_t count)
{
    struct ggufw_buf b = {0};
    for (size_t i = 0; i < count; i++)
        put_str(&b, s[i], strlen(s[i]));
    ggufw_arr(w, key, W_STR, count, b.p, b.n);
    free(b.p);
}

void ggufw_tensor_raw(struct ggufw *w, const char *name, size_t name_bytes, uint32_t type,
                      uint32_t n_dims, const uint64_t *dims, uint64_t offset)
{
    put_str(&w->infos, name, name_bytes);
    put_u32(&w->infos, n_dims);
    put(&w->infos, dims, n_dims * sizeof *dims);
    put_u32(&w->infos, type);
    put_u64(&w->infos, offset);
    w->tensors_added++;
}

static void pad(struct ggufw_buf *b, size_t align)
{
    put(b, NULL, (align - b->n % align) % align);
}

void ggufw_tensor(struct ggufw *w, const char *name, uint32_t type, int n_dims,
                  const uint64_t *dims, const void *data, size_t n_bytes)
{
    pad(&w->data, w->align);
    ggufw_tensor_raw(w, name, strlen(name), type, (uint32_t)n_dims, dims, w->data.n);
    put(&w->data, data, n_bytes);
}

uint8_t *ggufw_bytes(const struct ggufw *w, size_t *n)
{
    struct ggufw_buf b = {0};
    put(&b, "GGUF", 4);
    put_u32(&b, w->version);
    put_u64(&b, w->n_tensors < 0 ? w->tensors_added : (uint64_t)w->n_tensors);
    put_u64(&b, w->n_kv < 0 ? w->kv_added : (uint64_t)w->n_kv);
    put(&b, w->kv.p, w->kv.n);
    put(&b, w->infos.p, w->infos.n);
    if (w->data.n)
        pad(&b, w->align);
    put(&b, w->data.p, w->data.n);
    uint8_t *exact = malloc(b.n);
    if (!exact)
        die("no memory");
    memcpy(exact, b.p, b.n);
    *n = b.n;
    free(b.p);
    return exact;
}

void ggufw_save_bytes(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0)
        die(path);
}

void ggufw_save(const struct ggufw *w, const char *path)
{
    size_t n;
    uint8_t *p = ggufw_bytes(w, &n);
    ggufw_save_bytes(path, p, n);
    free(p);
}
