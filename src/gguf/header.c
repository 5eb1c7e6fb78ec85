/* header.c: one file's header: magic, counts, metadata. The tensor directory is in directory.c.
 *
 * Layout (GGUF specification): "GGUF", version u32, tensors u64, pairs u64; then the pairs (key
 * string, type u32, value), then the tensor records, padding to the alignment, and the data.
 * Strings are a u64 length and bytes; arrays an element type u32, a count u64 and elements. */
#include "gguf/header.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_KEY     65535 /* the specification's bound */
#define MAX_PAIRS   65536 /* files in use have some dozens */
#define MAX_NESTING 4     /* arrays of arrays are walked, not handed out */

#define MIN_PAIR_BYTES   (8 + 1 + 4 + 1)
#define MIN_STRING_BYTES 8
#define MIN_ARRAY_BYTES  12

int gguf_fail(struct sl_err *err, int code, const char *path, const char *fmt, ...)
{
    char text[480];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    /* A very long path must not push the reason out of the message. */
    size_t n = strlen(path), keep = 140;
    return err_set(err, code, path, "%s%s: %s", n > keep ? "..." : "",
                   n > keep ? path + n - keep : path, text);
}

int header_fault(struct header *h)
{
    const struct cursor *c = h->c;
    switch (c->fault) {
    case CURSOR_SHORT:
        return gguf_fail(
            h->err, SL_E_FORMAT, h->path,
            "the file is truncated: it ends inside %s (it has %llu bytes); download or "
            "copy it again",
            h->item, (unsigned long long)c->size);
    case CURSOR_LONG:
        return gguf_fail(h->err, SL_E_UNSUPPORTED, h->path,
                         "the header is larger than %llu MiB (at %s)",
                         (unsigned long long)(CURSOR_MAX_HEADER >> 20), h->item);
    case CURSOR_MEM:
        return gguf_fail(h->err, SL_E_MEM, h->path, "no memory for the header");
    case CURSOR_IO:
        return err_set(h->err, c->io_err.code, h->path, "%.500s (while reading %s)", c->io_err.msg,
                       h->item);
    case CURSOR_FINE:
        break;
    }
    return gguf_fail(h->err, SL_E_INTERNAL, h->path, "no fault at %s", h->item);
}

void header_item(struct header *h, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(h->item, sizeof h->item, fmt, ap);
    va_end(ap);
}

bool gguf_grow(void **array, size_t *cap, size_t n, size_t size)
{
    if (n < *cap)
        return true;
    size_t want = *cap < 32 ? 32 : *cap + *cap / 2;
    void *q = mem_realloc(*array, want * size);
    if (!q)
        return false;
    *array = q;
    *cap = want;
    return true;
}

unsigned gguf_scalar_size(uint32_t type)
{
    static const uint8_t size[GGUF_N_TYPES] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_U16] = 2, [GGUF_I16] = 2,
        [GGUF_U32] = 4, [GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_BOOL] = 1,
        [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
    };
    return type < GGUF_N_TYPES ? size[type] : 0;
}

const char *gguf_type_name(uint32_t type)
{
    static const char *const name[GGUF_N_TYPES] = {
        "uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
        "bool",  "string", "array",  "uint64", "int64",  "float64"};
    return type < GGUF_N_TYPES ? name[type] : "?";
}

/* ---- Magic, version, counts ---- */

static uint32_t swap32(uint32_t v)
{
    return v >> 24 | (v >> 8 & 0xff00) | (v << 8 & 0xff0000) | v << 24;
}

static int check_magic(struct header *h)
{
    struct cursor *c = h->c;
    if (c->size == 0)
        return gguf_fail(h->err, SL_E_FORMAT, h->path, "the file is empty");
    uint64_t n = c->size < 512 ? c->size : 512;
    if (!c->file && n > c->len) /* bytes in memory: all there are */
        n = c->len;
    if (n == 0 || !cursor_need(c, n)) {
        header_item(h, "the magic");
        if (n == 0)
            c->fault = CURSOR_SHORT;
        return header_fault(h);
    }
    if (n >= 4 && memcmp(c->p, "GGUF", 4) == 0) {
        cursor_skip(c, 4);
        return 0;
    }
    if (n >= 4 && memcmp(c->p, "FUGG", 4) == 0)
        return gguf_fail(h->err, SL_E_UNSUPPORTED, h->path,
                         "this is a big-endian GGUF file; only little-endian files are read");
    return gguf_fail(h->err, SL_E_FORMAT, h->path, "%s", gguf_sniff(c->p, (size_t)n));
}

