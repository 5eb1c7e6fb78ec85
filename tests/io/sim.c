#include "io/sim.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define FD_BASE 100000 /* not descriptors of this process */
#define FD_MAX  64

struct sim sim;
static struct {
    bool open, direct, other;
} fds[FD_MAX];

void sim_reset(const uint8_t *data, uint64_t size)
{
    memset(&sim, 0, sizeof sim);
    memset(fds, 0, sizeof fds);
    sim.data = data;
    sim.size = size;
    sim.dio = (struct io_dio_info){.known = true, .mem = 512, .offset = 512, .fs_magic = 0xef53};
}

static int fail(int errnum)
{
    errno = errnum;
    return -1;
}

static int sim_open(const char *path, int flags)
{
    bool direct = (flags & O_DIRECT) != 0;
    if (strncmp(path, "/proc/", 6) == 0 && sim.no_proc)
        return fail(ENOENT);
    if (direct && sim.direct_open_errno)
        return fail(sim.direct_open_errno);
    for (int i = 0; i < FD_MAX; i++) {
        if (fds[i].open)
            continue;
        fds[i].open = true;
        fds[i].direct = direct;
        fds[i].other = sim.replaced && strncmp(path, "/proc/", 6) != 0;
        sim.opens++;
        sim.opens_direct += direct;
        sim.open_fds++;
        return FD_BASE + i;
    }
    return fail(EMFILE);
}

static int sim_close(int fd)
{
    if (fd < FD_BASE || fd >= FD_BASE + FD_MAX || !fds[fd - FD_BASE].open)
        return fail(EBADF);
    fds[fd - FD_BASE].open = false;
    sim.open_fds--;
    return 0;
}

static int sim_fstat(int fd, struct stat *st)
{
    memset(st, 0, sizeof *st);
    st->st_mode = S_IFREG | 0644;
    st->st_size = (off_t)sim.size;
    st->st_dev = 1;
    st->st_ino = fds[fd - FD_BASE].other ? 8 : 7;
    st->st_uid = geteuid();
    return 0;
}

static void touch_pages(uint64_t offset, size_t n)
{
    uint64_t page = mem_page_size();
    for (uint64_t p = offset / page; p * page < offset + n && p < sizeof sim.cached; p++)
        sim.cached[p] = 1;
}

/* Direct: EINVAL where a strict device gives it; shortens *n as told. */
static int direct_rules(const void *buf, size_t *n, uint64_t offset)
{
    uint64_t unit = sim.dio.known && sim.dio.mem ? sim.dio.mem : 512;
    uint64_t whole = sim.size - sim.size % unit;
    sim.reads_direct++;
    if (((uintptr_t)buf | offset | *n) % unit) {
        sim.misaligned++;
        return EINVAL;
    }
    if (sim.direct_read_errno)
        return sim.direct_read_errno;
    if (sim.direct_fail_after && sim.reads_direct >= sim.direct_fail_after)
        return EINVAL;
    if (sim.tail_refused && offset + *n > whole)
        return EINVAL;
    if (sim.tail_cut && offset + *n > whole)
        *n = offset < whole ? (size_t)(whole - offset) : 0;
    if (sim.direct_most && *n > sim.direct_most)
        *n = sim.direct_most;
    return 0;
}

static ssize_t sim_pread(int fd, void *buf, size_t n, off_t off)
{
    uint64_t offset = (uint64_t)off;
    bool direct = fds[fd - FD_BASE].direct;
    sim.reads++;
    if (off < 0)
        return fail(EINVAL);
    if (sim.eintr_every && sim.reads % sim.eintr_every == 0)
        return fail(EINTR);
    if (sim.eagain > 0) {
        sim.eagain--;
        return fail(EAGAIN);
    }
    if (n > sim.largest)
        sim.largest = n;
    if (direct) {
        int e = direct_rules(buf, &n, offset);
        if (e)
            return fail(e);
    } else {
        sim.reads_buffered++;
        if (sim.buffered_most && n > sim.buffered_most)
            n = sim.buffered_most;
    }
    uint64_t left = offset < sim.size ? sim.size - offset : 0;
    if (n > left)
        n = (size_t)left;
    if (n && offset < sim.bad_to && offset + n > sim.bad_from)
        return fail(EIO);
    if (!direct || sim.through_cache)
        touch_pages(offset, n);
    if (sim.data && !(direct && sim.direct_nothing))
        memcpy(buf, sim.data + offset, n);
    if (sim.data && direct && sim.direct_lies && n)
        ((uint8_t *)buf)[n / 2] ^= 1;
    return (ssize_t)n;
}

static int sim_fadvise(int fd, off_t offset, off_t len, int advice)
{
    (void)fd;
    if (sim.n_advised < SIM_CALLS_MAX) {
        sim.advised[sim.n_advised].offset = (uint64_t)offset;
        sim.advised[sim.n_advised].len = (uint64_t)len;
        sim.advised[sim.n_advised++].advice = advice;
    }
    if (advice == POSIX_FADV_DONTNEED)
        for (uint64_t p = (uint64_t)offset / mem_page_size();
             p < (uint64_t)(offset + len) / mem_page_size() && p < sizeof sim.cached; p++)
            sim.cached[p] = 0;
    return 0;
}

static void sim_dio_info(int fd, struct io_dio_info *out)
{
    (void)fd;
    *out = sim.dio;
}

static int sim_cached(int fd, uint64_t offset, bool by_map)
{
    (void)fd;
    (void)by_map;
    if (sim.cached_unknown)
        return -1;
    uint64_t p = offset / mem_page_size();
    return p < sizeof sim.cached ? sim.cached[p] : 0;
}

const struct io_syscalls sim_syscalls = {
    .open = sim_open,
    .close = sim_close,
    .fstat = sim_fstat,
    .pread = sim_pread,
    .fadvise = sim_fadvise,
    .dio_info = sim_dio_info,
    .cached = sim_cached,
};
