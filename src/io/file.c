#include "io/file.h"

#include "base/mem.h"
#include "base/size.h"
#include "io/file_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* A model of many shards wants two descriptors for each; the usual soft limit is 1024. */
static void raise_descriptor_limit(void)
{
    struct rlimit lim;
    if (getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur < lim.rlim_max) {
        lim.rlim_cur = lim.rlim_max;
        setrlimit(RLIMIT_NOFILE, &lim); /* refused: opening says so when it comes to that */
    }
}

static int open_retry(const struct io_syscalls *sys, const char *path, int flags)
{
    int fd;
    do
        fd = sys->open(path, flags | O_RDONLY | O_CLOEXEC | O_NOCTTY);
    while (fd < 0 && errno == EINTR);
    return fd;
}

/* Opens f->path and fills size and identity. O_NONBLOCK: opening a FIFO must not wait for a writer
 * before we can refuse it. */
static int open_regular(struct io_file *f, struct sl_err *err)
{
    int fd = open_retry(f->sys, f->path, O_NONBLOCK);
    if (fd < 0)
        return err_file(err, SL_E_IO, f->path, errno, "cannot open");
    atomic_store(&f->buffered_fd, fd);
    struct stat st;
    if (f->sys->fstat(fd, &st) != 0)
        return err_file(err, SL_E_IO, f->path, errno, "cannot stat");
    if (S_ISDIR(st.st_mode))
        return err_file(err, SL_E_IO, f->path, 0, "is a directory, not a file");
    if (!S_ISREG(st.st_mode))
        return err_file(err, SL_E_IO, f->path, 0, "is not a regular file");
    fcntl(fd, F_SETFL, 0); /* O_NONBLOCK has done its work */
    f->size = (uint64_t)st.st_size;
    f->dev = st.st_dev;
    f->ino = st.st_ino;
    uid_t me = geteuid();
    f->owned = me == 0 || me == st.st_uid;
    return 0;
}

int io_file_open(const char *path, bool want_direct, struct io_file **out, struct sl_err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static _Atomic uint64_t serials;
    pthread_once(&once, raise_descriptor_limit);
    *out = NULL;
    struct io_file *f = mem_calloc(1, sizeof *f);
    if (!f)
        return err_file(err, SL_E_MEM, path, 0, "no memory to open the file");
    pthread_mutex_init(&f->lock, NULL);
    f->sys = io_syscalls_get();
    f->serial = atomic_fetch_add(&serials, 1) + 1;
    f->direct_fd = -1;
    atomic_store(&f->buffered_fd, -1);
    atomic_store(&f->note_now, "");
    f->align = mem_page_size();
    f->path = mem_strdup(path);
    int rc = f->path ? open_regular(f, err)
                     : err_file(err, SL_E_MEM, path, 0, "no memory to open the file");
    if (rc != 0) {
        io_file_close(&f);
        return rc;
    }
    if (want_direct && io_file_probe(f)) {
        atomic_store(&f->direct, true);
        f->sys->close(atomic_exchange(&f->buffered_fd, -1)); /* opened again if ever needed */
    } else if (want_direct) {
        atomic_store(&f->note_now, f->note);
    }
    *out = f;
    return 0;
}

void io_file_close(struct io_file **fp)
{
    if (!fp || !*fp)
        return;
    struct io_file *f = *fp;
    *fp = NULL;
    if (f->map)
        munmap((void *)(uintptr_t)f->map, f->map_len);
    int fd = atomic_load(&f->buffered_fd);
    if (fd >= 0)
        f->sys->close(fd);
    if (f->direct_fd >= 0)
        f->sys->close(f->direct_fd);
    pthread_mutex_destroy(&f->lock);
    mem_free(f->path);
    mem_free(f);
}

/* By the descriptor that we hold, so that a file renamed or replaced meanwhile is still the one
 * that was opened; by its path where /proc is not mounted. */
static int reopen_buffered(struct io_file *f, struct sl_err *err)
{
    char self[64];
    snprintf(self, sizeof self, "/proc/self/fd/%d", f->direct_fd);
    int fd = open_retry(f->sys, self, 0);
    if (fd < 0)
        fd = open_retry(f->sys, f->path, O_NONBLOCK);
    if (fd < 0) {
        err_file(err, SL_E_IO, f->path, errno, "cannot open again for buffered reads");
        return -1;
    }
    struct stat st;
    if (f->sys->fstat(fd, &st) != 0 || st.st_dev != f->dev || st.st_ino != f->ino) {
        f->sys->close(fd);
        err_file(err, SL_E_IO, f->path, 0, "the file was replaced while it was in use");
        return -1;
    }
    return fd;
}