static int check_version(struct header *h)
{
    uint32_t version = cursor_u32(h->c);
    if (h->c->fault)
        return header_fault(h);
    if ((version & 0xffff) == 0 && version != 0)
        return gguf_fail(
            h->err, SL_E_UNSUPPORTED, h->path,
            "this is a big-endian GGUF file (version %u); only little-endian files are "
            "read",
            (unsigned)swap32(version));
    if (version == 1)
        return gguf_fail(h->err, SL_E_UNSUPPORTED, h->path,
                         "GGUF version 1 is too old (versions 2 and 3 are read): convert the model "
                         "again");
    if (version != 2 && version != 3)
        return gguf_fail(h->err, SL_E_UNSUPPORTED, h->path,
                         "GGUF version %u is not known (versions 2 and 3 are read)",
                         (unsigned)version);
    h->g->version = version;
    return 0;
}

int header_check_count(struct header *h, const char *what, uint64_t n, uint64_t max,
                       uint64_t min_bytes)
{
    if (n > cursor_left(h->c) / min_bytes)
        return gguf_fail(
            h->err, SL_E_FORMAT, h->path,
            "the header counts %llu %s, more than the file's %llu bytes can hold: it is "
            "damaged or truncated",
            (unsigned long long)n, what, (unsigned long long)h->c->size);
    if (n > max)
        return gguf_fail(h->err, SL_E_UNSUPPORTED, h->path,
                         "the header counts %llu %s, more than %llu", (unsigned long long)n, what,
                         (unsigned long long)max);
    return 0;
}

/* ---- Metadata ---- */

/* Bytes that a terminal would act on have no place in a name. */
bool header_name_is_clean(const uint8_t *p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (p[i] < 0x20 || p[i] == 0x7f)
            return false;
    return true;
}

static int bad_value(struct header *h, const char *why)
{
    return gguf_fail(h->err, SL_E_FORMAT, h->path, "%s %s", h->item, why);
}

static int read_key(struct header *h, size_t i, struct gguf_entry *e)
{
    struct cursor *c = h->c;
    header_item(h, "metadata key %zu", i);
    uint64_t n = cursor_u64(c);
    if (c->fault)
        return header_fault(h);
    if (n == 0 || n > MAX_KEY)
        return n == 0 ? bad_value(h, "is empty") : bad_value(h, "is longer than 65535 bytes");
    if (!cursor_need(c, n))
        return header_fault(h);
    if (!header_name_is_clean(c->p + c->pos, n))
        return bad_value(h, "holds control characters");
    header_item(h, "metadata key '%.*s'", n > 80 ? 80 : (int)n, (const char *)c->p + c->pos);
    e->key = (uint32_t)c->pos;
    e->key_n = (uint32_t)n;
    cursor_skip(c, n);
    return 0;
}

/* Bools are 0 or 1; anything else means that the file or its reader is broken. */
static bool bools_are_valid(const uint8_t *p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (p[i] > 1)
            return false;
    return true;
}

static int skip_array(struct header *h, struct gguf_entry *e, int depth);

