/* load.c: weights on their way into memory, and what they take there.
 *
 * A matrix lies in memory as in its file: the outward-aligned window around it is read straight to
 * its place, so that direct reads need no buffer between. Windows stand in the order of the file,
 * are cut into pieces, and several pieces are under way on each drive. Threads touch the memory
 * ahead of the reads, which never wait for them. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "base/touch.h"
#include "io/drives.h"
#include "model/weights.h"

#define READ_PIECE ((size_t)4 << 20) /* bytes; a multiple of any alignment */
#define MAP_FLAGS  (MEM_HUGE | MEM_DONTFORK)

/* ---- What there is to load ---- */

/* Bytes of a file that are wanted in one piece, and the field that will point at them. */
struct span {
    struct io_file *file; /* NULL while the files are not open */
    int nth;              /* of the model's files */
    uint64_t offset, bytes;
    const uint8_t **data;
    uint8_t *window; /* where the window begins in memory */
    int drive;
};

/* Spans are counted first and listed then, by the same visits. */
struct visit {
    const struct model *m;
    struct span *list; /* NULL: only count */
    int n;
    uint64_t bytes, window_bytes;
};

static size_t span_align(const struct span *s)
{
    return s->file ? io_file_align(s->file) : mem_page_size();
}

static uint64_t window_begin(const struct span *s)
{
    return size_down(s->offset, span_align(s));
}

static uint64_t window_bytes(const struct span *s)
{
    return size_up(s->offset + s->bytes, span_align(s)) - window_begin(s);
}

static void visit_span(struct visit *v, const struct span *s)
{
    v->bytes += s->bytes;
    v->window_bytes += window_bytes(s);
    if (v->list)
        v->list[v->n] = *s;
    v->n++;
}

static void visit_weight(struct visit *v, struct weight *w)
{
    const struct gguf_tensor *t = w->tensor;
    if (t)
        visit_span(v, &(struct span){.file = v->m->files ? v->m->files[t->shard] : NULL,
                                     .nth = t->shard,
                                     .offset = t->offset,
                                     .bytes = t->bytes,
                                     .data = &w->data});
}

static void visit_dense(struct visit *v)
{
    struct model *m = (struct model *)v->m; /* fields that are pointed at, not changed */
    if (!m->row_stream)
        visit_weight(v, &m->embd);
    if (m->head.tensor != m->embd.tensor)
        visit_weight(v, &m->head);
    for (int il = 0; il < m->cfg.n_layer; il++) {
        struct layer *l = &m->layers[il];
        struct weight *all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down, &l->router};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            visit_weight(v, all[i]);
    }
}

static void visit_experts(struct visit *v)
{
    for (int il = 0; il < v->m->cfg.n_layer; il++) {
        struct layer *l = &v->m->layers[il];
        if (l->packed) {
            visit_span(v, &(struct span){.file = l->packed,
                                         .nth = gguf_n_shards(v->m->gguf) + il,
                                         .bytes = io_file_size(l->packed),
                                         .data = &l->gate_exps.data});
            continue;
        }
        visit_weight(v, &l->gate_exps);
        visit_weight(v, &l->up_exps);
        visit_weight(v, &l->down_exps);
    }
}

uint64_t model_dense_bytes(const struct model *m)
{
    struct visit v = {.m = m};
    visit_dense(&v);
    return v.window_bytes + m->vector_floats * sizeof(float);
}

uint64_t model_expert_bytes(const struct model *m)
{
    struct visit v = {.m = m};
    visit_experts(&v);
    return v.bytes;
}

uint64_t model_expert_room(const struct model *m)
{
    struct visit v = {.m = m};
    visit_experts(&v);
    return v.window_bytes;
}

/* ---- Loading ---- */

/* How far the spans of a drive have been handed to the reader. */
struct feed {
    int next;      /* the span that is being cut, of any drive */
    uint64_t done; /* bytes of its window */
};

struct loader {
    const struct load_options *opt;
    struct span *span;
    int n_spans;
    struct io_drives drives;
    struct feed feed[IO_DRIVES_MAX];
    struct io_req *req; /* twice what may be under way, for each drive */
    int n_req;
    uint64_t done, total;
    struct sl_err *err;
};

static void loaded(struct loader *ld, uint64_t n)
{
    ld->done += n;
    if (ld->opt->on_load)
        ld->opt->on_load(ld->opt->user, ld->done, ld->total);
}

/* The drive's next piece; false when it has none. */
static bool cut_piece(struct loader *ld, int drive, struct io_req *r)
{
    struct feed *f = &ld->feed[drive];
    while (f->next < ld->n_spans &&
           (ld->span[f->next].drive != drive || f->done == window_bytes(&ld->span[f->next]))) {
        f->next++;
        f->done = 0;
    }
    if (f->next == ld->n_spans)
        return false;
    const struct span *s = &ld->span[f->next];
    uint64_t begin = window_begin(s), all = window_bytes(s), need = s->offset + s->bytes - begin;
    uint64_t left = all - f->done, take = left < READ_PIECE ? left : READ_PIECE;
    uint64_t end = f->done + take;
    memset(r, 0, sizeof *r);
    r->file = s->file;
    r->buf = s->window + f->done;
    r->offset = begin + f->done;
    r->len = (size_t)take;
    r->need = (size_t)((end < need ? end : need) - f->done);
    r->user = &ld->feed[drive];
    f->done = end;
    return true;
}

