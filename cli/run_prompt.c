/* run_prompt.c: where the prompt comes from: -p, -f, --token-ids, or standard input. */
#include "cli/run.h"

#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* No context is that long; the bound keeps a mistyped file name from filling the memory. */
#define MAX_PROMPT_BYTES ((size_t)64 << 20)

/* All of f; name: for messages. */
static int read_stream(FILE *f, const char *name, char **data, size_t *n, struct sl_err *err)
{
    size_t cap = 1 << 16, len = 0;
    char *buf = mem_alloc(cap);
    while (buf != NULL) {
        size_t got = fread(buf + len, 1, cap - len, f);
        len += got;
        if (got == 0)
            break;
        if (len < cap)
            continue;
        if (cap >= MAX_PROMPT_BYTES) {
            mem_free(buf);
            return err_set(err, SL_E_ARG, name, "%s: longer than %zu MiB, no prompt", name,
                           MAX_PROMPT_BYTES >> 20);
        }
        char *more = mem_realloc(buf, cap * 2);
        if (more == NULL)
            mem_free(buf);
        buf = more;
        cap *= 2;
    }
    if (buf == NULL)
        return err_set(err, SL_E_MEM, name, "%s: no memory for the prompt", name);
    if (ferror(f)) {
        int e = errno;
        mem_free(buf);
        return err_sys(err, SL_E_IO, name, e, "cannot read %s", name);
    }
    *data = buf;
    *n = len;
    return SL_OK;
}

static int read_file(const char *path, char **data, size_t *n, struct sl_err *err)
{
    if (strcmp(path, "-") == 0)
        return read_stream(stdin, "standard input", data, n, err);
    struct stat st;
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        return err_sys(err, SL_E_IO, path, errno, "cannot open %s", path);
    int rc;
    if (fstat(fileno(f), &st) == 0 && S_ISDIR(st.st_mode))
        rc = err_set(err, SL_E_IO, path, "%s is a directory", path);
    else
        rc = read_stream(f, path, data, n, err);
    fclose(f);
    return rc;
}

/* "1,2,3", already checked by the option table; or "@FILE" of little-endian int32. */
static int read_ids(const char *list, struct prompt *p, struct sl_err *err)
{
    if (list[0] == '@') {
        char *data;
        size_t n;
        int rc = read_file(list + 1, &data, &n, err);
        if (rc < 0)
            return rc;
        if (n % sizeof *p->ids != 0 || n == 0) {
            mem_free(data);
            return err_set(err, SL_E_FORMAT, list + 1,
                           "--token-ids: %s holds %zu bytes, not a number of int32 values",
                           list + 1, n);
        }
        p->ids = (int32_t *)(void *)data; /* mem_alloc aligns to 64 */
        p->n_ids = n / sizeof *p->ids;
        return SL_OK;
    }
    size_t n = 1;
    for (const char *s = list; *s != '\0'; s++)
        n += *s == ',';
    p->ids = mem_calloc(n, sizeof *p->ids);
    if (p->ids == NULL)
        return err_set(err, SL_E_MEM, NULL, "no memory for the token ids");
    for (const char *s = list; p->n_ids < n; s++) {
        char num[24];
        int64_t v = -1;
        size_t len = strcspn(s, ",");
        snprintf(num, sizeof num, "%.*s", (int)len, s);
        opts_parse_int(num, &v);
        p->ids[p->n_ids++] = (int32_t)v;
        s += len;
    }
    return SL_OK;
}

int prompt_read(const struct run_args *a, struct prompt *p, struct sl_err *err)
{
    memset(p, 0, sizeof *p);
    if (a->token_ids != NULL)
        return read_ids(a->token_ids, p, err);
    if (a->prompt != NULL) {
        p->n_bytes = strlen(a->prompt);
        p->text = mem_strdup(a->prompt);
        return p->text != NULL ? SL_OK : err_set(err, SL_E_MEM, NULL, "no memory for the prompt");
    }
    if (a->file != NULL)
        return read_file(a->file, &p->text, &p->n_bytes, err);
    if (isatty(STDIN_FILENO))
        return err_set(err, SL_E_ARG, NULL,
                       "no prompt: give -p TEXT, -f FILE or --token-ids, or pipe one in");
    return read_file("-", &p->text, &p->n_bytes, err);
}

int prompt_encode(struct prompt *p, const struct sl_engine *e, int n_ctx, bool chatml,
                  struct sl_err *err)
{
    struct sl_model_info info;
    sl_engine_info(e, &info);
    if (p->text != NULL) {
        int32_t *ids = NULL;
        if (!info.has_vocab)
            return err_set(err, SL_E_UNSUPPORTED, NULL,
                           "this model has no tokenizer; give the prompt as --token-ids");
        /* Before time and memory go into tokens that cannot fit. */
        if (p->n_bytes / info.token_text_bytes > (size_t)n_ctx)
            return err_set(err, SL_E_CONTEXT, "context",
                           "the prompt's %zu bytes are more than %d tokens can hold; give a larger "
                           "-c or a shorter prompt",
                           p->n_bytes, n_ctx);
        int rc = chatml ? sl_chat_tokenize(e, p->text, p->n_bytes, &ids, &p->n_ids, err)
                        : sl_tokenize(e, p->text, p->n_bytes, SL_TOK_ADD_SPECIAL, &ids, &p->n_ids,
                                      err);
        if (rc < 0)
            return rc;
        mem_free(p->text);
        p->text = NULL;
        p->ids = ids;
    }
    if (p->n_ids == 0)
        return err_set(err, SL_E_ARG, NULL, "the prompt is empty; it needs at least one token");
    for (size_t i = 0; i < p->n_ids; i++) {
        if (p->ids[i] < 0 || p->ids[i] >= info.n_vocab)
            return err_set(err, SL_E_ARG, "--token-ids",
                           "--token-ids: id %d at index %zu is outside the vocabulary of %d tokens",
                           p->ids[i], i, info.n_vocab);
    }
    return SL_OK;
}

void prompt_free(struct prompt *p)
{
    mem_free(p->text);
    mem_free(p->ids); /* sl_free and mem_free are the same allocator */
    memset(p, 0, sizeof *p);
}
