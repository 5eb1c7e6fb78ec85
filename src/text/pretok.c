/* pretok.c: the pre-tokenizers' patterns, run by PCRE2 on its JIT where there is one.
 *
 * The patterns are those of the models' tokenizer definitions, with white space written out:
 * PCRE2's \s would add U+180E to Unicode's White_Space property. Each piece is found by one
 * anchored match; together the alternatives of a pattern cover every character. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretok.h"

#include <pcre2.h>
#include <string.h>

#include "base/mem.h"
#include "text/utf8.h"

/* White_Space = TAB..CR, NEL and the separators; to stand inside a character class. */
#define WS       "\\t-\\r\\x{85}\\p{Z}"
#define SPACES   "[" WS "]"
#define NOT_WORD "[^" WS "\\p{L}\\p{N}]"
#define ENGLISH  "'s|'t|'re|'ve|'m|'ll|'d"
/* White space up to the last one before a word, or to the end. */
#define TRAILING                                                                                   \
    SPACES "+(?!"                                                                                  \
           "[^" WS "])|" SPACES "+"

/* letters with one leading non-letter; digits as given; punctuation with line ends; line ends */
#define LLAMA3_LIKE(digits)                                                                        \
    "(?i:" ENGLISH ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?" NOT_WORD "+[\\r\\n]*|" SPACES   \
    "*[\\r\\n]+|" TRAILING

static const struct pretok_kind kinds[] = {
    {.name = "qwen2", .pattern = LLAMA3_LIKE("\\p{N}"), .nfc = true},
    {.name = "llama-bpe",
     .pattern = LLAMA3_LIKE("\\p{N}{1,3}"),
     .ignore_merges = true,
     .add_bos = true},
    {.name = "gpt-2", .pattern = ENGLISH "| ?\\p{L}+| ?\\p{N}+| ?" NOT_WORD "+|" TRAILING},
    /* Digits are cut out one by one before the pattern of GPT-2 runs on what is left: for its
     * look-ahead the text ends where a digit stands. */
    {.name = "smollm",
     .pattern = ENGLISH "| ?\\p{L}+|\\p{N}| ?" NOT_WORD "+|" SPACES "+(?![^" WS "\\p{N}])|" SPACES
                        "+"},
};

/* Most that one match may use beside the machine stack, KiB. */
#define HEAP_LIMIT 65536

struct pretok {
    const struct pretok_kind *kind;
    pcre2_general_context *general;
    pcre2_code *code;
};

struct pretok_run {
    const struct pretok *p;
    pcre2_match_data *data;
    pcre2_match_context *context;
};

static void *give(size_t n, void *user)
{
    (void)user;
    return mem_alloc(n);
}

static void take(void *p, void *user)
{
    (void)user;
    mem_free(p);
}

const struct pretok_kind *pretok_find_kind(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strlen(kinds[i].name) == n && memcmp(kinds[i].name, name, n) == 0)
            return &kinds[i];
    return NULL;
}

const char *pretok_list_names(void)
{
    return "qwen2, llama-bpe, gpt-2, smollm";
}

int pretok_open(const struct pretok_kind *kind, struct pretok **out, struct sl_err *err)
{
    *out = NULL;
    struct pretok *p = mem_calloc(1, sizeof *p);
    if (!p)
        return err_set(err, SL_E_MEM, NULL, "no memory for the pre-tokenizer");
    p->kind = kind;
    p->general = pcre2_general_context_create(give, take, NULL);
    pcre2_compile_context *cc = p->general ? pcre2_compile_context_create(p->general) : NULL;
    int code = PCRE2_ERROR_NOMEMORY;
    PCRE2_SIZE at = 0;
    if (cc)
        p->code = pcre2_compile((PCRE2_SPTR)kind->pattern, PCRE2_ZERO_TERMINATED,
                                PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C,
                                &code, &at, cc);
    pcre2_compile_context_free(cc);
    if (!p->code) {
        pretok_close(&p);
        if (code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED)
            return err_set(err, SL_E_MEM, NULL, "no memory for the pre-tokenizer");
        return err_set(err, SL_E_INTERNAL, kind->name, "PCRE2 error %d at %zu of the pattern", code,
                       (size_t)at);
    }
    /* Without a JIT (or where memory may not be executable) the interpreter does it. */
    (void)pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE);
    *out = p;
    return 0;
}

void pretok_close(struct pretok **pp)
{
    struct pretok *p = *pp;
    if (p) {
        pcre2_code_free(p->code);
        pcre2_general_context_free(p->general);
        mem_free(p);
    }
    *pp = NULL;
}

const struct pretok_kind *pretok_get_kind(const struct pretok *p)
{
    return p->kind;
}

int pretok_start(const struct pretok *p, size_t n_text, struct pretok_run **out, struct sl_err *err)
{
    struct pretok_run *r = mem_calloc(1, sizeof *r);
    *out = r;
    if (r) {
        r->p = p;
        r->data = pcre2_match_data_create(1, p->general);
        r->context = pcre2_match_context_create(p->general);
    }
    if (!r || !r->data || !r->context) {
        pretok_stop(out);
        return err_set(err, SL_E_MEM, NULL, "no memory for the pre-tokenizer");
    }
    /* A step or two per byte is the most that these patterns take: going back over one run of
     * white space. The limit stands against a mistake, not against long texts. */
    uint64_t steps = 1000000 + 8 * (uint64_t)n_text;
    pcre2_set_match_limit(r->context, steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
    pcre2_set_heap_limit(r->context, HEAP_LIMIT);
    return 0;
}

int pretok_next(struct pretok_run *r, const char *s, size_t n, size_t *len, struct sl_err *err)
{
    int rc = pcre2_match(r->p->code, (PCRE2_SPTR)s, n, 0, PCRE2_NO_UTF_CHECK, r->data, r->context);
    if (rc > 0) {
        *len = pcre2_get_ovector_pointer(r->data)[1];
        if (*len > 0 && *len <= n)
            return 0;
    }
    if (rc >= 0 || rc == PCRE2_ERROR_NOMATCH) {
        utf8_decode_char(s, n, len); /* no alternative took it: a piece of its own */
        return 0;
    }
    if (rc == PCRE2_ERROR_NOMEMORY || rc == PCRE2_ERROR_HEAPLIMIT)
        return err_set(err, SL_E_MEM, NULL, "no memory to cut the text into pieces");
    return err_set(err, SL_E_INTERNAL, r->p->kind->name, "PCRE2 error %d on the text", rc);
}

void pretok_stop(struct pretok_run **rr)
{
    struct pretok_run *r = *rr;
    if (r) {
        pcre2_match_data_free(r->data);
        pcre2_match_context_free(r->context);
        mem_free(r);
    }
    *rr = NULL;
}
