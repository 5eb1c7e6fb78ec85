/* fuzz_gguf.c: any bytes as a GGUF header, alone and as the start of a huge file; then everything
 * that the parser accepted is walked, and the parse is repeated with failing allocations. */
#include "base/mem.h"
#include "fuzz/target.h"
#include "gguf/gguf.h"
#include "quant/quant.h"

#include <stdlib.h>
#include <string.h>

static volatile uint64_t sink; /* keeps the reads */

static void touch(struct gguf_str s)
{
    for (size_t i = 0; i < s.n; i++)
        sink += (unsigned char)s.p[i];
}

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void walk_array(const struct gguf *g, const char *key, const struct gguf_kv *kv)
{
    struct gguf_arr *a;
    if (gguf_arr_open(g, key, &a, NULL) != 1)
        return;
    struct gguf_str s;
    int64_t i;
    double d;
    uint64_t n = 0;
    while (kv->elem == GGUF_STRING ? gguf_arr_next_str(a, &s) : gguf_arr_next_i64(a, &i)) {
        if (kv->elem == GGUF_STRING)
            touch(s);
        n++;
    }
    while (gguf_arr_next_f64(a, &d))
        n++;
    check(n == kv->n || kv->elem == GGUF_U64); /* values above INT64_MAX end the loop */
    gguf_arr_close(&a);
}

static void walk_kv(const struct gguf *g, size_t i)
{
    struct gguf_kv kv, again;
    gguf_kv_at(g, i, &kv);
    char *key = malloc(kv.key.n + 1);
    if (!key)
        return;
    memcpy(key, kv.key.p, kv.key.n);
    key[kv.key.n] = 0;
    check(gguf_find_kv(g, key, &again) == 1 && again.key.p == kv.key.p);
    struct gguf_str s;
    uint64_t u;
    int64_t v;
    double d;
    bool b;
    struct sl_err err;
    if (gguf_get_str(g, key, &s, &err) == 1)
        touch(s);
    gguf_get_u64(g, key, &u, &err);
    gguf_get_i64(g, key, &v, &err);
    gguf_get_f64(g, key, &d, &err);
    gguf_get_bool(g, key, &b, &err);
    if (kv.type == GGUF_ARRAY)
        walk_array(g, key, &kv);
    free(key);
}

static void walk(const struct gguf *g, uint64_t file_size)
{
    for (size_t i = 0; i < gguf_n_kv(g); i++)
        walk_kv(g, i);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        check(gguf_find_tensor(g, t->name) == t);
        check(quant_type_info(t->type) != NULL && t->bytes > 0);
        check(t->offset <= file_size && t->bytes <= file_size - t->offset);
    }
}

static int parse(const uint8_t *data, size_t size, uint64_t file_size)
{
    struct gguf *g = NULL;
    struct sl_err err = {0};
    int rc = gguf_parse(data, size, file_size, "fuzz.gguf", &g, &err);
    if (rc == 0)
        walk(g, file_size);
    else
        check(g == NULL && rc == err.code && err.msg[0]);
    gguf_close(&g);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t before = mem_now();
    int rc = parse(data, size, size);
    parse(data, size, (uint64_t)1 << 42);
    mem_fail_after(size % 13);
    int failing = parse(data, size, size);
    mem_fail_after(-1);
    check(failing == rc || failing == SL_E_MEM);
    check(mem_now() == before);
    return 0;
}
