#include "io/syscalls.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

static int real_open(const char *path, int flags)
{
    return open(path, flags);
}

static int real_fadvise(int fd, off_t offset, off_t len, int advice)
{
    return posix_fadvise(fd, offset, len, advice);
}

/* Looks at the first extents only: a file of 100 GB stored compressed has a million, all alike. */
static bool has_encoded_extents(int fd)
{
    enum { N_EXTENTS = 64 };
    union {
        struct fiemap map; /* ends in an array of extents without a length */
        char bytes[sizeof(struct fiemap) + N_EXTENTS * sizeof(struct fiemap_extent)];
    } q;
    memset(&q, 0, sizeof q);
    q.map.fm_length = FIEMAP_MAX_OFFSET;
    q.map.fm_extent_count = N_EXTENTS;
    if (ioctl(fd, FS_IOC_FIEMAP, &q.map) != 0)
        return false;
    for (uint32_t i = 0; i < q.map.fm_mapped_extents && i < N_EXTENTS; i++)
        if (q.map.fm_extents[i].fe_flags & FIEMAP_EXTENT_ENCODED)
            return true;
    return false;
}

static void real_dio_info(int fd, struct io_dio_info *out)
{
    memset(out, 0, sizeof *out);
    struct statfs fs;
    if (fstatfs(fd, &fs) == 0)
        out->fs_magic = (uint64_t)fs.f_type & 0xffffffff; /* f_type is signed on some systems */
#ifdef STATX_DIOALIGN
    struct statx st;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) == 0) {
        out->known = (st.stx_mask & STATX_DIOALIGN) != 0;
        out->mem = out->known ? st.stx_dio_mem_align : 0;
        out->offset = out->known ? st.stx_dio_offset_align : 0;
        out->compressed = (st.stx_attributes & STATX_ATTR_COMPRESSED) != 0;
    }
#endif
    /* A mount option compresses files whose attribute does not say so. */
    if (out->fs_magic == BTRFS_SUPER_MAGIC && !out->compressed)
        out->compressed = has_encoded_extents(fd);
}

static int real_cached(int fd, uint64_t offset, bool by_map)
{
    size_t page = mem_page_size();
    offset -= offset % page;
    if (by_map) {
        void *p = mmap(NULL, page, PROT_READ, MAP_SHARED, fd, (off_t)offset);
        if (p == MAP_FAILED)
            return -1;
        unsigned char in = 0;
        int rc = mincore(p, page, &in);
        munmap(p, page);
        return rc == 0 ? in & 1 : -1;
    }
#ifdef RWF_NOWAIT
    char byte;
    struct iovec v = {.iov_base = &byte, .iov_len = 1};
    ssize_t n = preadv2(fd, &v, 1, (off_t)offset, RWF_NOWAIT);
    if (n == 1)
        return 1;
    if (n < 0 && errno == EAGAIN)
        return 0;
#endif
    return -1;
}

const struct io_syscalls io_real_syscalls = {
    .open = real_open,
    .close = close,
    .fstat = fstat,
    .pread = pread,
    .fadvise = real_fadvise,
    .dio_info = real_dio_info,
    .cached = real_cached,
};

static const struct io_syscalls *in_use = &io_real_syscalls;

const struct io_syscalls *io_syscalls_get(void)
{
    return in_use;
}

void io_syscalls_replace(const struct io_syscalls *calls)
{
    in_use = calls ? calls : &io_real_syscalls;
}
