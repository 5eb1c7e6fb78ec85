#include "model/packed.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "gguf/cursor.h"
#include "model/config.h"
#include "quant/quant.h"

#define IDENTITY_HEAD ((uint64_t)64 << 10) /* of each expert tensor */
#define READ_PIECE    ((size_t)1 << 20)

static const struct {
    const char *folder, *name, *flag;
    uint32_t type; /* of requantised experts */
    int index;
} KINDS[] = {
    [SL_PACKED_NONE] = {"", "none", "", QT_COUNT, 0},
    [SL_PACKED_LOSSLESS] = {"packed_experts", "lossless", "--packed", QT_COUNT, 0},
    [SL_PACKED_4BIT] = {"packed_experts", "Q4_K", "--4bit", QT_Q4_K, 0},
    [SL_PACKED_Q3] = {"packed_experts_Q3", "Q3_K", "--q3-experts", QT_Q3_K, 1},
    [SL_PACKED_2BIT] = {"packed_experts_2bit", "Q2_K", "--2bit", QT_Q2_K, 2},
};

const char *packed_folder(enum sl_packed kind)
{
    return KINDS[kind].folder;
}

const char *packed_kind_name(enum sl_packed kind)
{
    return KINDS[kind].name;
}

const char *packed_run_flag(enum sl_packed kind)
{
    return KINDS[kind].flag;
}

int packed_folder_index(enum sl_packed kind)
{
    return KINDS[kind].index;
}

bool packed_layer_path(const char *dir, enum sl_packed kind, int block, char *buf, size_t size)
{
    int n = snprintf(buf, size, "%s/%s/layer_%02d.bin", dir, KINDS[kind].folder, block);
    return n > 0 && (size_t)n < size;
}

void packed_free(struct packed_tree **t)
{
    if (t && *t) {
        mem_free((*t)->layer);
        mem_free(*t);
        *t = NULL;
    }
}

uint64_t packed_file_bytes(const struct packed_layer *l)
{
    return l->n_experts * l->stride;
}

uint64_t packed_tree_bytes(const struct packed_tree *t)
{
    uint64_t n = 0;
    for (int i = 0; i < t->n_layers; i++)
        n += packed_file_bytes(&t->layer[i]);
    return n;
}

/* ---- The plan ---- */

/* "blk.N.ffn_KIND_exps.weight": the part's place (gate or gate and up, up, down); -1: no expert
 * tensor. */
static int find_place(const char *name, int *block)
{
    static const struct {
        const char *rest;
        int place;
    } names[] = {{".ffn_gate_exps.weight", 0},
                 {".ffn_gate_up_exps.weight", 0},
                 {".ffn_up_exps.weight", 1},
                 {".ffn_down_exps.weight", 2}};
    if (strncmp(name, "blk.", 4) != 0)
        return -1;
    const char *p = name + 4;
    int n = 0, digits = 0;
    for (; *p >= '0' && *p <= '9' && digits < 4; p++, digits++)
        n = n * 10 + (*p - '0');
    if (digits == 0 || n >= MODEL_MAX_LAYERS)
        return -1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(p, names[i].rest) == 0) {
            *block = n;
            return names[i].place;
        }
    return -1;
}

typedef const struct gguf_tensor *places[PACKED_MAX_PARTS];

static int find_tensors(const struct gguf *g, places *found, struct sl_err *err)
{
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        int block, place = find_place(t->name, &block);
        if (place < 0)
            continue;
        if (found[block][place])
            return err_set(err, SL_E_FORMAT, t->name, "tensor %s and %s are in each other's way",
                           t->name, found[block][place]->name);
        found[block][place] = t;
    }
    return 0;
}

