#include "model/vectors.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "io/reader.h"

/* The window around a vector as it is read, and where the vector begins in it. */
struct window {
    uint64_t from;
    size_t len, at;
};

static struct window window_of(const struct model *m, const struct gguf_tensor *t)
{
    uint64_t align = io_file_align(m->files[t->shard]);
    struct window w = {.from = size_down(t->offset, align)};
    w.at = (size_t)(t->offset - w.from);
    w.len = (size_t)size_up(w.at + t->bytes, align);
    return w;
}

/* What every window fits into, in bytes, and the alignment of all. */
static size_t widest(const struct model *m, const struct vector_read *v, int n, size_t *align)
{
    size_t most = 0;
    *align = mem_page_size();
    for (int i = 0; i < n; i++) {
        struct window w = window_of(m, v[i].tensor);
        size_t a = io_file_align(m->files[v[i].tensor->shard]);
        most = w.len > most ? w.len : most;
        *align = a > *align ? a : *align;
    }
    return (size_t)size_up(most, *align);
}

struct turn {
    const struct model *m;
    const struct vector_read *v;
    int n, next;
    struct io_reader *reader;
};

/* r->user keeps its vector; its buffer stays with it. */
static bool submit_next(struct turn *t, struct io_req *r, void *buf)
{
    if (t->next == t->n)
        return false;
    const struct vector_read *v = &t->v[t->next++];
    struct window w = window_of(t->m, v->tensor);
    *r = (struct io_req){.file = t->m->files[v->tensor->shard],
                         .buf = buf,
                         .offset = w.from,
                         .len = w.len,
                         .need = w.at + (size_t)v->tensor->bytes,
                         .user = (void *)v};
    io_reader_submit(t->reader, r, 1);
    return true;
}

static int read_together(struct turn *t, struct io_req *req, int n_req, uint8_t *buf, size_t stride,
                         struct sl_err *err)
{
    int open = 0, rc = 0;
    for (int i = 0; i < n_req; i++)
        open += submit_next(t, &req[i], buf + (size_t)i * stride);
    while (open > 0) {
        struct io_req *next, *r = io_reader_reap(t->reader, true);
        for (; r; r = next) {
            const struct vector_read *v = r->user;
            next = r->next;
            open--;
            if (r->err.code != 0 && rc == 0) {
                rc = r->err.code;
                if (err)
                    *err = r->err;
            }
            if (rc != 0)
                continue;
            quant_dequant(v->tensor->type, (uint8_t *)r->buf + window_of(t->m, v->tensor).at, v->to,
                          (size_t)v->tensor->dims[0]);
            open += submit_next(t, r, r->buf);
        }
    }
    return rc;
}

static int read_alone(const struct model *m, const struct vector_read *v, int n, uint8_t *raw,
                      struct sl_err *err)
{
    for (int i = 0; i < n; i++) {
        const struct gguf_tensor *t = v[i].tensor;
        int rc = io_file_read_any(m->files[t->shard], raw, t->offset, (size_t)t->bytes, err);
        if (rc < 0)
            return rc;
        quant_dequant(t->type, raw, v[i].to, (size_t)t->dims[0]);
    }
    return 0;
}

int vectors_read(const struct model *m, const struct vector_read *v, int n,
                 struct io_reader *reader, int in_flight, struct sl_err *err)
{
    if (n == 0)
        return 0;
    struct turn t = {.m = m, .v = v, .n = n, .reader = reader};
    int n_req = !reader ? 1 : in_flight < n ? in_flight : n;
    size_t align, stride = widest(m, v, n, &align), bytes = (size_t)n_req * stride + align;
    uint8_t *raw = mem_map(bytes, 0);
    uint8_t *buf = raw + (size_up((uintptr_t)raw, align) - (uintptr_t)raw);
    struct io_req *req = mem_calloc((size_t)n_req, sizeof *req);
    int rc;
    if (!raw || !req)
        rc = err_set(err, SL_E_MEM, "model", "no memory for norms and biases");
    else if (reader)
        rc = read_together(&t, req, n_req, buf, stride, err);
    else
        rc = read_alone(m, v, n, buf, err);
    mem_unmap(raw, bytes);
    mem_free(req);
    return rc;
}
