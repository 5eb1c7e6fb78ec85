/* uring.h: the calls behind the io_uring engine, in one table so that tests can put a kernel there
 * that refuses, interrupts or cuts reads short. Only where liburing is (SLUICE_URING). */
#ifndef IO_URING_H
#define IO_URING_H

struct io_uring;
struct io_uring_cqe;

/* As liburing's functions: 0 or more, or a negative errno. */
struct io_ring_calls {
    int (*open)(struct io_uring *ring, unsigned n_entries);
    int (*submit)(struct io_uring *ring);
    int (*peek)(struct io_uring *ring, struct io_uring_cqe **cqe); /* -EAGAIN: none is there */
    int (*wait)(struct io_uring *ring, struct io_uring_cqe **cqe);
};
extern const struct io_ring_calls io_real_ring_calls;

/* Tests only, while no such reader exists; NULL: the real ones. */
void io_ring_calls_replace(const struct io_ring_calls *calls);

#endif