/* Every drive's first pieces; then a new one for each that ends. After a failure nothing is begun,
 * and what is under way is waited for: it is read into memory that will be given back. */
static int read_spans(struct loader *ld)
{
    struct io_reader *reader = ld->opt->reader;
    int rc = 0, open = 0, per_drive = ld->n_req / ld->drives.n;
    for (int i = 0; i < ld->n_req; i++)
        if (cut_piece(ld, i / per_drive, &ld->req[i])) {
            io_reader_submit(reader, &ld->req[i], 1);
            open++;
        }
    while (open > 0) {
        struct io_req *next, *r = io_reader_reap(reader, true);
        for (; r; r = next) {
            next = r->next;
            open--;
            if (r->err.code != 0 && rc == 0) {
                rc = r->err.code;
                if (ld->err)
                    *ld->err = r->err;
            }
            if (rc != 0)
                continue;
            loaded(ld, r->len);
            if (cut_piece(ld, (int)((struct feed *)r->user - ld->feed), r)) {
                io_reader_submit(reader, r, 1);
                open++;
            }
        }
    }
    return rc;
}

/* By file and place. */
static int compare_spans(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    if (x->nth != y->nth)
        return x->nth < y->nth ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int load_anon(struct loader *ld, struct model *m)
{
    m->anon_bytes = (size_t)ld->total;
    m->anon = mem_map(m->anon_bytes, MAP_FLAGS);
    for (int i = 0; i < ld->n_spans; i++)
        ld->span[i].drive = io_drives_find(&ld->drives, IO_DRIVES_MAX, ld->span[i].file);
    ld->n_req = 2 * ld->opt->in_flight * ld->drives.n;
    ld->req = mem_calloc((size_t)ld->n_req, sizeof *ld->req);
    if (!m->anon || !ld->req)
        return err_set(ld->err, SL_E_MEM, "model", "no memory for %llu MiB of weights",
                       (unsigned long long)(ld->total >> 20));
    uint8_t *at = m->anon;
    for (int i = 0; i < ld->n_spans; i++) {
        struct span *s = &ld->span[i];
        s->window = at;
        at += window_bytes(s);
    }
    struct touch touch;
    touch_begin(&touch, &(struct touch_piece){m->anon, m->anon_bytes}, 1, ld->opt->on_touched,
                ld->opt->touched_user);
    int rc = read_spans(ld);
    touch_end(&touch);
    for (int i = 0; rc == 0 && i < ld->n_spans; i++)
        *ld->span[i].data = ld->span[i].window + (ld->span[i].offset - window_begin(&ld->span[i]));
    return rc;
}

/* Read a byte of every page, so that the page cache holds it. */
static void warm(const uint8_t *p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i += mem_page_size())
        (void)*(const volatile uint8_t *)(p + i);
}

static int load_mapped(struct loader *ld)
{
    if (ld->opt->on_touched) /* there is nothing to touch */
        ld->opt->on_touched(ld->opt->touched_user);
    for (int i = 0; i < ld->n_spans; i++) {
        struct span *s = &ld->span[i];
        const uint8_t *base;
        int rc = io_file_map(s->file, &base, ld->err); /* once; later calls give the same */
        if (rc < 0)
            return rc;
        *s->data = base + s->offset;
        if (ld->opt->mode == SL_DENSE_WARM)
            warm(*s->data, s->bytes);
        loaded(ld, window_bytes(s));
    }
    return 0;
}

/* Pointers that follow from others. */
static void derive_pointers(struct model *m, bool experts)
{
    if (m->head.tensor == m->embd.tensor)
        m->head.data = m->embd.data;
    for (int il = 0; experts && il < m->cfg.n_layer; il++) {
        struct layer *l = &m->layers[il];
        if (!l->packed)
            continue;
        l->up_exps.data = l->gate_exps.data + l->gate_stride;
        l->down_exps.data = l->up_exps.data + l->up_stride;
    }
}

static int load_spans(struct loader *ld, struct model *m)
{
    struct visit v = {.m = m};
    visit_dense(&v);
    if (ld->opt->experts)
        visit_experts(&v);
    ld->total = v.window_bytes;
    ld->span = mem_calloc((size_t)v.n, sizeof *ld->span);
    if (!ld->span)
        return err_set(ld->err, SL_E_MEM, "model", "no memory to load");
    ld->n_spans = v.n;
    v = (struct visit){.m = m, .list = ld->span};
    visit_dense(&v);
    if (ld->opt->experts)
        visit_experts(&v);
    qsort(ld->span, (size_t)ld->n_spans, sizeof *ld->span, compare_spans);
    return ld->opt->mode == SL_DENSE_ANON ? load_anon(ld, m) : load_mapped(ld);
}

int model_load(struct model *m, const struct load_options *opt, struct sl_err *err)
{
    int rc = model_load_vectors(m, err);
    if (rc < 0)
        return rc;
    struct loader *ld = mem_calloc(1, sizeof *ld);
    if (!ld)
        return err_set(err, SL_E_MEM, "model", "no memory to load");
    ld->opt = opt;
    ld->err = err;
    rc = load_spans(ld, m);
    if (rc == 0)
        derive_pointers(m, opt->experts);
    m->experts_resident = rc == 0 && opt->experts;
    mem_free(ld->req);
    mem_free(ld->span);
    mem_free(ld);
    return rc;
}
