/* reader.h: asynchronous reads behind one table of functions.
 *
 * The caller owns every struct io_req from submit to completion; the reader only links it. submit
 * and reap are called by one thread at a time, not always the same. Completions may come in any
 * order. Files are closed after the reader: it may keep their descriptors. */
#ifndef IO_READER_H
#define IO_READER_H

#include "io/file.h"

struct io_req {
    struct io_file *file;
    void *buf;           /* aligned to io_file_align when the file is direct */
    uint64_t offset;     /* likewise */
    size_t len;          /* likewise; may reach past the end of the file */
    size_t need;         /* bytes from offset that must arrive, at most len */
    void *user;          /* the caller's */
    struct sl_err err;   /* set by the reader: code 0 or why it failed */
    double submit_s;     /* the caller's */
    double done_s;       /* when it ended, monotonic clock; 0: the reader does not say */
    struct io_req *next; /* the reader's while submitted, the caller's after */
};

#define IO_NOTE_MAX 192

struct io_reader;

struct io_reader_ops {
    const char *name;
    /* As io_reader_create. */
    int (*create)(int in_flight, int n_drives, struct io_reader **out, struct sl_err *err);
    /* Waits for reads that are under way; those not yet begun end with SL_E_CANCELLED. No buffer or
     * request is touched afterwards. */
    void (*destroy)(struct io_reader *r);
    /* Hand over a list of n requests (chained by next); never fails: trouble comes back in
     * req->err. */
    void (*submit)(struct io_reader *r, struct io_req *list, int n);
    /* Take finished requests, chained by next. wait: block until there is at least one (when any is
     * open). */
    struct io_req *(*reap)(struct io_reader *r, bool wait);
    /* Time with at least one read open, up to now; NULL: busy_s is always current. An engine
     * without threads learns that a read has ended when it is asked for completions. */
    double (*busy)(const struct io_reader *r);
};

/* Every engine's struct starts with this. */
struct io_reader {
    const struct io_reader_ops *ops;
    int open;      /* submitted and not reaped */
    double busy_s; /* time with at least one read open, up to the last reap */
    uint64_t n_reads, bytes;
    char note[IO_NOTE_MAX]; /* of io_reader_create */
};

extern const struct io_reader_ops io_uring_ops, io_threads_ops, io_plain_ops;

/* in_flight: reads of one drive that may be under way at once, from 1. n_drives: drives that the
 * files lie on, 1 to IO_DRIVES_MAX (drives.h): each has its own in_flight, and reads of one never
 * wait for reads of another. in_flight x n_drives is bounded by 1024; "plain" reads one at a time.
 * name: "auto", "uring", "threads", "plain". auto takes the first of these that can be had; uring,
 * where it can't, ends in what comes after it. *note (may be NULL) points at a line of the reader's
 * that says why something other than the first or the named one was taken, or at "". */
int io_reader_create(const char *name, int in_flight, int n_drives, struct io_reader **out,
                     const char **note, struct sl_err *err);
void io_reader_destroy(struct io_reader **r);
void io_reader_submit(struct io_reader *r, struct io_req *list, int n);
struct io_req *io_reader_reap(struct io_reader *r, bool wait);
double io_reader_busy(const struct io_reader *r); /* up to now */

#endif
