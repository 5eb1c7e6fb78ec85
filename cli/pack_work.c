/* pack_work.c: from the model's tensors to the bytes of a layer's file. */
#include "cli/pack.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/size.h"
#include "quant/quant.h"

#include <stdatomic.h>
#include <string.h>

#define BATCH_BYTES ((uint64_t)48 << 20) /* of experts that are in memory together */
#define ROW_GRAIN   8

struct batch {
    const struct pack_source *src;
    const struct packed_layer *l;
    uint64_t first, n;   /* experts */
    uint8_t *out;        /* n * stride bytes */
    uint8_t *raw;        /* one part of n experts, as the model has it */
    const uint8_t *data; /* where it begins in raw */
    size_t raw_bytes;
    float *rows;                    /* a row for each thread */
    uint64_t row_room;              /* floats */
    const struct packed_part *part; /* being requantised */
    _Atomic int64_t bad;            /* a row that could not be, or -1 */
    struct sha256 sha;
    pack_sink *sink;
    void *user;
    int rc;
    struct sl_err *err;
};

static uint64_t source_bytes(const struct packed_part *p)
{
    return quant_row_bytes(p->source->type, p->row_values) * p->rows;
}

static bool requantised(const struct packed_part *p)
{
    return p->type != p->source->type;
}

static void requantise_rows(void *arg, int64_t begin, int64_t end, int tid)
{
    struct batch *b = arg;
    const struct packed_part *p = b->part;
    size_t n = (size_t)p->row_values;
    uint64_t from = quant_row_bytes(p->source->type, n), to = quant_row_bytes(p->type, n);
    float *row = b->rows + (uint64_t)tid * b->row_room;
    for (int64_t i = begin; i < end; i++) {
        uint64_t expert = (uint64_t)i / p->rows, r = (uint64_t)i % p->rows;
        uint8_t *dst = b->out + expert * b->l->stride + p->at + r * to;
        if (!quant_dequant(p->source->type, b->data + (uint64_t)i * from, row, n) ||
            !quant_quantise(p->type, row, dst, n))
            atomic_store(&b->bad, i);
    }
}

static int requantise(struct batch *b, struct sl_err *err)
{
    const struct packed_part *p = b->part;
    atomic_store(&b->bad, -1);
    pool_for(b->src->pool, (int64_t)(b->n * p->rows), ROW_GRAIN, requantise_rows, b);
    int64_t bad = atomic_load(&b->bad);
    if (bad < 0)
        return 0;
    return err_set(err, SL_E_NUMERIC, p->tensor,
                   "tensor %s, expert %llu, row %llu: a value is not finite or too large for %s",
                   p->tensor, (unsigned long long)(b->first + (uint64_t)bad / p->rows),
                   (unsigned long long)((uint64_t)bad % p->rows), quant_type_info(p->type)->name);
}

/* The experts of one part lie one behind the other in the model. They are read in whole blocks of
 * the file's alignment, straight into raw. */
static int read_part(struct batch *b, struct sl_err *err)
{
    const struct packed_part *p = b->part;
    struct io_file *f = b->src->files[p->source->shard];
    uint64_t size = source_bytes(p), at = p->source->offset + b->first * size;
    uint64_t from = size_down(at, io_file_align(f)), need = at - from + b->n * size;
    int rc = io_file_read(f, b->raw, from, (size_t)size_up(need, io_file_align(f)), (size_t)need,
                          err);
    b->data = b->raw + (at - from);
    if (rc < 0 || requantised(p))
        return rc < 0 ? rc : requantise(b, err);
    for (uint64_t i = 0; i < b->n; i++)
        memcpy(b->out + i * b->l->stride + p->at, b->data + i * size, (size_t)size);
    return 0;
}

static int fill(struct batch *b, struct sl_err *err)
{
    const struct packed_layer *l = b->l;
    const struct packed_part *last = &l->part[l->n_parts - 1];
    uint64_t used = last->at + last->bytes;
    for (uint64_t i = 0; i < b->n; i++)
        memset(b->out + i * l->stride + used, 0, (size_t)(l->stride - used));
    int rc = 0;
    for (int i = 0; rc == 0 && i < l->n_parts; i++) {
        b->part = &l->part[i];
        rc = read_part(b, err);
    }
    return rc;
}

/* Thread 0 gives the bytes away, the last one hashes them. */
static void give_and_hash(void *arg, int tid)
{
    struct batch *b = arg;
    size_t n = (size_t)(b->n * b->l->stride);
    if (tid == 0)
        b->rc = b->sink(b->user, b->first * b->l->stride, b->out, n, b->err);
    if (tid == pool_threads(b->src->pool) - 1)
        sha256_add(&b->sha, b->out, n);
}

static int take_memory(struct batch *b, struct sl_err *err)
{
    uint64_t out = b->l->stride, raw = 0, row = 0;
    size_t align = mem_page_size();
    for (int i = 0; i < b->l->n_parts; i++) {
        const struct packed_part *p = &b->l->part[i];
        size_t a = io_file_align(b->src->files[p->source->shard]);
        align = a > align ? a : align;
        raw = source_bytes(p) > raw ? source_bytes(p) : raw;
        row = requantised(p) && p->row_values > row ? p->row_values : row;
    }
    uint64_t n = BATCH_BYTES / (out + raw);
    b->n = n < 1 ? 1 : n > b->l->n_experts ? b->l->n_experts : n;
    b->row_room = row;
    b->out = mem_alloc((size_t)(b->n * out));
    b->raw_bytes = (size_t)(b->n * raw) + 2 * align;
    b->raw = mem_map(b->raw_bytes, 0);
    b->rows = row ? mem_calloc((size_t)pool_threads(b->src->pool), (size_t)row * sizeof *b->rows)
                  : NULL;
    if (b->out && b->raw && (b->rows || !row))
        return 0;
    return err_set(err, SL_E_MEM, "pack", "no memory for %llu MiB of experts",
                   (unsigned long long)(b->n * (out + raw) >> 20));
}

int pack_make_layer(const struct pack_source *src, const struct packed_layer *l, pack_sink *sink,
                    void *user, uint8_t sha256[SHA256_BYTES], struct sl_err *err)
{
    struct batch b = {.src = src, .l = l, .sink = sink, .user = user, .err = err};
    int rc = take_memory(&b, err);
    uint64_t most = b.n;
    sha256_begin(&b.sha);
    for (; rc == 0 && b.first < l->n_experts; b.first += b.n) {
        b.n = l->n_experts - b.first < most ? l->n_experts - b.first : most;
        rc = fill(&b, err);
        if (rc == 0) {
            pool_run(src->pool, give_and_hash, &b);
            rc = b.rc;
        }
    }
    sha256_end(&b.sha, sha256);
    mem_free(b.out);
    mem_unmap(b.raw, b.raw_bytes);
    mem_free(b.rows);
    return rc;
}
