/* gguf.h: reading GGUF files (versions 2 and 3) and split sets of them.
 *
 * A struct gguf is the parsed header of one model: metadata and the tensor directory, over all its
 * shards. It keeps no tensor data. Bounds are checked at open: after gguf_open succeeds every
 * tensor lies inside its file, every string and array inside the metadata, and names and keys are
 * unique. Source: the GGUF specification, docs/gguf.md of the ggml project. */
#ifndef GGUF_GGUF_H
#define GGUF_GGUF_H

#include "base/err.h"

#define GGUF_MAX_DIMS   4
#define GGUF_MAX_SHARDS 999

enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_N_TYPES
};

struct gguf_str {
    const char *p; /* not terminated; may hold any byte */
    size_t n;
};

struct gguf_tensor {
    char *name;    /* terminated; control characters were refused */
    uint32_t type; /* GGML type id, known to quant_type_info */
    int n_dims;
    uint64_t dims[GGUF_MAX_DIMS]; /* dims[0] is the row length; missing ones are 1 */
    uint64_t offset;              /* in its shard's file, from the file's start */
    uint64_t bytes;
    int shard;
};

struct gguf;

/* Parse path and, when it is the first shard of a split set, all its shards. */
int gguf_open(const char *path, struct gguf **out, struct sl_err *err);
/* Parse one file's bytes (tests, fuzzing): n bytes at p stand for a file of file_size bytes that
 * starts with them. */
int gguf_parse(const uint8_t *p, size_t n, uint64_t file_size, const char *name, struct gguf **out,
               struct sl_err *err);
void gguf_close(struct gguf **g);

int gguf_n_shards(const struct gguf *g);
const char *gguf_shard_path(const struct gguf *g, int shard);
uint64_t gguf_shard_size(const struct gguf *g, int shard);
uint64_t gguf_file_bytes(const struct gguf *g); /* all shards */
uint32_t gguf_version(const struct gguf *g);

size_t gguf_n_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name); /* NULL: none */

/* Metadata. kv_* getters return 1 when found, 0 when there is no such key, a negative code when its
 * type does not fit (any integer type that holds the value fits an integer getter; float getters
 * take F32 and F64). */
size_t gguf_n_kv(const struct gguf *g);
struct gguf_kv {
    struct gguf_str key;
    enum gguf_type type, elem; /* elem: of an array */
    uint64_t n;                /* of an array */
};
void gguf_kv_at(const struct gguf *g, size_t i, struct gguf_kv *out);
int gguf_find_kv(const struct gguf *g, const char *key, struct gguf_kv *out);
int gguf_get_u64(const struct gguf *g, const char *key, uint64_t *out, struct sl_err *err);
int gguf_get_i64(const struct gguf *g, const char *key, int64_t *out, struct sl_err *err);
int gguf_get_f64(const struct gguf *g, const char *key, double *out, struct sl_err *err);
int gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct sl_err *err);
int gguf_get_str(const struct gguf *g, const char *key, struct gguf_str *out, struct sl_err *err);
/* Arrays. Element i of an array of strings / of integers / of floats; i < n was checked by the
 * caller. */
int gguf_get_arr(const struct gguf *g, const char *key, enum gguf_type *elem, uint64_t *n,
                 struct sl_err *err);
struct gguf_arr; /* cursor over one array: strings are found in one pass */
int gguf_arr_open(const struct gguf *g, const char *key, struct gguf_arr **out,
                  struct sl_err *err); /* 1/0/neg */
bool gguf_arr_next_str(struct gguf_arr *a, struct gguf_str *out);
bool gguf_arr_next_i64(struct gguf_arr *a, int64_t *out);
bool gguf_arr_next_f64(struct gguf_arr *a, double *out);
void gguf_arr_close(struct gguf_arr **a);

#endif
