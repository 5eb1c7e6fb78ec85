/* sim.h: one file on a simulated file system that misbehaves as told. It enforces what a strict
 * device does: a direct read whose position, length or buffer is not aligned gives EINVAL. */
#ifndef TESTS_IO_SIM_H
#define TESTS_IO_SIM_H

#include "io/syscalls.h"

#define SIM_CALLS_MAX 256

struct sim {
    /* set by the test */
    const uint8_t *data; /* NULL: reads write nothing (huge files) */
    uint64_t size;       /* now; may change while the file is open */
    struct io_dio_info dio;
    int direct_open_errno; /* opening with O_DIRECT fails with this */
    int direct_read_errno; /* each direct read fails with this */
    int direct_fail_after; /* > 0: direct reads from this one on (1: the first) give EINVAL */
    bool direct_lies;      /* direct reads give wrong bytes */
    bool direct_nothing;   /* direct reads claim success and write nothing */
    bool through_cache;    /* direct reads leave their page in the page cache */
    bool cached_unknown;   /* nothing can be said about the page cache */
    bool tail_refused;     /* direct reads that touch the unaligned end give EINVAL */
    bool tail_cut;         /* direct reads stop before the unaligned end */
    size_t direct_most, buffered_most; /* bytes per call at most; 0: no bound */
    int eintr_every;                   /* each n-th read gives EINTR */
    int eagain;                        /* so many reads give EAGAIN */
    uint64_t bad_from, bad_to;         /* reads that touch this range give EIO */
    bool no_proc;                      /* /proc/self/fd cannot be opened */
    bool replaced;                     /* files opened from now on are other files */

    /* seen by the simulation */
    int opens, opens_direct, open_fds, reads, reads_direct, reads_buffered, misaligned;
    size_t largest;
    uint8_t cached[1 << 16]; /* per page */
    struct {
        uint64_t offset, len;
        int advice;
    } advised[SIM_CALLS_MAX];
    int n_advised;
};

extern struct sim sim;
extern const struct io_syscalls sim_syscalls;

/* All well: size bytes of data, alignment 512 reported, owner's mincore. */
void sim_reset(const uint8_t *data, uint64_t size);

#endif
