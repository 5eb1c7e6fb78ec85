/* fixtures.h: the models under tests/data with their recorded results, and small helpers around
 * files. Trouble with a fixture ends the program with a message: these files are ours. */
#ifndef SUPPORT_FIXTURES_H
#define SUPPORT_FIXTURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FIXTURE_MAX_LAYERS 64

struct fixture {
    char name[64];  /* "arch/mixtral" */
    char path[512]; /* of the model */
    int n_vocab, n_tokens, topk, n_topk_layers;
    int topk_layers[FIXTURE_MAX_LAYERS];
    int32_t *tokens;
    float *logits;      /* [n_tokens][n_vocab] */
    float *logits_step; /* [16][n_vocab] for the last positions; NULL: none was recorded */
    int32_t *topk_ids;  /* [n_topk_layers][n_tokens][topk]; NULL for dense models */
    double ref_nmse;    /* of another engine's 8-bit activations; 0 in "arch" */
    int ref_sets_changed;
};

/* All models of tests/data/SET/manifest.json, SET "arch" or "qmodels"; *n of them. */
struct fixture *fixture_load_set(const char *set, int *n);
void fixture_free_set(struct fixture *f, int n);

/* A case of tests/data/models/NAME.json: see the README there. */
struct real_case {
    char *prompt;
    int n_prompt, n_all;
    int32_t *ids; /* n_all: prompt, then the continuation */
    int32_t *best;
    double *lead, nll;
    float *last; /* n_vocab logits after the last token */
};
struct real_case *fixture_load_cases(const char *name, int n_vocab, int *n);
void fixture_free_cases(struct real_case *c, int n);

/* The whole file; *n bytes, malloc'd, a zero byte behind them. NULL when it cannot be read. */
void *fixture_read_file(const char *path, size_t *n);

/* A new directory in $TMPDIR, else in the build tree (a real file system, which direct reads need);
 * it is removed with its files at exit. */
const char *fixture_temp_dir(void);

#endif