static int check_requantise(const struct gguf_tensor *t, uint32_t type, struct sl_err *err)
{
    const struct quant_info *to = quant_type_info(type), *from = quant_type_info(t->type);
    float probe;
    if (t->dims[0] % to->block_values != 0)
        return err_set(err, SL_E_UNSUPPORTED, t->name,
                       "tensor %s has rows of %llu values; %s wants a multiple of %u: pack without "
                       "a type, which keeps the model's own",
                       t->name, (unsigned long long)t->dims[0], to->name, to->block_values);
    if (!quant_dequant(t->type, "", &probe, 0))
        return err_set(err, SL_E_UNSUPPORTED, t->name,
                       "tensor %s has type %s, which cannot be turned into numbers", t->name,
                       from->name);
    return 0;
}

static int plan_part(const struct gguf_tensor *t, enum sl_packed kind, struct packed_layer *l,
                     uint64_t *at, struct sl_err *err)
{
    struct packed_part *p = &l->part[l->n_parts++];
    if (strlen(t->name) >= sizeof p->tensor || t->dims[3] != 1 || t->dims[2] < 1 ||
        t->dims[2] > MODEL_MAX_EXPERTS || t->dims[1] < 1)
        return err_set(err, SL_E_FORMAT, t->name, "tensor %s is %llu x %llu x %llu: no experts",
                       t->name, (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
                       (unsigned long long)t->dims[2]);
    if (l->n_experts == 0)
        l->n_experts = t->dims[2];
    if (l->n_experts != t->dims[2])
        return err_set(err, SL_E_FORMAT, t->name, "tensor %s has %llu experts, %s has %llu",
                       t->name, (unsigned long long)t->dims[2], l->part[0].tensor,
                       (unsigned long long)l->n_experts);
    snprintf(p->tensor, sizeof p->tensor, "%s", t->name);
    p->source = t;
    p->type = KINDS[kind].type == QT_COUNT ? t->type : KINDS[kind].type;
    if (p->type != t->type) {
        int rc = check_requantise(t, p->type, err);
        if (rc < 0)
            return rc;
    }
    p->row_values = t->dims[0];
    p->rows = t->dims[1];
    p->at = *at;
    uint64_t row = quant_row_bytes(p->type, p->row_values);
    if (row == 0 || !size_mul(row, p->rows, &p->bytes) || !size_add(*at, p->bytes, at) ||
        *at > (uint64_t)1 << 40)
        return err_set(err, SL_E_FORMAT, t->name, "tensor %s: its experts are too large", t->name);
    return 0;
}

static int plan_layer(places found, enum sl_packed kind, uint64_t page, struct packed_layer *l,
                      struct sl_err *err)
{
    uint64_t at = 0;
    for (int i = 0; i < PACKED_MAX_PARTS; i++) {
        int rc = found[i] ? plan_part(found[i], kind, l, &at, err) : 0;
        if (rc < 0)
            return rc;
    }
    l->stride = size_up(at, page);
    return 0;
}

int packed_plan(const struct gguf *g, enum sl_packed kind, uint64_t page, struct packed_tree **out,
                struct sl_err *err)
{
    *out = NULL;
    places *found = mem_calloc(MODEL_MAX_LAYERS, sizeof *found);
    struct packed_tree *t = mem_calloc(1, sizeof *t);
    struct packed_layer *layers = mem_calloc(MODEL_MAX_LAYERS, sizeof *layers);
    int rc = found && t && layers ? find_tensors(g, found, err)
                                  : err_set(err, SL_E_MEM, "packed experts", "no memory");
    for (int b = 0; rc == 0 && b < MODEL_MAX_LAYERS; b++) {
        if (!found[b][0] && !found[b][1] && !found[b][2])
            continue;
        layers[t->n_layers].block = b;
        rc = plan_layer(found[b], kind, page, &layers[t->n_layers++], err);
    }
    if (rc == 0 && t->n_layers == 0)
        rc = err_set(err, SL_E_UNSUPPORTED, "packed experts",
                     "the model has no routed experts: there is nothing to pack");
    mem_free(found);
    if (rc < 0) {
        mem_free(layers);
        mem_free(t);
        return rc;
    }
    t->kind = kind;
    t->page = page;
    t->layer = layers;
    *out = t;
    return 0;
}

/* ---- Comparison ---- */

static const char *compare_layers(const struct packed_layer *a, const struct packed_layer *b,
                                  char *buf, size_t size)
{
    if (a->block != b->block || a->n_parts != b->n_parts || a->n_experts != b->n_experts ||
        a->stride != b->stride) {
        snprintf(buf, size,
                 "layer %d with %llu experts of %d matrices, %llu bytes apart, where %d with %llu "
                 "of %d, %llu apart was expected",
                 b->block, (unsigned long long)b->n_experts, b->n_parts,
                 (unsigned long long)b->stride, a->block, (unsigned long long)a->n_experts,
                 a->n_parts, (unsigned long long)a->stride);
        return buf;
    }
    for (int i = 0; i < a->n_parts; i++) {
        const struct packed_part *p = &a->part[i], *q = &b->part[i];
        if (strcmp(p->tensor, q->tensor) != 0 || p->type != q->type || p->rows != q->rows ||
            p->row_values != q->row_values || p->at != q->at || p->bytes != q->bytes) {
            snprintf(buf, size, "layer %d: another type or shape of %s", a->block, p->tensor);
            return buf;
        }
    }
    return NULL;
}

const char *packed_compare(const struct packed_tree *want, const struct packed_tree *have,
                           char *buf, size_t size)
{
    if (want->kind != have->kind || want->page != have->page || want->n_layers != have->n_layers) {
        snprintf(buf, size, "%d layers, %s, where %d, %s were expected", have->n_layers,
                 packed_kind_name(have->kind), want->n_layers, packed_kind_name(want->kind));
        return buf;
    }
    for (int i = 0; i < want->n_layers; i++)
        if (compare_layers(&want->layer[i], &have->layer[i], buf, size))
            return buf;
    return NULL;
}

/* ---- Identity ---- */

static int add_range(struct sha256 *s, struct io_file *f, uint64_t offset, uint64_t n, uint8_t *buf,
                     struct sl_err *err)
{
    while (n > 0) {
        size_t take = n < READ_PIECE ? (size_t)n : READ_PIECE;
        int rc = io_file_read_any(f, buf, offset, take, err);
        if (rc < 0)
            return rc;
        sha256_add(s, buf, take);
        offset += take;
        n -= take;
    }
    return 0;
}

/* Everything before a shard's first tensor: metadata and tensor table. */
static uint64_t head_bytes(const struct gguf *g, int shard)
{
    uint64_t n = gguf_shard_size(g, shard);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (t->shard == shard && t->offset < n)
            n = t->offset;
    }
    return n < CURSOR_MAX_HEADER ? n : CURSOR_MAX_HEADER;
}

