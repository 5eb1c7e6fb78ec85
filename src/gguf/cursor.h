/* cursor.h: little-endian reads from the start of a file, with a sticky fault.
 *
 * After the first fault every read gives 0 and the position stays, so that a caller may read a
 * whole record and look once. Bytes are loaded as they are asked for: only what the header really
 * holds is ever in memory, whatever its counts claim. */
#ifndef GGUF_CURSOR_H
#define GGUF_CURSOR_H

#include "io/file.h"

/* Bytes of one header, metadata and tensor directory together. The largest vocabularies in use take
 * about 30 MB; this bounds what a hostile file can make the process hold. */
#define CURSOR_MAX_HEADER ((uint64_t)256 << 20)

enum cursor_fault {
    CURSOR_FINE,
    CURSOR_SHORT, /* the file ends before the bytes that were asked for */
    CURSOR_LONG,  /* more than CURSOR_MAX_HEADER */
    CURSOR_MEM,   /* no memory */
    CURSOR_IO     /* a read failed; io_err says why */
};

struct cursor {
    const uint8_t *p;     /* bytes [0, len) of the file; moves when more is loaded */
    uint64_t len;         /* loaded */
    uint64_t pos;         /* next byte to read */
    uint64_t size;        /* of the file */
    struct io_file *file; /* borrowed; NULL: p is the caller's and len never grows */
    uint8_t *own;         /* what p points at when file is set */
    uint64_t cap;
    enum cursor_fault fault;
    struct sl_err io_err;
};

void cursor_over_file(struct cursor *c, struct io_file *file);
/* n bytes at p, borrowed, standing for the start of a file of file_size bytes. */
void cursor_over_bytes(struct cursor *c, const uint8_t *p, size_t n, uint64_t file_size);
void cursor_free(struct cursor *c);

/* True when bytes [pos, pos + n) are in memory; else a fault is set. */
bool cursor_need(struct cursor *c, uint64_t n);
void cursor_skip(struct cursor *c, uint64_t n);
uint32_t cursor_u32(struct cursor *c);
uint64_t cursor_u64(struct cursor *c);
/* Bytes of the file behind pos. */
uint64_t cursor_left(const struct cursor *c);

/* Little-endian value of n (1, 2, 4 or 8) bytes at p, unaligned. */
uint64_t cursor_le(const uint8_t *p, unsigned n);

#endif
