#include "base/mem.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define HUGE_PAGE ((size_t)2 << 20)

/* Stands MEM_ALIGN bytes before every block that mem_alloc gives. */
struct header {
    size_t size;  /* as asked for */
    size_t taken; /* as counted; the mapping's length for large blocks */
    bool mapped;
};
_Static_assert(sizeof(struct header) <= MEM_ALIGN, "the header precedes an aligned block");

static _Atomic uint64_t now_bytes, peak_bytes;
static _Atomic int64_t fail_left = -1;

static bool must_fail(void)
{
    int64_t left = atomic_load_explicit(&fail_left, memory_order_relaxed);
    while (left > 0) /* never below 0, however many threads allocate at once */
        if (atomic_compare_exchange_weak(&fail_left, &left, left - 1))
            return false;
    return left == 0;
}

static void count(size_t n)
{
    uint64_t now = atomic_fetch_add(&now_bytes, n) + n, peak = atomic_load(&peak_bytes);
    while (now > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, now))
        ;
}

size_t mem_page_size(void)
{
    static _Atomic size_t page;
    size_t p = atomic_load_explicit(&page, memory_order_relaxed);
    if (!p) {
        p = (size_t)sysconf(_SC_PAGESIZE);
        atomic_store_explicit(&page, p, memory_order_relaxed);
    }
    return p;
}

static size_t page_round(size_t n)
{
    size_t page = mem_page_size();
    return n > SIZE_MAX - page ? 0 : (n + page - 1) / page * page;
}

void *mem_alloc(size_t n)
{
    if (must_fail() || n > SIZE_MAX / 2)
        return NULL;
    size_t want = n + MEM_ALIGN;
    bool mapped = want >= MEM_MAP_MIN;
    char *base;
    if (mapped) {
        want = page_round(want);
        base = mmap(NULL, want, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (base == MAP_FAILED)
            return NULL;
    } else {
        want = (want + MEM_ALIGN - 1) / MEM_ALIGN * MEM_ALIGN;
        base = aligned_alloc(MEM_ALIGN, want);
        if (!base)
            return NULL;
    }
    struct header *h = (struct header *)base;
    *h = (struct header){.size = n, .taken = want, .mapped = mapped};
    count(want);
    return base + MEM_ALIGN;
}

void *mem_calloc(size_t n, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(n, size, &total))
        return NULL;
    void *p = mem_alloc(total);
    if (p && total + MEM_ALIGN < MEM_MAP_MIN) /* fresh mappings are zero */
        memset(p, 0, total);
    return p;
}

/* A mapping is resized in place or moves its pages: a copy would hold both for a moment. */
static void *resize_mapping(struct header *h, size_t n)
{
    size_t old = h->taken, want = n > SIZE_MAX / 2 ? 0 : page_round(n + MEM_ALIGN);
    if (must_fail() || want == 0)
        return NULL;
    struct header *q = mremap(h, old, want, MREMAP_MAYMOVE);
    if (q == MAP_FAILED)
        return NULL;
    q->size = n;
    q->taken = want;
    if (want > old)
        count(want - old);
    else
        atomic_fetch_sub(&now_bytes, old - want);
    return (char *)q + MEM_ALIGN;
}

void *mem_realloc(void *p, size_t n)
{
    if (!p)
        return mem_alloc(n);
    struct header *h = (struct header *)((char *)p - MEM_ALIGN);
    if (n <= h->size && n >= h->size / 2)
        return p;
    if (h->mapped && n >= MEM_MAP_MIN)
        return resize_mapping(h, n);
    void *q = mem_alloc(n);
    if (q) {
        memcpy(q, p, h->size < n ? h->size : n);
        mem_free(p);
    }
    return q;
}

void mem_free(void *p)
{
    if (!p)
        return;
    struct header *h = (struct header *)((char *)p - MEM_ALIGN);
    size_t taken = h->taken;
    if (h->mapped)
        munmap(h, taken);
    else
        free(h);
    atomic_fetch_sub(&now_bytes, taken);
}

char *mem_strndup(const char *s, size_t n)
{
    n = strnlen(s, n);
    char *p = mem_alloc(n + 1);
    if (p) {
        memcpy(p, s, n);
        p[n] = 0;
    }
    return p;
}

char *mem_strdup(const char *s)
{
    return mem_strndup(s, strlen(s));
}

static void *map_pages(size_t want, unsigned flags, int prot)
{
    size_t align = flags & MEM_HUGE ? HUGE_PAGE : mem_page_size();
    if (must_fail() || want == 0 || want > SIZE_MAX - align)
        return NULL;
    size_t extra = align > mem_page_size() ? align : 0;
    char *p = mmap(NULL, want + extra, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    if (extra) { /* cut the mapping to an aligned piece */
        size_t head = (align - (uintptr_t)p % align) % align;
        if (head)
            munmap(p, head);
        if (extra - head)
            munmap(p + head + want, extra - head);
        p += head;
        madvise(p, want, MADV_HUGEPAGE); /* advice: a kernel without huge pages may refuse */
    }
    if (flags & MEM_DONTFORK)
        madvise(p, want, MADV_DONTFORK);
    return p;
}

void *mem_map(size_t n, unsigned flags)
{
    size_t want = page_round(n);
    void *p = map_pages(want, flags, PROT_READ | PROT_WRITE);
    if (p)
        count(want);
    return p;
}

void *mem_reserve(size_t n, unsigned flags)
{
    return map_pages(page_round(n), flags, PROT_NONE);
}

bool mem_open(void *p, size_t n)
{
    if (n == 0)
        return true;
    if (must_fail() || mprotect(p, n, PROT_READ | PROT_WRITE) != 0)
        return false;
    count(n);
    return true;
}

/* Where the pages cannot be protected (too many mappings) they are given back all the same. */
void mem_close(void *p, size_t n)
{
    if (n == 0)
        return;
    madvise(p, n, MADV_DONTNEED);
    (void)!mprotect(p, n, PROT_NONE);
    atomic_fetch_sub(&now_bytes, n);
}

void mem_release(void *p, size_t n, size_t open)
{
    if (!p)
        return;
    munmap(p, page_round(n));
    atomic_fetch_sub(&now_bytes, open);
}

void mem_unmap(void *p, size_t n)
{
    if (!p)
        return;
    size_t want = page_round(n);
    munmap(p, want);
    atomic_fetch_sub(&now_bytes, want);
}

void mem_populate(void *p, size_t n)
{
    size_t skew = (uintptr_t)p % mem_page_size();
    if (n) /* kernels before 5.14 refuse: pages then come when touched */
        madvise((char *)p - skew, n + skew, MADV_POPULATE_WRITE);
}

int mem_count_resident(const void *p, size_t n, int n_probes)
{
    size_t page = mem_page_size(), skew = (uintptr_t)p % page, pages = (n + skew + page - 1) / page;
    char *first = (char *)((uintptr_t)p - skew);
    int found = 0;
    for (int i = 0; n && i < n_probes; i++) {
        size_t at = pages * (2 * (size_t)i + 1) /
                    (2 * (size_t)n_probes); /* middles of n_probes parts */
        unsigned char in;
        if (mincore(first + at * page, 1, &in) != 0)
            return -1;
        found += in & 1;
    }
    return found;
}

uint64_t mem_now(void)
{
    return atomic_load(&now_bytes);
}

uint64_t mem_peak(void)
{
    return atomic_load(&peak_bytes);
}

void mem_fail_after(int64_t n)
{
    atomic_store(&fail_left, n);
}
