/* What single blocks weigh, and how much of the model is in memory. */
#include <math.h>

#include "base/mem.h"
#include "model/weights.h"

enum { MATRICES = 8 };

static void list_matrices(const struct layer *l, const struct weight *list[MATRICES])
{
    const struct weight *all[MATRICES] = {&l->q,    &l->k,  &l->v,    &l->o,
                                          &l->gate, &l->up, &l->down, &l->router};
    for (int i = 0; i < MATRICES; i++)
        list[i] = all[i];
}

uint64_t model_block_bytes(const struct model *m, int block)
{
    if (block == m->cfg.n_layer)
        return m->head.tensor ? m->head.tensor->bytes : 0;
    const struct weight *list[MATRICES];
    uint64_t n = 0;
    list_matrices(&m->layers[block], list);
    for (int i = 0; i < MATRICES; i++)
        n += list[i]->tensor ? list[i]->tensor->bytes : 0;
    return n;
}

uint64_t model_block_expert_bytes(const struct model *m, int block)
{
    if (block == m->cfg.n_layer)
        return 0;
    const struct layer *l = &m->layers[block];
    return l->gate_stride + l->up_stride + l->down_stride;
}

int model_routed_layers(const struct model *m)
{
    int n = 0;
    for (int il = 0; il < m->cfg.n_layer; il++)
        n += m->layers[il].router.tensor != NULL;
    return n;
}

double model_find_resident(const struct model *m, int n_probes)
{
    const struct weight *list[MATRICES];
    int per = n_probes / (m->cfg.n_layer + 1) + 1, found = 0, asked = 0;
    for (int block = 0; block <= m->cfg.n_layer; block++) {
        /* one matrix of each block, in turn: pages leave memory in runs far larger than a matrix */
        const struct weight *w = &m->head;
        if (block < m->cfg.n_layer) {
            list_matrices(&m->layers[block], list);
            w = list[block % MATRICES];
            w = w->data ? w : list[0];
        }
        if (!w->data)
            continue;
        int n = mem_count_resident(w->data, w->tensor->bytes, per);
        if (n < 0)
            return (double)NAN;
        found += n;
        asked += per;
    }
    return asked ? (double)found / asked : (double)NAN;
}
