/* mem.h: all memory of the library, counted.
 *
 * Every block is counted at the size that the system gives for it (pages for large ones), so that
 * the high-water mark can be set beside the process's RssAnon. Blocks of MEM_MAP_MIN bytes or more
 * are mappings of their own: freeing them returns the memory to the system at once. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEM_MAP_MIN ((size_t)256 << 10)
#define MEM_ALIGN   64

/* Memory of n bytes aligned to MEM_ALIGN, not initialised; NULL when there is none (n = 0 gives a
 * block). */
void *mem_alloc(size_t n);
/* n * size bytes, zeroed; NULL when there is none or the product overflows. */
void *mem_calloc(size_t n, size_t size);
/* Resize, contents kept; on failure NULL and the old block stays. p may be NULL. */
void *mem_realloc(void *p, size_t n);
void mem_free(void *p); /* NULL is fine */
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n);

enum mem_map_flags {
    MEM_HUGE = 1,     /* ask for transparent huge pages */
    MEM_DONTFORK = 2, /* a child process does not get it: a fork during reads must not copy pages */
};
/* A page-aligned zeroed mapping of n bytes (rounded up to pages; to 2 MiB alignment with MEM_HUGE).
 * It is counted in full at once although untouched pages take no memory. NULL when there is none.
 */
void *mem_map(size_t n, unsigned flags);
void mem_unmap(void *p, size_t n); /* n as given to mem_map; NULL is fine */
/* Address space for n bytes, as mem_map lays it out, without memory behind it: it is not counted
 * and may not be touched. NULL when there is none. */
void *mem_reserve(size_t n, unsigned flags);
/* Whole pages [p, p + n) of a reservation that are closed get memory, zeroed and counted; false:
 * the system gives none. */
bool mem_open(void *p, size_t n);
/* Whole pages that are open lose it: it goes back to the system at once. */
void mem_close(void *p, size_t n);
/* End a reservation of n bytes, of which `open` are open; NULL is fine. */
void mem_release(void *p, size_t n, size_t open);
/* Touch the pages of [p, p + n) ahead of use; safe on memory that is being written by others. */
void mem_populate(void *p, size_t n);

/* Of n_probes evenly spread pages of [p, p + n), how many are in memory; -1: the system does not
 * say. Any mapping, a file's too. */
int mem_count_resident(const void *p, size_t n, int n_probes);

uint64_t mem_now(void);
uint64_t mem_peak(void);
size_t mem_page_size(void);

/* Tests: the n-th allocation from now fails, and every later one; negative: none fails. */
void mem_fail_after(int64_t n);

#endif
