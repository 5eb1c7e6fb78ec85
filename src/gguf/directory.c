/* directory.c: the tensor records of one file, checked against the file's size. */
#include "base/mem.h"
#include "base/size.h"
#include "gguf/header.h"
#include "quant/quant.h"

#include <string.h>

#define MAX_NAME          255 /* the format's own tools allow 64 */
#define DEFAULT_ALIGNMENT 32
#define MIN_ALIGNMENT     8 /* the specification asks for a multiple of 8 */
#define MAX_ALIGNMENT     ((uint64_t)1 << 20)

static char *keep_name(struct gguf *g, const uint8_t *p, size_t n)
{
    struct gguf_arena *a = g->arena;
    if (!a || sizeof a->text - a->used < n + 1) {
        a = mem_alloc(sizeof *a);
        if (!a)
            return NULL;
        a->next = g->arena;
        a->used = 0;
        g->arena = a;
    }
    char *name = a->text + a->used;
    memcpy(name, p, n);
    name[n] = 0;
    a->used += n + 1;
    return name;
}

static int read_name(struct header *h, size_t i, struct gguf_tensor *t)
{
    struct cursor *c = h->c;
    header_item(h, "the name of tensor %zu", i);
    uint64_t n = cursor_u64(c);
    if (c->fault)
        return header_fault(h);
    if (n == 0 || n > MAX_NAME)
        return gguf_fail(h->err, SL_E_FORMAT, h->path, "%s is %s", h->item,
                         n == 0 ? "empty" : "longer than 255 bytes");
    if (!cursor_need(c, n))
        return header_fault(h);
    if (!header_name_is_clean(c->p + c->pos, n))
        return gguf_fail(h->err, SL_E_FORMAT, h->path, "%s holds control characters", h->item);
    t->name = keep_name(h->g, c->p + c->pos, (size_t)n);
    if (!t->name)
        return gguf_fail(h->err, SL_E_MEM, h->path, "no memory for the tensor names");
    header_item(h, "tensor '%.100s'", t->name);
    cursor_skip(c, n);
    return 0;
}

static int read_dims(struct header *h, struct gguf_tensor *t)
{
    struct cursor *c = h->c;
    uint32_t n = cursor_u32(c);
    if (c->fault)
        return header_fault(h);
    if (n > GGUF_MAX_DIMS)
        return gguf_fail(h->err, SL_E_FORMAT, h->path, "%s has %u dimensions; at most %d are known",
                         h->item, (unsigned)n, GGUF_MAX_DIMS);
    t->n_dims = (int)n;
    for (uint32_t i = 0; i < GGUF_MAX_DIMS; i++) {
        t->dims[i] = i < n ? cursor_u64(c) : 1;
        if (c->fault)
            return header_fault(h);
        if (t->dims[i] == 0)
            return gguf_fail(h->err, SL_E_FORMAT, h->path, "%s: dimension %u is 0", h->item,
                             (unsigned)i);
    }
    return 0;
}

static int read_type(struct header *h, struct gguf_tensor *t)
{
    t->type = cursor_u32(h->c);
    if (h->c->fault)
        return header_fault(h);
    const struct quant_info *q = quant_type_info(t->type);
    if (!q && t->type < QT_COUNT)
        return gguf_fail(h->err, SL_E_UNSUPPORTED, h->path,
                         "%s has type %u, which was withdrawn from the format: quantise the model "
                         "again",
                         h->item, (unsigned)t->type);
    if (!q)
        return gguf_fail(h->err, SL_E_UNSUPPORTED, h->path, "%s has the unknown type %u", h->item,
                         (unsigned)t->type);
    if (t->dims[0] % q->block_values != 0)
        return gguf_fail(
            h->err, SL_E_FORMAT, h->path,
            "%s: rows of %llu values are no whole number of %s blocks (%u values each)", h->item,
            (unsigned long long)t->dims[0], q->name, (unsigned)q->block_values);
    t->bytes = quant_row_bytes(t->type, t->dims[0]);
    bool fits = t->bytes != 0;
    for (int i = 1; i < GGUF_MAX_DIMS && fits; i++)
        fits = size_mul(t->bytes, t->dims[i], &t->bytes);
    /* Values are counted in 64 bits elsewhere; types below one byte per value have more of them. */
    uint64_t values = t->dims[0];
    for (int i = 1; i < GGUF_MAX_DIMS && fits; i++)
        fits = size_mul(values, t->dims[i], &values);
    if (!fits || t->bytes > INT64_MAX || values > INT64_MAX)
        return gguf_fail(h->err, SL_E_FORMAT, h->path, "%s: its size does not fit in 63 bits",
                         h->item);
    return 0;
}

