/* load.c: a model's weights into memory: read, or mapped. */
#include "base/mem.h"
#include "model/loading.h"

/* Read a byte of every page, so that the page cache holds it. */
static void warm(const uint8_t *p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i += mem_page_size())
        (void)*(const volatile uint8_t *)(p + i);
}

static int map_spans(const struct span_list *list, const struct load_options *opt,
                     struct sl_err *err)
{
    uint64_t done = 0;
    if (opt->on_touched) /* there is nothing to touch */
        opt->on_touched(opt->touched_user);
    for (int i = 0; i < list->n; i++) {
        const struct span *s = &list->span[i];
        const uint8_t *base;
        int rc = io_file_map(s->file, &base, err); /* once; later calls give the same */
        if (rc < 0)
            return rc;
        *s->data = base + s->offset;
        if (opt->mode == SL_DENSE_WARM)
            warm(*s->data, s->bytes);
        done += spans_window_bytes(s);
        if (opt->on_load)
            opt->on_load(opt->user, done, list->window_bytes);
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

/* list and, with behind, the reader are taken. */
static int read_spans(struct model *m, const struct load_options *opt, struct span_list *list,
                      struct sl_err *err)
{
    int rc = loading_begin(m, opt, list, &m->loading, err);
    if (rc == 0)
        rc = opt->behind ? loading_run_behind(m->loading, err) : loading_run(m->loading, err);
    if (rc < 0 || !opt->behind)
        loading_end(&m->loading);
    return rc;
}

static int load(struct model *m, const struct load_options *opt, struct span_list *list,
                struct sl_err *err)
{
    int rc = model_load_vectors(m, opt->reader, opt->in_flight, err);
    if (rc == 0)
        rc = spans_list(m, opt->experts, list, err);
    if (rc == 0 && opt->mode != SL_DENSE_ANON)
        rc = map_spans(list, opt, err);
    return rc;
}

int model_load(struct model *m, const struct load_options *opt, struct sl_err *err)
{
    struct span_list list = {0};
    struct io_reader *reader = opt->reader;
    int rc = load(m, opt, &list, err);
    if (rc == 0 && opt->mode == SL_DENSE_ANON)
        rc = read_spans(m, opt, &list, err);
    else if (opt->behind)
        io_reader_destroy(&reader);
    if (rc == 0)
        derive_pointers(m, opt->experts);
    m->experts_resident = rc == 0 && opt->experts;
    mem_free(list.span);
    return rc;
}

int model_wait_block(const struct model *m, int block, const _Atomic int *cancel,
                     struct sl_err *err)
{
    return m->loading ? loading_wait(m->loading, block, cancel, err) : 0;
}

bool model_has_block(const struct model *m, int block)
{
    return !m->loading || loading_has(m->loading, block);
}

void model_end_loading(struct model *m)
{
    loading_end(&m->loading);
}
