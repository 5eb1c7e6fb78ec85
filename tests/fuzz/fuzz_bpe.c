/* fuzz_bpe.c: a vocabulary and a text, both from the input. The first byte chooses pre-tokenizer
 * and flags; then records that end in a zero byte, up to an empty one: "n..", "c..", "u..", "x.."
 * add a normal, control, user-defined, unused token, "m.." a merge; the rest is the text. What must
 * hold is checked: the round trip, no control token from plain text, no lost memory. */
#include "base/mem.h"
#include "fuzz/target.h"
#include "text/make_vocab.h"

#include <stdlib.h>
#include <string.h>

#define MAX_RECORDS 200

static void check(bool ok)
{
    if (!ok)
        abort();
}

static const char *own_string(const uint8_t *p, size_t n)
{
    char *s = malloc(n + 1);
    check(s != NULL);
    memcpy(s, p, n);
    s[n] = '\0';
    return s;
}

/* Returns where the text begins. */
static size_t read_records(struct make_list *l, const uint8_t *data, size_t size)
{
    size_t at = 1;
    for (int records = 0; at < size && records < MAX_RECORDS; records++) {
        const uint8_t *end = memchr(data + at, 0, size - at);
        if (!end)
            break;
        size_t n = (size_t)(end - (data + at));
        const char *s = own_string(data + at, n);
        at += n + 1;
        const char *kind = n ? strchr("n1c3u4x5", s[0]) : NULL;
        if (n && s[0] == 'm') {
            l->merges = realloc(l->merges, (l->n_merges + 1) * sizeof *l->merges);
            check(l->merges != NULL);
            l->merges[l->n_merges++] = own_string((const uint8_t *)s + 1, n - 1);
        } else if (kind && s[0] >= 'a') {
            make_list_add(l, s + 1, kind[1] - '0');
        }
        free((void *)(uintptr_t)s);
        if (n == 0)
            break;
    }
    return at < size ? at : size;
}

static void check_text(const struct vocab *v, bool nfc, const char *s, size_t n, unsigned flags)
{
    int32_t *ids;
    size_t n_ids, at = 0;
    struct sl_err err;
    check(vocab_encode(v, s, n, flags, &ids, &n_ids, &err) == 0);
    for (size_t i = 0; i < n_ids; i++) {
        struct gguf_str p = vocab_text(v, ids[i]);
        check(p.n > 0);
        if (!(flags & SL_TOK_PARSE_CONTROL))
            check(!vocab_is_control(v, ids[i]));
        if (nfc)
            continue;
        check(p.n <= n - at && memcmp(p.p, s + at, p.n) == 0);
        at += p.n;
    }
    check(nfc || at == n);
    mem_free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const pres[] = {"gpt-2", "qwen2", "llama-bpe", "smollm"};
    if (size == 0)
        return 0;
    struct make_list list;
    struct make_vocab spec;
    struct sl_err err;
    struct vocab *v;
    uint64_t before = mem_now();
    make_list_init(&list);
    make_vocab_init(&spec);
    size_t at = read_records(&list, data, size);
    make_list_use(&list, &spec);
    spec.pre = pres[data[0] & 3];
    int rc = make_vocab_open(&spec, &v, &err);
    if (rc == 0)
        check_text(v, (data[0] & 3) == 1, (const char *)data + at, size - at,
                   data[0] & 4 ? SL_TOK_PARSE_CONTROL : 0);
    else
        check(v == NULL && rc == err.code && err.msg[0]);
    vocab_close(&v);
    make_list_free(&list);
    check(mem_now() == before);
    return 0;
}
