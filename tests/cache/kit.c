#include "cache/kit.h"

#include "base/mem.h"
#include "base/size.h"
#include "io/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE 4096

uint64_t kit_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

int kit_below(uint64_t *state, int n)
{
    return (int)(kit_random(state) % (uint64_t)n);
}

static void write_file(struct kit *k)
{
    const char *dir = getenv("TMPDIR");
    snprintf(k->path, sizeof k->path, "%.40s/sluice-cache-XXXXXX", dir && *dir ? dir : "/tmp");
    int fd = mkstemp(k->path);
    assert_true(fd >= 0);
    for (uint64_t at = 0; at < k->size;) {
        ssize_t n = write(fd, k->bytes + at, k->size - at);
        assert_true(n > 0);
        at += (uint64_t)n;
    }
    close(fd);
}

/* Parts of a layer one after the other, as tensors in a file are; the last slice ends the file. */
void kit_open(struct kit *k, const struct kit_shape *shape, uint64_t seed)
{
    memset(k, 0, sizeof *k);
    k->n_layers = shape->n_layers;
    k->n_experts = shape->n_experts;
    k->top_k = shape->top_k;
    uint64_t rng = seed, at = shape->aligned ? PAGE : 1 + (uint64_t)kit_below(&rng, 5000);
    uint64_t bytes[KIT_MAX_LAYERS][CACHE_MAX_PARTS];
    for (int i = 0; i < shape->n_classes; i++)
        for (int j = 0; j < shape->n_parts; j++)
            bytes[i][j] = shape->aligned
                              ? size_up(shape->bytes, PAGE) + (uint64_t)i * PAGE
                              : shape->bytes / 2 + 1 + kit_random(&rng) % (shape->bytes + 1);
    for (int l = 0; l < k->n_layers; l++) {
        struct cache_layer *ly = &k->layer[l];
        if (shape->dense_gaps && l % 2)
            continue;
        ly->n_parts = shape->n_parts;
        ly->n_experts = shape->n_experts;
        ly->top_k = shape->top_k;
        for (int j = 0; j < ly->n_parts; j++) {
            uint64_t n = bytes[l % shape->n_classes][j];
            uint64_t gap = shape->aligned ? 0 : (uint64_t)kit_below(&rng, 3) * 17;
            ly->part[j] = (struct cache_part){.offset = at, .stride = n + gap, .bytes = n};
            at += (n + gap) * (uint64_t)ly->n_experts - gap;
            k->size = at;
            if (!shape->aligned)
                at += (uint64_t)kit_below(&rng, 300);
        }
    }
    k->bytes = mem_alloc(k->size);
    assert_non_null(k->bytes);
    for (uint64_t i = 0; i < k->size; i++)
        k->bytes[i] = (uint8_t)((i * UINT64_C(0x9e3779b97f4a7c15)) >> 53);
    write_file(k);
    struct sl_err err;
    assert_int_equal(io_file_open(k->path, shape->direct, &k->file, &err), 0);
    for (int l = 0; l < k->n_layers; l++)
        for (int j = 0; j < k->layer[l].n_parts; j++)
            k->layer[l].part[j].file = k->file;
}

void kit_close(struct kit *k)
{
    io_file_close(&k->file);
    unlink(k->path);
    mem_free(k->bytes);
}

struct cache_config kit_config(const struct kit *k)
{
    return (struct cache_config){.layers = k->layer,
                                 .n_layers = k->n_layers,
                                 .align = io_file_align(k->file),
                                 .slots = -1,
                                 .in_flight = 2,
                                 .threads = 1,
                                 .split = 1,
                                 .overlap = true,
                                 .policy = "lru"};
}

bool kit_same(const struct kit *k, int layer, int expert, const struct expert_view *v)
{
    const struct cache_layer *ly = &k->layer[layer];
    for (int j = 0; j < ly->n_parts; j++) {
        uint64_t at = ly->part[j].offset + (uint64_t)expert * ly->part[j].stride;
        if (memcmp(v->part[j], k->bytes + at, ly->part[j].bytes) != 0)
            return false;
    }
    return true;
}

uint64_t kit_read_bytes(const struct kit *k, int layer, int expert, size_t align)
{
    const struct cache_layer *ly = &k->layer[layer];
    uint64_t sum = 0;
    for (int j = 0; j < ly->n_parts; j++) {
        uint64_t at = ly->part[j].offset + (uint64_t)expert * ly->part[j].stride;
        uint64_t end = size_up(at + ly->part[j].bytes, align);
        sum += (end < k->size ? end : k->size) - size_down(at, align);
    }
    return sum;
}

struct io_reader *kit_fake(int order, double delay_s, int in_flight)
{
    struct io_fake_script s = {
        .order = order, .delay_s = delay_s, .seed = 7, .fail_at = -1, .short_at = -1};
    struct io_reader *r;
    struct sl_err err;
    assert_int_equal(io_fake_create(&s, in_flight, &r, &err), 0);
    return r;
}

struct cache *kit_cache(const struct cache_config *cfg, struct io_reader *r)
{
    struct cache *c = NULL;
    struct sl_err err = {0};
    int rc = cache_create(cfg, r, &c, &err);
    if (rc)
        print_message("%s: %s\n", err.where, err.msg);
    assert_int_equal(rc, 0);
    return c;
}

int kit_pass(struct cache *c, const struct kit *k, int layer, const int32_t *ids,
             const int32_t *counts, int n, enum cache_order order, int32_t *handed)
{
    struct sl_err err = {0};
    struct expert_view v;
    int index, got = 0, rc;
    assert_int_equal(cache_pass_begin(c, layer, ids, counts, n, order, &err), 0);
    while ((rc = cache_pass_next(c, &index, &v, &err)) == 1) {
        assert_true(kit_same(k, layer, ids[index], &v));
        if (handed)
            handed[got] = ids[index];
        got++;
        cache_pass_release(c, index);
    }
    if (rc)
        print_message("%s: %s\n", err.where, err.msg);
    assert_int_equal(rc, 0);
    cache_pass_end(c);
    assert_int_equal(got, n);
    return got;
}

struct cache_stats kit_stats(const struct cache *c)
{
    struct cache_stats s;
    cache_get_stats(c, &s);
    return s;
}
