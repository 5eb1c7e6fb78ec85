/* cachebench_source.c: one layer's experts: in a packed tree, in a GGUF file, or in any file. */
#include "cli/cachebench.h"
#include "cli/env.h"
#include "cli/model_path.h"

#include "base/mem.h"
#include "quant/quant.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_EXPERTS 128

static enum sl_packed tree_of(const struct cachebench_args *a)
{
    return a->q3 ? SL_PACKED_Q3 : a->q2 ? SL_PACKED_2BIT : SL_PACKED_4BIT;
}

static int open_part(struct cachebench_source *s, const char *path, struct sl_err *err)
{
    int rc = io_file_open(path, false, &s->file[s->n_files], err);
    if (rc == 0)
        s->n_files++;
    return rc;
}

/* How many of the experts that are there will be read. */
static int choose_experts(const struct cachebench_args *a, struct cachebench_source *s,
                          uint64_t there, struct sl_err *err)
{
    s->experts = a->experts ? a->experts : DEFAULT_EXPERTS;
    if ((uint64_t)s->experts <= there)
        return 0;
    if (a->experts)
        return err_file(err, SL_E_ARG, s->path, 0,
                        "has %llu experts in a layer, fewer than the %lld of --experts",
                        (unsigned long long)there, (long long)a->experts);
    s->experts = (int64_t)there;
    return 0;
}

static int list_experts(struct cachebench_source *s, struct bench_bank *bank, struct sl_err *err)
{
    bank->n_experts = (int)s->experts;
    s->expert_bytes = 0;
    for (int j = 0; j < bank->n_parts; j++)
        s->expert_bytes += bank->part[j].bytes;
    return bench_list_experts(bank, 1, &s->places, err);
}

/* ---- A layer's file: experts side by side ---- */

struct layout {
    struct packed_layer
        layer; /* n_experts 0: the manifest does not know the file, or there is none */
    enum sl_packed kind;
};

/* tail: "/packed_experts/layer_00.bin". */
static void find_layout(const struct packed_manifest *m, const char *tail, struct layout *out)
{
    for (int t = 0; t < PACKED_FOLDERS; t++)
        for (int i = 0; m->tree[t] && i < m->tree[t]->n_layers; i++) {
            char path[128];
            const struct packed_layer *l = &m->tree[t]->layer[i];
            if (packed_layer_path("", m->tree[t]->kind, l->block, path, sizeof path) &&
                strcmp(path, tail) == 0)
                *out = (struct layout){*l, m->tree[t]->kind};
        }
}

/* The manifest of a layer's file stands beside the file's folder. */
static int read_layout(const char *path, struct layout *out, struct sl_err *err)
{
    char manifest[4096 + sizeof PACKED_MANIFEST], tail[160];
    const char *folder = strrchr(path, '/');
    *out = (struct layout){0};
    if (!folder)
        return 0;
    while (folder > path && folder[-1] != '/')
        folder--;
    if (strlen(folder) + 2 > sizeof tail)
        return 0;
    snprintf(tail, sizeof tail, "/%s", folder);
    snprintf(manifest, sizeof manifest, "%.*s" PACKED_MANIFEST, (int)(folder - path), path);
    if (access(manifest, F_OK) != 0)
        return 0;
    struct packed_manifest *m;
    int rc = packed_read(manifest, &m, err);
    if (rc == 0)
        find_layout(m, tail, out);
    packed_close(&m);
    return rc;
}

/* Of a file that no manifest knows: --stride, or as many equal parts as experts were asked for. */
static int guess_stride(const struct cachebench_args *a, const struct cachebench_source *s,
                        uint64_t *stride, struct sl_err *err)
{
    const uint64_t size = io_file_size(s->file[0]), page = mem_page_size();
    const uint64_t n = (uint64_t)(a->experts ? a->experts : DEFAULT_EXPERTS);
    *stride = a->stride ? (uint64_t)a->stride : size / n;
    if (*stride > 0 && (a->stride || (*stride * n == size && *stride % page == 0)))
        return 0;
    return err_file(err, SL_E_ARG, s->path, 0,
                    "%llu bytes are not %llu experts of whole pages, and no manifest says how long "
                    "one is: give --stride, the bytes from one expert to the next",
                    (unsigned long long)size, (unsigned long long)n);
}

static int open_layer(const struct cachebench_args *a, struct cachebench_source *s,
                      struct sl_err *err)
{
    struct layout lay;
    int rc = read_layout(s->path, &lay, err);
    if (rc == 0)
        rc = open_part(s, s->path, err);
    if (rc < 0)
        return rc;
    const struct packed_layer *l = &lay.layer;
    const uint64_t size = io_file_size(s->file[0]);
    uint64_t stride = l->stride, there = l->n_experts, bytes = 0;
    for (int j = 0; j < l->n_parts; j++)
        bytes += l->part[j].bytes;
    if (there == 0 || a->stride) {
        if ((rc = guess_stride(a, s, &stride, err)) < 0)
            return rc;
        there = size / stride;
        bytes = stride;
        snprintf(s->what, sizeof s->what, "no manifest");
    } else {
        if (stride == 0 || bytes == 0 || bytes > stride || there > size / stride)
            return err_file(err, SL_E_FORMAT, s->path, 0,
                            "%llu bytes, but the manifest has %llu experts in it, %llu apart: pack "
                            "again",
                            (unsigned long long)size, (unsigned long long)there,
                            (unsigned long long)stride);
        s->layer = l->block;
        snprintf(s->what, sizeof s->what, "layer %d, %s%s", l->block, packed_kind_name(lay.kind),
                 lay.kind == SL_PACKED_LOSSLESS ? "" : " (requantised)");
    }
    if (a->q4 && lay.kind != SL_PACKED_NONE && lay.kind != SL_PACKED_4BIT)
        return err_file(err, SL_E_ARG, s->path, 0, "holds %s experts, not 4-bit ones",
                        packed_kind_name(lay.kind));
    struct bench_bank bank = {.n_parts = 1, .part = {{s->file[0], 0, stride, bytes}}};
    rc = choose_experts(a, s, there, err);
    return rc < 0 ? rc : list_experts(s, &bank, err);
}

