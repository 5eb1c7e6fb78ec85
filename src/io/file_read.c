/* file_read.c: reads that end only when the bytes are there or the reason is known. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/size.h"
#include "io/file_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#define WINDOW_MAX                                                                                 \
    ((size_t)8 << 20)     /* bounce buffer of io_file_read_any; multiple of any align              \
                           */
#define AGAIN_MAX    5000 /* times 1 ms without any progress before EAGAIN is an error */
#define AGAIN_WAIT_S 1e-3

_Static_assert(WINDOW_MAX % FILE_ALIGN_MAX == 0, "windows stay aligned");

int io_file_read_error(const struct io_file *f, uint64_t offset, size_t len, size_t got, int errnum,
                       struct sl_err *err)
{
    if (errnum)
        return err_file(err, SL_E_IO, f->path, errnum,
                        "reading %zu bytes at offset %" PRIu64 " failed", len, offset);
    return err_file(err, SL_E_IO, f->path, 0,
                    "reading %zu bytes at offset %" PRIu64
                    ": the file ends after %zu of them (it had %" PRIu64
                    " bytes when opened); is it"
                    " being changed or still downloading?",
                    len, offset, got, f->size);
}

/* True: try the call again. */
static bool transient(int errnum, int *again)
{
    if (errnum == EINTR)
        return true;
    if (errnum != EAGAIN || ++*again > AGAIN_MAX)
        return false;
    clock_sleep(AGAIN_WAIT_S);
    return true;
}

/* EINVAL on an aligned piece at file position pos. A piece that touches the unaligned end may be
 * what the file system refuses: returns the shorter length to try, 0: leave the rest to buffered
 * reads. */
static size_t shorten_refused(struct io_file *f, uint64_t pos, size_t piece)
{
    uint64_t whole = size_down(f->size, f->align);
    if (pos + piece > whole)
        return pos < whole ? (size_t)(whole - pos) : 0;
    io_file_give_up_direct(f);
    return 0;
}

/* Goes on from got; returns the bytes that have arrived; fewer than need with *errnum 0: the rest
 * is for buffered reads. */
static size_t read_direct(struct io_file *f, uint8_t *buf, uint64_t offset, size_t len, size_t got,
                          size_t need, int *errnum)
{
    size_t limit = FILE_PIECE_MAX;
    int again = 0;
    *errnum = 0;
    while (got < need) {
        size_t at = size_down(got, f->align); /* a short read may have ended anywhere */
        size_t piece = len - at < limit ? len - at : limit;
        ssize_t n = f->sys->pread(f->direct_fd, buf + at, piece, (off_t)(offset + at));
        if (n < 0) {
            if (transient(errno, &again))
                continue;
            if (errno != EINVAL) {
                *errnum = errno;
                break;
            }
            limit = shorten_refused(f, offset + at, piece);
            if (limit == 0)
                break;
            continue;
        }
        if (at + (size_t)n <= got)
            break; /* the end, or an unaligned end that direct reads don't give */
        got = at + (size_t)n;
        again = 0;
    }
    return got;
}

void io_file_drop_read(struct io_file *f, int fd, uint64_t begin, uint64_t end)
{
    if (begin == end || !atomic_load_explicit(&f->drop, memory_order_relaxed))
        return;
    /* outward: the system keeps pages that are only partly named */
    uint64_t page = mem_page_size(), from = size_down(begin, page), to = size_up(end, page);
    f->sys->fadvise(fd, (off_t)from, (off_t)(to - from), POSIX_FADV_DONTNEED);
}

/* Goes on from got; returns the bytes that have arrived. */
static size_t read_buffered(struct io_file *f, int fd, uint8_t *buf, uint64_t offset, size_t got,
                            size_t need, int *errnum)
{
    size_t start = got;
    int again = 0;
    *errnum = 0;
    while (got < need) {
        size_t piece = need - got < FILE_PIECE_MAX ? need - got : FILE_PIECE_MAX;
        ssize_t n = f->sys->pread(fd, buf + got, piece, (off_t)(offset + got));
        if (n < 0) {
            if (transient(errno, &again))
                continue;
            *errnum = errno;
            break;
        }
        if (n == 0)
            break;
        got += (size_t)n;
        again = 0;
    }
    io_file_drop_read(f, fd, offset + start, offset + got);
    return got;
}

