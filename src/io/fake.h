/* fake.h: a reader for tests and for proving what happens when a drive misbehaves: programmable
 * delay, order, short reads, errors. It reads real files. */
#ifndef IO_FAKE_H
#define IO_FAKE_H

#include "io/reader.h"

struct io_fake_script {
    double delay_s; /* each read takes at least this long */
    int order;      /* 0: as submitted, 1: last first, 2: random from seed */
    uint64_t seed;
    int64_t first;      /* so many reads are well; the numbers below count from there */
    int64_t fail_at;    /* the n-th read (from 0) fails; -1: none */
    int fail_errno;     /* with this error, EIO if 0 */
    int64_t short_at;   /* the n-th read ends early as a truncated file would; -1: none */
    int64_t fail_every; /* every n-th read fails; 0: none */
};
int io_fake_create(const struct io_fake_script *script, int in_flight, struct io_reader **out,
                   struct sl_err *err);

#endif
