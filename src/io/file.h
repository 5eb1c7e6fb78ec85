/* file.h: a model file opened for positioned reads, direct where that really works. */
#ifndef IO_FILE_H
#define IO_FILE_H

#include "base/err.h"

struct io_file;

/* Open for reading. want_direct: try O_DIRECT and probe it: one block is read direct and buffered
 * and compared. EINVAL at open or at read, differing bytes, or a file system known to accept
 * O_DIRECT without being direct (tmpfs, compressed btrfs, FUSE that lies) end in buffered mode, and
 * io_file_note says why. Refuses directories and what is not a regular file. */
int io_file_open(const char *path, bool want_direct, struct io_file **out, struct sl_err *err);
void io_file_close(struct io_file **f);

const char *io_file_path(const struct io_file *f);
uint64_t io_file_size(const struct io_file *f);  /* at open */
uint64_t io_file_drive(const struct io_file *f); /* st_dev at open: alike on one drive */
bool io_file_direct(const struct io_file *f);
size_t io_file_align(const struct io_file *f); /* of offset, length and buffer; page size or more */
const char *
io_file_note(const struct io_file *f); /* why not direct; "" when direct or not asked for */

/* Fraction (0..1) of n_probes evenly spread pages of [offset, offset + len) that are in the page
 * cache. */
double io_file_cached(const struct io_file *f, uint64_t offset, uint64_t len, int n_probes);

/* Ask the system to drop what the page cache holds of [offset, offset + len). */
void io_file_drop(struct io_file *f, uint64_t offset, uint64_t len);

/* Read exactly `need` bytes at least, up to `len`, at offset into buf; the direct path when the
 * file is direct (then offset, len and buf are multiples of align; the unaligned end of the file is
 * finished through a buffered descriptor that is opened when first needed). Loops over short reads,
 * EINTR, EAGAIN and pieces of 1 GiB; after a short direct read goes on from the aligned-down
 * offset. A buffered file's pages are dropped behind the reader when `drop` was set by
 * io_file_drop_behind. Errors name file, offset and length. Any thread. */
int io_file_read(struct io_file *f, void *buf, uint64_t offset, size_t len, size_t need,
                 struct sl_err *err);

/* Any offset, length and buffer (for headers and dense weights that are copied): goes through an
 * aligned window of at most 8 MiB when direct. Any thread. */
int io_file_read_any(struct io_file *f, void *buf, uint64_t offset, size_t len, struct sl_err *err);

/* Buffered reads drop the pages they brought in (POSIX_FADV_DONTNEED). */
void io_file_drop_behind(struct io_file *f, bool on);

/* Map the whole file read-only; unmapped by close. */
int io_file_map(struct io_file *f, const uint8_t **base, struct sl_err *err);

#endif
