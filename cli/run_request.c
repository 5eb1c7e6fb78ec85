#include "cli/run_request.h"

#include "base/err.h"
#include "base/mem.h"

#include <jansson.h>
#include <string.h>

enum kind { TEXT, NAME, INTS, COUNT, NUMBER, BOOL };

struct field {
    const char *key;
    enum kind kind;
    unsigned ops; /* bits of the requests that may have it */
    double min, max;
};
#define OP(name) (1u << REQUEST_##name)

/* The bounds are those of the options of the same meaning. */
static const struct field FIELDS[] = {
    {"op", NAME, OP(GENERATE) | OP(CANCEL) | OP(BUDGET) | OP(CLOSE), 0, 0},
    {"id", NAME, OP(GENERATE) | OP(CANCEL) | OP(BUDGET) | OP(CLOSE), 0, 0},
    {"prompt", TEXT, OP(GENERATE), 0, 0},
    {"ids", INTS, OP(GENERATE), 0, INT32_MAX},
    {"n", COUNT, OP(GENERATE), 0, 1e6},
    {"chat", BOOL, OP(GENERATE), 0, 0},
    {"keep", BOOL, OP(GENERATE), 0, 0},
    {"ignore_eos", BOOL, OP(GENERATE), 0, 0},
    {"temp", NUMBER, OP(GENERATE), 0, 100},
    {"top_k", COUNT, OP(GENERATE), 0, 1e8},
    {"top_p", NUMBER, OP(GENERATE), 0, 1},
    {"min_p", NUMBER, OP(GENERATE), 0, 1},
    {"repeat_penalty", NUMBER, OP(GENERATE), 0.01, 100},
    {"seed", COUNT, OP(GENERATE), 0, 9.2e18},
    {"cache_mb", COUNT, OP(BUDGET), 0, 1e9},
};

static const char *const OPS[] = {[REQUEST_GENERATE] = "generate",
                                  [REQUEST_CANCEL] = "cancel",
                                  [REQUEST_BUDGET] = "budget",
                                  [REQUEST_CLOSE] = "close"};

static const struct field *find_field(const char *key)
{
    for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++) {
        if (strcmp(FIELDS[i].key, key) == 0)
            return &FIELDS[i];
    }
    return NULL;
}

static bool in_range(const struct field *f, double v)
{
    return v >= f->min && v <= f->max;
}

static bool is_kind(const struct field *f, const json_t *v)
{
    switch (f->kind) {
    case TEXT:
        return json_is_string(v);
    case NAME:
        return json_is_string(v) && json_string_length(v) <= REQUEST_MAX_ID;
    case INTS:
        return json_is_array(v) && json_array_size(v) > 0;
    case COUNT:
        return json_is_integer(v) && in_range(f, (double)json_integer_value(v));
    case NUMBER:
        return json_is_number(v) && in_range(f, json_number_value(v));
    case BOOL:
        break;
    }
    return json_is_boolean(v);
}

static int bad_value(const struct field *f, struct sl_err *err)
{
    switch (f->kind) {
    case TEXT:
        return err_set(err, SL_E_ARG, f->key, "\"%s\" is not a string", f->key);
    case NAME:
        return err_set(err, SL_E_ARG, f->key, "\"%s\" is not a string of at most %d bytes", f->key,
                       REQUEST_MAX_ID);
    case INTS:
        return err_set(err, SL_E_ARG, f->key, "\"%s\" is not an array of token ids", f->key);
    case COUNT:
    case NUMBER:
        return err_set(err, SL_E_ARG, f->key, "\"%s\" is not a%s number from %g to %g", f->key,
                       f->kind == COUNT ? " whole" : "", f->min, f->max);
    case BOOL:
        break;
    }
    return err_set(err, SL_E_ARG, f->key, "\"%s\" is not true or false", f->key);
}

static int read_op(const json_t *root, enum request_op *op, struct sl_err *err)
{
    const char *name = json_string_value(json_object_get(root, "op"));
    for (int i = 0; name != NULL && i <= REQUEST_CLOSE; i++) {
        if (strcmp(OPS[i], name) == 0) {
            *op = (enum request_op)i;
            return SL_OK;
        }
    }
    return err_set(err, SL_E_ARG, "op", "\"op\" is not one of generate, cancel, budget, close");
}

/* Every key is known, belongs to the request, and has a value of its kind. */
static int check_fields(json_t *root, enum request_op op, struct sl_err *err)
{
    const char *key;
    json_t *v;
    json_object_foreach(root, key, v)
    {
        const struct field *f = find_field(key);
        if (f == NULL || !(f->ops & (1u << op)))
            return err_set(err, SL_E_ARG, NULL, "\"%.40s\" means nothing in a %s request", key,
                           OPS[op]);
        if (!is_kind(f, v))
            return bad_value(f, err);
    }
    return SL_OK;
}

static void take_count(const json_t *root, const char *key, int64_t *out)
{
    const json_t *v = json_object_get(root, key);
    if (v != NULL)
        *out = json_integer_value(v);
}

