/* tokenize.c: `sluice tokenize`: text to token ids. Only the file's header is read, so that a file
 * with a vocabulary alone is enough. */
#include "cli/commands.h"
#include "cli/open.h"
#include "cli/opts.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/json_depth.h"
#include "base/mem.h"
#include "text/utf8.h"
#include "text/vocab.h"

#define MAX_INPUT ((size_t)1 << 30)  /* bytes of one text */
#define MAX_LINE  ((size_t)64 << 20) /* bytes of one line of JSON */
#define MAX_DEPTH 64                 /* brackets open at once in a line of JSON */

struct tokenize_args {
    const char *model, *prompt, *file;
    int64_t ids, count, jsonl, add_special, parse_special;
};

static const struct opt_row ROWS[] = {
    {.names = "-m --model",
     .type = OPT_STR,
     .offset = offsetof(struct tokenize_args, model),
     .arg = "FILE",
     .def_say = "$SLUICE_MODEL, else the model that comes with sluice",
     .help = "GGUF file whose vocabulary to use; it needs no weights",
     .group = "input"},
    {.names = "-p --prompt",
     .type = OPT_STR,
     .offset = offsetof(struct tokenize_args, prompt),
     .arg = "TEXT",
     .help = "The text",
     .group = "input"},
    {.names = "-f --file",
     .type = OPT_STR,
     .offset = offsetof(struct tokenize_args, file),
     .arg = "FILE",
     .def_say = "standard input",
     .help = "Read the text from FILE; - is standard input",
     .group = "input"},
    {.names = "--jsonl",
     .type = OPT_FLAG,
     .offset = offsetof(struct tokenize_args, jsonl),
     .help = "The input is JSON lines {\"text\": ...}; each gives a line {\"ids\": [...]}",
     .group = "input"},
    {.names = "--ids",
     .type = OPT_FLAG,
     .offset = offsetof(struct tokenize_args, ids),
     .help = "Print the ids alone, in one line, separated by commas (as --token-ids takes them)",
     .group = "output"},
    {.names = "--count",
     .type = OPT_FLAG,
     .offset = offsetof(struct tokenize_args, count),
     .help = "Print the number of tokens alone",
     .group = "output"},
    {.names = "--add-special",
     .type = OPT_FLAG,
     .offset = offsetof(struct tokenize_args, add_special),
     .help = "Add BOS and EOS where the vocabulary asks for them",
     .group = "tokens"},
    {.names = "--parse-special",
     .type = OPT_FLAG,
     .offset = offsetof(struct tokenize_args, parse_special),
     .help = "Control tokens written in the text, such as <|im_end|>, become these tokens",
     .group = "tokens"},
};

static const struct opt_cmd TOKENIZE_CMD = {
    .name = "tokenize",
    .summary = "text to token ids",
    .about =
        "Prints one token a line: its id, a tab, its bytes with \\n, \\t, \\r, \\\\ and \\xNN for "
        "what can't be printed. Text is taken as it is, a line end at the end of the input "
        "included.",
    .rows = ROWS,
    .n_rows = sizeof ROWS / sizeof ROWS[0],
    .examples = "sluice tokenize -m model.gguf -p \"Once upon a time\"\n"
                "sluice tokenize -m model.gguf -f tale.txt --count\n"
                "sluice tokenize -m model.gguf --jsonl < in.jsonl > out.jsonl\n",
};

struct buffer {
    char *p;
    size_t n, cap;
};

/* Read to the end of the file, or of the line (which keeps no line end). 1: there was something;
 * 0: the file was at its end. max: the most bytes that are taken. */
static int read_until(FILE *f, bool line, size_t max, const char *name, struct buffer *b,
                      struct sl_err *err)
{
    int c;
    b->n = 0;
    bool any = false;
    while ((c = getc_unlocked(f)) != EOF) {
        any = true;
        if (line && c == '\n')
            return 1;
        if (b->n == max)
            return err_set(err, SL_E_ARG, name, "%s: %s has more than %zu MiB", name,
                           line ? "a line" : "the text", max >> 20);
        if (b->n == b->cap) {
            size_t cap = b->cap ? 2 * b->cap : 65536;
            char *p = mem_realloc(b->p, cap);
            if (!p)
                return err_set(err, SL_E_MEM, name, "%s: no memory for the text", name);
            b->p = p;
            b->cap = cap;
        }
        b->p[b->n++] = (char)c;
    }
    if (ferror(f))
        return err_sys(err, SL_E_IO, name, errno, "%s: can't read", name);
    return any;
}

static int cannot_write(struct sl_err *err)
{
    return err_set(err, SL_E_IO, "standard output", "standard output: can't write");
}

/* ---- Output --------------------------------------------------------------------------------- */

static void print_escaped(struct gguf_str s)
{
    for (size_t i = 0, len; i < s.n; i += len) {
        int32_t c = utf8_decode_char(s.p + i, s.n - i, &len);
        const char *named = c > 0 ? strchr("\nn\tt\rr\\\\", c) : NULL;
        if (c == '\n' || c == '\t' || c == '\r' || c == '\\')
            printf("\\%c", named[1]);
        else if (c < 0x20 || (c >= 0x7f && c < 0xa0)) /* controls, and bytes of no character */
            for (size_t k = 0; k < len; k++)
                printf("\\x%02x", (unsigned char)s.p[i + k]);
        else
            fwrite(s.p + i, 1, len, stdout);
    }
}

static void print_ids(const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        printf("%s%d", i ? "," : "", (int)ids[i]);
}

/* ---- Work ----------------------------------------------------------------------------------- */

