/* file_probe.c: does O_DIRECT really work for this file? Asked of the system, then tried. */
#include "base/mem.h"
#include "base/size.h"
#include "io/file_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ZFS_MAGIC UINT64_C(0x2fc12fc1) /* not in linux/magic.h: the module lives outside */

/* Blocks that are read both ways; more than one so that a page which somebody else reads at this
 * moment is not taken for one that our direct read left in the page cache. */
#define N_BLOCKS 3

/* The page cache drops a large folio only as a whole; they are aligned to their size. */
#define FOLIO_MAX ((uint64_t)2 << 20)

static bool refuse(struct io_file *f, const char *why)
{
    snprintf(f->note, sizeof f->note, "%s", why);
    return false;
}

static bool refuse_errno(struct io_file *f, const char *what, int errnum)
{
    struct sl_err e;
    err_sys(&e, SL_E_IO, NULL, errnum, "%s", what);
    snprintf(f->note, sizeof f->note, "%.*s", FILE_NOTE_MAX - 1, e.msg);
    return false;
}

/* File systems that accept O_DIRECT and then go through memory of theirs. */
static const char *known_not_direct(const struct io_dio_info *info)
{
    switch (info->fs_magic) {
    case TMPFS_MAGIC:
        return "tmpfs holds files in memory";
    case RAMFS_MAGIC:
        return "ramfs holds files in memory";
    case HUGETLBFS_MAGIC:
        return "hugetlbfs holds files in memory";
    case BTRFS_SUPER_MAGIC:
        return info->compressed ? "btrfs reads compressed files through the page cache" : NULL;
    case ZFS_MAGIC: /* versions before 2.3 accept the flag and ignore it */
        return info->known ? NULL : "this ZFS reads through its own cache";
    default:
        return info->compressed ? "the file is stored compressed" : NULL;
    }
}

/* The system says that there are no direct reads of this file. Emulators that don't know these
 * fields say so too, so it can be proved wrong by a read that leaves the page cache alone. */
static bool denied(const struct io_dio_info *info)
{
    return info->known && (info->mem == 0 || info->offset == 0);
}

static bool set_align(struct io_file *f, const struct io_dio_info *info)
{
    if (!info->known || denied(info))
        return true; /* page size serves every device with logical blocks up to it */
    size_t align = info->mem > info->offset ? info->mem : info->offset;
    if ((info->mem & (info->mem - 1)) || (info->offset & (info->offset - 1)) ||
        align > FILE_ALIGN_MAX)
        return refuse(f, "the file system asks for an unusual direct-read alignment");
    if (align > f->align)
        f->align = align;
    return true;
}

/* Up to n bytes, EINTR and short reads seen to; -1 with errno. Direct reads go on only from aligned
 * positions, so they end at the first short one that is not. */
static ssize_t read_block(const struct io_file *f, int fd, uint8_t *buf, size_t n, uint64_t offset,
                          bool direct)
{
    size_t got = 0;
    while (got < n) {
        ssize_t k = f->sys->pread(fd, buf + got, n - got, (off_t)(offset + got));
        if (k < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (k < 0)
            return -1;
        got += (size_t)k;
        if (k == 0 || (direct && got % f->align != 0))
            break;
    }
    return (ssize_t)got;
}

/* What the page cache says about a direct read. */
enum trace {
    TRACE_UNKNOWN, /* the page was there before, or we can't tell */
    TRACE_NONE,    /* not there before, not after */
    TRACE_LEFT     /* not there before, there after: the read went through the cache */
};

/* Reads one block both ways. False: they differ or one failed, f->note says why. drop: take the
 * page out of the cache first, so that the trace is known. */
static bool compare_block(struct io_file *f, uint64_t offset, bool drop, uint8_t *a, uint8_t *b,
                          enum trace *trace)
{
    size_t n = f->align;
    uint64_t left = f->size - offset;
    size_t want = left < n ? (size_t)left : n;
    int plain = atomic_load(&f->buffered_fd);
    if (drop)
        f->sys->fadvise(plain, (off_t)size_down(offset, FOLIO_MAX), (off_t)(2 * FOLIO_MAX),
                        POSIX_FADV_DONTNEED);
    int before = f->owned ? f->sys->cached(plain, offset, true) : -1;
    memset(a, 0x5a, n);
    memset(b, 0xa5, n); /* bytes that neither read writes must differ */
    ssize_t got = read_block(f, f->direct_fd, a, n, offset, true);
    if (got < 0)
        return refuse_errno(f, "the probing direct read failed", errno);
    if (before == 0)
        *trace = f->sys->cached(plain, offset, true) == 0 ? TRACE_NONE : TRACE_LEFT;
    ssize_t ref = read_block(f, plain, b, want, offset, false);
    if (ref < 0)
        return refuse_errno(f, "the probing buffered read failed", errno);
    if (before == 0)
        f->sys->fadvise(plain, (off_t)offset, (off_t)n, POSIX_FADV_DONTNEED);
    /* The unaligned tail of a file may be missing from a direct read: file_read.c finishes it. */
    if ((size_t)ref < want || ((size_t)got < want && want == n))
        return refuse(f, "the probing read came back short");
    if (memcmp(a, b, (size_t)got < want ? (size_t)got : want) != 0)
        return refuse(f, "a direct read gave other bytes than a buffered one");
    return true;
}

static bool compare_blocks(struct io_file *f, bool need_proof)
{
    size_t align = f->align;
    uint8_t *raw = mem_alloc(3 * align);
    if (!raw)
        return refuse(f, "no memory to probe direct reads");
    uint8_t *a = raw + (size_up((uintptr_t)raw, align) - (uintptr_t)raw);
    bool ok = true;
    int tried = 0, left = 0, none = 0;
    uint64_t last = UINT64_MAX;
    for (int i = 0; ok && i < N_BLOCKS; i++) {
        uint64_t offset = size_down(f->size / N_BLOCKS * (uint64_t)i, align);
        if (offset == last)
            continue;
        last = offset;
        enum trace trace = TRACE_UNKNOWN;
        ok = compare_block(f, offset, need_proof, a, a + align, &trace);
        tried++;
        left += trace == TRACE_LEFT;
        none += trace == TRACE_NONE;
    }
    mem_free(raw);
    if (ok && left == tried)
        return refuse(f, "direct reads go through the page cache here");
    if (ok && need_proof && none == 0)
        return refuse(f, "the file system has no direct reads for this file");
    return ok;
}

bool io_file_probe(struct io_file *f)
{
    if (f->size == 0)
        return refuse(f, "the file is empty");
    struct io_dio_info info;
    f->sys->dio_info(atomic_load(&f->buffered_fd), &info);
    const char *why = known_not_direct(&info);
    if (why)
        return refuse(f, why);
    if (!set_align(f, &info))
        return false;
    int fd;
    do
        fd = f->sys->open(f->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_DIRECT);
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return refuse_errno(f, "opening for direct reads failed", errno);
    f->direct_fd = fd;
    struct stat st;
    bool same = f->sys->fstat(fd, &st) == 0 && st.st_dev == f->dev && st.st_ino == f->ino;
    if (same && compare_blocks(f, denied(&info)))
        return true;
    if (!same)
        refuse(f, "the file was replaced while it was being opened");
    f->sys->close(fd);
    f->direct_fd = -1;
    return false;
}
