/* pack_state.c: what a directory of packed trees holds.
 *
 * A layer's file gets its name when it is whole and on the drive; then DIR/FOLDER/unfinished.json
 * counts it among those that are done. Only when all are does DIR/manifest.json list the tree, and
 * only what that lists is ever run. */
#include "cli/outfile.h"
#include "cli/pack.h"

#include "base/mem.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define UNFINISHED "unfinished.json"
#define LINK       "model.gguf"

static int join(char *buf, size_t size, const char *a, const char *b, const char *c,
                struct sl_err *err)
{
    int n = snprintf(buf, size, "%s/%s%s%s", a, b, c ? "/" : "", c ? c : "");
    if (n > 0 && (size_t)n < size)
        return 0;
    return err_set(err, SL_E_ARG, "-o", "-o: the path is too long");
}

/* A tree of the same files; those that are there in full stay done. */
static void take_over(struct pack_state *s, const struct packed_tree *old)
{
    char text[256], path[PATH_MAX];
    if (!old || packed_compare(s->tree, old, text, sizeof text))
        return;
    for (int i = 0; i < old->n_layers; i++) {
        struct packed_layer *l = &s->tree->layer[i];
        struct stat st;
        if (!old->layer[i].done ||
            !packed_layer_path(s->dir, s->tree->kind, l->block, path, sizeof path) ||
            stat(path, &st) != 0 || !S_ISREG(st.st_mode) ||
            (uint64_t)st.st_size != packed_file_bytes(l))
            continue;
        l->done = true;
        memcpy(l->sha256, old->layer[i].sha256, sizeof l->sha256);
    }
}

static int check_manifest(const struct pack_state *s, const char *path, struct sl_err *err)
{
    const struct packed_tree *t = s->manifest->tree[packed_folder_index(s->tree->kind)];
    if (strcmp(s->manifest->identity, s->source.identity) != 0)
        return err_file(err, SL_E_ARG, path, 0,
                        "holds trees of another model (%.100s): choose another directory",
                        s->manifest->source);
    if (t && t->kind != s->tree->kind)
        return err_file(err, SL_E_ARG, path, 0,
                        "%s already holds %s experts: choose another directory, or remove it",
                        packed_folder(t->kind), packed_kind_name(t->kind));
    return 0;
}

/* Names of files may hold any byte, JSON only text. */
static void set_source(struct packed_manifest *m, const char *path, const struct gguf *g,
                       const char *identity)
{
    const char *slash = strrchr(path, '/');
    snprintf(m->source, sizeof m->source, "%s", slash ? slash + 1 : path);
    for (char *p = m->source; *p; p++)
        if ((unsigned char)*p < 0x20 || (unsigned char)*p > 0x7e)
            *p = '?';
    m->source_bytes = gguf_file_bytes(g);
    memcpy(m->identity, identity, SHA256_HEX);
}

/* Layers of an interrupted call. What does not fit is no error: they are packed anew. */
static int look_for_unfinished(struct pack_state *s, struct sl_err *err)
{
    char path[PATH_MAX];
    struct packed_manifest *old;
    int rc = join(path, sizeof path, s->dir, packed_folder(s->tree->kind), UNFINISHED, err);
    if (rc < 0 || access(path, F_OK) != 0 || packed_read(path, &old, NULL) < 0)
        return rc;
    if (strcmp(old->identity, s->source.identity) == 0)
        take_over(s, old->tree[packed_folder_index(s->tree->kind)]);
    packed_close(&old);
    return 0;
}

/* What the directory holds now. */
static int look(struct pack_state *s, struct sl_err *err)
{
    char name[PATH_MAX];
    int rc = join(name, sizeof name, s->dir, PACKED_MANIFEST, NULL, err);
    packed_close(&s->manifest);
    for (int i = 0; i < s->tree->n_layers; i++)
        s->tree->layer[i].done = false;
    if (rc == 0 && access(name, F_OK) == 0) {
        if ((rc = packed_read(name, &s->manifest, err)) < 0 ||
            (rc = check_manifest(s, name, err)) < 0)
            return rc;
    } else if (rc == 0) {
        s->manifest = mem_calloc(1, sizeof *s->manifest);
        if (!s->manifest)
            return err_set(err, SL_E_MEM, "pack", "no memory for a manifest");
    }
    if (rc < 0)
        return rc;
    memcpy(s->manifest->source, s->source.source, sizeof s->source.source);
    memcpy(s->manifest->identity, s->source.identity, sizeof s->source.identity);
    s->manifest->source_bytes = s->source.source_bytes;
    const struct packed_tree *t = s->manifest->tree[packed_folder_index(s->tree->kind)];
    s->listed = t != NULL;
    take_over(s, t);
    return s->listed ? 0 : look_for_unfinished(s, err);
}

int pack_state_open(const char *dir, const char *path, const struct gguf *g, const char *identity,
                    struct packed_tree **tree, struct pack_state *s, struct sl_err *err)
{
    *s = (struct pack_state){.dir = dir, .tree = *tree, .lock = -1};
    *tree = NULL;
    set_source(&s->source, path, g, identity);
    return look(s, err);
}

void pack_state_close(struct pack_state *s)
{
    pack_lock_release(&s->lock);
    packed_close(&s->manifest);
    packed_free(&s->tree);
}

uint64_t pack_state_left(const struct pack_state *s)
{
    uint64_t n = 0;
    for (int i = 0; i < s->tree->n_layers; i++)
        n += s->tree->layer[i].done ? 0 : packed_file_bytes(&s->tree->layer[i]);
    return n;
}