/* Offsets beyond what off_t can name would turn negative in the calls. */
static bool in_range(uint64_t offset, size_t len)
{
    return offset <= INT64_MAX - FILE_PIECE_MAX && len <= INT64_MAX - FILE_PIECE_MAX - offset;
}

int io_file_check_read(const struct io_file *f, const void *buf, uint64_t offset, size_t len,
                       size_t need, struct sl_err *err)
{
    if (need > len || !in_range(offset, len))
        return err_file(err, SL_E_INTERNAL, f->path, 0,
                        "impossible read of %zu of %zu bytes at offset %" PRIu64, need, len,
                        offset);
    if (atomic_load(&f->direct) && (((uintptr_t)buf | offset | len) & (f->align - 1)))
        return err_file(err, SL_E_INTERNAL, f->path, 0,
                        "direct read of %zu bytes at offset %" PRIu64 " is not aligned to %zu", len,
                        offset, f->align);
    return 0;
}

int io_file_read_rest(struct io_file *f, void *buf, uint64_t offset, size_t len, size_t got,
                      size_t need, struct sl_err *err)
{
    int rc = io_file_check_read(f, buf, offset, len, need, err), errnum = 0;
    if (rc != 0)
        return rc;
    if (atomic_load(&f->direct))
        got = read_direct(f, buf, offset, len, got, need, &errnum);
    if (got < need && errnum == 0) {
        int fd = io_file_buffered_fd(f, err);
        if (fd < 0)
            return SL_E_IO;
        got = read_buffered(f, fd, buf, offset, got, need, &errnum);
    }
    return got >= need ? 0 : io_file_read_error(f, offset, need, got, errnum, err);
}

int io_file_read(struct io_file *f, void *buf, uint64_t offset, size_t len, size_t need,
                 struct sl_err *err)
{
    return io_file_read_rest(f, buf, offset, len, 0, need, err);
}

/* One aligned window after the other, through raw of cap bytes. */
static int read_windows(struct io_file *f, uint8_t *window, size_t cap, uint8_t *buf,
                        uint64_t offset, size_t len, struct sl_err *err)
{
    for (size_t done = 0; done < len;) {
        uint64_t start = size_down(offset + done, f->align);
        size_t skip = (size_t)(offset + done - start);
        size_t take = cap - skip < len - done ? cap - skip : len - done;
        size_t span = (size_t)size_up(skip + take, f->align);
        int rc = io_file_read(f, window, start, span, skip + take, err);
        if (rc != 0)
            return rc;
        memcpy(buf + done, window + skip, take);
        done += take;
    }
    return 0;
}

int io_file_read_any(struct io_file *f, void *buf, uint64_t offset, size_t len, struct sl_err *err)
{
    if (len == 0)
        return 0;
    if (!in_range(offset, len))
        return err_file(err, SL_E_INTERNAL, f->path, 0,
                        "impossible read of %zu bytes at offset %" PRIu64, len, offset);
    if (!atomic_load(&f->direct)) {
        int errnum, fd = io_file_buffered_fd(f, err);
        if (fd < 0)
            return SL_E_IO;
        size_t got = read_buffered(f, fd, buf, offset, 0, len, &errnum);
        return got >= len ? 0 : io_file_read_error(f, offset, len, got, errnum, err);
    }
    uint64_t outer = size_up(offset + len, f->align) - size_down(offset, f->align);
    size_t cap = outer < WINDOW_MAX ? (size_t)outer : WINDOW_MAX;
    size_t taken = cap + f->align; /* mappings are aligned to pages, not to align */
    uint8_t *raw = mem_map(taken, 0);
    if (!raw)
        return err_file(err, SL_E_MEM, f->path, 0, "no memory for a read buffer of %zu bytes",
                        taken);
    uint8_t *window = raw + (size_up((uintptr_t)raw, f->align) - (uintptr_t)raw);
    int rc = read_windows(f, window, cap, buf, offset, len, err);
    mem_unmap(raw, taken);
    return rc;
}
