/* bpe.c: byte-pair merging of one piece of text.
 *
 * The pair with the lowest rank is merged first, the leftmost of equals, until no pair merges.
 * Short pieces are scanned again after each merge, which is fastest; long ones use a heap of pairs
 * over a linked list of symbols, so that a megabyte of one letter costs n log n. */
#include <string.h>

#include "base/mem.h"
#include "text/internal.h"

#define SHORT_WORD 32 /* bytes; up to here scanning beats the heap */

/* One line of the cache: a piece and its ids. 64 bytes. */
#define CACHE_KEY  30
#define CACHE_IDS  8
#define CACHE_SIZE 8192 /* a power of two; 512 KiB */
struct bpe_entry {
    uint8_t len, n; /* len 0: empty */
    char key[CACHE_KEY];
    int32_t ids[CACHE_IDS];
};

/* A symbol of a long word; merged ones keep the left one's place. */
struct bpe_sym {
    int32_t id; /* -1: merged into its left neighbour */
    uint32_t prev, next;
};

/* A pair that could be merged; stale when its symbols have changed since. */
struct bpe_pair {
    uint32_t rank, at; /* at: index of the left symbol */
    int32_t left, right;
};

#define NONE UINT32_MAX

void bpe_init_cache(struct bpe *b)
{
    b->cache = mem_calloc(CACHE_SIZE, sizeof *b->cache);
}

void bpe_free(struct bpe *b)
{
    mem_free(b->cache);
    mem_free(b->sym);
    mem_free(b->heap);
    memset(b, 0, sizeof *b);
}

int vocab_reserve_ids(struct vocab_ids *ids, size_t more, struct sl_err *err)
{
    if (more <= ids->cap - ids->n)
        return 0;
    size_t cap = ids->n + more;
    cap += cap / 2 + 16;
    int32_t *p = cap < SIZE_MAX / sizeof *p ? mem_realloc(ids->p, cap * sizeof *p) : NULL;
    if (!p)
        return err_set(err, SL_E_MEM, NULL, "no memory for the token ids");
    ids->p = p;
    ids->cap = cap;
    return 0;
}

int vocab_push_id(struct vocab_ids *ids, int32_t id, struct sl_err *err)
{
    int rc = vocab_reserve_ids(ids, 1, err);
    if (!rc)
        ids->p[ids->n++] = id;
    return rc;
}

/* The token that stands for one byte. Where the vocabulary lacks it, its unknown token does, unless
 * that is a control token, which text must never give. */
static int32_t id_of_byte(const struct vocab *v, unsigned char byte, struct sl_err *err)
{
    int32_t id = v->byte_id[byte];
    if (id < 0 && v->unk >= 0 && v->type[v->unk] != VOCAB_CONTROL)
        id = v->unk;
    if (id < 0)
        err_set(err, SL_E_UNSUPPORTED, NULL, "the vocabulary has no token for the byte 0x%02x",
                byte);
    return id;
}

int bpe_encode_byte(const struct vocab *v, unsigned char byte, struct vocab_ids *out,
                    struct sl_err *err)
{
    int32_t id = id_of_byte(v, byte, err);
    return id < 0 ? SL_E_UNSUPPORTED : vocab_push_id(out, id, err);
}

/* ids[0..n) are the bytes' tokens and become the word's; returns their number. n <= SHORT_WORD. */
static size_t merge_short(const struct vocab *v, int32_t *ids, size_t n)
{
    const struct textmap_merge *pair[SHORT_WORD]; /* pair[i]: of ids[i] and ids[i + 1] */
    for (size_t i = 0; i + 1 < n; i++)
        pair[i] = textmap_find_pair(&v->merges, ids[i], ids[i + 1]);
    while (n > 1) {
        size_t best = n;
        uint32_t rank = NONE;
        for (size_t i = 0; i + 1 < n; i++) {
            if (pair[i] && pair[i]->rank < rank) {
                rank = pair[i]->rank;
                best = i;
            }
        }
        if (best == n)
            break;
        ids[best] = pair[best]->id;
        n--;
        memmove(ids + best + 1, ids + best + 2, (n - best - 1) * sizeof *ids);
        if (n > best + 1) {
            memmove(pair + best + 1, pair + best + 2, (n - best - 2) * sizeof *pair);
            pair[best] = textmap_find_pair(&v->merges, ids[best], ids[best + 1]);
        }
        if (best > 0)
            pair[best - 1] = textmap_find_pair(&v->merges, ids[best - 1], ids[best]);
    }
    return n;
}