static unsigned flags_of(const struct tokenize_args *a)
{
    return (a->add_special ? SL_TOK_ADD_SPECIAL : 0u) |
           (a->parse_special ? SL_TOK_PARSE_CONTROL : 0u);
}

static int do_text(const struct vocab *v, const struct tokenize_args *a, const char *s, size_t n,
                   struct sl_err *err)
{
    int32_t *ids;
    size_t n_ids;
    int rc = vocab_encode(v, s, n, flags_of(a), &ids, &n_ids, err);
    if (rc)
        return rc;
    if (a->count) {
        printf("%zu\n", n_ids);
    } else if (a->ids) {
        print_ids(ids, n_ids);
        putchar('\n');
    } else {
        for (size_t i = 0; i < n_ids; i++) {
            printf("%d\t", (int)ids[i]);
            print_escaped(vocab_text(v, ids[i]));
            putchar('\n');
        }
    }
    mem_free(ids);
    return ferror(stdout) ? cannot_write(err) : 0;
}

static int do_json_line(const struct vocab *v, const struct tokenize_args *a, const char *s,
                        size_t n, const char *where, struct sl_err *err)
{
    if (json_depth_exceeds(s, n, MAX_DEPTH))
        return err_set(err, SL_E_FORMAT, where, "%s: more than %d levels of JSON", where,
                       MAX_DEPTH);
    json_error_t je;
    json_t *obj = json_loadb(s, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
    if (!obj)
        return err_set(err, SL_E_FORMAT, where, "%s: not JSON: %s", where, je.text);
    json_t *text = json_object_get(obj, "text");
    int32_t *ids;
    size_t n_ids;
    int rc;
    if (!json_is_string(text))
        rc = err_set(err, SL_E_FORMAT, where, "%s: not an object with a string \"text\"", where);
    else
        rc = vocab_encode(v, json_string_value(text), json_string_length(text), flags_of(a), &ids,
                          &n_ids, err);
    json_decref(obj);
    if (rc)
        return rc;
    printf("{\"ids\": [");
    for (size_t i = 0; i < n_ids; i++)
        printf("%s%d", i ? ", " : "", (int)ids[i]);
    printf("]}\n");
    mem_free(ids);
    return ferror(stdout) ? cannot_write(err) : 0;
}

static int do_jsonl(const struct vocab *v, const struct tokenize_args *a, FILE *f, const char *name,
                    struct buffer *b, struct sl_err *err)
{
    unsigned long long line = 0;
    int rc;
    while ((rc = read_until(f, true, MAX_LINE, name, b, err)) == 1) {
        char where[sizeof err->where];
        snprintf(where, sizeof where, "%.90s, line %llu", name, ++line);
        size_t blank = 0;
        while (blank < b->n && strchr(" \t\r", b->p[blank]) && b->p[blank])
            blank++;
        if (blank == b->n)
            continue;
        rc = do_json_line(v, a, b->p, b->n, where, err);
        if (rc)
            return rc;
    }
    return rc;
}

static int do_input(const struct vocab *v, const struct tokenize_args *a, struct sl_err *err)
{
    if (a->prompt)
        return do_text(v, a, a->prompt, strlen(a->prompt), err);
    bool from_stdin = !a->file || strcmp(a->file, "-") == 0;
    const char *name = from_stdin ? "standard input" : a->file;
    FILE *f = from_stdin ? stdin : fopen(a->file, "rb");
    if (!f)
        return err_sys(err, SL_E_IO, name, errno, "%s: can't open", name);
    struct buffer b = {0};
    int rc;
    if (a->jsonl) {
        rc = do_jsonl(v, a, f, name, &b, err);
    } else {
        rc = read_until(f, false, MAX_INPUT, name, &b, err);
        if (rc >= 0)
            rc = do_text(v, a, b.p ? b.p : "", b.n, err);
    }
    mem_free(b.p);
    if (!from_stdin)
        fclose(f);
    return rc;
}

static int open_vocab(const char *path, struct vocab **v, struct sl_err *err)
{
    struct gguf *g;
    int rc = gguf_open(path, &g, err);
    if (rc)
        return rc;
    struct sl_err why;
    rc = vocab_open(g, v, &why);
    gguf_close(&g);
    if (rc)
        return err_set(err, rc, path, "%s: %s", path, why.msg);
    if (!*v)
        return err_set(err, SL_E_UNSUPPORTED, path, "%s: the file has no vocabulary", path);
    return 0;
}

static int usage(const char *msg)
{
    struct sl_err err;
    err_set(&err, SL_E_ARG, NULL, "%s", msg);
    opts_fail(&err);
    return EXIT_USAGE;
}

int cmd_tokenize(int argc, char **argv)
{
    struct tokenize_args a;
    struct opt_seen seen;
    int rc = opts_begin(&TOKENIZE_CMD, argc, argv, &a, &seen);
    if (rc != OPTS_GO)
        return rc;
    if (a.prompt && a.file)
        return usage("-p and -f exclude each other: give the text once");
    if (a.prompt && a.jsonl)
        return usage("--jsonl reads lines from -f or standard input, not from -p");
    if (a.ids + a.count + a.jsonl > 1)
        return usage("--ids, --count and --jsonl exclude each other");
    struct sl_err err;
    const char *model;
    rc = open_find_path(a.model, &model, &err);
    if (rc != SL_OK) {
        opts_fail(&err);
        return rc == SL_E_ARG ? EXIT_USAGE : EXIT_FAILED;
    }
    struct vocab *v = NULL;
    rc = open_vocab(model, &v, &err);
    if (!rc)
        rc = do_input(v, &a, &err);
    vocab_close(&v);
    if (!rc && fflush(stdout) != 0)
        rc = cannot_write(&err);
    return rc ? opts_fail(&err) : 0;
}
