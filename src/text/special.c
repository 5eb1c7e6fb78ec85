/* special.c: tokens that are found in the text before it is cut into pieces.
 *
 * The tokens stand sorted by their bytes. A search narrows the range of those that agree with the
 * text byte by byte; a token is a match when it ends, and the last match is the longest. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/internal.h"

static int compare_bytes(struct gguf_str a, struct gguf_str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int c = n ? memcmp(a.p, b.p, n) : 0;
    return c ? c : (a.n > b.n) - (a.n < b.n);
}

static int compare_ids(const void *pa, const void *pb, void *user)
{
    const struct vocab *v = user;
    int32_t a = *(const int32_t *)pa, b = *(const int32_t *)pb;
    int c = compare_bytes(vocab_bytes_of(v, a), vocab_bytes_of(v, b));
    return c ? c : (a > b) - (a < b);
}

static int build_one(const struct vocab *v, struct vocab_special *sp, bool control,
                     struct sl_err *err)
{
    size_t n = 0;
    for (int pass = 0; pass < 2; pass++) {
        n = 0;
        for (int32_t i = 0; i < v->n; i++) {
            bool in = v->type[i] == VOCAB_USER || (control && v->type[i] == VOCAB_CONTROL);
            if (!in || v->off[i + 1] == v->off[i])
                continue;
            if (pass)
                sp->id[n] = i;
            n++;
        }
        if (pass == 0) {
            sp->id = mem_alloc((n ? n : 1) * sizeof *sp->id);
            if (!sp->id)
                return err_set(err, SL_E_MEM, NULL, "no memory for the special tokens");
        }
    }
    qsort_r(sp->id, n, sizeof *sp->id, compare_ids, (void *)(uintptr_t)v);
    for (size_t i = 0; i < n; i++) { /* of equal ones the lowest id stays */
        struct gguf_str s = vocab_bytes_of(v, sp->id[i]);
        if (sp->n && compare_bytes(vocab_bytes_of(v, sp->id[sp->n - 1]), s) == 0)
            continue;
        sp->id[sp->n++] = sp->id[i];
        sp->starts[(unsigned char)s.p[0]] = true;
    }
    return 0;
}

int special_build_index(struct vocab *v, struct sl_err *err)
{
    int rc = build_one(v, &v->user, false, err);
    return rc ? rc : build_one(v, &v->all, true, err);
}

void special_free_index(struct vocab *v)
{
    mem_free(v->user.id);
    mem_free(v->all.id);
    v->user.id = v->all.id = NULL;
}

/* The first index in [lo, hi) whose byte d is at least c; all of them have a byte d. */
static size_t lower_bound(const struct vocab *v, const struct vocab_special *sp, size_t lo,
                          size_t hi, size_t d, unsigned c)
{
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if ((unsigned char)vocab_bytes_of(v, sp->id[mid]).p[d] < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The longest token that s[0..n) starts with, or -1. */
static int32_t match_here(const struct vocab *v, const struct vocab_special *sp, const char *s,
                          size_t n)
{
    int32_t found = -1;
    size_t lo = 0, hi = sp->n;
    for (size_t d = 0; lo < hi; d++) {
        if (vocab_bytes_of(v, sp->id[lo]).n == d) { /* sorted: a prefix stands first */
            found = sp->id[lo++];
            if (lo == hi)
                break;
        }
        if (d == n)
            break;
        unsigned c = (unsigned char)s[d];
        lo = lower_bound(v, sp, lo, hi, d, c);
        hi = lower_bound(v, sp, lo, hi, d, c + 1);
    }
    return found;
}

bool special_find_next(const struct vocab *v, const struct vocab_special *sp, const char *s,
                       size_t n, size_t from, size_t *at, int32_t *id)
{
    if (sp->n == 0)
        return false;
    for (size_t i = from; i < n; i++) {
        if (!sp->starts[(unsigned char)s[i]])
            continue;
        int32_t t = match_here(v, sp, s + i, n - i);
        if (t >= 0) {
            *at = i;
            *id = t;
            return true;
        }
    }
    return false;
}

int32_t special_find_exact(const struct vocab *v, const struct vocab_special *sp, const char *s,
                           size_t n)
{
    int32_t id = match_here(v, sp, s, n);
    return id >= 0 && vocab_bytes_of(v, id).n == n ? id : -1;
}
