/* split.c: opening files and split sets.
 *
 * A set is NAME-00001-of-0000N.gguf and so on. Each shard is a GGUF file with the keys split.no
 * (from 0, while file names count from 1), split.count and split.tensors.count (of the whole set);
 * the model's metadata is in the first, which may hold nothing else. What makes a file a shard are
 * these keys: a name alone does not. */
#include "base/mem.h"
#include "gguf/internal.h"

#include <stdio.h>
#include <string.h>

#define SUFFIX_LEN (sizeof "-00001-of-00001.gguf" - 1)

/* ---- File names ---- */

static bool five_digits(const char *p, int *out)
{
    *out = 0;
    for (int i = 0; i < 5; i++) {
        if (p[i] < '0' || p[i] > '9')
            return false;
        *out = *out * 10 + (p[i] - '0');
    }
    return true;
}

/* Does path end as a shard's name does? *no counts from 1. */
static bool parse_name(const char *path, size_t *stem, int *no, int *count)
{
    size_t n = strlen(path);
    if (n < SUFFIX_LEN)
        return false;
    const char *p = path + n - SUFFIX_LEN;
    *stem = n - SUFFIX_LEN;
    return p[0] == '-' && five_digits(p + 1, no) && memcmp(p + 6, "-of-", 4) == 0 &&
           five_digits(p + 10, count) && strcmp(p + 15, ".gguf") == 0;
}

/* Allocated; no counts from 1. */
static char *make_name(const char *path, size_t stem, int no, int count)
{
    char *s = mem_alloc(stem + SUFFIX_LEN + 16);
    if (s) {
        memcpy(s, path, stem);
        snprintf(s + stem, SUFFIX_LEN + 16, "-%05d-of-%05d.gguf", no, count);
    }
    return s;
}

/* ---- One file ---- */

static int open_file(const char *path, struct gguf **out, struct sl_err *err)
{
    *out = NULL;
    struct io_file *file = NULL;
    int rc = io_file_open(path, false, &file, err);
    if (rc < 0)
        return rc;
    struct cursor c;
    cursor_over_file(&c, file);
    rc = gguf_read_file(&c, path, out, err);
    cursor_free(&c);
    io_file_close(&file);
    return rc;
}

struct split {
    uint64_t no, count; /* no from 0; count 0 or 1: a single file */
    uint64_t n_tensors; /* of the set; UINT64_MAX: not said */
};

static int read_split(const struct gguf *g, struct split *s, struct sl_err *err)
{
    *s = (struct split){.n_tensors = UINT64_MAX};
    int rc = gguf_get_u64(g, "split.count", &s->count, err);
    if (rc < 0 || s->count <= 1)
        return rc < 0 ? rc : 0;
    const char *path = g->shard[0].path;
    if (s->count > GGUF_MAX_SHARDS)
        return gguf_fail(err, SL_E_UNSUPPORTED, path,
                         "split.count is %llu; sets of at most %d shards are read",
                         (unsigned long long)s->count, GGUF_MAX_SHARDS);
    rc = gguf_get_u64(g, "split.no", &s->no, err);
    if (rc == 0)
        return gguf_fail(err, SL_E_FORMAT, path, "split.count is %llu but split.no is missing",
                         (unsigned long long)s->count);
    if (rc > 0 && s->no >= s->count)
        return gguf_fail(err, SL_E_FORMAT, path, "split.no is %llu but split.count is %llu",
                         (unsigned long long)s->no, (unsigned long long)s->count);
    if (rc > 0)
        rc = gguf_get_u64(g, "split.tensors.count", &s->n_tensors, err);
    return rc < 0 ? rc : 0;
}

/* ---- Sets ---- */

static int later_shard(const char *path, const struct split *s, struct sl_err *err)
{
    size_t stem;
    int no, count;
    char *first = NULL;
    if (parse_name(path, &stem, &no, &count))
        first = make_name(path, stem, 1, (int)s->count);
    int rc = first ? gguf_fail(err, SL_E_ARG, path,
                               "this is shard %llu of %llu; open the first one instead: %.250s",
                               (unsigned long long)s->no + 1, (unsigned long long)s->count, first)
                   : gguf_fail(err, SL_E_ARG, path,
                               "this is shard %llu of %llu; open the first one instead, whose name "
                               "ends in -00001-of-%05llu.gguf",
                               (unsigned long long)s->no + 1, (unsigned long long)s->count,
                               (unsigned long long)s->count);
    mem_free(first);
    return rc;
}

/* The first shard's name must say what its metadata says, or the others can't be found. */
static int check_first_name(const char *path, const struct split *s, size_t *stem,
                            struct sl_err *err)
{
    int no, count;
    if (!parse_name(path, stem, &no, &count))
        return gguf_fail(err, SL_E_FORMAT, path,
                         "this is shard 1 of %llu, but its name does not end in "
                         "-00001-of-%05llu.gguf, so that the others cannot be found: rename it",
                         (unsigned long long)s->count, (unsigned long long)s->count);
    if (no != 1 || (uint64_t)count != s->count)
        return gguf_fail(
            err, SL_E_FORMAT, path,
            "the name says shard %d of %d, the metadata (split.no, split.count) says 1 "
            "of %llu",
            no, count, (unsigned long long)s->count);
    return 0;
}

