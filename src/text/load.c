#include "text/load.h"

#include <string.h>

#include "base/mem.h"
#include "text/bytemap.h"

#define KEY_TOKENS "tokenizer.ggml.tokens"
#define KEY_TYPES  "tokenizer.ggml.token_type"
#define KEY_MERGES "tokenizer.ggml.merges"

/* Opens the cursor of an array that must exist, with elements of one kind; *n its length. */
static int open_array(const struct gguf *g, const char *key, bool strings, uint64_t max,
                      uint64_t *n, struct gguf_arr **arr, struct sl_err *err)
{
    enum gguf_type elem;
    int rc = gguf_get_arr(g, key, &elem, n, err);
    if (rc < 0)
        return rc;
    if (rc == 0)
        return err_set(err, SL_E_FORMAT, key, "%s: the vocabulary lacks this array", key);
    bool integer = elem != GGUF_STRING && elem != GGUF_ARRAY && elem != GGUF_F32 &&
                   elem != GGUF_F64 && elem != GGUF_BOOL;
    if (strings ? elem != GGUF_STRING : !integer)
        return err_set(err, SL_E_FORMAT, key, "%s: the array's elements should be %s", key,
                       strings ? "strings" : "integers");
    if (*n > max)
        return err_set(err, SL_E_UNSUPPORTED, key, "%s: %llu elements; at most %llu are supported",
                       key, (unsigned long long)*n, (unsigned long long)max);
    rc = gguf_arr_open(g, key, arr, err);
    return rc == 1  ? 0
           : rc < 0 ? rc
                    : err_set(err, SL_E_FORMAT, key, "%s: the array can't be read", key);
}

/* Types of all tokens; without the array all are normal. */
static int read_types(struct vocab *v, const struct gguf *g, struct sl_err *err)
{
    struct gguf_kv kv;
    memset(v->type, VOCAB_NORMAL, (size_t)v->n);
    if (gguf_find_kv(g, KEY_TYPES, &kv) == 0)
        return 0;
    struct gguf_arr *arr;
    uint64_t n;
    int rc = open_array(g, KEY_TYPES, false, VOCAB_MAX_TOKENS, &n, &arr, err);
    if (rc)
        return rc;
    if (n != (uint64_t)v->n)
        rc = err_set(err, SL_E_FORMAT, KEY_TYPES, KEY_TYPES ": %llu types for %d tokens",
                     (unsigned long long)n, v->n);
    int64_t t;
    for (int i = 0; i < v->n && !rc; i++) {
        if (!gguf_arr_next_i64(arr, &t) || t < VOCAB_NORMAL || t > VOCAB_BYTE)
            rc = err_set(err, SL_E_FORMAT, KEY_TYPES, KEY_TYPES ": token %d has no valid type", i);
        else
            v->type[i] = (uint8_t)t;
    }
    gguf_arr_close(&arr);
    return rc;
}

/* Bytes that the tokens' texts take in the file; refuses tokens that are too long. */
static int sum_tokens(const struct gguf *g, uint64_t *sum, struct sl_err *err)
{
    struct gguf_arr *arr;
    struct gguf_str s;
    uint64_t n;
    int rc = open_array(g, KEY_TOKENS, true, VOCAB_MAX_TOKENS, &n, &arr, err);
    if (rc)
        return rc;
    *sum = 0;
    while (!rc && gguf_arr_next_str(arr, &s)) {
        if (s.n > VOCAB_MAX_TOKEN)
            rc = err_set(err, SL_E_UNSUPPORTED, KEY_TOKENS,
                         KEY_TOKENS ": a token of %zu bytes; at most %d are supported", s.n,
                         VOCAB_MAX_TOKEN);
        *sum += s.n;
    }
    gguf_arr_close(&arr);
    if (!rc && (n == 0 || *sum >= UINT32_MAX))
        rc = err_set(err, SL_E_FORMAT, KEY_TOKENS, KEY_TOKENS ": %s",
                     n ? "the tokens are too long together" : "the vocabulary is empty");
    return rc;
}