static int read_tensors(struct header *h, uint64_t n)
{
    struct gguf *g = h->g;
    for (uint64_t i = 0; i < n; i++) {
        struct gguf_tensor t = {0};
        int rc = read_name(h, (size_t)i, &t);
        if (rc == 0)
            rc = read_dims(h, &t);
        if (rc == 0)
            rc = read_type(h, &t);
        if (rc < 0)
            return rc;
        t.offset = cursor_u64(h->c);
        if (h->c->fault)
            return header_fault(h);
        void *array = g->tensor;
        if (!gguf_grow(&array, &g->cap_tensors, g->n_tensors, sizeof *g->tensor))
            return gguf_fail(h->err, SL_E_MEM, h->path, "no memory for the tensor directory");
        g->tensor = array;
        g->tensor[g->n_tensors++] = t;
    }
    return 0;
}

static int read_alignment(struct header *h, uint64_t *align)
{
    *align = DEFAULT_ALIGNMENT;
    int rc = gguf_get_u64(h->g, "general.alignment", align, h->err);
    if (rc < 0)
        return rc;
    if (*align < MIN_ALIGNMENT || *align > MAX_ALIGNMENT || (*align & (*align - 1)) != 0)
        return gguf_fail(h->err, SL_E_FORMAT, h->path,
                         "general.alignment is %llu; it must be a power of two from %d to %llu",
                         (unsigned long long)*align, MIN_ALIGNMENT,
                         (unsigned long long)MAX_ALIGNMENT);
    return 0;
}

/* Offsets in the file count from the start of the data; make them count from the file's start. */
static int place_tensors(struct header *h, uint64_t align)
{
    struct gguf *g = h->g;
    uint64_t data = size_up(h->c->pos, align);
    for (size_t i = 0; i < g->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensor[i];
        if (t->offset % align != 0)
            return gguf_fail(h->err, SL_E_FORMAT, h->path,
                             "tensor '%.100s': offset %llu is no multiple of the alignment %llu",
                             t->name, (unsigned long long)t->offset, (unsigned long long)align);
        uint64_t start, end;
        if (!size_add(data, t->offset, &start) || !size_add(start, t->bytes, &end))
            return gguf_fail(h->err, SL_E_FORMAT, h->path,
                             "tensor '%.100s': offset %llu plus its %llu bytes does not fit in 64 "
                             "bits",
                             t->name, (unsigned long long)t->offset, (unsigned long long)t->bytes);
        if (end > h->c->size)
            return gguf_fail(
                h->err, SL_E_FORMAT, h->path,
                "the file is truncated: tensor '%.100s' ends at byte %llu, the file at "
                "%llu; download or copy it again",
                t->name, (unsigned long long)end, (unsigned long long)h->c->size);
        t->offset = start;
    }
    return 0;
}

int gguf_index_tensors(struct gguf *g, struct sl_err *err)
{
    names_free(&g->tensor_names);
    if (names_init(&g->tensor_names, g->n_tensors) < 0)
        return gguf_fail(err, SL_E_MEM, g->shard[0].path, "no memory for the tensor names");
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensor[i];
        int rc = names_add(&g->tensor_names, t->name, strlen(t->name), i);
        if (rc != NAMES_ADDED)
            return gguf_fail(
                err, SL_E_FORMAT, g->shard[t->shard].path, "tensor name '%.100s' %s", t->name,
                rc == NAMES_DUPLICATE ? "occurs twice" : "is one of too many whose hashes collide");
    }
    return 0;
}

int header_read_directory(struct header *h, uint64_t n_tensors)
{
    uint64_t align;
    int rc = read_alignment(h, &align);
    if (rc == 0)
        rc = read_tensors(h, n_tensors);
    if (rc == 0)
        rc = place_tensors(h, align);
    if (rc == 0)
        rc = gguf_index_tensors(h->g, h->err);
    return rc;
}