bool pack_state_room(const char *dir, uint64_t *bytes)
{
    char path[PATH_MAX];
    struct statvfs v;
    if (snprintf(path, sizeof path, "%s", dir) >= (int)sizeof path)
        return false;
    while (statvfs(path, &v) != 0) { /* of what is not there yet, the nearest that is */
        char *slash = strrchr(path, '/');
        if (errno != ENOENT || strcmp(path, ".") == 0 || strcmp(path, "/") == 0)
            return false;
        if (slash == NULL)
            snprintf(path, sizeof path, ".");
        else
            slash[slash == path] = '\0';
    }
    *bytes = (uint64_t)v.f_bavail * v.f_frsize;
    return true;
}

/* ---- Writing ---- */

static int write_manifest(const struct packed_manifest *m, const char *path, struct sl_err *err)
{
    struct outfile *f;
    char *text;
    int rc = packed_format(m, &text, err);
    if (rc < 0 || (rc = outfile_open_regular(path, "-o", &f, err)) < 0) {
        mem_free(text);
        return rc;
    }
    if ((rc = outfile_write(f, text, strlen(text), err)) < 0 || (rc = outfile_sync(f, err)) < 0)
        outfile_discard(&f);
    else
        rc = outfile_commit(&f, err);
    mem_free(text);
    return rc;
}

static int make_dir(const char *path, struct sl_err *err)
{
    if (mkdir(path, 0777) == 0 || errno == EEXIST)
        return 0;
    return err_file(err, SL_E_IO, path, errno, "cannot make the directory");
}

int pack_state_lock(struct pack_state *s, struct sl_err *err)
{
    char path[PATH_MAX];
    int rc = join(path, sizeof path, s->dir, packed_folder(s->tree->kind), NULL, err);
    if (rc < 0 || (rc = make_dir(s->dir, err)) < 0 || (rc = make_dir(path, err)) < 0 ||
        (rc = pack_lock_take(s->dir, path, &s->lock, err)) < 0)
        return rc;
    return look(s, err);
}

int pack_state_begin(struct pack_state *s, struct sl_err *err)
{
    char path[PATH_MAX];
    int rc = pack_state_save(s, err);
    if (rc < 0 || !s->listed)
        return rc;
    packed_free(&s->manifest->tree[packed_folder_index(s->tree->kind)]);
    s->listed = false;
    if ((rc = join(path, sizeof path, s->dir, PACKED_MANIFEST, NULL, err)) < 0)
        return rc;
    return write_manifest(s->manifest, path, err);
}

int pack_state_save(const struct pack_state *s, struct sl_err *err)
{
    char path[PATH_MAX];
    struct packed_manifest m = *s->manifest;
    memset(m.tree, 0, sizeof m.tree);
    m.tree[packed_folder_index(s->tree->kind)] = s->tree;
    int rc = join(path, sizeof path, s->dir, packed_folder(s->tree->kind), UNFINISHED, err);
    return rc < 0 ? rc : write_manifest(&m, path, err);
}

/* Is DIR/model.gguf this model itself, or a link, which may be replaced? 1: itself, 0: a link or
 * nothing. */
static int look_at_link(const char *link, const char *model, struct sl_err *err)
{
    struct stat own, there;
    if (lstat(link, &there) != 0)
        return 0;
    if (stat(model, &own) == 0 && stat(link, &there) == 0 && own.st_dev == there.st_dev &&
        own.st_ino == there.st_ino)
        return 1;
    if (lstat(link, &there) == 0 && S_ISLNK(there.st_mode))
        return 0;
    return err_file(err, SL_E_ARG, link, 0,
                    "is another file, but a link to the model is wanted there: choose another "
                    "directory, or rename it");
}

int pack_state_check_link(const char *dir, const char *model, struct sl_err *err)
{
    char link[PATH_MAX];
    int rc = join(link, sizeof link, dir, LINK, NULL, err);
    return rc < 0 ? rc : look_at_link(link, model, err);
}

static int link_model(const char *dir, const char *model, struct sl_err *err)
{
    char link[PATH_MAX], target[PATH_MAX];
    int rc = join(link, sizeof link, dir, LINK, NULL, err);
    if (rc < 0 || (rc = look_at_link(link, model, err)) != 0)
        return rc < 0 ? rc : 0;
    if (realpath(model, target) == NULL)
        return err_file(err, SL_E_IO, model, errno, "cannot find it any more");
    if (unlink(link) != 0 && errno != ENOENT)
        return err_file(err, SL_E_IO, link, errno, "cannot replace the link");
    if (symlink(target, link) != 0)
        return err_file(err, SL_E_IO, link, errno, "cannot make the link");
    return 0;
}

int pack_state_finish(struct pack_state *s, const char *model, struct sl_err *err)
{
    char path[PATH_MAX], unfinished[PATH_MAX];
    int at = packed_folder_index(s->tree->kind);
    int rc = join(path, sizeof path, s->dir, PACKED_MANIFEST, NULL, err);
    if (rc < 0 ||
        (rc = join(unfinished, sizeof unfinished, s->dir, packed_folder(s->tree->kind), UNFINISHED,
                   err)) < 0 ||
        (model && (rc = link_model(s->dir, model, err)) < 0))
        return rc;
    packed_free(&s->manifest->tree[at]);
    s->manifest->tree[at] = s->tree;
    rc = write_manifest(s->manifest, path, err);
    s->manifest->tree[at] = NULL; /* it stays s->tree */
    if (rc == 0 && unlink(unfinished) != 0 && errno != ENOENT)
        rc = err_file(err, SL_E_IO, unfinished, errno, "cannot remove it");
    return rc;
}
