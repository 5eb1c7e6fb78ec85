#include "cli/hot.h"

#include "cli/outfile.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>

#define MAX_BYTES ((size_t)32 << 20) /* two million rows: more experts than any model has */

struct hot_file {
    const char *path;
    struct outfile *out;
};

int hot_open(const char *path, struct hot_file **out, struct sl_err *err)
{
    *out = NULL;
    if (path == NULL)
        return SL_OK;
    struct hot_file *h = mem_calloc(1, sizeof *h);
    if (h == NULL)
        return err_set(err, SL_E_MEM, NULL, "no memory for --hot-experts");
    h->path = path;
    int rc = outfile_open_regular(path, "--hot-experts", &h->out, err);
    if (rc < 0)
        hot_close(&h);
    *out = h;
    return rc;
}

/* All of f, at most MAX_BYTES. */
static int read_all(FILE *f, const char *path, char **text, size_t *n, struct sl_err *err)
{
    size_t cap = (size_t)64 << 10, len = 0, got;
    char *buf = mem_alloc(cap);
    while (buf != NULL && (got = fread(buf + len, 1, cap - len, f)) > 0) {
        len += got;
        if (len < cap)
            continue;
        char *more = cap < MAX_BYTES ? mem_realloc(buf, 2 * cap) : NULL;
        if (more == NULL)
            mem_free(buf);
        buf = more;
        cap *= 2;
    }
    if (buf == NULL)
        return err_file(err, SL_E_FORMAT, path, 0, "larger than %zu MiB, no list of experts",
                        MAX_BYTES >> 20);
    if (ferror(f)) {
        mem_free(buf);
        return err_file(err, SL_E_IO, path, errno, "cannot read");
    }
    *text = buf;
    *n = len;
    return SL_OK;
}

int hot_load(const struct hot_file *h, struct sl_engine *e, struct sl_err *err)
{
    if (h == NULL)
        return SL_OK;
    FILE *f = fopen(h->path, "rb");
    if (f == NULL && errno == ENOENT)
        return SL_OK;
    if (f == NULL)
        return err_file(err, SL_E_IO, h->path, errno, "cannot open");
    char *text = NULL;
    size_t n = 0;
    int n_read = 0, rc = read_all(f, h->path, &text, &n, err);
    fclose(f);
    if (rc < 0)
        return rc;
    double t = clock_now();
    rc = sl_engine_set_hot_experts(e, text, n, h->path, &n_read, err);
    mem_free(text);
    if (n_read > 0)
        fprintf(stderr, "hot-experts: %d read in %.2f s\n", n_read, clock_now() - t);
    return rc;
}

int hot_save(struct hot_file **hp, const struct sl_engine *e, struct sl_err *err)
{
    struct hot_file *h = *hp;
    if (h == NULL)
        return SL_OK;
    char *text = NULL;
    size_t n = 0;
    int rc = sl_engine_get_hot_experts(e, &text, &n, err);
    if (rc == SL_OK && n > 0) { /* none: nothing was streamed, and an older list stays */
        rc = outfile_write(h->out, text, n, err);
        if (rc == SL_OK)
            rc = outfile_commit(&h->out, err);
    }
    sl_free(text);
    hot_close(hp);
    return rc;
}

void hot_close(struct hot_file **hp)
{
    struct hot_file *h = *hp;
    *hp = NULL;
    if (h == NULL)
        return;
    outfile_discard(&h->out);
    mem_free(h);
}
