/* spans.c: which pieces of the files are weights, and what they take in memory. */
#include "model/spans.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/size.h"

/* Spans are counted first and listed then, by the same visits. */
struct visit {
    const struct model *m;
    size_t align;      /* of windows: what suits every file, since one lies behind the other */
    struct span *list; /* NULL: only count */
    int n;
    uint64_t bytes, window_bytes;
};

static struct visit begin(const struct model *m, struct span *list)
{
    struct visit v = {.m = m, .align = mem_page_size(), .list = list};
    for (int i = 0; i < m->n_files; i++)
        if (io_file_align(m->files[i]) > v.align)
            v.align = io_file_align(m->files[i]);
    return v;
}

uint64_t spans_window_begin(const struct span *s)
{
    return size_down(s->offset, s->align);
}

uint64_t spans_window_bytes(const struct span *s)
{
    return size_up(s->offset + s->bytes, s->align) - spans_window_begin(s);
}

static void visit_span(struct visit *v, struct span *s)
{
    s->align = v->align;
    v->bytes += s->bytes;
    v->window_bytes += spans_window_bytes(s);
    if (v->list)
        v->list[v->n] = *s;
    v->n++;
}

static void visit_weight(struct visit *v, int block, struct weight *w)
{
    const struct gguf_tensor *t = w->tensor;
    if (t)
        visit_span(v, &(struct span){.file = v->m->files ? v->m->files[t->shard] : NULL,
                                     .nth = t->shard,
                                     .block = block,
                                     .offset = t->offset,
                                     .bytes = t->bytes,
                                     .data = &w->data});
}

static void visit_dense(struct visit *v)
{
    struct model *m = (struct model *)v->m; /* fields that are pointed at, not changed */
    if (!m->row_stream)
        visit_weight(v, -1, &m->embd);
    if (m->head.tensor != m->embd.tensor)
        visit_weight(v, m->cfg.n_layer, &m->head);
    for (int il = 0; il < m->cfg.n_layer; il++) {
        struct layer *l = &m->layers[il];
        struct weight *all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down, &l->router};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            visit_weight(v, il, all[i]);
    }
}

static void visit_experts(struct visit *v)
{
    for (int il = 0; il < v->m->cfg.n_layer; il++) {
        struct layer *l = &v->m->layers[il];
        if (l->packed) {
            visit_span(v, &(struct span){.file = l->packed,
                                         .nth = gguf_n_shards(v->m->gguf) + il,
                                         .block = il,
                                         .bytes = io_file_size(l->packed),
                                         .data = &l->gate_exps.data});
            continue;
        }
        visit_weight(v, il, &l->gate_exps);
        visit_weight(v, il, &l->up_exps);
        visit_weight(v, il, &l->down_exps);
    }
}

uint64_t model_dense_bytes(const struct model *m)
{
    struct visit v = begin(m, NULL);
    visit_dense(&v);
    return v.window_bytes + m->vector_floats * sizeof(float);
}

uint64_t model_expert_bytes(const struct model *m)
{
    struct visit v = begin(m, NULL);
    visit_experts(&v);
    return v.bytes;
}

uint64_t model_expert_room(const struct model *m)
{
    struct visit v = begin(m, NULL);
    visit_experts(&v);
    return v.window_bytes;
}

static int compare_spans(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    if (x->block != y->block)
        return x->block < y->block ? -1 : 1;
    if (x->nth != y->nth)
        return x->nth < y->nth ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

int spans_list(const struct model *m, bool experts, struct span_list *out, struct sl_err *err)
{
    struct visit v = begin(m, NULL);
    visit_dense(&v);
    if (experts)
        visit_experts(&v);
    *out = (struct span_list){.n = v.n, .window_bytes = v.window_bytes};
    out->span = mem_calloc((size_t)v.n, sizeof *out->span);
    if (!out->span)
        return err_set(err, SL_E_MEM, "model", "no memory to load");
    v = begin(m, out->span);
    visit_dense(&v);
    if (experts)
        visit_experts(&v);
    qsort(out->span, (size_t)out->n, sizeof *out->span, compare_spans);
    return 0;
}
