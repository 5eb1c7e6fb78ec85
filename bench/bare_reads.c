/* bare_reads.c: the plainest program that makes the reads which a run has recorded, those of a
 * layer together, and computes nothing: what a run takes beyond them, this shows. One thread and
 * io_uring; it shares no code with what it is held against. Built where liburing is, never
 * installed. bare_reads IN_FLIGHT MIB FILE... reads lines "file offset bytes" (file: 0 is the
 * first) from standard input, an empty line where everything before it must have arrived, and
 * prints seconds, bytes and "direct" or "buffered". bench/reads_alone.py alternates it with runs.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PAGE        4096u /* of direct reads; the trace leaves out what is past the end of a file */
#define HUGE_PAGE   ((size_t)2 << 20)
#define MAX_FILES   64
#define MAX_FLIGHT  256
#define MOST_BYTES  ((uint64_t)1 << 30) /* of one read */
#define LINE_LENGTH 128
#define MOST_MIB    ((unsigned long)1 << 20)

struct place {
    uint64_t offset;
    uint32_t bytes; /* 0: wait */
    int file;
};

static struct place *place;
static size_t n_places, room;
static int fd[MAX_FILES], n_files;
static bool direct = true;
static struct io_uring ring;
/* Buffers are used by turns, as those of a cache are: a drive may be faster into memory that the
 * CPU's caches hold. */
static struct buffer {
    uint8_t *at;
    uint32_t need; /* bytes that must arrive */
} * buffer, **idle;
static size_t n_buffers, n_taken, n_back; /* taken, and back at the end of the queue, so far */

static void fail(const char *what)
{
    fprintf(stderr, "bare_reads: %s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

static size_t up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static void add_place(struct place p)
{
    if (n_places == room) {
        room = room ? 2 * room : 4096;
        place = realloc(place, room * sizeof *place);
        if (!place)
            fail("no memory");
    }
    place[n_places++] = p;
}

/* Returns the bytes of the largest. */
static size_t read_places(void)
{
    char line[LINE_LENGTH], rest;
    unsigned long long offset, bytes;
    size_t most = 0;
    while (fgets(line, sizeof line, stdin)) {
        struct place p = {0};
        if (line[0] != '\n') {
            if (sscanf(line, "%d %llu %llu %c", &p.file, &offset, &bytes, &rest) != 3 ||
                bytes == 0 || bytes > MOST_BYTES || offset > INT64_MAX || p.file < 0 ||
                p.file >= n_files)
                fail("a line is not \"file offset bytes\" of a file that was given");
            p.offset = offset;
            p.bytes = (uint32_t)bytes;
            most = p.bytes > most ? p.bytes : most;
        }
        add_place(p);
    }
    if (most == 0)
        fail("nothing to read");
    add_place((struct place){0});
    return most;
}

static void open_file(const char *path)
{
    int f = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (f < 0 && errno == EINVAL) {
        direct = false;
        f = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (f < 0)
        fail(path);
    errno = 0;
    fd[n_files++] = f;
}

static void take_memory(size_t most, size_t in_flight, size_t bytes)
{
    const size_t each = up(most, PAGE);
    n_buffers = bytes / each > in_flight ? bytes / each : in_flight;
    const size_t all = up(each * n_buffers, HUGE_PAGE);
    uint8_t *memory = NULL;
    buffer = calloc(n_buffers, sizeof *buffer);
    idle = calloc(n_buffers, sizeof *idle);
    if (!buffer || !idle || posix_memalign((void **)&memory, HUGE_PAGE, all) != 0)
        fail("no memory");
    madvise(memory, all, MADV_HUGEPAGE);
    memset(memory, 1, all);
    for (; n_back < n_buffers; n_back++) {
        buffer[n_back].at = memory + each * n_back;
        idle[n_back] = &buffer[n_back];
    }
    errno = 0;
}

static size_t under_way(void)
{
    return n_buffers - (n_back - n_taken);
}

/* A read past the end of a file is short, as that of the last expert may be; what was recorded is
 * there. */
static void finish_one(void)
{
    struct io_uring_cqe *c;
    int rc = io_uring_wait_cqe(&ring, &c);
    errno = rc < 0 ? -rc : c->res < 0 ? -c->res : 0;
    if (rc < 0 || c->res <= 0)
        fail("a read");
    struct buffer *b = io_uring_cqe_get_data(c);
    if ((uint32_t)c->res < b->need)
        fail("a read is short: the file is not the one that was recorded");
    idle[n_back++ % n_buffers] = b;
    io_uring_cqe_seen(&ring, c);
}

static uint64_t read_all(size_t in_flight)
{
    uint64_t bytes = 0;
    for (size_t i = 0, waiting = 0; i < n_places; i++) {
        const struct place *p = &place[i];
        if (p->bytes > 0) {
            if (under_way() == in_flight)
                finish_one();
            struct io_uring_sqe *s = io_uring_get_sqe(&ring);
            struct buffer *to = idle[n_taken++ % n_buffers];
            to->need = p->bytes;
            io_uring_prep_read(s, fd[p->file], to->at, (unsigned)up(p->bytes, PAGE), p->offset);
            io_uring_sqe_set_data(s, to);
            bytes += p->bytes;
            waiting++;
        }
        if (waiting > 0 && (p->bytes == 0 || under_way() == in_flight)) {
            if (io_uring_submit(&ring) != (int)waiting)
                fail("io_uring takes no more reads");
            waiting = 0;
        }
        while (p->bytes == 0 && under_way() > 0)
            finish_one();
    }
    return bytes;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    const unsigned long in_flight = argc > 3 ? strtoul(argv[1], NULL, 10) : 0;
    const unsigned long mib = argc > 3 ? strtoul(argv[2], NULL, 10) : 0;
    if (in_flight < 1 || in_flight > MAX_FLIGHT || mib > MOST_MIB || argc > 3 + MAX_FILES) {
        fprintf(stderr, "usage: bare_reads IN_FLIGHT MIB FILE... <PLACES\n");
        return 2;
    }
    for (int i = 3; i < argc; i++)
        open_file(argv[i]);
    take_memory(read_places(), in_flight, (size_t)mib << 20);
    int rc = io_uring_queue_init(MAX_FLIGHT, &ring, 0);
    errno = -rc;
    if (rc < 0)
        fail("io_uring");
    const double t0 = now();
    const uint64_t bytes = read_all(in_flight);
    printf("%.6f %llu %s\n", now() - t0, (unsigned long long)bytes, direct ? "direct" : "buffered");
    return 0;
}