/* Put one token's bytes at the end of the arena. Normal tokens are written with stand-ins for
 * bytes; one that isn't can't come from text and is kept as it is written. */
static void store_token(struct vocab *v, int i, struct gguf_str s)
{
    char *to = v->arena + v->off[i];
    size_t k = s.n;
    if (v->type[i] == VOCAB_NORMAL && !bytemap_decode(s.p, s.n, to, &k)) {
        v->type[i] = VOCAB_LITERAL;
        k = s.n;
    }
    if (v->type[i] != VOCAB_NORMAL && s.n)
        memcpy(to, s.p, s.n);
    v->off[i + 1] = v->off[i] + (uint32_t)k;
}

int load_read_tokens(struct vocab *v, const struct gguf *g, struct sl_err *err)
{
    uint64_t sum, n;
    int rc = sum_tokens(g, &sum, err);
    if (rc)
        return rc;
    struct gguf_arr *arr;
    rc = open_array(g, KEY_TOKENS, true, VOCAB_MAX_TOKENS, &n, &arr, err);
    if (rc)
        return rc;
    v->n = (int)n;
    v->arena = mem_alloc(sum + 1);
    v->off = mem_calloc(n + 1, sizeof *v->off);
    v->type = mem_alloc(n);
    v->is_eog = mem_calloc(n, 1);
    if (!v->arena || !v->off || !v->type || !v->is_eog)
        rc = err_set(err, SL_E_MEM, NULL, "no memory for %llu tokens", (unsigned long long)n);
    if (!rc)
        rc = read_types(v, g, err);
    for (int i = 0; i < v->n && !rc; i++) {
        struct gguf_str s;
        if (!gguf_arr_next_str(arr, &s))
            rc = err_set(err, SL_E_FORMAT, KEY_TOKENS, KEY_TOKENS ": token %d can't be read", i);
        else if ((v->type[i] == VOCAB_CONTROL || v->type[i] == VOCAB_USER) &&
                 s.n > VOCAB_MAX_SPECIAL)
            rc = err_set(err, SL_E_UNSUPPORTED, KEY_TOKENS,
                         KEY_TOKENS ": special token %d has %zu bytes; at most %d are supported", i,
                         s.n, VOCAB_MAX_SPECIAL);
        else
            store_token(v, i, s);
    }
    gguf_arr_close(&arr);
    return rc;
}

int load_build_lookup(struct vocab *v, struct sl_err *err)
{
    int rc = textmap_init_bytes(&v->by_bytes, v->arena, v->off, (size_t)v->n, err);
    /* Normal tokens first: a user-defined token of the same bytes must not hide one. */
    for (int want = VOCAB_NORMAL; want <= VOCAB_USER && !rc; want += VOCAB_USER - VOCAB_NORMAL)
        for (int32_t i = 0; i < v->n && !rc; i++)
            if (v->type[i] == want && v->off[i + 1] > v->off[i])
                rc = textmap_add_bytes(&v->by_bytes, i, err);
    if (rc)
        return rc;
    for (int b = 0; b < 256; b++) {
        char c = (char)b;
        v->byte_id[b] = textmap_find_bytes(&v->by_bytes, &c, 1);
    }
    return special_build_index(v, err);
}

/* One merge "LEFT RIGHT"; buf has room for it. A merge whose parts or whole are no tokens can never
 * happen and is left out. */