static int skip_elements(struct header *h, uint32_t elem, uint64_t n, int depth)
{
    struct cursor *c = h->c;
    uint64_t size = gguf_scalar_size(elem);
    uint64_t least = size ? size : elem == GGUF_STRING ? MIN_STRING_BYTES : MIN_ARRAY_BYTES;
    if (n > cursor_left(c) / least) { /* before anything is loaded or looped over */
        c->fault = CURSOR_SHORT;
        return header_fault(h);
    }
    if (size) {
        if (!cursor_need(c, n * size))
            return header_fault(h);
        if (elem == GGUF_BOOL && !bools_are_valid(c->p + c->pos, n))
            return bad_value(h, "holds a bool that is neither 0 nor 1");
        cursor_skip(c, n * size);
        return 0;
    }
    for (uint64_t i = 0; i < n; i++) {
        if (elem == GGUF_STRING) {
            cursor_skip(c, cursor_u64(c));
            if (c->fault)
                return header_fault(h);
            continue;
        }
        struct gguf_entry inner;
        int rc = skip_array(h, &inner, depth + 1);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int skip_array(struct header *h, struct gguf_entry *e, int depth)
{
    struct cursor *c = h->c;
    uint32_t elem = cursor_u32(c);
    e->n = cursor_u64(c);
    if (c->fault)
        return header_fault(h);
    if (elem >= GGUF_N_TYPES)
        return gguf_fail(h->err, SL_E_FORMAT, h->path, "%s is an array of unknown type %u", h->item,
                         (unsigned)elem);
    if (depth >= MAX_NESTING)
        return gguf_fail(h->err, SL_E_UNSUPPORTED, h->path, "%s: arrays nest deeper than %d",
                         h->item, MAX_NESTING);
    e->elem = (uint8_t)elem;
    e->value = (uint32_t)c->pos;
    return skip_elements(h, elem, e->n, depth);
}

static int read_value(struct header *h, struct gguf_entry *e)
{
    struct cursor *c = h->c;
    uint32_t type = cursor_u32(c);
    if (c->fault)
        return header_fault(h);
    if (type >= GGUF_N_TYPES)
        return gguf_fail(h->err, SL_E_FORMAT, h->path, "%s has a value of unknown type %u", h->item,
                         (unsigned)type);
    e->type = (uint8_t)type;
    if (type == GGUF_ARRAY)
        return skip_array(h, e, 0);
    e->n = type == GGUF_STRING ? cursor_u64(c) : gguf_scalar_size(type);
    if (!cursor_need(c, e->n))
        return header_fault(h);
    e->value = (uint32_t)c->pos;
    if (type == GGUF_BOOL && !bools_are_valid(c->p + c->pos, 1))
        return bad_value(h, "is a bool that is neither 0 nor 1");
    cursor_skip(c, e->n);
    return 0;
}

static int read_metadata(struct header *h, uint64_t n)
{
    struct gguf *g = h->g;
    for (uint64_t i = 0; i < n; i++) {
        struct gguf_entry e = {0};
        int rc = read_key(h, (size_t)i, &e);
        if (rc == 0)
            rc = read_value(h, &e);
        if (rc < 0)
            return rc;
        void *kv = g->kv;
        if (!gguf_grow(&kv, &g->cap_kv, g->n_kv, sizeof *g->kv))
            return gguf_fail(h->err, SL_E_MEM, h->path, "no memory for the metadata");
        g->kv = kv;
        g->kv[g->n_kv++] = e;
    }
    return 0;
}

/* Keep the metadata's bytes and index its keys. end: where the metadata ends in the file. */
static int keep_metadata(struct header *h, uint64_t end)
{
    struct gguf *g = h->g;
    g->meta = mem_alloc((size_t)end);
    if (!g->meta || names_init(&g->keys, g->n_kv) < 0)
        return gguf_fail(h->err, SL_E_MEM, h->path, "no memory for the metadata");
    memcpy(g->meta, h->c->p, (size_t)end);
    for (size_t i = 0; i < g->n_kv; i++) {
        const char *key = (const char *)g->meta + g->kv[i].key;
        int rc = names_add(&g->keys, key, g->kv[i].key_n, i);
        if (rc == NAMES_ADDED)
            continue;
        return gguf_fail(h->err, SL_E_FORMAT, h->path, "metadata key '%.*s' %s",
                         g->kv[i].key_n > 80 ? 80 : (int)g->kv[i].key_n, key,
                         rc == NAMES_DUPLICATE ? "occurs twice"
                                               : "is one of too many whose hashes collide");
    }
    return 0;
}

static int read_header(struct header *h)
{
    struct cursor *c = h->c;
    int rc = check_magic(h);
    header_item(h, "the first 24 bytes");
    if (rc == 0)
        rc = check_version(h);
    if (rc < 0)
        return rc;
    uint64_t n_tensors = cursor_u64(c), n_kv = cursor_u64(c);
    if (c->fault)
        return header_fault(h);
    rc = header_check_count(h, "metadata keys", n_kv, MAX_PAIRS, MIN_PAIR_BYTES);
    if (rc == 0)
        rc = header_check_count(h, "tensors", n_tensors, GGUF_MAX_TENSORS, HEADER_MIN_TENSOR_BYTES);
    if (rc == 0)
        rc = read_metadata(h, n_kv);
    if (rc == 0)
        rc = keep_metadata(h, c->pos);
    if (rc == 0)
        rc = header_read_directory(h, n_tensors);
    return rc;
}

int gguf_read_file(struct cursor *c, const char *path, struct gguf **out, struct sl_err *err)
{
    *out = NULL;
    struct gguf *g = mem_calloc(1, sizeof *g);
    if (g)
        g->shard = mem_calloc(1, sizeof *g->shard);
    if (g && g->shard) {
        g->n_shards = 1;
        g->shard[0].size = c->size;
        g->shard[0].path = mem_strdup(path);
    }
    if (!g || !g->shard || !g->shard[0].path) {
        gguf_close(&g);
        return gguf_fail(err, SL_E_MEM, path, "no memory for the header");
    }
    struct header h = {.c = c, .g = g, .path = path, .err = err};
    int rc = read_header(&h);
    if (rc < 0) {
        gguf_close(&g);
        return rc;
    }
    *out = g;
    return 0;
}