static void take_float(const json_t *root, const char *key, float *out)
{
    const json_t *v = json_object_get(root, key);
    if (v != NULL)
        *out = (float)json_number_value(v);
}

static void take_bool(const json_t *root, const char *key, bool *out)
{
    const json_t *v = json_object_get(root, key);
    if (v != NULL)
        *out = json_is_true(v);
}

static int take_ids(const json_t *list, struct request *r, struct sl_err *err)
{
    const struct field *f = find_field("ids");
    size_t n = json_array_size(list);
    r->ids = mem_calloc(n, sizeof *r->ids);
    if (r->ids == NULL)
        return err_set(err, SL_E_MEM, "ids", "no memory for %zu token ids", n);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || !in_range(f, (double)json_integer_value(v)))
            return bad_value(f, err);
        r->ids[i] = (int32_t)json_integer_value(v);
    }
    r->n_ids = n;
    return SL_OK;
}

static int take_generate(const json_t *root, struct request *r, struct sl_err *err)
{
    const json_t *prompt = json_object_get(root, "prompt"), *ids = json_object_get(root, "ids");
    int64_t n = (int64_t)r->n_predict, k = r->sampling.top_k, seed = (int64_t)r->sampling.seed;
    if ((prompt != NULL) == (ids != NULL))
        return err_set(err, SL_E_ARG, "prompt",
                       "a generate request has either \"prompt\" or \"ids\"");
    take_bool(root, "chat", &r->chat);
    take_bool(root, "keep", &r->keep);
    take_bool(root, "ignore_eos", &r->ignore_eos);
    if (r->chat && prompt == NULL)
        return err_set(err, SL_E_ARG, "chat",
                       "\"chat\" wraps text; it cannot be used with \"ids\"");
    take_count(root, "n", &n);
    take_count(root, "top_k", &k);
    take_count(root, "seed", &seed);
    take_float(root, "temp", &r->sampling.temp);
    take_float(root, "top_p", &r->sampling.top_p);
    take_float(root, "min_p", &r->sampling.min_p);
    take_float(root, "repeat_penalty", &r->sampling.repeat_penalty);
    r->n_predict = (size_t)n;
    r->sampling.top_k = (int)k;
    r->sampling.seed = (uint64_t)seed;
    if (ids != NULL)
        return take_ids(ids, r, err);
    r->n_prompt = json_string_length(prompt);
    r->prompt = mem_strndup(json_string_value(prompt), r->n_prompt);
    return r->prompt != NULL ? SL_OK : err_set(err, SL_E_MEM, "prompt", "no memory for the prompt");
}

static int take(json_t *root, struct request *r, struct sl_err *err)
{
    if (!json_is_object(root))
        return err_set(err, SL_E_FORMAT, NULL, "the line is no JSON object");
    const char *id = json_string_value(json_object_get(root, "id"));
    if (id != NULL && json_string_length(json_object_get(root, "id")) <= REQUEST_MAX_ID) {
        memcpy(r->id, id, strlen(id) + 1);
        r->has_id = true;
    }
    int rc = read_op(root, &r->op, err);
    if (rc == SL_OK)
        rc = check_fields(root, r->op, err);
    if (rc < 0)
        return rc;
    if (r->op == REQUEST_GENERATE)
        return take_generate(root, r, err);
    int64_t mb = -1;
    take_count(root, "cache_mb", &mb);
    if (r->op == REQUEST_BUDGET && mb < 0)
        return err_set(err, SL_E_ARG, "cache_mb", "a budget request has \"cache_mb\"");
    r->cache_mb = mb > 0 ? (uint64_t)mb : 0;
    return SL_OK;
}

int request_parse(const char *line, size_t n, const struct request *defaults, struct request **out,
                  struct sl_err *err)
{
    json_error_t bad;
    struct request *r = mem_calloc(1, sizeof *r);
    *out = r;
    if (r == NULL)
        return err_set(err, SL_E_MEM, NULL, "no memory for a request");
    r->n_predict = defaults->n_predict;
    r->ignore_eos = defaults->ignore_eos;
    r->sampling = defaults->sampling;
    r->bytes = n;
    if (n > REQUEST_MAX_LINE)
        return err_set(err, SL_E_FORMAT, NULL, "a request is longer than %zu bytes",
                       REQUEST_MAX_LINE);
    json_t *root = json_loadb(line, n, JSON_REJECT_DUPLICATES, &bad);
    if (root == NULL)
        return err_set(err, SL_E_FORMAT, NULL, "no JSON: %s, at byte %d", bad.text, bad.position);
    int rc = take(root, r, err);
    json_decref(root);
    return rc;
}

void request_free(struct request **rp)
{
    struct request *r = *rp;
    *rp = NULL;
    if (r == NULL)
        return;
    mem_free(r->prompt);
    mem_free(r->ids);
    mem_free(r);
}
