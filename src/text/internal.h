/* internal.h: the vocabulary as the files of src/text share it. */
#ifndef TEXT_INTERNAL_H
#define TEXT_INTERNAL_H

#include "text/pretok.h"
#include "text/textmap.h"
#include "text/vocab.h"

/* Bounds on what a file may ask for; today's largest vocabularies have about 2^18 tokens. */
#define VOCAB_MAX_TOKENS  (1 << 22)
#define VOCAB_MAX_MERGES  (1 << 23)
#define VOCAB_MAX_TOKEN   (64 << 10) /* bytes of one token */
#define VOCAB_MAX_SPECIAL 512        /* bytes of one token that is searched for in the text */
#define VOCAB_MAX_TEXT    ((size_t)1 << 30)

/* tokenizer.ggml.token_type, and one of our own */
enum vocab_type {
    VOCAB_NORMAL = 1,
    VOCAB_UNKNOWN = 2,
    VOCAB_CONTROL = 3, /* found in text only with SL_TOK_PARSE_CONTROL */
    VOCAB_USER = 4,    /* always found in text */
    VOCAB_UNUSED = 5,
    VOCAB_BYTE = 6,
    VOCAB_LITERAL = 7 /* not in files: a normal token that is not written with stand-ins for bytes;
                         no text gives it */
};

/* Ids of tokens that are searched for in the text, sorted by their bytes. */
struct vocab_special {
    int32_t *id;
    size_t n;
    bool starts[256]; /* a token starts with this byte */
};

struct vocab {
    int n;                         /* tokens */
    char *arena;                   /* bytes of all tokens, one behind the other */
    uint32_t *off;                 /* token i is arena[off[i] .. off[i + 1]) */
    uint8_t *type;                 /* enum vocab_type */
    bool *is_eog;                  /* ends a generation */
    struct textmap_bytes by_bytes; /* normal and user-defined tokens */
    struct textmap_pairs merges;
    struct vocab_special user, all; /* user-defined; user-defined and control */
    int32_t byte_id[256];           /* -1: the vocabulary has no token for this byte */
    int32_t bos, eos, unk;          /* -1: none */
    bool add_bos, add_eos;
    struct pretok *pretok;
    char *model, *pre;
};

static inline struct gguf_str vocab_bytes_of(const struct vocab *v, int32_t id)
{
    return (struct gguf_str){v->arena + v->off[id], v->off[id + 1] - v->off[id]};
}

/* A growing list of ids. */
struct vocab_ids {
    int32_t *p;
    size_t n, cap;
};
int vocab_reserve_ids(struct vocab_ids *ids, size_t more, struct sl_err *err);
int vocab_push_id(struct vocab_ids *ids, int32_t id, struct sl_err *err);

/* special.c */
int special_build_index(struct vocab *v, struct sl_err *err);
void special_free_index(struct vocab *v);
/* The first token of sp in s[from..n), the longest where several start: its place and id.
 * Returns false when there is none. */
bool special_find_next(const struct vocab *v, const struct vocab_special *sp, const char *s,
                       size_t n, size_t from, size_t *at, int32_t *id);
/* The token of sp whose bytes are exactly s, or -1. */
int32_t special_find_exact(const struct vocab *v, const struct vocab_special *sp, const char *s,
                           size_t n);

/* bpe.c: memory for the merging of one call; zero it before the first use. */
struct bpe_entry;
struct bpe_sym;
struct bpe_pair;
struct bpe {
    struct bpe_entry *cache; /* pre-tokens seen in this call; NULL: not worth it */
    struct bpe_sym *sym;
    size_t sym_cap;
    struct bpe_pair *heap;
    size_t heap_n, heap_cap;
};
/* Memory for the cache of pre-tokens; without it bpe works, slower. */
void bpe_init_cache(struct bpe *b);
void bpe_free(struct bpe *b);
/* Append the ids of one pre-token. O(n log n). */
int bpe_encode_word(struct bpe *b, const struct vocab *v, const char *s, size_t n,
                    struct vocab_ids *out, struct sl_err *err);
/* Append the id of one byte, unmerged. */
int bpe_encode_byte(const struct vocab *v, unsigned char byte, struct vocab_ids *out,
                    struct sl_err *err);

#endif
