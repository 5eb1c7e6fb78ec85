/* internal.h: what the files of src/gguf share. */
#ifndef GGUF_INTERNAL_H
#define GGUF_INTERNAL_H

#include "gguf/cursor.h"
#include "gguf/gguf.h"
#include "gguf/names.h"

/* Of a model, all shards together. Models with unmerged experts have some ten thousand. */
#define GGUF_MAX_TENSORS 262144

/* Offsets are into struct gguf's meta. */
struct gguf_entry {
    uint32_t key, key_n;
    uint32_t value;     /* the scalar's bytes, the string's bytes, the array's first element */
    uint8_t type, elem; /* enum gguf_type; elem: of an array */
    uint64_t n;         /* bytes of a string, elements of an array */
};

/* Tensor names: terminated strings in blocks that never move. */
struct gguf_arena {
    struct gguf_arena *next;
    size_t used;
    char text[16000];
};

struct gguf_shard {
    char *path;
    uint64_t size;
};

struct gguf {
    uint32_t version;
    uint8_t *meta; /* the file's bytes from its start to the end of its metadata */
    struct gguf_entry *kv;
    size_t n_kv, cap_kv;
    struct gguf_tensor *tensor;
    size_t n_tensors, cap_tensors;
    struct gguf_arena *arena;
    struct gguf_shard *shard;
    int n_shards;
    struct names keys, tensor_names;
};

/* Set *err to "PATH: ..." with where = PATH; returns code. */
int gguf_fail(struct sl_err *err, int code, const char *path, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Parse one file: *out has one shard, named path. The cursor stays the caller's. */
int gguf_read_file(struct cursor *c, const char *path, struct gguf **out, struct sl_err *err);

/* Index the tensors by name; a name that occurs twice is an error. Replaces an older index. */
int gguf_index_tensors(struct gguf *g, struct sl_err *err);

/* Append room for one element of `size` bytes to an array that grows by half; false: no memory. */
bool gguf_grow(void **array, size_t *cap, size_t n, size_t size);

/* Bytes of a scalar type; 0 for strings, arrays and unknown types. */
unsigned gguf_scalar_size(uint32_t type);
/* "uint32"; "?" for unknown types. */
const char *gguf_type_name(uint32_t type);

/* What a file is that does not begin as GGUF does: a phrase with advice. n bytes at p, at least 1.
 */
const char *gguf_sniff(const uint8_t *p, size_t n);

#endif
