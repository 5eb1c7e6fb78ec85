/* packed.h: trees of packed experts: each layer's experts in a file of its own, the matrices of one
 * expert side by side, each expert starting on a page, so that it takes one read.
 *
 *   DIR/manifest.json               what the trees hold and which model they belong to
 *   DIR/packed_experts/layer_NN.bin one expert after the other, `stride` bytes apart
 *   DIR/packed_experts_Q3/...       the same, requantised
 *
 * A tree is fully determined by the model, the kind and the page size (packed_plan). What a
 * manifest claims is only compared with that, never used; so a manifest that is wrong or hostile
 * cannot place a read anywhere. */
#ifndef MODEL_PACKED_H
#define MODEL_PACKED_H

#include "base/sha256.h"
#include "gguf/gguf.h"
#include "io/file.h"

#define PACKED_MANIFEST  "manifest.json"
#define PACKED_MAX_PARTS 3
#define PACKED_PAGE      4096 /* the smallest page */
#define PACKED_FOLDERS   3
#define PACKED_MAX_JSON  ((size_t)2 << 20) /* bytes of a manifest; of 1024 layers it has 1 MiB */

/* One matrix of an expert, or two that the model keeps as one. */
struct packed_part {
    char tensor[64];
    uint32_t type;                    /* in the tree */
    uint64_t rows, row_values;        /* of one expert */
    uint64_t at, bytes;               /* inside the expert */
    const struct gguf_tensor *source; /* of a planned tree; NULL in one that was read */
};
struct packed_layer {
    int block; /* of the model */
    int n_parts;
    struct packed_part part[PACKED_MAX_PARTS];
    uint64_t n_experts, stride;
    bool done;                    /* the file is whole */
    uint8_t sha256[SHA256_BYTES]; /* of the whole file, when done */
};
struct packed_tree {
    enum sl_packed kind;
    uint64_t page;
    int n_layers;
    struct packed_layer *layer;
};

/* Names: "packed_experts_Q3"; "Q3_K", "lossless"; "--q3-experts" as run takes it. */
const char *packed_folder(enum sl_packed kind);
const char *packed_kind_name(enum sl_packed kind);
const char *packed_run_flag(enum sl_packed kind);
int packed_folder_index(enum sl_packed kind); /* below PACKED_FOLDERS */
/* DIR/FOLDER/layer_07.bin; false: it does not fit. */
bool packed_layer_path(const char *dir, enum sl_packed kind, int block, char *buf, size_t size);

/* The tree that packing g makes. page: a power of two, PACKED_PAGE or more. SL_E_UNSUPPORTED names
 * the tensor that cannot be requantised. g is borrowed (part.source). */
int packed_plan(const struct gguf *g, enum sl_packed kind, uint64_t page, struct packed_tree **out,
                struct sl_err *err);
void packed_free(struct packed_tree **t);
uint64_t packed_file_bytes(const struct packed_layer *l);
uint64_t packed_tree_bytes(const struct packed_tree *t);
/* NULL: both describe the same files; else what differs, in buf. */
const char *packed_compare(const struct packed_tree *want, const struct packed_tree *have,
                           char *buf, size_t size);

/* SHA-256 of metadata, tensor table, sizes and the first 64 KiB of each expert tensor. files: one
 * per shard. */
int packed_identify(const struct gguf *g, struct io_file *const *files, char hex[SHA256_HEX],
                    struct sl_err *err);

/* ---- The manifest (packed_json.c) ---- */

struct packed_manifest {
    char identity[SHA256_HEX];
    char source[256]; /* the model file's name */
    uint64_t source_bytes;
    struct packed_tree *tree[PACKED_FOLDERS]; /* NULL: none */
};
/* name: for messages. Hostile bytes are welcome. */
int packed_parse(const char *json, size_t n, const char *name, struct packed_manifest **out,
                 struct sl_err *err);
int packed_read(const char *path, struct packed_manifest **out, struct sl_err *err);
/* JSON text, to be given to mem_free. */
int packed_format(const struct packed_manifest *m, char **out, struct sl_err *err);
void packed_close(struct packed_manifest **m);

#endif
