#include "engine/hot.h"

#include "base/fpenv.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "model/packed.h"
#include "telemetry/emit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD    "# hot_experts v1"
#define COLUMNS "layer,expert,uses"

/* ---- Text ------------------------------------------------------------------------------------ */

struct parse {
    const char *p, *end, *name;
    size_t line;
    struct sl_err *err;
};

static int fail(const struct parse *s, const char *what)
{
    return err_file(s->err, SL_E_FORMAT, s->name, 0, "line %zu: %s", s->line, what);
}

/* The next line, [*from, *to) without its end. */
static bool next_line(struct parse *s, const char **from, const char **to)
{
    if (s->p == s->end)
        return false;
    const char *nl = memchr(s->p, '\n', (size_t)(s->end - s->p));
    *from = s->p;
    *to = nl ? nl : s->end;
    s->p = nl ? nl + 1 : s->end;
    s->line++;
    if (*to > *from && (*to)[-1] == '\r')
        --*to;
    return true;
}

static bool is_line(struct parse *s, const char *want)
{
    const char *from, *to;
    size_t n = strlen(want);
    return next_line(s, &from, &to) && (size_t)(to - from) == n && memcmp(from, want, n) == 0;
}

/* Digits up to the separator or the end of the line, at most `most`. */
static bool take_number(const char **p, const char *to, bool last, uint64_t most, uint64_t *out)
{
    uint64_t v = 0;
    const char *s = *p;
    for (; s < to && *s >= '0' && *s <= '9' && s - *p < 12; s++)
        v = v * 10 + (uint64_t)(*s - '0');
    if (s == *p || v > most || (last ? s != to : s == to || *s != ','))
        return false;
    *p = s + !last;
    *out = v;
    return true;
}

static void model_line(const struct hot_shape *shape, char *line, size_t size)
{
    snprintf(line, size, "# model=%s n_layer=%d n_expert=%d", shape->model, shape->n_layer,
             shape->n_expert);
}

static int parse_head(struct parse *s, const struct hot_shape *shape)
{
    char want[160];
    model_line(shape, want, sizeof want);
    if (!is_line(s, HEAD))
        return fail(s, "not a list of hot experts: '" HEAD "' is expected");
    if (!is_line(s, want))
        return fail(s, "this list belongs to another model; give another file, or delete it");
    if (!is_line(s, COLUMNS))
        return fail(s, "'" COLUMNS "' is expected");
    return 0;
}

static int parse_rows(struct parse *s, const struct hot_shape *shape, uint8_t *seen,
                      struct hot_row *rows, size_t room, size_t *n)
{
    const char *p, *to;
    uint64_t layer, expert, uses, last = UINT64_MAX;
    for (*n = 0; next_line(s, &p, &to); ++*n) {
        if (!take_number(&p, to, false, (uint64_t)shape->n_layer - 1, &layer) ||
            !take_number(&p, to, false, (uint64_t)shape->n_expert - 1, &expert) ||
            !take_number(&p, to, true, UINT32_MAX, &uses))
            return fail(s, "not layer, expert and uses of this model");
        uint64_t key = layer * (uint64_t)shape->n_expert + expert;
        if (uses > last)
            return fail(s, "uses rise");
        if (*n == room || seen[key])
            return fail(s, "an expert twice");
        seen[key] = 1;
        last = uses;
        rows[*n] = (struct hot_row){(int32_t)layer, (int32_t)expert, (uint32_t)uses};
    }
    return 0;
}

int hot_parse(const char *text, size_t n, const char *name, const struct hot_shape *shape,
              struct hot_row **rows, size_t *n_rows, struct sl_err *err)
{
    struct parse s = {.p = text, .end = text + n, .name = name, .err = err};
    *rows = NULL;
    *n_rows = 0;
    int rc = parse_head(&s, shape);
    if (rc)
        return rc;
    size_t all = (size_t)shape->n_layer * (size_t)shape->n_expert;
    size_t room = (size_t)(s.end - s.p) / 6 + 1; /* a row has at least "0,0,0\n", the last no end */
    room = room < all ? room : all;
    uint8_t *seen = mem_calloc(all, 1);
    *rows = mem_calloc(room, sizeof **rows);
    rc = seen && *rows ? parse_rows(&s, shape, seen, *rows, room, n_rows)
                       : err_file(err, SL_E_MEM, name, 0, "no memory to read it");
    mem_free(seen);
    if (rc || *n_rows == 0) {
        mem_free(*rows);
        *rows = NULL;
        *n_rows = 0;
    }
    return rc;
}

static int compare_rows(const void *a, const void *b)
{
    const struct hot_row *x = a, *y = b;
    if (x->uses != y->uses)
        return x->uses > y->uses ? -1 : 1;
    if (x->layer != y->layer)
        return x->layer < y->layer ? -1 : 1;
    return x->expert < y->expert ? -1 : x->expert > y->expert;
}

