#include "support/fixtures.h"

#include <ftw.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DATA       SL_SOURCE_DIR "/tests/data/"
#define STEP_ROWS  16
#define PATH_BYTES 512

static void die(const char *what, const char *path)
{
    fprintf(stderr, "fixture: %s: %s\n", what, path);
    exit(1);
}

static void *get_memory(size_t n)
{
    void *p = calloc(1, n);
    if (!p)
        die("no memory", "");
    return p;
}

void *fixture_read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    long size = fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    char *p = NULL;
    if (size >= 0 && fseek(f, 0, SEEK_SET) == 0) {
        p = get_memory((size_t)size + 1);
        *n = fread(p, 1, (size_t)size, f);
        if (*n != (size_t)size) {
            free(p);
            p = NULL;
        }
    }
    fclose(f);
    return p;
}

static void *read_exact(const char *path, size_t want)
{
    size_t n = 0;
    void *p = fixture_read_file(path, &n);
    if (!p || n != want)
        die("missing, or not as large as its manifest says", path);
    return p;
}

static json_t *load_json(const char *path)
{
    json_error_t e;
    json_t *root = json_load_file(path, 0, &e);
    if (!root)
        die(e.text, path);
    return root;
}

static int get_int(const json_t *o, const char *key)
{
    return (int)json_integer_value(json_object_get(o, key));
}

static void load_model(struct fixture *f, const char *set, const json_t *m)
{
    char path[PATH_BYTES];
    const char *name = json_string_value(json_object_get(m, "name"));
    if (!name)
        die("a model without a name", set);
    snprintf(f->name, sizeof f->name, "%s/%s", set, name);
    snprintf(f->path, sizeof f->path, DATA "%s/model.gguf", f->name);
    f->n_vocab = get_int(m, "n_vocab");
    f->n_tokens = get_int(m, "n_tokens");
    f->topk = get_int(m, "topk");
    f->ref_nmse = json_real_value(json_object_get(m, "ref_quant_nmse"));
    f->ref_sets_changed = get_int(m, "ref_quant_expert_sets_changed");
    const json_t *layers = json_object_get(m, "topk_layers"), *layer;
    size_t i;
    json_array_foreach(layers, i, layer)
    {
        if (i >= FIXTURE_MAX_LAYERS)
            die("too many layers", f->name);
        f->topk_layers[f->n_topk_layers++] = (int)json_integer_value(layer);
    }
    size_t n = (size_t)f->n_tokens, v = (size_t)f->n_vocab;
    snprintf(path, sizeof path, DATA "%s/tokens.bin", f->name);
    f->tokens = read_exact(path, n * sizeof(int32_t));
    snprintf(path, sizeof path, DATA "%s/logits.bin", f->name);
    f->logits = read_exact(path, n * v * sizeof(float));
    snprintf(path, sizeof path, DATA "%s/logits_step.bin", f->name);
    if (access(path, F_OK) == 0)
        f->logits_step = read_exact(path, STEP_ROWS * v * sizeof(float));
    snprintf(path, sizeof path, DATA "%s/topk.bin", f->name);
    if (f->topk > 0)
        f->topk_ids = read_exact(path,
                                 (size_t)f->n_topk_layers * n * (size_t)f->topk * sizeof(int32_t));
}

struct fixture *fixture_load_set(const char *set, int *n)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, DATA "%s/manifest.json", set);
    json_t *root = load_json(path);
    const json_t *models = json_object_get(root, "models"), *m;
    size_t i;
    if (json_array_size(models) == 0)
        die("lists no models", path);
    struct fixture *list = get_memory(json_array_size(models) * sizeof *list);
    json_array_foreach(models, i, m) load_model(list + i, set, m);
    *n = (int)json_array_size(models);
    json_decref(root);
    return list;
}

void fixture_free_set(struct fixture *f, int n)
{
    for (int i = 0; i < n; i++) {
        free(f[i].tokens);
        free(f[i].logits);
        free(f[i].logits_step);
        free(f[i].topk_ids);
    }
    free(f);
}

static void load_case(struct real_case *c, const json_t *o)
{
    const json_t *prompt = json_object_get(o, "prompt_ids"), *ids = json_object_get(o, "ids");
    const json_t *best = json_object_get(o, "best"), *lead = json_object_get(o, "lead");
    const char *text = json_string_value(json_object_get(o, "prompt"));
    c->n_prompt = (int)json_array_size(prompt);
    c->n_all = c->n_prompt + (int)json_array_size(ids);
    c->nll = json_number_value(json_object_get(o, "nll"));
    size_t n = (size_t)c->n_all;
    if (!text || json_array_size(best) != n || json_array_size(lead) != n)
        die("a case is not whole", text ? text : "");
    c->prompt = strdup(text);
    c->ids = get_memory(n * sizeof *c->ids);
    c->best = get_memory(n * sizeof *c->best);
    c->lead = get_memory(n * sizeof *c->lead);
    for (size_t i = 0; i < n; i++) {
        size_t p = (size_t)c->n_prompt;
        const json_t *id = i < p ? json_array_get(prompt, i) : json_array_get(ids, i - p);
        c->ids[i] = (int32_t)json_integer_value(id);
        c->best[i] = (int32_t)json_integer_value(json_array_get(best, i));
        c->lead[i] = json_number_value(json_array_get(lead, i));
    }
}

struct real_case *fixture_load_cases(const char *name, int n_vocab, int *n)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, DATA "models/%s.json", name);
    json_t *root = load_json(path);
    size_t count = json_array_size(root), v = (size_t)n_vocab;
    if (count == 0)
        die("holds no cases", path);
    struct real_case *list = get_memory(count * sizeof *list);
    snprintf(path, sizeof path, DATA "models/%s.logits.bin", name);
    float *last = read_exact(path, count * v * sizeof(float));
    for (size_t i = 0; i < count; i++) {
        load_case(list + i, json_array_get(root, i));
        list[i].last = get_memory(v * sizeof(float));
        memcpy(list[i].last, last + i * v, v * sizeof(float));
    }
    free(last);
    json_decref(root);
    *n = (int)count;
    return list;
}

void fixture_free_cases(struct real_case *c, int n)
{
    for (int i = 0; i < n; i++) {
        free(c[i].prompt);
        free(c[i].ids);
        free(c[i].best);
        free(c[i].lead);
        free(c[i].last);
    }
    free(c);
}

static char temp_dir[512];

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

static void remove_temp_dir(void)
{
    nftw(temp_dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *fixture_temp_dir(void)
{
    if (temp_dir[0] == '\0') {
        const char *base = getenv("TMPDIR");
        snprintf(temp_dir, sizeof temp_dir, "%.400s/sluice-test-XXXXXX",
                 base && *base ? base : SL_BINARY_DIR);
        if (!mkdtemp(temp_dir))
            die("cannot make a directory", temp_dir);
        atexit(remove_temp_dir);
    }
    return temp_dir;
}
