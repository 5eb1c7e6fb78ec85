/* bare_read.c: the plainest program that reads what `cachebench --file` reads: what that costs
 * beyond its reads, this shows. Only pthreads and pread; it shares no code with what it is held
 * against. Built, never installed. bare_read FILE EXPERTS STRIDE BYTES THREADS SPLIT WARMUP PASSES
 * SEED thread|slots prints GB/s over the timed passes, then each pass's. bench/bare_pair.py
 * alternates it with cachebench. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PAGE        4096u /* of cuts between pieces; packed experts have strides of whole ones */
#define MAX_THREADS 256

static int fd;
static uint64_t experts, stride, bytes, threads, split, seed;
static bool slots;
static uint8_t *memory;
static uint32_t *order;
static _Atomic uint64_t next_task;
static _Atomic bool done;
static pthread_barrier_t begin_pass, end_pass;

static void fail(const char *what)
{
    fprintf(stderr, "bare_read: %s: %s\n", what, errno ? strerror(errno) : "impossible");
    _exit(1);
}

/* splitmix64, as cachebench draws its orders. */
static uint64_t draw(void)
{
    uint64_t z = seed += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static void shuffle(void)
{
    for (uint64_t i = experts - 1; i > 0; i--) {
        const uint64_t j = draw() % (i + 1);
        const uint32_t e = order[i];
        order[i] = order[j];
        order[j] = e;
    }
}

static void read_tasks(uint64_t tid)
{
    for (uint64_t i; (i = atomic_fetch_add(&next_task, 1)) < experts * split;) {
        const uint64_t e = order[i / split], j = i % split;
        const uint64_t from = bytes * j / split / PAGE * PAGE;
        const uint64_t to = j + 1 == split ? bytes : bytes * (j + 1) / split / PAGE * PAGE;
        uint8_t *dst = memory + stride * (slots ? e : tid) + (slots ? from : 0);
        errno = 0;
        if (pread(fd, dst, to - from, (off_t)(e * stride + from)) != (ssize_t)(to - from))
            fail("pread");
    }
}

static void *work(void *arg)
{
    for (;;) {
        pthread_barrier_wait(&begin_pass);
        if (done)
            return NULL;
        read_tasks((uint64_t)(uintptr_t)arg);
        pthread_barrier_wait(&end_pass);
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double run_pass(void)
{
    shuffle();
    next_task = 0;
    const double t0 = now();
    pthread_barrier_wait(&begin_pass);
    read_tasks(0);
    pthread_barrier_wait(&end_pass);
    return now() - t0;
}

static void prepare(const char *path)
{
    const uint64_t room = stride * (slots ? experts : threads);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fail(path);
    memory = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    order = calloc(experts, sizeof *order);
    if (memory == MAP_FAILED || !order)
        fail("no memory");
    memset(memory, 1, room);
    for (uint32_t e = 0; e < experts; e++)
        order[e] = e;
    if (pthread_barrier_init(&begin_pass, NULL, (unsigned)threads) != 0 ||
        pthread_barrier_init(&end_pass, NULL, (unsigned)threads) != 0)
        fail("barrier");
}

int main(int argc, char **argv)
{
    if (argc != 11) {
        fprintf(stderr, "usage: bare_read FILE EXPERTS STRIDE BYTES THREADS SPLIT WARMUP PASSES "
                        "SEED thread|slots\n");
        return 2;
    }
    uint64_t number[8], warmup, passes;
    for (int i = 0; i < 8; i++)
        number[i] = strtoull(argv[i + 2], NULL, 10);
    experts = number[0], stride = number[1], bytes = number[2], threads = number[3],
    split = number[4];
    warmup = number[5], passes = number[6], seed = number[7];
    slots = strcmp(argv[10], "slots") == 0;
    if (!experts || experts > UINT32_MAX || bytes > stride || !bytes || !threads ||
        threads > MAX_THREADS || !split || !passes || stride % PAGE)
        fail("arguments");
    prepare(argv[1]);
    pthread_t id[MAX_THREADS];
    for (uint64_t t = 1; t < threads; t++)
        if (pthread_create(&id[t], NULL, work, (void *)(uintptr_t)t) != 0)
            fail("thread");
    double seconds = 0, *pass = calloc(passes, sizeof *pass);
    for (uint64_t i = 0; i < warmup; i++)
        run_pass();
    for (uint64_t i = 0; pass && i < passes; i++)
        seconds += pass[i] = run_pass();
    done = true;
    pthread_barrier_wait(&begin_pass);
    for (uint64_t t = 1; t < threads; t++)
        pthread_join(id[t], NULL);
    const double each = (double)experts * (double)bytes * 1e-9;
    printf("%.4f\n", each * (double)passes / seconds);
    for (uint64_t i = 0; pass && i < passes; i++)
        printf("%s%.4f", i ? " " : "", each / pass[i]);
    printf("\n");
    free(pass);
    return 0;
}
