/* gguf.c: what a parsed header says: shards, tensors, metadata values. Everything was checked when
 * it was parsed; nothing here can leave the metadata's bytes. */
#include "base/mem.h"
#include "gguf/internal.h"

#include <string.h>

void gguf_close(struct gguf **gp)
{
    struct gguf *g = gp ? *gp : NULL;
    if (!g)
        return;
    *gp = NULL;
    for (int i = 0; i < g->n_shards; i++)
        mem_free(g->shard[i].path);
    mem_free(g->shard);
    for (struct gguf_arena *a = g->arena, *next; a; a = next) {
        next = a->next;
        mem_free(a);
    }
    names_free(&g->keys);
    names_free(&g->tensor_names);
    mem_free(g->tensor);
    mem_free(g->kv);
    mem_free(g->meta);
    mem_free(g);
}

int gguf_parse(const uint8_t *p, size_t n, uint64_t file_size, const char *name, struct gguf **out,
               struct sl_err *err)
{
    struct cursor c;
    cursor_over_bytes(&c, p, n, file_size);
    return gguf_read_file(&c, name, out, err);
}

int gguf_n_shards(const struct gguf *g)
{
    return g->n_shards;
}

const char *gguf_shard_path(const struct gguf *g, int shard)
{
    return g->shard[shard].path;
}

uint64_t gguf_shard_size(const struct gguf *g, int shard)
{
    return g->shard[shard].size;
}

uint64_t gguf_file_bytes(const struct gguf *g)
{
    uint64_t sum = 0;
    for (int i = 0; i < g->n_shards; i++)
        sum += g->shard[i].size;
    return sum;
}

uint32_t gguf_version(const struct gguf *g)
{
    return g->version;
}

size_t gguf_n_tensors(const struct gguf *g)
{
    return g->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i)
{
    return &g->tensor[i];
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name)
{
    int64_t i = names_find(&g->tensor_names, name, strlen(name));
    return i < 0 ? NULL : &g->tensor[i];
}

/* ---- Metadata ---- */

size_t gguf_n_kv(const struct gguf *g)
{
    return g->n_kv;
}

void gguf_kv_at(const struct gguf *g, size_t i, struct gguf_kv *out)
{
    const struct gguf_entry *e = &g->kv[i];
    *out = (struct gguf_kv){.key = {(const char *)g->meta + e->key, e->key_n}, .type = e->type};
    if (e->type == GGUF_ARRAY) {
        out->elem = e->elem;
        out->n = e->n;
    }
}

static const struct gguf_entry *find(const struct gguf *g, const char *key)
{
    int64_t i = names_find(&g->keys, key, strlen(key));
    return i < 0 ? NULL : &g->kv[i];
}

int gguf_find_kv(const struct gguf *g, const char *key, struct gguf_kv *out)
{
    const struct gguf_entry *e = find(g, key);
    if (!e)
        return 0;
    gguf_kv_at(g, (size_t)(e - g->kv), out);
    return 1;
}

static int wrong_type(const struct gguf *g, const char *key, const struct gguf_entry *e,
                      const char *wanted, struct sl_err *err)
{
    bool array = e->type == GGUF_ARRAY;
    return gguf_fail(err, SL_E_FORMAT, g->shard[0].path,
                     "metadata key '%.100s' is of type %s%s, not %s", key, array ? "array of " : "",
                     gguf_type_name(array ? e->elem : e->type), wanted);
}

static bool is_signed(uint32_t type)
{
    return type == GGUF_I8 || type == GGUF_I16 || type == GGUF_I32 || type == GGUF_I64;
}

static bool is_integer(uint32_t type)
{
    return is_signed(type) || type == GGUF_U8 || type == GGUF_U16 || type == GGUF_U32 ||
           type == GGUF_U64;
}

/* The 64-bit pattern of an integer or bool at p, sign-extended. */
static uint64_t load_integer(uint32_t type, const uint8_t *p)
{
    unsigned n = gguf_scalar_size(type);
    uint64_t v = cursor_le(p, n);
    uint64_t sign = (uint64_t)1 << (8 * n - 1);
    return is_signed(type) ? (v ^ sign) - sign : v;
}

static double load_float(uint32_t type, const uint8_t *p)
{
    if (type == GGUF_F32) {
        uint32_t u = (uint32_t)cursor_le(p, 4);
        float f;
        memcpy(&f, &u, sizeof f);
        return (double)f;
    }
    uint64_t u = cursor_le(p, 8);
    double d;
    memcpy(&d, &u, sizeof d);
    return d;
}

