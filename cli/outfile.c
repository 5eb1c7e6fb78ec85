#include "cli/outfile.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_OPEN = 16, BUFFER = 1 << 16, MAX_NAMES = 1000 };

struct outfile {
    int fd, slot; /* slot: of temp_names, -1 when written directly */
    char path[PATH_MAX];
    size_t n; /* bytes waiting in buf */
    char buf[BUFFER];
};

/* Names of temporary files, "" where free. Fixed storage, because a signal handler reads it. */
static char temp_names[MAX_OPEN][PATH_MAX];

void outfile_remove_all(void)
{
    for (int i = 0; i < MAX_OPEN; i++) {
        if (temp_names[i][0] != '\0')
            unlink(temp_names[i]);
    }
}

/* A link is followed, so that renaming replaces the file and not the link. */
static int resolve(const char *path, char *out, bool *direct, const char *option,
                   struct sl_err *err)
{
    struct stat st;
    *direct = false;
    if (path[0] == '\0')
        return err_set(err, SL_E_ARG, option, "%s: the name of the file is empty", option);
    if (stat(path, &st) == 0) {
        if (S_ISDIR(st.st_mode))
            return err_set(err, SL_E_IO, path, "%s: %s is a directory", option, path);
        if (!S_ISREG(st.st_mode))
            *direct = true;
        if (realpath(path, out) == NULL)
            return err_sys(err, SL_E_IO, path, errno, "%s: cannot write %s", option, path);
        return SL_OK;
    }
    size_t n = strlen(path);
    if (n >= PATH_MAX)
        return err_set(err, SL_E_IO, option, "%s: the path is too long", option);
    memcpy(out, path, n + 1);
    return SL_OK;
}

/* A file that a killed process left behind may have the name that ours would get: in a container
 * every run has the same process id. Then the next name is taken. */
static int create_temp(struct outfile *f, char *name, const char *option, struct sl_err *err)
{
    for (int i = 0; i < MAX_NAMES; i++) {
        int len = snprintf(name, PATH_MAX, i == 0 ? "%s.tmp.%ld" : "%s.tmp.%ld-%d", f->path,
                           (long)getpid(), i);
        if (len < 0 || len >= PATH_MAX)
            return err_set(err, SL_E_IO, option, "%s: the path is too long", option);
        f->fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (f->fd >= 0)
            return SL_OK;
        if (errno != EEXIST)
            break;
    }
    return err_sys(err, SL_E_IO, f->path, errno, "%s: cannot write %s", option, f->path);
}

/* Signals wait from the file's making until its name is where their handler looks: between the two
 * it would leave the file behind. */
static int open_temp(struct outfile *f, const char *option, struct sl_err *err)
{
    char name[PATH_MAX];
    int slot = 0;
    sigset_t all, before;
    while (slot < MAX_OPEN && temp_names[slot][0] != '\0')
        slot++;
    if (slot == MAX_OPEN)
        return err_set(err, SL_E_INTERNAL, f->path, "too many output files");
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int rc = create_temp(f, name, option, err);
    if (rc == SL_OK) {
        f->slot = slot;
        memcpy(temp_names[slot], name, strlen(name) + 1);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static int open_any(const char *path, const char *option, bool regular, struct outfile **out,
                    struct sl_err *err)
{
    bool direct;
    *out = NULL;
    struct outfile *f = mem_alloc(sizeof *f);
    if (f == NULL)
        return err_set(err, SL_E_MEM, NULL, "no memory for an output file");
    f->n = 0;
    f->slot = -1;
    int rc = resolve(path, f->path, &direct, option, err);
    if (rc == SL_OK && direct && regular) {
        rc = err_set(err, SL_E_IO, path, "%s: %s is not a regular file", option, path);
    } else if (rc == SL_OK && direct) {
        f->fd = open(f->path, O_WRONLY | O_CLOEXEC);
        if (f->fd < 0)
            rc = err_sys(err, SL_E_IO, path, errno, "%s: cannot write %s", option, path);
    } else if (rc == SL_OK) {
        rc = open_temp(f, option, err);
    }
    if (rc < 0) {
        mem_free(f);
        return rc;
    }
    *out = f;
    return SL_OK;
}

int outfile_open(const char *path, const char *option, struct outfile **out, struct sl_err *err)
{
    return open_any(path, option, false, out, err);
}

int outfile_open_regular(const char *path, const char *option, struct outfile **out,
                         struct sl_err *err)
{
    return open_any(path, option, true, out, err);
}

static int write_all(struct outfile *f, const char *p, size_t n, struct sl_err *err)
{
    while (n > 0) {
        ssize_t w = write(f->fd, p, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return err_sys(err, SL_E_IO, f->path, w < 0 ? errno : EIO, "cannot write %s", f->path);
        p += w;
        n -= (size_t)w;
    }
    return SL_OK;
}

static int flush(struct outfile *f, struct sl_err *err)
{
    size_t n = f->n;
    f->n = 0;
    return write_all(f, f->buf, n, err);
}

int outfile_write(struct outfile *f, const void *data, size_t n, struct sl_err *err)
{
    if (n > BUFFER - f->n) {
        int rc = flush(f, err);
        if (rc < 0)
            return rc;
    }
    if (n > BUFFER)
        return write_all(f, data, n, err);
    memcpy(f->buf + f->n, data, n);
    f->n += n;
    return SL_OK;
}

int outfile_sync(struct outfile *f, struct sl_err *err)
{
    int rc = flush(f, err);
    if (rc < 0 || f->slot < 0)
        return rc;
    if (fsync(f->fd) != 0)
        return err_sys(err, SL_E_IO, f->path, errno, "cannot write %s", f->path);
    posix_fadvise(f->fd, 0, 0, POSIX_FADV_DONTNEED);
    return SL_OK;
}

void outfile_discard(struct outfile **fp)
{
    struct outfile *f = *fp;
    *fp = NULL;
    if (f == NULL)
        return;
    close(f->fd);
    if (f->slot >= 0) {
        unlink(temp_names[f->slot]);
        temp_names[f->slot][0] = '\0';
    }
    mem_free(f);
}

int outfile_commit(struct outfile **fp, struct sl_err *err)
{
    struct outfile *f = *fp;
    int rc = flush(f, err);
    if (rc == SL_OK && f->slot >= 0) {
        if (rename(temp_names[f->slot], f->path) != 0)
            rc = err_sys(err, SL_E_IO, f->path, errno, "cannot write %s", f->path);
        else
            temp_names[f->slot][0] = '\0';
    }
    if (rc < 0) {
        outfile_discard(fp);
        return rc;
    }
    /* Network file systems report a full disk only here. */
    if (close(f->fd) != 0)
        rc = err_sys(err, SL_E_IO, f->path, errno, "cannot write %s", f->path);
    mem_free(f);
    *fp = NULL;
    return rc;
}