/* ---- A GGUF file: slices of up to three tensors ---- */

static const struct packed_layer *find_block(const struct packed_tree *t, int block)
{
    for (int i = 0; i < t->n_layers; i++)
        if (t->layer[i].block == block)
            return &t->layer[i];
    return NULL;
}

static int open_tensors(const struct cachebench_args *a, struct cachebench_source *s,
                        const struct gguf *g, const struct packed_tree *t, struct sl_err *err)
{
    const struct packed_layer *l = find_block(t, (int)a->layer);
    struct bench_bank bank = {0};
    size_t n = (size_t)snprintf(s->what, sizeof s->what, "layer %lld", (long long)a->layer);
    if (!l)
        return err_file(err, SL_E_ARG, s->path, 0,
                        "layer %lld has no experts; layers %d to %d may be named",
                        (long long)a->layer, t->layer[0].block, t->layer[t->n_layers - 1].block);
    int rc = choose_experts(a, s, l->n_experts, err);
    for (int j = 0; rc == 0 && j < l->n_parts; j++) {
        const struct packed_part *p = &l->part[j];
        if ((rc = open_part(s, gguf_shard_path(g, p->source->shard), err)) < 0)
            break;
        bank.part[bank.n_parts++] = (struct bench_part){s->file[j], p->source->offset, p->bytes,
                                                        p->bytes};
        if (n < sizeof s->what)
            n += (size_t)snprintf(s->what + n, sizeof s->what - n, ", %s",
                                  quant_type_info(p->type)->name);
    }
    s->layer = (int)a->layer;
    return rc < 0 ? rc : list_experts(s, &bank, err);
}

static int open_gguf(const struct cachebench_args *a, struct cachebench_source *s,
                     struct sl_err *err)
{
    struct gguf *g = NULL;
    struct packed_tree *t = NULL;
    int rc = gguf_open(s->path, &g, err);
    if (rc == 0) /* the lossless tree that could be made of it: which tensors belong together */
        rc = packed_plan(g, SL_PACKED_LOSSLESS, PACKED_PAGE, &t, err);
    if (rc == 0)
        rc = open_tensors(a, s, g, t, err);
    packed_free(&t);
    gguf_close(&g);
    return rc;
}

/* ---- What is meant ---- */

static int set_path(struct cachebench_source *s, const char *path, struct sl_err *err)
{
    const int n = snprintf(s->path, sizeof s->path, "%s", path);
    return n >= 0 && (size_t)n < sizeof s->path
               ? 0
               : err_set(err, SL_E_ARG, "cachebench", "the path is too long");
}

/* A directory's packed tree where one is named or there is one, else its model file. */
static int open_model(const struct cachebench_args *a, struct cachebench_source *s,
                      struct sl_err *err)
{
    const char *model = a->model ? a->model : env_model_dir();
    char dir[4096];
    const bool named = a->q4 || a->q3 || a->q2;
    if (!model_path_dir(model, dir, sizeof dir))
        return set_path(s, "", err);
    const bool tree = named || (model_path_is_dir(model) &&
                                packed_layer_path(dir, SL_PACKED_4BIT, (int)a->layer, s->path,
                                                  sizeof s->path) &&
                                access(s->path, F_OK) == 0);
    if (!tree) {
        int rc = model_path_find(model, s->path, sizeof s->path, err);
        return rc < 0 ? rc : open_gguf(a, s, err);
    }
    if (!packed_layer_path(dir, tree_of(a), (int)a->layer, s->path, sizeof s->path))
        return err_set(err, SL_E_ARG, "--model", "the path of the packed experts is too long");
    if (access(s->path, F_OK) != 0)
        return err_file(err, SL_E_IO, s->path, 0,
                        "is not there; sluice pack MODEL -o %s%s makes it", dir,
                        a->q3   ? " --q3"
                        : a->q2 ? " --2bit"
                                : " --4bit");
    return open_layer(a, s, err);
}

int cachebench_open(const struct cachebench_args *a, struct cachebench_source *s,
                    struct sl_err *err)
{
    *s = (struct cachebench_source){.layer = -1};
    if (!a->file)
        return open_model(a, s, err);
    int rc = set_path(s, a->file, err);
    return rc < 0 ? rc : open_layer(a, s, err);
}

void cachebench_close(struct cachebench_source *s)
{
    bench_free_places(&s->places);
    for (int i = 0; i < s->n_files; i++)
        io_file_close(&s->file[i]);
}
