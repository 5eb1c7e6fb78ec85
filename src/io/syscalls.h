/* syscalls.h: the system calls behind io_file, in one table so that tests can put a misbehaving
 * file system there. */
#ifndef IO_SYSCALLS_H
#define IO_SYSCALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/* What the system says about direct reads of one file. */
struct io_dio_info {
    bool known;           /* the two alignments were reported */
    uint32_t mem, offset; /* bytes; 0 when known: no direct reads of this file */
    bool compressed;      /* the file, or one of its extents looked at, is stored compressed */
    uint64_t fs_magic;    /* f_type of statfs; 0: unknown */
};

/* As the calls of the same name: -1 and errno on failure. */
struct io_syscalls {
    int (*open)(const char *path, int flags);
    int (*close)(int fd);
    int (*fstat)(int fd, struct stat *st);
    ssize_t (*pread)(int fd, void *buf, size_t n, off_t offset);
    int (*fadvise)(int fd, off_t offset, off_t len, int advice);
    void (*dio_info)(int fd, struct io_dio_info *out);
    /* Is the page at offset in the page cache? 1, 0, or -1: can't tell. by_map: by mincore, which
     * tells the truth only to the file's owner; else by a read that must not wait (fd without
     * O_DIRECT). */
    int (*cached)(int fd, uint64_t offset, bool by_map);
};

extern const struct io_syscalls io_real_syscalls;

/* The table in use. io_syscalls_replace: tests only, while no file is open; NULL: the real one. */
const struct io_syscalls *io_syscalls_get(void);
void io_syscalls_replace(const struct io_syscalls *calls);

#endif