int hot_format(const struct hot_shape *shape, struct hot_row *rows, size_t n_rows, char **text,
               size_t *n, struct sl_err *err)
{
    struct emit e = {0};
    char line[160];
    if (n_rows)
        qsort(rows, n_rows, sizeof *rows, compare_rows);
    model_line(shape, line, sizeof line);
    emit_add_text(&e, HEAD "\n");
    emit_add_text(&e, line);
    emit_add_text(&e, "\n" COLUMNS "\n");
    for (size_t i = 0; i < n_rows; i++) {
        emit_add_int(&e, rows[i].layer);
        emit_add_text(&e, ",");
        emit_add_int(&e, rows[i].expert);
        emit_add_text(&e, ",");
        emit_add_uint(&e, rows[i].uses);
        emit_add_text(&e, "\n");
    }
    if (e.failed) {
        emit_free(&e);
        return err_set(err, SL_E_MEM, "hot experts", "no memory for the list of hot experts");
    }
    *text = e.text;
    *n = e.n;
    return 0;
}

/* ---- Of an engine ---------------------------------------------------------------------------- */

static int shape_of(const struct sl_engine *e, struct hot_shape *shape, struct sl_err *err)
{
    shape->n_layer = e->model->cfg.n_layer;
    shape->n_expert = e->model->cfg.n_expert;
    return packed_identify(e->gguf, e->model->files, shape->model, err);
}

/* Tokens that went through each layer: the experts that they used, by experts per token. */
static int make_hints(const struct sl_engine *e, const struct hot_row *rows, size_t n,
                      struct cache_hint **out, struct sl_err *err)
{
    int n_layer = e->model->cfg.n_layer;
    uint64_t *uses = mem_calloc((size_t)n_layer, sizeof *uses);
    struct cache_hint *hint = mem_calloc(n, sizeof *hint);
    if (!uses || !hint) {
        mem_free(uses);
        mem_free(hint);
        return err_set(err, SL_E_MEM, "hot experts", "no memory for the list of hot experts");
    }
    for (size_t i = 0; i < n; i++)
        uses[rows[i].layer] += rows[i].uses;
    for (size_t i = 0; i < n; i++) {
        double all = (double)uses[rows[i].layer] / e->model_top_k;
        float share = all > 0 ? (float)((double)rows[i].uses / all) : 0;
        hint[i] = (struct cache_hint){rows[i].layer, rows[i].expert, share < 1 ? share : 1};
    }
    mem_free(uses);
    *out = hint;
    return 0;
}

int sl_engine_set_hot_experts(struct sl_engine *e, const char *text, size_t n, const char *name,
                              int *n_read, struct sl_err *err)
{
    struct hot_row *rows = NULL;
    struct cache_hint *hint = NULL;
    size_t n_rows = 0;
    *n_read = 0;
    if (!e->cache || n == 0)
        return 0;
    struct hot_shape shape;
    int rc = shape_of(e, &shape, err);
    if (rc == 0)
        rc = hot_parse(text, n, name, &shape, &rows, &n_rows, err);
    if (rc == 0 && n_rows)
        rc = make_hints(e, rows, n_rows, &hint, err);
    if (rc == 0 && n_rows) {
        uint64_t fp = fpenv_enter(); /* the policy computes with what it is told */
        *n_read = cache_preload(e->cache, hint, n_rows);
        fpenv_restore(fp);
        mem_free(e->hot);
        e->hot = rows;
        e->n_hot = n_rows;
        rows = NULL;
    }
    mem_free(rows);
    mem_free(hint);
    return rc;
}

int sl_engine_get_hot_experts(const struct sl_engine *e, char **text, size_t *n, struct sl_err *err)
{
    *text = NULL;
    *n = 0;
    if (!e->cache)
        return 0;
    struct hot_shape shape;
    int rc = shape_of(e, &shape, err);
    if (rc)
        return rc;
    size_t n_expert = (size_t)shape.n_expert, all = (size_t)shape.n_layer * n_expert, n_rows = 0;
    struct hot_row *rows = mem_calloc(all, sizeof *rows);
    if (!rows)
        return err_set(err, SL_E_MEM, "hot experts", "no memory for the list of hot experts");
    for (size_t i = 0; i < e->n_hot; i++)
        rows[(size_t)e->hot[i].layer * n_expert + (size_t)e->hot[i].expert].uses = e->hot[i].uses /
                                                                                   2;
    for (size_t i = 0; i < all; i++) {
        const uint32_t *uses = cache_get_uses(e->cache, (int)(i / n_expert));
        uint64_t sum = rows[i].uses + (uint64_t)(uses ? uses[i % n_expert] : 0);
        if (sum)
            rows[n_rows++] = (struct hot_row){(int32_t)(i / n_expert), (int32_t)(i % n_expert),
                                              sum < UINT32_MAX ? (uint32_t)sum : UINT32_MAX};
    }
    rc = hot_format(&shape, rows, n_rows, text, n, err);
    mem_free(rows);
    return rc;
}