static int check_shard(const struct gguf *part, const struct split *first, uint64_t no,
                       struct sl_err *err)
{
    struct split s;
    int rc = read_split(part, &s, err);
    if (rc < 0)
        return rc;
    const char *path = part->shard[0].path;
    if (s.count != first->count || s.no != no)
        return gguf_fail(
            err, SL_E_FORMAT, path,
            "expected shard %llu of %llu, but its metadata (split.no, split.count) says "
            "%llu of %llu: the files are not one set",
            (unsigned long long)no + 1, (unsigned long long)first->count,
            (unsigned long long)s.no + 1, (unsigned long long)s.count);
    if (s.n_tensors != UINT64_MAX && first->n_tensors != UINT64_MAX &&
        s.n_tensors != first->n_tensors)
        return gguf_fail(
            err, SL_E_FORMAT, path,
            "split.tensors.count differs from the first shard's: the files are not one "
            "set");
    return 0;
}

/* Move part's tensors, names and shard to the end of g's. */
static int merge(struct gguf *g, struct gguf *part, struct sl_err *err)
{
    if (g->n_tensors + part->n_tensors > GGUF_MAX_TENSORS)
        return gguf_fail(err, SL_E_UNSUPPORTED, part->shard[0].path,
                         "the shards together hold more than %d tensors", GGUF_MAX_TENSORS);
    for (size_t i = 0; i < part->n_tensors; i++) {
        void *array = g->tensor;
        if (!gguf_grow(&array, &g->cap_tensors, g->n_tensors, sizeof *g->tensor))
            return gguf_fail(err, SL_E_MEM, part->shard[0].path,
                             "no memory for the tensor directory");
        g->tensor = array;
        g->tensor[g->n_tensors] = part->tensor[i];
        g->tensor[g->n_tensors++].shard = g->n_shards;
    }
    struct gguf_arena **tail = &g->arena;
    while (*tail)
        tail = &(*tail)->next;
    *tail = part->arena;
    part->arena = NULL;
    g->shard[g->n_shards++] = part->shard[0];
    part->n_shards = 0; /* its path now belongs to g */
    return 0;
}

static int add_shard(struct gguf *g, const struct split *first, size_t stem, int no,
                     struct sl_err *err)
{
    const char *first_path = g->shard[0].path;
    char *path = make_name(first_path, stem, no + 1, (int)first->count);
    if (!path)
        return gguf_fail(err, SL_E_MEM, first_path, "no memory for a file name");
    struct gguf *part = NULL;
    struct sl_err inner = {0};
    int rc = open_file(path, &part, &inner);
    if (rc == SL_E_IO)
        rc = gguf_fail(err, rc, path, "shard %d of %d is missing or unreadable: %.250s", no + 1,
                       (int)first->count, inner.msg);
    else if (rc < 0 && err)
        *err = inner;
    if (rc == 0)
        rc = check_shard(part, first, (uint64_t)no, err);
    if (rc == 0)
        rc = merge(g, part, err);
    gguf_close(&part);
    mem_free(path);
    return rc;
}

static int open_set(struct gguf *g, const struct split *first, struct sl_err *err)
{
    size_t stem = 0;
    int rc = check_first_name(g->shard[0].path, first, &stem, err);
    if (rc < 0)
        return rc;
    void *shards = mem_realloc(g->shard, (size_t)first->count * sizeof *g->shard);
    if (!shards)
        return gguf_fail(err, SL_E_MEM, g->shard[0].path, "no memory for the shards");
    g->shard = shards;
    for (int no = 1; (uint64_t)no < first->count && rc == 0; no++)
        rc = add_shard(g, first, stem, no, err);
    if (rc == 0 && first->n_tensors != UINT64_MAX && first->n_tensors != g->n_tensors)
        rc = gguf_fail(err, SL_E_FORMAT, g->shard[0].path,
                       "split.tensors.count is %llu, but the shards hold %zu tensors",
                       (unsigned long long)first->n_tensors, g->n_tensors);
    return rc < 0 ? rc : gguf_index_tensors(g, err);
}

int gguf_open(const char *path, struct gguf **out, struct sl_err *err)
{
    struct gguf *g;
    struct split s;
    *out = NULL;
    int rc = open_file(path, &g, err);
    if (rc == 0)
        rc = read_split(g, &s, err);
    if (rc == 0 && s.count > 1)
        rc = s.no != 0 ? later_shard(path, &s, err) : open_set(g, &s, err);
    if (rc < 0) {
        gguf_close(&g);
        return rc;
    }
    *out = g;
    return 0;
}
