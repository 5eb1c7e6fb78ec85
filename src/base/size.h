/* size.h: arithmetic on sizes that come from files; every function says whether it overflowed. */
#ifndef BASE_SIZE_H
#define BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* *out = a + b / a * b; false (and *out untouched or wrapped) on overflow. */
static inline bool size_add(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline bool size_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

/* Round up / down to a multiple of align, a power of two. up: the caller knows that it does not
 * overflow. */
static inline uint64_t size_up(uint64_t n, uint64_t align)
{
    return (n + align - 1) & ~(align - 1);
}

static inline uint64_t size_down(uint64_t n, uint64_t align)
{
    return n & ~(align - 1);
}

#endif
