/* ggufw.h: writes GGUF files for tests, well-formed ones and, by the fields below, broken ones.
 * Running out of memory or a failed write ends the program. */
#ifndef SUPPORT_GGUFW_H
#define SUPPORT_GGUFW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ggufw_buf {
    uint8_t *p;
    size_t n, cap;
};

struct ggufw {
    uint32_t version;        /* 3 */
    size_t align;            /* 32: what offsets are padded to; write the key yourself */
    int64_t n_kv, n_tensors; /* -1: as many as were added */
    struct ggufw_buf kv, infos, data;
    uint64_t kv_added, tensors_added;
};

void ggufw_init(struct ggufw *w);
void ggufw_free(struct ggufw *w);

void ggufw_u8(struct ggufw *w, const char *key, uint8_t v);
void ggufw_i8(struct ggufw *w, const char *key, int8_t v);
void ggufw_u16(struct ggufw *w, const char *key, uint16_t v);
void ggufw_i16(struct ggufw *w, const char *key, int16_t v);
void ggufw_u32(struct ggufw *w, const char *key, uint32_t v);
void ggufw_i32(struct ggufw *w, const char *key, int32_t v);
void ggufw_u64(struct ggufw *w, const char *key, uint64_t v);
void ggufw_i64(struct ggufw *w, const char *key, int64_t v);
void ggufw_f32(struct ggufw *w, const char *key, float v);
void ggufw_f64(struct ggufw *w, const char *key, double v);
void ggufw_bool(struct ggufw *w, const char *key, uint8_t v);
void ggufw_str(struct ggufw *w, const char *key, const char *v);
/* Any value: type id and its bytes. */
void ggufw_raw(struct ggufw *w, const char *key, uint32_t type, const void *bytes, size_t n);
/* count elements in n bytes (scalars as they lie in memory). */
void ggufw_arr(struct ggufw *w, const char *key, uint32_t elem, uint64_t count, const void *bytes,
               size_t n);
void ggufw_arr_str(struct ggufw *w, const char *key, const char *const *s, size_t count);

/* A tensor with its data behind the last one's; data NULL: zero bytes. n_bytes is yours to say. */
void ggufw_tensor(struct ggufw *w, const char *name, uint32_t type, int n_dims,
                  const uint64_t *dims, const void *data, size_t n_bytes);
/* A record alone, nothing checked or added to the data. */
void ggufw_tensor_raw(struct ggufw *w, const char *name, size_t name_bytes, uint32_t type,
                      uint32_t n_dims, const uint64_t *dims, uint64_t offset);

/* The file's bytes, malloc'd to their exact size. */
uint8_t *ggufw_bytes(const struct ggufw *w, size_t *n);
void ggufw_save(const struct ggufw *w, const char *path);
void ggufw_save_bytes(const char *path, const void *bytes, size_t n);

#endif
