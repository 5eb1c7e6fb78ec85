/* detok.c: ids to text as they come; a character is given out when its last byte is there. */
#include <string.h>

#include "base/mem.h"
#include "text/utf8.h"
#include "text/vocab.h"

struct detok {
    const struct vocab *v;
    char *buf;
    size_t cap;
    size_t given; /* buf[0..given) was handed out by the last call */
    size_t held;  /* buf[given..given + held) waits for more bytes; at most 3 */
};

int detok_open(const struct vocab *v, struct detok **out, struct sl_err *err)
{
    *out = mem_calloc(1, sizeof **out);
    if (!*out)
        return err_set(err, SL_E_MEM, NULL, "no memory for the detokeniser");
    (*out)->v = v;
    return 0;
}

int detok_feed(struct detok *d, int32_t id, const char **text, size_t *n, struct sl_err *err)
{
    *text = "";
    *n = 0;
    if (id < 0 || id >= vocab_size(d->v))
        return err_set(err, SL_E_ARG, NULL, "token id %d is not in the vocabulary of %d", (int)id,
                       vocab_size(d->v));
    struct gguf_str piece = vocab_piece(d->v, id);
    if (piece.n == 0)
        return 0;
    if (d->cap < d->held + piece.n) {
        size_t cap = d->held + piece.n + 256; /* a piece is at most VOCAB_MAX_TOKEN bytes */
        char *buf = mem_alloc(cap);
        if (!buf)
            return err_set(err, SL_E_MEM, NULL, "no memory for the detokeniser");
        if (d->held)
            memcpy(buf, d->buf + d->given, d->held);
        mem_free(d->buf);
        d->buf = buf;
        d->cap = cap;
    } else if (d->held) {
        memmove(d->buf, d->buf + d->given, d->held);
    }
    memcpy(d->buf + d->held, piece.p, piece.n);
    size_t all = d->held + piece.n;
    d->held = utf8_open_tail(d->buf, all);
    d->given = all - d->held;
    *text = d->buf;
    *n = d->given;
    return 0;
}

void detok_flush(struct detok *d, const char **text, size_t *n)
{
    *text = d->held ? d->buf + d->given : "";
    *n = d->held;
    d->given += d->held;
    d->held = 0;
}

void detok_close(struct detok **dd)
{
    if (*dd) {
        mem_free((*dd)->buf);
        mem_free(*dd);
    }
    *dd = NULL;
}
