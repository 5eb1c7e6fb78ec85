/* nfc.c: NFC with the data of utf8proc.
 *
 * Most text is in NFC already, so the text is cut into stretches and only those that could change
 * are worked on. Characters below U+0300 and the precomposed Hangul syllables are stable alone and
 * never join what stands before them; they can only be the first of a stretch. Characters that
 * neither decompose, nor combine, nor compose ("inert") end a stretch on both sides.
 *
 * utf8proc's own driver sorts combining marks by exchanges, which is quadratic in a run of marks;
 * so the sorting is done here and only its tables and its linear composition are used. */
#include "text/nfc.h"

#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "text/utf8.h"

enum kind { KIND_INERT, KIND_FIRST, KIND_OTHER };

static enum kind kind_of(int32_t c)
{
    if (c < 0x300 || (c >= 0xac00 && c <= 0xd7a3))
        return KIND_FIRST;
    if (c >= 0x1100 && c <= 0x11ff) /* Hangul jamo compose by arithmetic, the tables are silent */
        return KIND_OTHER;
    const utf8proc_property_t *p = utf8proc_get_property(c);
    if (p->combining_class == 0 && p->decomp_seqindex == UINT16_MAX && p->comb_index == UINT16_MAX)
        return KIND_INERT;
    return KIND_OTHER;
}

/* Room for n elements of size bytes in *p. */
static int reserve(void *p, size_t *cap, size_t n, size_t size, struct sl_err *err)
{
    if (n <= *cap)
        return 0;
    size_t want = n < SIZE_MAX / 2 ? n + n / 2 + 64 : n;
    void *old, *mem = NULL;
    memcpy(&old, p, sizeof old);
    if (want <= SIZE_MAX / size)
        mem = mem_realloc(old, want * size);
    if (!mem)
        return err_set(err, SL_E_MEM, NULL, "no memory to normalise the text");
    memcpy(p, &mem, sizeof mem);
    *cap = want;
    return 0;
}

static int append(struct nfc *b, const char *s, size_t n, struct sl_err *err)
{
    if (n == 0)
        return 0;
    int rc = reserve(&b->out, &b->cap, b->n + n, 1, err);
    if (rc)
        return rc;
    memcpy(b->out + b->n, s, n);
    b->n += n;
    return 0;
}

static unsigned class_of(int32_t c)
{
    return (unsigned)utf8proc_get_property(c)->combining_class & 0xff;
}

/* Stable sort of cp[0..n) by combining class: by insertion when short, by counting when long. */
static int sort_marks(struct nfc *b, int32_t *cp, size_t n, struct sl_err *err)
{
    if (n <= 16) {
        for (size_t i = 1; i < n; i++) {
            int32_t c = cp[i];
            unsigned k = class_of(c);
            size_t j = i;
            for (; j > 0 && class_of(cp[j - 1]) > k; j--)
                cp[j] = cp[j - 1];
            cp[j] = c;
        }
        return 0;
    }
    int rc = reserve(&b->tmp, &b->tmp_cap, n, sizeof *b->tmp, err);
    if (rc)
        return rc;
    size_t at[257] = {0};
    for (size_t i = 0; i < n; i++)
        at[class_of(cp[i]) + 1]++;
    for (int k = 0; k < 256; k++)
        at[k + 1] += at[k];
    for (size_t i = 0; i < n; i++)
        b->tmp[at[class_of(cp[i])]++] = cp[i];
    memcpy(cp, b->tmp, n * sizeof *cp);
    return 0;
}

static int sort_all_marks(struct nfc *b, size_t n, struct sl_err *err)
{
    for (size_t i = 0; i < n;) {
        if (class_of(b->cp[i]) == 0) {
            i++;
            continue;
        }
        size_t j = i + 1;
        while (j < n && class_of(b->cp[j]) != 0)
            j++;
        int rc = sort_marks(b, b->cp + i, j - i, err);
        if (rc)
            return rc;
        i = j;
    }
    return 0;
}

/* Normalise one stretch and append it. */
static int do_stretch(struct nfc *b, const char *s, size_t n, struct sl_err *err)
{
    const utf8proc_option_t opt = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    size_t n_cp = 0;
    int rc;
    for (size_t i = 0, len; i < n; i += len) {
        int32_t c = utf8_decode_char(s + i, n - i, &len);
        /* The longest canonical decomposition of one character has 4 (Unicode 15). */
        rc = reserve(&b->cp, &b->cp_cap, n_cp + 8, sizeof *b->cp, err);
        if (rc)
            return rc;
        utf8proc_ssize_t k = utf8proc_decompose_char(c, b->cp + n_cp, 8, opt, NULL);
        if (k < 0 || k > 8)
            return err_set(err, SL_E_INTERNAL, NULL, "U+%04X can't be decomposed", (unsigned)c);
        n_cp += (size_t)k;
    }
    rc = sort_all_marks(b, n_cp, err);
    if (rc)
        return rc;
    utf8proc_ssize_t k = utf8proc_normalize_utf32(b->cp, (utf8proc_ssize_t)n_cp, opt);
    if (k < 0)
        return err_set(err, SL_E_INTERNAL, NULL, "normalisation failed: %s", utf8proc_errmsg(k));
    for (utf8proc_ssize_t i = 0; i < k; i++) {
        char ch[4];
        rc = append(b, ch, utf8_encode_char(b->cp[i], ch), err);
        if (rc)
            return rc;
    }
    return 0;
}

static size_t ascii_run(const char *s, size_t n)
{
    size_t i = 0;
    for (uint64_t w; n - i >= sizeof w; i += sizeof w) {
        memcpy(&w, s + i, sizeof w);
        if (w & 0x8080808080808080u)
            break;
    }
    while (i < n && !((unsigned char)s[i] & 0x80))
        i++;
    return i;
}

int nfc_normalise(struct nfc *b, const char *s, size_t n, const char **text, size_t *len,
                  struct sl_err *err)
{
    b->n = 0;
    size_t done = 0;  /* s[0..done) is in b->out */
    size_t first = 0; /* where a stretch that ends in a KIND_OTHER would start */
    size_t i = 0;
    while (i < n) {
        size_t run = ascii_run(s + i, n - i);
        if (run) {
            i += run;
            first = i - 1;
            continue;
        }
        size_t k;
        enum kind kind = kind_of(utf8_decode_char(s + i, n - i, &k));
        if (kind != KIND_OTHER) {
            first = kind == KIND_FIRST ? i : i + k;
            i += k;
            continue;
        }
        size_t end = i + k;
        while (end < n && kind_of(utf8_decode_char(s + end, n - end, &k)) == KIND_OTHER)
            end += k;
        int rc = append(b, s + done, first - done, err);
        if (!rc)
            rc = do_stretch(b, s + first, end - first, err);
        if (rc)
            return rc;
        done = first = i = end;
    }
    if (done == 0) {
        *text = s;
        *len = n;
        return 0;
    }
    int rc = append(b, s + done, n - done, err);
    *text = b->out;
    *len = b->n;
    return rc;
}

void nfc_free(struct nfc *b)
{
    mem_free(b->out);
    mem_free(b->cp);
    mem_free(b->tmp);
    memset(b, 0, sizeof *b);
}