int io_file_buffered_fd(struct io_file *f, struct sl_err *err)
{
    int fd = atomic_load(&f->buffered_fd);
    if (fd >= 0)
        return fd;
    pthread_mutex_lock(&f->lock);
    fd = atomic_load(&f->buffered_fd);
    if (fd < 0) {
        fd = reopen_buffered(f, err);
        if (fd >= 0) {
            if (atomic_load(&f->drop))
                f->sys->fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
            atomic_store(&f->buffered_fd, fd);
        }
    }
    pthread_mutex_unlock(&f->lock);
    return fd;
}

void io_file_give_up_direct(struct io_file *f)
{
    pthread_mutex_lock(&f->lock);
    if (atomic_load(&f->direct)) {
        snprintf(f->note, sizeof f->note, "a direct read was refused (EINVAL) after the probe");
        atomic_store(&f->note_now, f->note);
        atomic_store(&f->direct, false);
    }
    pthread_mutex_unlock(&f->lock);
}

const char *io_file_path(const struct io_file *f)
{
    return f->path;
}

uint64_t io_file_size(const struct io_file *f)
{
    return f->size;
}

uint64_t io_file_drive(const struct io_file *f)
{
    return f->dev;
}

bool io_file_direct(const struct io_file *f)
{
    return atomic_load(&f->direct);
}

size_t io_file_align(const struct io_file *f)
{
    return f->align;
}

const char *io_file_note(const struct io_file *f)
{
    return atomic_load(&f->note_now);
}

double io_file_cached(const struct io_file *cf, uint64_t offset, uint64_t len, int n_probes)
{
    struct io_file *f = (struct io_file *)(uintptr_t)cf; /* for the lazily opened descriptor */
    if (offset >= f->size || len == 0 || n_probes <= 0)
        return 0;
    if (len > f->size - offset)
        len = f->size - offset;
    int fd = f->owned && f->direct_fd >= 0 ? f->direct_fd : io_file_buffered_fd(f, NULL);
    if (fd < 0)
        return 0;
    int known = 0, in = 0;
    for (int i = 0; i < n_probes; i++) {
        /* the middle of the i-th of n_probes equal parts */
        uint64_t at = offset + (uint64_t)(((double)i + 0.5) / n_probes * (double)len);
        int c = f->sys->cached(fd, at < f->size ? at : f->size - 1, f->owned);
        known += c >= 0;
        in += c > 0;
    }
    return known ? (double)in / known : 0;
}

void io_file_drop(struct io_file *f, uint64_t offset, uint64_t len)
{
    int fd = f->direct_fd >= 0 ? f->direct_fd : io_file_buffered_fd(f, NULL);
    uint64_t page = mem_page_size(), from = size_down(offset, page);
    if (fd >= 0 && len > 0 && offset < f->size)
        f->sys->fadvise(fd, (off_t)from, (off_t)(size_up(offset + len, page) - from),
                        POSIX_FADV_DONTNEED);
}

void io_file_drop_behind(struct io_file *f, bool on)
{
    atomic_store(&f->drop, on);
    int fd = atomic_load(&f->buffered_fd);
    if (fd >= 0) /* read-ahead would bring in pages that nobody drops */
        f->sys->fadvise(fd, 0, 0, on ? POSIX_FADV_RANDOM : POSIX_FADV_NORMAL);
}

int io_file_map(struct io_file *f, const uint8_t **base, struct sl_err *err)
{
    *base = NULL;
    if (f->size == 0)
        return err_file(err, SL_E_IO, f->path, 0, "cannot map an empty file");
    if (f->size > SIZE_MAX)
        return err_file(err, SL_E_IO, f->path, 0, "too large to map");
    int fd = io_file_buffered_fd(f, err); /* FUSE refuses to map what was opened direct */
    if (fd < 0)
        return SL_E_IO;
    int rc = 0;
    pthread_mutex_lock(&f->lock);
    if (!f->map) {
        void *p = mmap(NULL, (size_t)f->size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) {
            rc = err_file(err, SL_E_IO, f->path, errno, "cannot map");
        } else {
            f->map = p;
            f->map_len = (size_t)f->size;
        }
    }
    *base = f->map;
    pthread_mutex_unlock(&f->lock);
    return rc;
}
