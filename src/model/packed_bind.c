/* packed_bind.c: a model whose experts come from a packed tree. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/packed.h"
#include "model/weights.h"

static int find_tree(const struct packed_manifest *m, const char *path, enum sl_packed kind,
                     const struct packed_tree **out, struct sl_err *err)
{
    const struct packed_tree *t = m->tree[packed_folder_index(kind)];
    if (!t)
        return err_file(err, SL_E_IO, path, 0, "there is no %s tree; sluice pack makes it",
                        packed_folder(kind));
    if (t->kind != kind)
        return err_file(err, SL_E_FORMAT, path, 0,
                        "%s holds %s experts, not %s ones: say %s, or pack into another directory",
                        packed_folder(kind), packed_kind_name(t->kind), packed_kind_name(kind),
                        t->kind == SL_PACKED_LOSSLESS ? "--packed without a type"
                                                      : packed_run_flag(t->kind));
    *out = t;
    return 0;
}

/* Is the tree what packing this model would make? *want is that. */
static int check_tree(const struct model *m, const struct packed_manifest *man,
                      const struct packed_tree *have, const char *path, struct packed_tree **want,
                      struct sl_err *err)
{
    char hex[SHA256_HEX], text[256];
    int rc = packed_identify(m->gguf, m->files, hex, err);
    if (rc < 0)
        return rc;
    if (strcmp(hex, man->identity) != 0)
        return err_file(err, SL_E_FORMAT, path, 0,
                        "packed from another model (%.100s, %.12s...; this one is %.12s...): pack "
                        "this model, or name the other",
                        man->source, man->identity, hex);
    if ((rc = packed_plan(m->gguf, have->kind, have->page, want, err)) < 0)
        return rc;
    const char *bad = packed_compare(*want, have, text, sizeof text);
    if (bad)
        return err_file(err, SL_E_FORMAT, path, 0, "does not fit its model: %s", bad);
    for (int i = 0; i < have->n_layers; i++)
        if (!have->layer[i].done)
            return err_file(err, SL_E_FORMAT, path, 0, "layer %d is not packed: pack again",
                            have->layer[i].block);
    return 0;
}

static int bind_part(const struct model *m, struct weight *w, const struct packed_part *p,
                     size_t *bytes, struct sl_err *err)
{
    const struct mat_kernel *k = &m->kernels.mat[p->type];
    if (w->tensor != p->source || (uint64_t)w->n_in != p->row_values ||
        (uint64_t)w->n_out != p->rows || k->act == ACT_NONE)
        return err_set(err, SL_E_UNSUPPORTED, p->tensor, "packed %s does not fit this model",
                       p->tensor);
    w->kernel = k;
    w->row_bytes = (size_t)quant_row_bytes(p->type, p->row_values);
    *bytes = (size_t)p->bytes;
    return 0;
}

static int open_layer(struct model *m, const char *dir, enum sl_packed kind,
                      const struct packed_layer *pl, bool direct, struct layer *l,
                      struct sl_err *err)
{
    char path[4096];
    if (!packed_layer_path(dir, kind, pl->block, path, sizeof path))
        return err_set(err, SL_E_ARG, "--packed", "the path of the packed experts is too long");
    int rc = io_file_open(path, direct, &m->files[m->n_files], err);
    if (rc < 0)
        return rc;
    l->packed = m->files[m->n_files++];
    l->packed_stride = (size_t)pl->stride;
    if (io_file_size(l->packed) != packed_file_bytes(pl))
        return err_file(err, SL_E_FORMAT, path, 0, "%llu bytes, but %llu were packed: pack again",
                        (unsigned long long)io_file_size(l->packed),
                        (unsigned long long)packed_file_bytes(pl));
    return 0;
}

static int bind_layer(struct model *m, const char *dir, enum sl_packed kind,
                      const struct packed_layer *pl, bool direct, struct sl_err *err)
{
    struct layer *l = pl->block < m->cfg.n_layer ? &m->layers[pl->block] : NULL;
    if (!l || !l->router.tensor)
        return 0; /* of a block that this model does not run */
    struct weight *w[] = {&l->gate_exps, &l->up_exps, &l->down_exps};
    size_t *bytes[] = {&l->gate_stride, &l->up_stride, &l->down_stride};
    int rc = pl->n_parts == 3 && pl->n_experts == (uint64_t)m->cfg.n_expert
                 ? 0
                 : err_set(err, SL_E_UNSUPPORTED, "packed experts",
                           "the packed experts of layer %d do not fit this model", pl->block);
    for (int i = 0; rc == 0 && i < 3; i++)
        rc = bind_part(m, w[i], &pl->part[i], bytes[i], err);
    return rc < 0 ? rc : open_layer(m, dir, kind, pl, direct, l, err);
}

static int bind_tree(struct model *m, const char *dir, const struct packed_tree *t, bool direct,
                     struct sl_err *err)
{
    size_t room = (size_t)m->n_files + (size_t)t->n_layers;
    void *files = mem_realloc(m->files, room * sizeof *m->files);
    if (!files)
        return err_set(err, SL_E_MEM, "packed experts", "no memory for %d files", t->n_layers);
    m->files = files;
    int rc = 0;
    for (int i = 0; rc == 0 && i < t->n_layers; i++)
        rc = bind_layer(m, dir, t->kind, &t->layer[i], direct, err);
    for (int il = 0; rc == 0 && il < m->cfg.n_layer; il++)
        if (m->layers[il].router.tensor && !m->layers[il].packed)
            rc = err_set(err, SL_E_FORMAT, "packed experts", "layer %d is not in the packed tree",
                         il);
    return rc;
}

int model_use_packed(struct model *m, const char *dir, enum sl_packed kind, bool direct,
                     struct sl_err *err)
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/%s", dir, PACKED_MANIFEST);
    if (n < 0 || (size_t)n >= sizeof path)
        return err_set(err, SL_E_ARG, "--packed", "the path of the packed experts is too long");
    struct packed_manifest *man;
    struct packed_tree *want = NULL;
    const struct packed_tree *have = NULL;
    int rc = packed_read(path, &man, err);
    if (rc < 0)
        return rc;
    if ((rc = find_tree(man, path, kind, &have, err)) == 0 &&
        (rc = check_tree(m, man, have, path, &want, err)) == 0)
        rc = bind_tree(m, dir, want, direct, err);
    packed_free(&want);
    packed_close(&man);
    return rc;
}