static void add_number(struct sha256 *s, uint64_t n)
{
    uint8_t le[8];
    for (int i = 0; i < 8; i++)
        le[i] = (uint8_t)(n >> (8 * i));
    sha256_add(s, le, sizeof le);
}

int packed_identify(const struct gguf *g, struct io_file *const *files, char hex[SHA256_HEX],
                    struct sl_err *err)
{
    struct sha256 s;
    uint8_t *buf = mem_alloc(READ_PIECE), digest[SHA256_BYTES];
    int rc = buf ? 0 : err_set(err, SL_E_MEM, "packed experts", "no memory");
    sha256_begin(&s);
    for (int i = 0; rc == 0 && i < gguf_n_shards(g); i++) {
        add_number(&s, gguf_shard_size(g, i));
        add_number(&s, head_bytes(g, i));
        rc = add_range(&s, files[i], 0, head_bytes(g, i), buf, err);
    }
    for (size_t i = 0; rc == 0 && i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        int block;
        if (find_place(t->name, &block) < 0)
            continue;
        rc = add_range(&s, files[t->shard], t->offset,
                       t->bytes < IDENTITY_HEAD ? t->bytes : IDENTITY_HEAD, buf, err);
    }
    mem_free(buf);
    if (rc == 0) {
        sha256_end(&s, digest);
        sha256_print(digest, hex);
    }
    return rc;
}
