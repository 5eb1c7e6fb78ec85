#include "gates/subjects.h"
#include "support/ggufsplit.h"
#include "support/pack.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EMBEDDED       SL_SOURCE_DIR "/models/storyteller.gguf"
#define EMBEDDED_VOCAB 4096
#define HASHES         SL_SOURCE_DIR "/tests/data/own.json"
#define N_STEP         8
#define LONG_PROMPT    300

static void die(const char *what, const char *name)
{
    fprintf(stderr, "subjects: %s: %s\n", what, name);
    exit(1);
}

static void make_splits(struct subject *s)
{
    char prefix[256], flat[64];
    snprintf(flat, sizeof flat, "%s", s->name);
    for (char *p = flat; *p; p++)
        *p = *p == '/' ? '-' : *p;
    snprintf(prefix, sizeof prefix, "%s/%s", fixture_temp_dir(), flat);
    bool good = ggufsplit_write(s->path, prefix, 3, false, s->split, sizeof s->split);
    snprintf(prefix, sizeof prefix, "%s/%s-bare", fixture_temp_dir(), flat);
    if (!good || !ggufsplit_write(s->path, prefix, 4, true, s->split_bare, sizeof s->split_bare))
        die("cannot split", s->path);
    if (s->k == 0)
        return;
    snprintf(s->packed, sizeof s->packed, "%s/%s-packed", fixture_temp_dir(), flat);
    if (!pack_write(s->path, s->packed, SL_PACKED_LOSSLESS))
        die("cannot pack", s->path);
}

/* Expert counts come from the file itself. */
static void ask_shape(struct subject *s)
{
    struct sl_engine_options opt;
    struct sl_engine *e = NULL;
    struct sl_model_info info;
    struct sl_err err;
    sl_engine_options_init(&opt);
    opt.stream = SL_STREAM_OFF;
    opt.dense_mode = SL_DENSE_MMAP;
    opt.n_ctx = s->n_ctx;
    opt.threads = 1;
    if (sl_engine_open(s->path, &opt, &e, &err) != 0)
        die(err.msg, s->path);
    sl_engine_info(e, &info);
    s->n_expert = info.n_expert;
    s->k = info.n_expert_used;
    s->n_bank = info.n_expert * info.n_layer;
    sl_engine_close(&e);
}

static void add(struct subjects *all, const char *name, const char *path, const int32_t *ids,
                int n_prompt, bool with_splits)
{
    struct subject *s = all->list + all->n++;
    snprintf(s->name, sizeof s->name, "%s", name);
    s->path = path;
    s->ids = ids;
    s->n_prompt = n_prompt;
    s->n_step = N_STEP;
    s->n_ctx = (n_prompt + N_STEP + 31) / 32 * 32;
    ask_shape(s);
    if (with_splits)
        make_splits(s);
}

/* The ids of all cases in one row. */
static int32_t *tale_ids(int want)
{
    int n_cases, n = 0;
    struct real_case *c = fixture_load_cases("storyteller", EMBEDDED_VOCAB, &n_cases);
    int32_t *ids = calloc((size_t)want, sizeof *ids);
    for (int i = 0; ids && i < n_cases; i++)
        for (int j = 0; j < c[i].n_all && n < want; j++)
            ids[n++] = c[i].ids[j];
    if (!ids || n != want)
        die("not enough ids", "storyteller.json");
    fixture_free_cases(c, n_cases);
    return ids;
}

void subjects_load(struct subjects *s, bool with_splits)
{
    memset(s, 0, sizeof *s);
    s->sets[0] = fixture_load_set("arch", &s->set_n[0]);
    s->sets[1] = fixture_load_set("qmodels", &s->set_n[1]);
    s->list = calloc((size_t)(s->set_n[0] + s->set_n[1] + 2), sizeof *s->list);
    if (!s->list)
        die("no memory", "");
    for (int set = 0; set < 2; set++)
        for (int i = 0; i < s->set_n[set]; i++) {
            const struct fixture *f = s->sets[set] + i;
            add(s, f->name, f->path, f->tokens, SUBJECT_HASH_POS - N_STEP, with_splits);
        }
    s->tale = tale_ids(LONG_PROMPT + N_STEP);
    add(s, "storyteller", EMBEDDED, s->tale, SUBJECT_HASH_POS - N_STEP, with_splits);
    struct subject *last = s->list + s->n;
    *last = s->list[s->n - 1]; /* the same files */
    s->n++;
    snprintf(last->name, sizeof last->name, "storyteller-long");
    last->n_prompt = LONG_PROMPT;
    last->n_ctx = 320;
}

void subjects_free(struct subjects *s)
{
    fixture_free_set(s->sets[0], s->set_n[0]);
    fixture_free_set(s->sets[1], s->set_n[1]);
    free(s->list);
    free(s->tale);
}

const struct subject *subjects_long(const struct subjects *s)
{
    return s->list + s->n - 1;
}

const char *subjects_hash(const char *name, const char *kv)
{
    static char text[32];
    json_t *root = json_load_file(HASHES, 0, NULL);
    const char *h = json_string_value(
        json_object_get(json_object_get(json_object_get(root, "logits"), name), kv));
    snprintf(text, sizeof text, "%s", h ? h : "");
    json_decref(root);
    return text[0] != '\0' ? text : NULL;
}

bool subjects_record(const struct subject_hash *h, int n)
{
    FILE *f = fopen(HASHES, "w");
    if (!f)
        return false;
    fprintf(f,
            "{\"what\": \"FNV-1a (64 bits) of the logits (float32, little endian) of the first "
            "%d positions, F16 and F32 KV cache; every build must give these; rewritten by "
            "identity_test --record\",\n\"logits\": {\n",
            SUBJECT_HASH_POS);
    for (int i = 0; i < n; i++)
        fprintf(f, "  \"%s\": {\"f16\": \"%016llx\", \"f32\": \"%016llx\"}%s\n", h[i].name,
                (unsigned long long)h[i].f16, (unsigned long long)h[i].f32, i + 1 < n ? "," : "");
    fprintf(f, "}}\n");
    return fclose(f) == 0;
}
