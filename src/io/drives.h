/* drives.h: the drives that a set of files lies on, as small numbers. A drive is what stat calls a
 * device: partitions of one disk count apart, a RAID counts as one. */
#ifndef IO_DRIVES_H
#define IO_DRIVES_H

#include "io/file.h"

#define IO_DRIVES_MAX 16 /* further drives count as the last of these */

struct io_drives {
    int n;
    uint64_t id[IO_DRIVES_MAX];
};

/* The number of f's drive, from 0: a new one while there are fewer than most (1 to IO_DRIVES_MAX),
 * then the last one's. */
int io_drives_find(struct io_drives *d, int most, const struct io_file *f);

#endif
