/* chat.c: a user's turn in the model's chat form. */
#include <string.h>

#include "base/mem.h"
#include "text/internal.h"

#define IM_START "<|im_start|>"
#define IM_END   "<|im_end|>"

static bool contains(struct gguf_str s, const char *lit)
{
    return memmem(s.p, s.n, lit, strlen(lit)) != NULL;
}

/* The frame's control tokens. A file without a template but with these tokens is taken to be
 * ChatML: nothing in it says otherwise, and the caller asked for a chat turn. */
static int find_frame(const struct vocab *v, const struct gguf *g, int32_t *start, int32_t *end,
                      struct sl_err *err)
{
    const char *key = "tokenizer.chat_template";
    struct gguf_str tpl;
    int rc = gguf_get_str(g, key, &tpl, err);
    if (rc < 0)
        return rc;
    if (rc == 1 && !(contains(tpl, IM_START) && contains(tpl, IM_END)))
        return err_set(err, SL_E_UNSUPPORTED, key,
                       "the model's chat template is not ChatML; other templates can't be rendered "
                       "yet: give the prompt in the model's form yourself");
    *start = vocab_find(v, IM_START);
    *end = vocab_find(v, IM_END);
    if (vocab_is_control(v, *start) && vocab_is_control(v, *end))
        return 0;
    if (rc == 0)
        return err_set(err, SL_E_UNSUPPORTED, key,
                       "the model has no chat template and no ChatML tokens: give plain text");
    return err_set(err, SL_E_UNSUPPORTED, key,
                   "the chat template is ChatML, but the vocabulary has no control tokens " IM_START
                   " and " IM_END);
}

static int append_text(const struct vocab *v, const char *s, size_t n, struct vocab_ids *out,
                       struct sl_err *err)
{
    int32_t *ids;
    size_t k;
    int rc = vocab_encode(v, s, n, 0, &ids, &k, err);
    if (rc)
        return rc;
    rc = vocab_reserve_ids(out, k, err);
    if (!rc && k)
        memcpy(out->p + out->n, ids, k * sizeof *ids);
    out->n += rc ? 0 : k;
    mem_free(ids);
    return rc;
}

static int build_turn(const struct vocab *v, int32_t start, int32_t end, const char *body, size_t n,
                      struct vocab_ids *out, struct sl_err *err)
{
    static const char answer[] = "assistant\n";
    int rc = 0;
    if (vocab_adds_bos(v))
        rc = vocab_push_id(out, v->bos, err);
    if (!rc)
        rc = vocab_push_id(out, start, err);
    if (!rc)
        rc = append_text(v, body, n, out, err);
    if (!rc)
        rc = vocab_push_id(out, end, err);
    if (!rc)
        rc = append_text(v, "\n", 1, out, err);
    if (!rc)
        rc = vocab_push_id(out, start, err);
    if (!rc)
        rc = append_text(v, answer, sizeof answer - 1, out, err);
    return rc;
}

int chat_encode_user(const struct vocab *v, const struct gguf *g, const char *text, size_t n,
                     int32_t **ids, size_t *n_ids, struct sl_err *err)
{
    static const char role[] = "user\n";
    const size_t n_role = sizeof role - 1;
    int32_t start = -1, end = -1;
    *ids = NULL;
    *n_ids = 0;
    int rc = find_frame(v, g, &start, &end, err);
    if (rc)
        return rc;
    if (n > VOCAB_MAX_TEXT - n_role)
        return err_set(err, SL_E_ARG, NULL, "a text of %zu bytes is too long", n);
    /* The role's line and the text are one stretch of plain text: white space at the text's start
     * joins the line's end, as it does when a rendered template is encoded. */
    char *body = mem_alloc(n_role + n);
    if (!body)
        return err_set(err, SL_E_MEM, NULL, "no memory for a text of %zu bytes", n);
    memcpy(body, role, n_role);
    if (n)
        memcpy(body + n_role, text, n);
    struct vocab_ids out = {0};
    rc = build_turn(v, start, end, body, n_role + n, &out, err);
    mem_free(body);
    if (rc) {
        mem_free(out.p);
        return rc;
    }
    *ids = out.p;
    *n_ids = out.n;
    return 0;
}
