/* file_internal.h: what file.c, file_probe.c, file_read.c and the engines share. */
#ifndef IO_FILE_INTERNAL_H
#define IO_FILE_INTERNAL_H

#include "io/file.h"
#include "io/syscalls.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#define FILE_NOTE_MAX  192
#define FILE_ALIGN_MAX ((size_t)1 << 20) /* a larger direct-I/O alignment is not used */
#define FILE_PIECE_MAX ((size_t)1 << 30) /* of one read call: Linux stops at 2 GiB - 4 KiB */

struct io_file {
    const struct io_syscalls *sys;
    char *path;      /* owned */
    uint64_t serial; /* of this open, unlike any other's: addresses and descriptors come again */
    uint64_t size;
    size_t align;
    dev_t dev;
    ino_t ino;
    bool owned; /* mincore tells us the truth */

    int direct_fd;            /* -1: none; stays open when direct is given up */
    _Atomic int buffered_fd;  /* -1 until needed while the file is direct */
    _Atomic bool direct;      /* can only go from true to false after open */
    _Atomic bool drop;        /* drop pages behind buffered reads */
    char note[FILE_NOTE_MAX]; /* written before it is published through note_now */
    _Atomic(const char *) note_now;

    pthread_mutex_t lock; /* opening of buffered_fd, giving up direct, mapping */
    const uint8_t *map;
    size_t map_len;
};

/* The descriptor without O_DIRECT, opened when first needed; -1 with *err filled. Any thread. */
int io_file_buffered_fd(struct io_file *f, struct sl_err *err);

/* A direct read failed with EINVAL in spite of its alignment: all further reads are buffered. */
void io_file_give_up_direct(struct io_file *f);

/* Probe direct reads of f (buffered_fd open, direct_fd not yet). True: direct_fd is open, the
 * alignment is set and the bytes were right. False: note says why. */
bool io_file_probe(struct io_file *f);

/* May this be read? SL_E_INTERNAL: lengths, offset or (direct) alignment are impossible. */
int io_file_check_read(const struct io_file *f, const void *buf, uint64_t offset, size_t len,
                       size_t need, struct sl_err *err);
/* io_file_read of which got bytes are there already. */
int io_file_read_rest(struct io_file *f, void *buf, uint64_t offset, size_t len, size_t got,
                      size_t need, struct sl_err *err);
/* Drop the pages that a buffered read of [begin, end) brought in, where that is wanted. */
void io_file_drop_read(struct io_file *f, int fd, uint64_t begin, uint64_t end);

/* The error of a read at [offset, offset + len): errnum from the system, or 0: the file ended after
 * got bytes. */
int io_file_read_error(const struct io_file *f, uint64_t offset, size_t len, size_t got, int errnum,
                       struct sl_err *err);

#endif
