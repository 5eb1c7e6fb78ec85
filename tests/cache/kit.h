/* kit.h: a file of experts with recognisable bytes, its layers, and ways to run passes over them.
 */
#ifndef TESTS_CACHE_KIT_H
#define TESTS_CACHE_KIT_H

#include "cache/cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define KIT_MAX_LAYERS  8
#define KIT_MAX_EXPERTS 64

struct kit {
    char path[64];
    struct io_file *file;
    uint8_t *bytes; /* the whole file */
    uint64_t size;
    struct cache_layer layer[KIT_MAX_LAYERS];
    int n_layers, n_experts, top_k;
};

struct kit_shape {
    int n_layers, n_experts, top_k, n_parts;
    int n_classes;   /* layers take turns through them */
    bool aligned;    /* slices are whole pages at page offsets; else odd lengths anywhere */
    bool direct;     /* ask for direct reads */
    uint64_t bytes;  /* of a slice, about (unaligned) or exactly, rounded up to pages (aligned) */
    bool dense_gaps; /* every second layer has no routed experts */
};

uint64_t kit_random(uint64_t *state);
int kit_below(uint64_t *state, int n); /* 0..n-1 */

void kit_open(struct kit *k, const struct kit_shape *shape, uint64_t seed);
void kit_close(struct kit *k);
/* No cache, 2 in flight, 1 thread, overlap, LRU. */
struct cache_config kit_config(const struct kit *k);

/* Does the view hold exactly expert's slices? */
bool kit_same(const struct kit *k, int layer, int expert, const struct expert_view *v);
/* Bytes that reading this expert moves, whole pages but for the end of the file. */
uint64_t kit_read_bytes(const struct kit *k, int layer, int expert, size_t align);

struct io_reader *kit_fake(int order, double delay_s, int in_flight);
struct cache *kit_cache(const struct cache_config *cfg, struct io_reader *r);

/* A whole pass that holds one expert at a time and checks each; returns the number handed out and
 * their ids in handed (may be NULL). Any failure fails the test. */
int kit_pass(struct cache *c, const struct kit *k, int layer, const int32_t *ids,
             const int32_t *counts, int n, enum cache_order order, int32_t *handed);
struct cache_stats kit_stats(const struct cache *c);

#endif