static int add_merge(struct vocab *v, struct gguf_str s, uint32_t rank, char *buf,
                     struct sl_err *err)
{
    const char *gap = s.n > 2 ? memchr(s.p + 1, ' ', s.n - 2) : NULL;
    if (!gap || memchr(gap + 1, ' ', (size_t)(s.p + s.n - (gap + 1))))
        return err_set(err, SL_E_FORMAT, KEY_MERGES,
                       KEY_MERGES ": merge %u is not two tokens with a space between them",
                       (unsigned)rank);
    size_t nl, nr, n_left = (size_t)(gap - s.p);
    if (!bytemap_decode(s.p, n_left, buf, &nl) ||
        !bytemap_decode(gap + 1, s.n - n_left - 1, buf + nl, &nr))
        return 0;
    struct textmap_merge m = {.left = textmap_find_bytes(&v->by_bytes, buf, nl),
                              .right = textmap_find_bytes(&v->by_bytes, buf + nl, nr),
                              .rank = rank,
                              .id = textmap_find_bytes(&v->by_bytes, buf, nl + nr)};
    if (m.left < 0 || m.right < 0 || m.id < 0)
        return 0;
    return textmap_add_pair(&v->merges, m, err);
}

int load_read_merges(struct vocab *v, const struct gguf *g, struct sl_err *err)
{
    struct gguf_arr *arr;
    struct gguf_str s;
    uint64_t n;
    const size_t max = 2 * VOCAB_MAX_TOKEN + 1;
    int rc = open_array(g, KEY_MERGES, true, VOCAB_MAX_MERGES, &n, &arr, err);
    if (rc)
        return rc;
    char *buf = mem_alloc(max);
    if (!buf)
        rc = err_set(err, SL_E_MEM, NULL, "no memory for the merges");
    if (!rc)
        rc = textmap_init_pairs(&v->merges, n, err);
    for (uint32_t rank = 0; !rc && gguf_arr_next_str(arr, &s); rank++) {
        if (s.n > max)
            rc = err_set(err, SL_E_UNSUPPORTED, KEY_MERGES, KEY_MERGES ": merge %u is too long",
                         (unsigned)rank);
        else
            rc = add_merge(v, s, rank, buf, err);
    }
    mem_free(buf);
    gguf_arr_close(&arr);
    return rc;
}

/* An optional token id; all ones and -1 mean none. */
static int read_id(const struct vocab *v, const struct gguf *g, const char *key, int32_t *id,
                   struct sl_err *err)
{
    int64_t x;
    *id = -1;
    int rc = gguf_get_i64(g, key, &x, err);
    if (rc <= 0)
        return rc;
    if (x == -1 || x == UINT32_MAX)
        return 0;
    if (x < 0 || x >= v->n)
        return err_set(err, SL_E_FORMAT, key, "%s: token id %lld is not in the vocabulary of %d",
                       key, (long long)x, v->n);
    *id = (int32_t)x;
    return 0;
}

/* Control tokens that end a turn in the chat forms in use, whether or not the file says so. */
static void mark_known_ends(struct vocab *v)
{
    static const char *const ends[] = {"<|im_end|>",    "<|eot_id|>",      "<|eom_id|>",
                                       "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        int32_t id = special_find_exact(v, &v->all, ends[i], strlen(ends[i]));
        if (id >= 0 && v->type[id] == VOCAB_CONTROL)
            v->is_eog[id] = true;
    }
}

int load_read_rules(struct vocab *v, const struct gguf *g, const struct pretok_kind *kind,
                    struct sl_err *err)
{
    int32_t eot, eom;
    const struct {
        const char *key;
        int32_t *id;
    } ids[] = {{"tokenizer.ggml.bos_token_id", &v->bos},
               {"tokenizer.ggml.eos_token_id", &v->eos},
               {"tokenizer.ggml.unknown_token_id", &v->unk},
               {"tokenizer.ggml.eot_token_id", &eot},
               {"tokenizer.ggml.eom_token_id", &eom}};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        int rc = read_id(v, g, ids[i].key, ids[i].id, err);
        if (rc)
            return rc;
    }
    v->add_bos = kind->add_bos;
    v->add_eos = false;
    if (gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &v->add_bos, err) < 0 ||
        gguf_get_bool(g, "tokenizer.ggml.add_eos_token", &v->add_eos, err) < 0)
        return SL_E_FORMAT;
    const int32_t ends[] = {v->eos, eot, eom};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends[i] >= 0)
            v->is_eog[ends[i]] = true;
    mark_known_ends(v);
    return 0;
}
