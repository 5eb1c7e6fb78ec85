/* fuzz_detok.c: ids, one byte each, through the streaming detokeniser; 0xfe and 0xff after a 0xfd
 * are a wrong id and a flush. Nothing is lost or changed, and exactly the bytes that could become a
 * character are held back. */
#include "base/mem.h"
#include "fuzz/target.h"
#include "text/make_vocab.h"
#include "text/utf8.h"

#include <stdlib.h>
#include <string.h>

static void check(bool ok)
{
    if (!ok)
        abort();
}

/* Append a part to what came out so far; it must be what went in. */
static void take(char *all, size_t *n_all, const char *s, size_t n, const uint8_t *want)
{
    check(n == 0 || memcmp(want + *n_all, s, n) == 0);
    memcpy(all + *n_all, s, n);
    *n_all += n;
}

static void feed_all(struct detok *d, const uint8_t *data, size_t size, char *all)
{
    uint8_t *want = malloc(size + 1);
    size_t n_want = 0, n_all = 0, flushed = 0, n;
    const char *s;
    struct sl_err err;
    check(want != NULL);
    for (size_t i = 0; i < size; i++) {
        bool escape = data[i] == 0xfd && i + 1 < size;
        if (escape && data[i + 1] == 0xfe) {
            check(detok_feed(d, 100000, &s, &n, &err) == SL_E_ARG && n == 0);
        } else if (escape && data[i + 1] == 0xff) {
            detok_flush(d, &s, &n);
            take(all, &n_all, s, n, want);
            check(n_all == n_want);
            flushed = n_all;
        } else {
            want[n_want++] = data[i];
            check(detok_feed(d, data[i], &s, &n, &err) == 0);
            take(all, &n_all, s, n, want);
            check(n_want - n_all == utf8_open_tail((char *)want + flushed, n_want - flushed));
            continue;
        }
        i++;
    }
    detok_flush(d, &s, &n);
    take(all, &n_all, s, n, want);
    check(n_all == n_want);
    free(want);
}

/* The vocabulary is the same for every input: made once, kept to the end. */
static const struct vocab *byte_vocab(void)
{
    static struct vocab *v;
    if (v)
        return v;
    struct make_list list;
    struct make_vocab spec;
    struct sl_err err;
    make_list_init(&list);
    make_vocab_init(&spec);
    make_list_use(&list, &spec);
    check(make_vocab_open(&spec, &v, &err) == 0);
    make_list_free(&list);
    return v;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sl_err err;
    struct detok *d;
    const struct vocab *v = byte_vocab();
    uint64_t before = mem_now();
    check(detok_open(v, &d, &err) == 0);
    char *all = malloc(size + 1);
    check(all != NULL);
    feed_all(d, data, size, all);
    free(all);
    detok_close(&d);
    check(mem_now() == before);
    return 0;
}