/* want_signed: the value must fit int64_t, else uint64_t. */
static int get_integer(const struct gguf *g, const char *key, bool want_signed, uint64_t *out,
                       struct sl_err *err)
{
    const struct gguf_entry *e = find(g, key);
    if (!e)
        return 0;
    if (!is_integer(e->type))
        return wrong_type(g, key, e, "an integer", err);
    uint64_t v = load_integer(e->type, g->meta + e->value);
    bool negative = is_signed(e->type) && v >> 63;
    if (want_signed ? !is_signed(e->type) && v > INT64_MAX : negative)
        return gguf_fail(err, SL_E_FORMAT, g->shard[0].path, "metadata key '%.100s' is %s", key,
                         negative ? "negative" : "too large");
    *out = v;
    return 1;
}

int gguf_get_u64(const struct gguf *g, const char *key, uint64_t *out, struct sl_err *err)
{
    return get_integer(g, key, false, out, err);
}

int gguf_get_i64(const struct gguf *g, const char *key, int64_t *out, struct sl_err *err)
{
    uint64_t v;
    int rc = get_integer(g, key, true, &v, err);
    if (rc == 1)
        *out = (int64_t)v;
    return rc;
}

int gguf_get_f64(const struct gguf *g, const char *key, double *out, struct sl_err *err)
{
    const struct gguf_entry *e = find(g, key);
    if (!e)
        return 0;
    if (e->type != GGUF_F32 && e->type != GGUF_F64)
        return wrong_type(g, key, e, "a float", err);
    *out = load_float(e->type, g->meta + e->value);
    return 1;
}

int gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct sl_err *err)
{
    const struct gguf_entry *e = find(g, key);
    if (!e)
        return 0;
    if (e->type != GGUF_BOOL)
        return wrong_type(g, key, e, "a bool", err);
    *out = g->meta[e->value] != 0;
    return 1;
}

int gguf_get_str(const struct gguf *g, const char *key, struct gguf_str *out, struct sl_err *err)
{
    const struct gguf_entry *e = find(g, key);
    if (!e)
        return 0;
    if (e->type != GGUF_STRING)
        return wrong_type(g, key, e, "a string", err);
    *out = (struct gguf_str){(const char *)g->meta + e->value, (size_t)e->n};
    return 1;
}

/* ---- Arrays ---- */

int gguf_get_arr(const struct gguf *g, const char *key, enum gguf_type *elem, uint64_t *n,
                 struct sl_err *err)
{
    const struct gguf_entry *e = find(g, key);
    if (!e)
        return 0;
    if (e->type != GGUF_ARRAY)
        return wrong_type(g, key, e, "an array", err);
    *elem = e->elem;
    *n = e->n;
    return 1;
}

struct gguf_arr {
    const uint8_t *p; /* next element */
    uint64_t left;
    uint32_t elem;
};

int gguf_arr_open(const struct gguf *g, const char *key, struct gguf_arr **out, struct sl_err *err)
{
    *out = NULL;
    const struct gguf_entry *e = find(g, key);
    if (!e)
        return 0;
    if (e->type != GGUF_ARRAY)
        return wrong_type(g, key, e, "an array", err);
    if (e->elem == GGUF_ARRAY)
        return wrong_type(g, key, e, "an array of strings or numbers", err);
    struct gguf_arr *a = mem_alloc(sizeof *a);
    if (!a)
        return gguf_fail(err, SL_E_MEM, g->shard[0].path, "no memory for an array");
    *a = (struct gguf_arr){.p = g->meta + e->value, .left = e->n, .elem = e->elem};
    *out = a;
    return 1;
}

bool gguf_arr_next_str(struct gguf_arr *a, struct gguf_str *out)
{
    if (a->left == 0 || a->elem != GGUF_STRING)
        return false;
    size_t n = (size_t)cursor_le(a->p, 8);
    *out = (struct gguf_str){(const char *)a->p + 8, n};
    a->p += 8 + n;
    a->left--;
    return true;
}

bool gguf_arr_next_i64(struct gguf_arr *a, int64_t *out)
{
    if (a->left == 0 || !(is_integer(a->elem) || a->elem == GGUF_BOOL))
        return false;
    uint64_t v = load_integer(a->elem, a->p);
    if (a->elem == GGUF_U64 && v > INT64_MAX)
        return false;
    *out = (int64_t)v;
    a->p += gguf_scalar_size(a->elem);
    a->left--;
    return true;
}

bool gguf_arr_next_f64(struct gguf_arr *a, double *out)
{
    if (a->left == 0 || (a->elem != GGUF_F32 && a->elem != GGUF_F64))
        return false;
    *out = load_float(a->elem, a->p);
    a->p += gguf_scalar_size(a->elem);
    a->left--;
    return true;
}

void gguf_arr_close(struct gguf_arr **a)
{
    if (a) {
        mem_free(*a);
        *a = NULL;
    }
}