static bool pair_before(const struct bpe_pair *a, const struct bpe_pair *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static int heap_push(struct bpe *b, struct bpe_pair p, struct sl_err *err)
{
    if (b->heap_n == b->heap_cap) {
        size_t cap = b->heap_cap + b->heap_cap / 2 + 256;
        struct bpe_pair *heap = cap < SIZE_MAX / sizeof *heap
                                    ? mem_realloc(b->heap, cap * sizeof *heap)
                                    : NULL;
        if (!heap)
            return err_set(err, SL_E_MEM, NULL, "no memory to merge a long word");
        b->heap = heap;
        b->heap_cap = cap;
    }
    size_t i = b->heap_n++;
    for (size_t up; i > 0 && pair_before(&p, &b->heap[up = (i - 1) / 2]); i = up)
        b->heap[i] = b->heap[up];
    b->heap[i] = p;
    return 0;
}

/* heap_n > 0 */
static struct bpe_pair heap_pop(struct bpe *b)
{
    struct bpe_pair top = b->heap[0], last = b->heap[--b->heap_n];
    size_t i = 0;
    for (size_t c; (c = 2 * i + 1) < b->heap_n; i = c) {
        if (c + 1 < b->heap_n && pair_before(&b->heap[c + 1], &b->heap[c]))
            c++;
        if (!pair_before(&b->heap[c], &last))
            break;
        b->heap[i] = b->heap[c];
    }
    b->heap[i] = last;
    return top;
}

/* Push the pair of symbol at and the one behind it, if it merges. */
static int offer_pair(struct bpe *b, const struct vocab *v, uint32_t at, struct sl_err *err)
{
    uint32_t next = b->sym[at].next;
    if (next == NONE)
        return 0;
    int32_t left = b->sym[at].id, right = b->sym[next].id;
    const struct textmap_merge *m = textmap_find_pair(&v->merges, left, right);
    if (!m)
        return 0;
    return heap_push(b, (struct bpe_pair){m->rank, at, left, right}, err);
}

static int init_symbols(struct bpe *b, const struct vocab *v, const char *s, size_t n,
                        struct sl_err *err)
{
    if (n > b->sym_cap) {
        mem_free(b->sym);
        b->sym_cap = 0;
        b->sym = mem_alloc(n * sizeof *b->sym); /* n <= VOCAB_MAX_TEXT */
        if (!b->sym)
            return err_set(err, SL_E_MEM, NULL, "no memory to merge a word of %zu bytes", n);
        b->sym_cap = n;
    }
    for (size_t i = 0; i < n; i++) {
        int32_t id = id_of_byte(v, (unsigned char)s[i], err);
        if (id < 0)
            return SL_E_UNSUPPORTED;
        b->sym[i] = (struct bpe_sym){id, i ? (uint32_t)i - 1 : NONE,
                                     i + 1 < n ? (uint32_t)i + 1 : NONE};
    }
    b->heap_n = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        int rc = offer_pair(b, v, (uint32_t)i, err);
        if (rc)
            return rc;
    }
    return 0;
}

static int merge_long(struct bpe *b, const struct vocab *v, const char *s, size_t n,
                      struct vocab_ids *out, struct sl_err *err)
{
    int rc = init_symbols(b, v, s, n, err);
    if (rc)
        return rc;
    struct bpe_sym *sym = b->sym;
    while (b->heap_n) {
        struct bpe_pair p = heap_pop(b);
        struct bpe_sym *l = &sym[p.at];
        if (l->id != p.left || l->next == NONE || sym[l->next].id != p.right)
            continue;
        struct bpe_sym *r = &sym[l->next];
        l->id = textmap_find_pair(&v->merges, p.left, p.right)->id;
        r->id = -1;
        l->next = r->next;
        if (l->next != NONE)
            sym[l->next].prev = p.at;
        rc = offer_pair(b, v, p.at, err);
        if (!rc && l->prev != NONE)
            rc = offer_pair(b, v, l->prev, err);
        if (rc)
            return rc;
    }
    for (uint32_t i = 0; i != NONE && !rc; i = sym[i].next)
        rc = vocab_push_id(out, sym[i].id, err);
    return rc;
}

static int encode_short(struct bpe_entry *e, const struct vocab *v, const char *s, size_t n,
                        struct vocab_ids *out, struct sl_err *err)
{
    int rc = vocab_reserve_ids(out, n, err);
    if (rc)
        return rc;
    int32_t *ids = out->p + out->n;
    for (size_t i = 0; i < n; i++) {
        ids[i] = id_of_byte(v, (unsigned char)s[i], err);
        if (ids[i] < 0)
            return SL_E_UNSUPPORTED;
    }
    size_t k = merge_short(v, ids, n);
    out->n += k;
    if (e && k <= CACHE_IDS) {
        e->len = (uint8_t)n;
        e->n = (uint8_t)k;
        memcpy(e->key, s, n);
        memcpy(e->ids, ids, k * sizeof *ids);
    }
    return 0;
}

int bpe_encode_word(struct bpe *b, const struct vocab *v, const char *s, size_t n,
                    struct vocab_ids *out, struct sl_err *err)
{
    if (n == 1)
        return bpe_encode_byte(v, (unsigned char)s[0], out, err);
    struct bpe_entry *e = NULL;
    if (b->cache && n <= CACHE_KEY) {
        e = &b->cache[textmap_hash(s, n) & (CACHE_SIZE - 1)];
        if (e->len == n && memcmp(e->key, s, n) == 0) {
            int rc = vocab_reserve_ids(out, CACHE_IDS, err);
            if (rc)
                return rc;
            memcpy(out->p + out->n, e->ids, sizeof e->ids);
            out->n += e->n;
            return 0;
        }
    }
    if (pretok_get_kind(v->pretok)->ignore_merges) {
        int32_t id = textmap_find_bytes(&v->by_bytes, s, n);
        if (id >= 0)
            return vocab_push_id(out, id, err);
    }
    if (n <= SHORT_WORD)
        return encode_short(e, v, s, n, out, err);
    return merge_long(b, v, s, n, out, err);
}
