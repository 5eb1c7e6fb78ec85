#include "support/pack.h"

#include "cli/pack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"

static int write_piece(void *user, uint64_t offset, const uint8_t *data, size_t n,
                       struct sl_err *err)
{
    FILE *f = user;
    (void)offset;
    (void)err;
    return fwrite(data, 1, n, f) == n ? 0 : SL_E_IO;
}

static bool write_layer(const struct pack_source *src, const char *dir, enum sl_packed kind,
                        struct packed_layer *l, struct sl_err *err)
{
    char path[1024];
    if (!packed_layer_path(dir, kind, l->block, path, sizeof path))
        return false;
    FILE *f = fopen(path, "wb");
    int rc = f ? pack_make_layer(src, l, write_piece, f, l->sha256, err) : SL_E_IO;
    l->done = rc == 0;
    return f && fclose(f) == 0 && rc == 0;
}

static bool write_manifest(const struct packed_manifest *m, const char *dir, struct sl_err *err)
{
    char path[1024], *text;
    snprintf(path, sizeof path, "%s/%s", dir, PACKED_MANIFEST);
    FILE *f = fopen(path, "wb");
    if (!f || packed_format(m, &text, err) != 0)
        return false;
    size_t n = strlen(text);
    bool good = fwrite(text, 1, n, f) == n;
    mem_free(text);
    return fclose(f) == 0 && good;
}

bool pack_write(const char *path, const char *dir, enum sl_packed kind)
{
    struct pack_source src = {0};
    struct packed_manifest m = {.source = "model"};
    struct packed_tree *t = NULL;
    struct sl_err err = {0};
    char folder[1024];
    snprintf(folder, sizeof folder, "%s/%s", dir, packed_folder(kind));
    mkdir(dir, 0777);
    mkdir(folder, 0777);
    bool good = gguf_open(path, &src.gguf, &err) == 0 && pool_create(2, &src.pool, &err) == 0 &&
                packed_plan(src.gguf, kind, PACKED_PAGE, &t, &err) == 0;
    int n = good ? gguf_n_shards(src.gguf) : 0;
    src.files = calloc((size_t)n + 1, sizeof *src.files);
    for (int i = 0; good && i < n; i++)
        good = io_file_open(gguf_shard_path(src.gguf, i), true, &src.files[i], &err) == 0;
    good = good && packed_identify(src.gguf, src.files, m.identity, &err) == 0;
    for (int i = 0; good && i < t->n_layers; i++)
        good = write_layer(&src, dir, kind, &t->layer[i], &err);
    m.tree[packed_folder_index(kind)] = t;
    good = good && write_manifest(&m, dir, &err);
    if (!good)
        fprintf(stderr, "packing %s: %s\n", path, err.msg);
    packed_free(&t);
    for (int i = 0; i < n; i++)
        io_file_close(&src.files[i]);
    free(src.files);
    pool_destroy(&src.pool);
    gguf_close(&src.gguf);
    return good;
}
