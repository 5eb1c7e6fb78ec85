/* drive.h: how fast a drive delivers reads of the sizes that the engine asks for.
 *
 * What is measured is what happened: places are read in random order and not twice (unless the file
 * is too small for the time), pages of them that the page cache holds are dropped first or the
 * place is skipped, and each row says by which engine and whether directly it was read. */
#ifndef BENCH_DRIVE_H
#define BENCH_DRIVE_H

#include "io/reader.h"

/* A place that is read in one piece. */
struct bench_slice {
    struct io_file *file; /* borrowed */
    uint64_t offset, bytes;
};

/* Places to read; those of one expert lie side by side in the list and are asked for together. */
struct bench_places {
    struct bench_slice *slice;
    int64_t n;
    int group; /* slices that belong together: n is a multiple */
    uint64_t bytes_most, bytes_mean;
    uint64_t bytes; /* of all */
};
/* A layer's experts: part j of expert e is slice [offset + e * stride, + bytes). */
#define BENCH_MAX_PARTS 4
struct bench_bank {
    int n_parts, n_experts;
    struct bench_part {
        struct io_file *file;
        uint64_t offset, stride, bytes;
    } part[BENCH_MAX_PARTS];
};
/* Every expert of the banks (those with as many parts as the first that has any), or the whole file
 * in pieces of `request` bytes. SL_E_UNSUPPORTED: there is nothing to read. Free after use, also
 * after a failure. */
int bench_list_experts(const struct bench_bank *banks, int n_banks, struct bench_places *out,
                       struct sl_err *err);
int bench_list_file(struct io_file *f, uint64_t request, struct bench_places *out,
                    struct sl_err *err);
void bench_free_places(struct bench_places *p);

/* More than a CPU's caches keep for one program: a drive may be faster into memory that they hold
 * (a virtual one, whose host copies, by a third), and the memory of an expert cache is not there.
 */
#define BENCH_DRIVE_MEMORY ((uint64_t)128 << 20)

struct bench_drive_spec {
    const char *engine; /* a name of io/reader.h */
    int in_flight;
    double seconds;      /* of reading */
    uint64_t skip, seed; /* groups of the random order to leave out; the order */
    uint64_t memory;     /* bytes that are read into, by turns; 0: BENCH_DRIVE_MEMORY */
};
struct bench_drive_row {
    char engine[16]; /* that read */
    char note[160];  /* why it was another one than asked for; "" */
    bool direct;     /* every file was read directly from begin to end */
    int in_flight;
    double seconds, cpu_s; /* wall and CPU time of the whole process */
    uint64_t reads, bytes; /* bytes that were moved: whole aligned windows */
    double gb_s;           /* 10^9 bytes per second */
    uint64_t groups;       /* read */
    uint64_t skipped;      /* groups left out, whose pages the page cache would not give up */
    double cached;         /* fraction of probed pages that were cached, and evicted first */
    bool again;            /* the list was read to its end and from its begin again */
};
int bench_measure_drive(const struct bench_places *p, const struct bench_drive_spec *spec,
                        struct bench_drive_row *out, struct sl_err *err);

/* The rate of direct reads (buffered where the file system has no direct ones) of `request` bytes
 * at random places of f, with the best engine, in about `seconds`; 10^9 bytes per second. */
int bench_probe_drive(struct io_file *f, uint64_t request, int in_flight, double seconds,
                      double *gb_s, struct sl_err *err);

/* 10^9 bytes per second at which one thread copies memory that no cache holds: a drive that is
 * faster is none. */
double bench_copy_rate(void);

#endif
