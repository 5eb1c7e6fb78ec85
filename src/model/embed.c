/* embed.c: tokens into their rows of the embedding table, which is in memory or read row by row. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/size.h"
#include "model/forward.h"

struct embed_args {
    struct forward *f;
    const int32_t *ids;
};

/* raw: the token's row as it lies in the file. */
static void unpack(struct forward *f, int64_t t, const uint8_t *raw)
{
    const struct weight *w = &f->m->embd;
    int n = f->m->cfg.n_embd;
    float *x = f->x + (size_t)t * (size_t)n;
    quant_dequant(w->tensor->type, raw, x, (size_t)n);
    for (int i = 0; w->scale && i < n; i++)
        x[i] = x[i] * w->scale[0];
}

static void embed_range(void *arg, int64_t begin, int64_t end, int tid)
{
    (void)tid;
    const struct embed_args *e = arg;
    struct forward *f = e->f;
    const struct weight *w = &f->m->embd;
    const struct model_config *c = &f->m->cfg;
    size_t half = (size_t)c->n_rot / 2;
    for (int64_t t = begin; t < end; t++) {
        if (w->data)
            unpack(f, t, w->data + (size_t)e->ids[t] * w->row_bytes);
        kern_rope_table(f->pos0 + t, f->m->rope_freqs, (int)half, c->rope_magnitude,
                        f->rope_cos + (size_t)t * half, f->rope_sin + (size_t)t * half);
    }
}

/* ---- Row by row: one aligned window per row, which may hold pieces of its neighbours ---- */

size_t model_row_align(const struct model *m)
{
    size_t align = io_file_align(m->files[m->embd.tensor->shard]);
    return align > MEM_ALIGN ? align : MEM_ALIGN;
}

size_t model_row_window(const struct model *m)
{
    size_t align = model_row_align(m);
    return (size_t)size_up(m->embd.row_bytes + align - 1, align);
}

static int read_row(struct forward *f, int64_t t, int32_t id, struct sl_err *err)
{
    const struct weight *w = &f->m->embd;
    struct io_file *file = f->m->files[w->tensor->shard];
    uint64_t at = w->tensor->offset + (uint64_t)id * w->row_bytes;
    uint64_t from = size_down(at, model_row_align(f->m)), need = at - from + w->row_bytes;
    size_t len = (size_t)size_up(need, model_row_align(f->m));
    double t0 = clock_now();
    int rc = io_file_read(file, f->row_window, from, len, (size_t)need, err);
    f->rows.wait_s += clock_now() - t0;
    if (rc < 0)
        return rc;
    f->rows.n++;
    f->rows.bytes += len;
    unpack(f, t, f->row_window + (at - from));
    return 0;
}

/* A token that came before in the batch has its row already. */
static int read_rows(struct forward *f, const int32_t *ids, struct sl_err *err)
{
    size_t n = (size_t)f->m->cfg.n_embd;
    for (int t = 0; t < f->n_tok; t++) {
        int same = 0;
        while (same < t && ids[same] != ids[t])
            same++;
        int rc = 0;
        if (same < t)
            memcpy(f->x + (size_t)t * n, f->x + (size_t)same * n, n * sizeof *f->x);
        else
            rc = read_row(f, t, ids[t], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int forward_embed(struct forward *f, const int32_t *ids, struct sl_err *err)
{
    struct embed_args e = {f, ids};
    pool_for(f->pool, f->n_tok, 4, embed_range, &e);
    return f->m->embd.data ? 0 : read_rows(f, ids, err);
}
