/* packed_json.c: manifests as JSON. Reading bounds depth and length before the parser runs, and
 * every number and text before it is stored. */
#include "model/packed.h"

#include <jansson.h>
#include <string.h>

#include "base/json_depth.h"
#include "base/mem.h"
#include "base/size.h"
#include "model/config.h"
#include "quant/quant.h"

#define FORMAT    "sluice packed experts"
#define VERSION   1
#define MAX_DEPTH 8
#define MAX_PAGE  ((uint64_t)2 << 20)

struct reader {
    const char *name;
    struct sl_err *err;
};

static int bad(const struct reader *r, const char *what)
{
    return err_file(r->err, SL_E_FORMAT, r->name, 0, "%s: no manifest of packed experts", what);
}

static bool get_number(json_t *obj, const char *key, uint64_t max, uint64_t *out)
{
    json_t *v = json_object_get(obj, key);
    json_int_t n = json_integer_value(v);
    if (!json_is_integer(v) || n < 0 || (uint64_t)n > max)
        return false;
    *out = (uint64_t)n;
    return true;
}

static bool get_text(json_t *obj, const char *key, char *out, size_t size)
{
    json_t *v = json_object_get(obj, key);
    if (!json_is_string(v) || json_string_length(v) >= size)
        return false;
    const char *s = json_string_value(v);
    for (const char *p = s; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return false;
    memcpy(out, s, strlen(s) + 1);
    return true;
}

static bool get_digest(json_t *obj, const char *key, char hex[SHA256_HEX])
{
    if (!get_text(obj, key, hex, SHA256_HEX) || strlen(hex) != SHA256_HEX - 1)
        return false;
    return strspn(hex, "0123456789abcdef") == SHA256_HEX - 1;
}

static uint8_t hex_digit(char c)
{
    return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

static bool read_part(json_t *obj, struct packed_part *p)
{
    char type[16];
    const uint64_t most = (uint64_t)1 << 40;
    if (!get_text(obj, "tensor", p->tensor, sizeof p->tensor) ||
        !get_text(obj, "type", type, sizeof type) || !get_number(obj, "rows", most, &p->rows) ||
        !get_number(obj, "row_values", most, &p->row_values) ||
        !get_number(obj, "at", most, &p->at) || !get_number(obj, "bytes", most, &p->bytes))
        return false;
    for (p->type = 0; p->type < QT_COUNT; p->type++) {
        const struct quant_info *info = quant_type_info(p->type);
        if (info && strcmp(info->name, type) == 0)
            return true;
    }
    return false;
}

static bool read_layer(json_t *obj, struct packed_layer *l)
{
    uint64_t block;
    json_t *parts = json_object_get(obj, "parts"), *part, *sha = json_object_get(obj, "sha256");
    size_t i;
    if (!get_number(obj, "block", MODEL_MAX_LAYERS - 1, &block) ||
        !get_number(obj, "experts", MODEL_MAX_EXPERTS, &l->n_experts) ||
        !get_number(obj, "stride", (uint64_t)1 << 41, &l->stride) || !json_is_array(parts) ||
        json_array_size(parts) > PACKED_MAX_PARTS)
        return false;
    l->block = (int)block;
    json_array_foreach(parts, i, part)
    {
        if (!read_part(part, &l->part[l->n_parts++]))
            return false;
    }
    char hex[SHA256_HEX];
    if (sha == NULL || json_is_null(sha))
        return true;
    if (!get_digest(obj, "sha256", hex))
        return false;
    for (int k = 0; k < SHA256_BYTES; k++)
        l->sha256[k] = (uint8_t)(hex_digit(hex[2 * k]) << 4 | hex_digit(hex[2 * k + 1]));
    l->done = true;
    return true;
}

static int read_tree(const struct reader *r, json_t *obj, struct packed_manifest *m)
{
    char kind[16];
    json_t *layers = json_object_get(obj, "layers"), *layer;
    struct packed_tree *t = mem_calloc(1, sizeof *t);
    size_t n = json_array_size(layers), i;
    if (!t)
        return err_set(r->err, SL_E_MEM, r->name, "no memory for a manifest");
    bool good = get_text(obj, "kind", kind, sizeof kind) &&
                get_number(obj, "page", MAX_PAGE, &t->page) && t->page >= PACKED_PAGE &&
                (t->page & (t->page - 1)) == 0 && json_is_array(layers) && n > 0 &&
                n <= MODEL_MAX_LAYERS;
    for (t->kind = SL_PACKED_LOSSLESS; good && t->kind <= SL_PACKED_2BIT; t->kind++)
        if (strcmp(packed_kind_name(t->kind), kind) == 0)
            break;
    struct packed_tree **slot = good && t->kind <= SL_PACKED_2BIT
                                    ? &m->tree[packed_folder_index(t->kind)]
                                    : NULL;
    if (slot && !*slot)
        t->layer = mem_calloc(n, sizeof *t->layer);
    good = t->layer != NULL;
    json_array_foreach(layers, i, layer)
    {
        if (good)
            good = read_layer(layer, &t->layer[t->n_layers++]);
    }
    if (!good) {
        packed_free(&t);
        return bad(r, "a tree's description is not complete");
    }
    *slot = t;
    return 0;
}

static int read_manifest(const struct reader *r, json_t *root, struct packed_manifest *m)
{
    char format[32];
    uint64_t version;
    json_t *source = json_object_get(root, "source"), *trees = json_object_get(root, "trees"), *t;
    size_t i;
    if (!get_text(root, "format", format, sizeof format) || strcmp(format, FORMAT) != 0)
        return bad(r, "its format is not named");
    if (!get_number(root, "version", INT32_MAX, &version) || version != VERSION)
        return err_file(r->err, SL_E_UNSUPPORTED, r->name, 0,
                        "a manifest of another version than %d", VERSION);
    if (!get_text(source, "name", m->source, sizeof m->source) ||
        !get_number(source, "bytes", INT64_MAX, &m->source_bytes) ||
        !get_digest(source, "identity", m->identity))
        return bad(r, "its source is not named");
    if (!json_is_array(trees) || json_array_size(trees) > PACKED_FOLDERS)
        return bad(r, "its trees are not listed");
    json_array_foreach(trees, i, t)
    {
        int rc = read_tree(r, t, m);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int packed_parse(const char *json, size_t n, const char *name, struct packed_manifest **out,
                 struct sl_err *err)
{
    struct reader r = {name, err};
    json_error_t je;
    *out = NULL;
    if (n > PACKED_MAX_JSON || json_depth_exceeds(json, n, MAX_DEPTH))
        return bad(&r, "too long or too deep");
    json_t *root = json_loadb(json, n, JSON_REJECT_DUPLICATES, &je);
    if (!root)
        return err_file(err, SL_E_FORMAT, name, 0, "line %d: not JSON: %.100s", je.line, je.text);
    struct packed_manifest *m = mem_calloc(1, sizeof *m);
    int rc = m ? read_manifest(&r, root, m)
               : err_set(err, SL_E_MEM, name, "no memory for a manifest");
    json_decref(root);
    if (rc < 0)
        packed_close(&m);
    *out = m;
    return rc;
}

int packed_read(const char *path, struct packed_manifest **out, struct sl_err *err)
{
    struct io_file *f;
    *out = NULL;
    int rc = io_file_open(path, false, &f, err);
    if (rc < 0)
        return rc;
    uint64_t n = io_file_size(f);
    char *text = n <= PACKED_MAX_JSON ? mem_alloc((size_t)n) : NULL;
    if (n > PACKED_MAX_JSON)
        rc = err_file(err, SL_E_FORMAT, path, 0, "more than %zu MiB: no manifest",
                      PACKED_MAX_JSON >> 20);
    else if (!text)
        rc = err_set(err, SL_E_MEM, path, "no memory for a manifest");
    else if ((rc = io_file_read_any(f, text, 0, (size_t)n, err)) == 0)
        rc = packed_parse(text, (size_t)n, path, out, err);
    mem_free(text);
    io_file_close(&f);
    return rc;
}

void packed_close(struct packed_manifest **m)
{
    if (!m || !*m)
        return;
    for (int i = 0; i < PACKED_FOLDERS; i++)
        packed_free(&(*m)->tree[i]);
    mem_free(*m);
    *m = NULL;
}

/* ---- Writing. A NULL on the way makes the whole NULL: jansson's setters take it. ---- */

static json_t *part_json(const struct packed_part *p)
{
    return json_pack("{s:s,s:s,s:I,s:I,s:I,s:I}", "tensor", p->tensor, "type",
                     quant_type_info(p->type)->name, "rows", (json_int_t)p->rows, "row_values",
                     (json_int_t)p->row_values, "at", (json_int_t)p->at, "bytes",
                     (json_int_t)p->bytes);
}

static json_t *layer_json(const struct packed_layer *l)
{
    char hex[SHA256_HEX];
    json_t *parts = json_array();
    for (int i = 0; i < l->n_parts; i++)
        json_array_append_new(parts, part_json(&l->part[i]));
    sha256_print(l->sha256, hex);
    return json_pack("{s:i,s:I,s:I,s:I,s:s?,s:o}", "block", l->block, "experts",
                     (json_int_t)l->n_experts, "stride", (json_int_t)l->stride, "bytes",
                     (json_int_t)packed_file_bytes(l), "sha256", l->done ? hex : NULL, "parts",
                     parts);
}

static json_t *tree_json(const struct packed_tree *t)
{
    json_t *layers = json_array();
    for (int i = 0; i < t->n_layers; i++)
        json_array_append_new(layers, layer_json(&t->layer[i]));
    return json_pack("{s:s,s:s,s:b,s:I,s:o}", "folder", packed_folder(t->kind), "kind",
                     packed_kind_name(t->kind), "lossless", t->kind == SL_PACKED_LOSSLESS, "page",
                     (json_int_t)t->page, "layers", layers);
}

int packed_format(const struct packed_manifest *m, char **out, struct sl_err *err)
{
    *out = NULL;
    json_t *trees = json_array();
    for (int i = 0; i < PACKED_FOLDERS; i++)
        if (m->tree[i])
            json_array_append_new(trees, tree_json(m->tree[i]));
    json_t *root = json_pack("{s:s,s:i,s:{s:s,s:I,s:s},s:o}", "format", FORMAT, "version", VERSION,
                             "source", "name", m->source, "bytes", (json_int_t)m->source_bytes,
                             "identity", m->identity, "trees", trees);
    size_t n = root ? json_dumpb(root, NULL, 0, JSON_INDENT(1)) : 0;
    char *text = n ? mem_alloc(n + 2) : NULL;
    if (text) {
        json_dumpb(root, text, n, JSON_INDENT(1));
        text[n] = '\n';
        text[n + 1] = '\0';
    }
    json_decref(root);
    *out = text;
    return text ? 0 : err_set(err, SL_E_MEM, "manifest", "no memory for a manifest");
}
