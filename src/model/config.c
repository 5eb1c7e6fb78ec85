#include "model/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/arch/arch.h"

/* Where keys are looked up: "<arch>.<key>". */
struct reader {
    const struct gguf *g;
    const char *arch;
    struct sl_err *err;
};

static void full_key(const struct reader *r, const char *key, char *out, size_t n)
{
    snprintf(out, n, "%s.%s", r->arch, key);
}

/* An integer in [low, high] into *out; a missing key gives fallback, or is an error when fallback <
 * 0. */
static int get_int(const struct reader *r, const char *key, int64_t fallback, int64_t low,
                   int64_t high, int *out)
{
    char full[160];
    full_key(r, key, full, sizeof full);
    int64_t v;
    int rc = gguf_get_i64(r->g, full, &v, r->err);
    if (rc < 0)
        return rc;
    if (rc == 0) {
        if (fallback < 0)
            return err_set(r->err, SL_E_FORMAT, full, "metadata key %s is missing", full);
        v = fallback;
    }
    if (v < low || v > high)
        return err_set(r->err, SL_E_FORMAT, full, "metadata key %s is %lld, expected %lld to %lld",
                       full, (long long)v, (long long)low, (long long)high);
    *out = (int)v;
    return 0;
}

static int get_signed(const struct reader *r, const char *key, double fallback, double *out)
{
    char full[160];
    full_key(r, key, full, sizeof full);
    double v;
    int rc = gguf_get_f64(r->g, full, &v, r->err);
    if (rc < 0)
        return rc;
    if (rc == 0)
        v = fallback;
    if (!isfinite(v))
        return err_set(r->err, SL_E_FORMAT, full, "metadata key %s is not a finite number", full);
    *out = v;
    return 0;
}

static int get_float(const struct reader *r, const char *key, double fallback, double *out)
{
    int rc = get_signed(r, key, fallback, out);
    if (rc < 0 || *out >= 0)
        return rc;
    char full[160];
    full_key(r, key, full, sizeof full);
    return err_set(r->err, SL_E_FORMAT, full, "metadata key %s is not a finite number >= 0", full);
}

static int find_arch(const struct gguf *g, struct model_config *c, struct sl_err *err)
{
    struct gguf_str s;
    int rc = gguf_get_str(g, "general.architecture", &s, err);
    if (rc < 0)
        return rc;
    if (rc == 0)
        return err_set(err, SL_E_FORMAT, gguf_shard_path(g, 0),
                       "%s has no key general.architecture: not a model file",
                       gguf_shard_path(g, 0));
    c->arch = model_arch_find(s.p, s.n);
    if (!c->arch)
        return err_set(err, SL_E_UNSUPPORTED, gguf_shard_path(g, 0),
                       "architecture '%.*s' is not supported; supported: %s",
                       (int)(s.n < 64 ? s.n : 64), s.p, model_arch_list());
    if (gguf_get_str(g, "general.name", &s, NULL) == 1)
        snprintf(c->name, sizeof c->name, "%.*s", (int)(s.n < 127 ? s.n : 127), s.p);
    return 0;
}

/* YaRN's keys. What the field calls attn_factor multiplies the magnitude; a log multiplier takes
 * its growth with the factor back, as far as it says. */
static int read_yarn(const struct reader *r, struct model_config *c)
{
    struct kern_yarn *y = &c->yarn;
    double log_mul;
    int rc, n_ctx;
    if ((rc = get_float(r, "rope.scaling.factor", 1, &y->factor)) < 0 ||
        (rc = get_int(r, "rope.scaling.original_context_length", c->n_ctx_train, 1, INT32_MAX / 2,
                      &n_ctx)) < 0 ||
        (rc = get_signed(r, "rope.scaling.yarn_ext_factor", 1, &y->ext)) < 0 ||
        (rc = get_float(r, "rope.scaling.yarn_beta_fast", 32, &y->beta_fast)) < 0 ||
        (rc = get_float(r, "rope.scaling.yarn_beta_slow", 1, &y->beta_slow)) < 0 ||
        (rc = get_float(r, "rope.scaling.yarn_log_multiplier", 0, &log_mul)) < 0)
        return rc;
    y->n_ctx = n_ctx;
    if (y->factor == 0)
        y->factor = 1;
    if (y->ext < 0) /* some converters write -1 for "as usual" */
        y->ext = 1;
    if (!(y->beta_fast > 0 && y->beta_slow > 0 && c->rope_base > 1))
        return err_set(r->err, SL_E_FORMAT, r->arch,
                       "YaRN with betas %g and %g and base %g makes no sense", y->beta_fast,
                       y->beta_slow, c->rope_base);
    c->rope_yarn = true;
    if (y->ext != 0)
        c->rope_magnitude = c->rope_magnitude * kern_yarn_magnitude(y->factor, 1) /
                            kern_yarn_magnitude(y->factor, log_mul);
    return 0;
}

static bool is_word(const struct gguf_str *s, const char *word)
{
    return s->n == strlen(word) && memcmp(s->p, word, s->n) == 0;
}

static int read_rope(const struct reader *r, struct model_config *c)
{
    int rc;
    if ((rc = get_int(r, "rope.dimension_count", c->dim_k, 2, c->dim_k, &c->n_rot)) < 0)
        return rc;
    if (c->n_rot % 2)
        return err_set(r->err, SL_E_FORMAT, r->arch, "rope.dimension_count %d is odd", c->n_rot);
    if ((rc = get_float(r, "rope.freq_base", 10000.0, &c->rope_base)) < 0 ||
        (rc = get_float(r, "rope.scaling.attn_factor", 1, &c->rope_magnitude)) < 0)
        return rc;
    if (c->rope_base < 1)
        return err_set(r->err, SL_E_FORMAT, r->arch, "rope.freq_base %g is below 1", c->rope_base);
    c->rope_linear = 1;
    char key[160];
    full_key(r, "rope.scaling.type", key, sizeof key);
    struct gguf_str s = {"none", 4};
    if ((rc = gguf_get_str(r->g, key, &s, r->err)) < 0)
        return rc;
    if (is_word(&s, "none"))
        return 0;
    if (is_word(&s, "yarn"))
        return read_yarn(r, c);
    if (is_word(&s, "linear")) {
        if ((rc = get_float(r, "rope.scaling.factor", 1, &c->rope_linear)) < 0)
            return rc;
        if (c->rope_linear == 0)
            c->rope_linear = 1;
        return 0;
    }
    return err_set(r->err, SL_E_UNSUPPORTED, key, "RoPE scaling '%.*s' is not supported yet",
                   (int)(s.n < 32 ? s.n : 32), s.p);
}

static int read_experts(const struct reader *r, struct model_config *c)
{
    int rc;
    if ((rc = get_int(r, "expert_count", 0, 0, MODEL_MAX_EXPERTS, &c->n_expert)) < 0)
        return rc;
    c->expert_scale = 1;
    if (c->n_expert == 0) {
        if (c->arch->must_route)
            return err_set(r->err, SL_E_FORMAT, r->arch,
                           "metadata key %s.expert_count is missing or 0", r->arch);
        return 0;
    }
    if (!c->arch->may_route)
        return err_set(r->err, SL_E_UNSUPPORTED, r->arch,
                       "architecture '%s' with experts is not supported", r->arch);
    int top = c->n_expert < MODEL_MAX_TOPK ? c->n_expert : MODEL_MAX_TOPK;
    if ((rc = get_int(r, "expert_used_count", -1, 1, top, &c->n_expert_used)) < 0)
        return rc;
    if ((rc = get_int(r, "expert_feed_forward_length", c->n_ff, 0, MODEL_MAX_DIM,
                      &c->n_ff_expert)) < 0)
        return rc;
    if (c->n_ff_expert == 0) /* some converters write 0 for "as the dense width" */
        c->n_ff_expert = c->n_ff;
    double scale;
    if ((rc = get_float(r, "expert_weights_scale", 1, &scale)) < 0)
        return rc;
    c->expert_scale = scale == 0 ? 1.0f : (float)scale;
    int groups;
    if ((rc = get_int(r, "expert_group_count", 1, 0, MODEL_MAX_EXPERTS, &groups)) < 0)
        return rc;
    if (groups > 1)
        return err_set(r->err, SL_E_UNSUPPORTED, r->arch,
                       "routing in %d groups is not supported yet", groups);
    return 0;
}

static int read_vocab_size(const struct reader *r, struct model_config *c)
{
    uint64_t n = 0;
    const struct gguf_tensor *t = gguf_find_tensor(r->g, "token_embd.weight");
    if (!t)
        return err_set(r->err, SL_E_FORMAT, gguf_shard_path(r->g, 0),
                       "tensor token_embd.weight is missing: %s holds no weights",
                       gguf_shard_path(r->g, 0));
    n = t->dims[1];
    if (n < 1 || n > MODEL_MAX_VOCAB)
        return err_set(r->err, SL_E_FORMAT, t->name, "%s has %llu rows, expected 1 to %d", t->name,
                       (unsigned long long)n, MODEL_MAX_VOCAB);
    c->n_vocab = (int)n;
    return 0;
}

int model_config_read(const struct gguf *g, struct model_config *out, struct sl_err *err)
{
    struct model_config c = {0};
    int rc = find_arch(g, &c, err);
    if (rc < 0)
        return rc;
    struct reader r = {g, c.arch->name, err};
    double eps;
    if ((rc = get_int(&r, "block_count", -1, 1, MODEL_MAX_LAYERS, &c.n_layer)) < 0 ||
        (rc = get_int(&r, "embedding_length", -1, 1, MODEL_MAX_DIM, &c.n_embd)) < 0 ||
        (rc = get_int(&r, "context_length", -1, 1, INT32_MAX / 2, &c.n_ctx_train)) < 0 ||
        (rc = get_int(&r, "attention.head_count", -1, 1, 65536, &c.n_head)) < 0 ||
        (rc = get_int(&r, "attention.head_count_kv", c.n_head, 1, c.n_head, &c.n_head_kv)) < 0 ||
        (rc = get_int(&r, "attention.key_length", c.n_embd / c.n_head, 2, 65536, &c.dim_k)) < 0 ||
        (rc = get_int(&r, "attention.value_length", c.n_embd / c.n_head, 1, 65536, &c.dim_v)) < 0 ||
        (rc = get_int(&r, "feed_forward_length", 0, 0, MODEL_MAX_DIM, &c.n_ff)) < 0 ||
        (rc = get_float(&r, "attention.layer_norm_rms_epsilon", 1e-5, &eps)) < 0 ||
        (rc = read_experts(&r, &c)) < 0 || (rc = read_rope(&r, &c)) < 0 ||
        (rc = read_vocab_size(&r, &c)) < 0)
        return rc;
    if (c.n_head % c.n_head_kv)
        return err_set(err, SL_E_FORMAT, c.arch->name, "%d heads are no multiple of %d KV heads",
                       c.n_head, c.n_head_kv);
    if ((int64_t)c.n_head * c.dim_k > MODEL_MAX_DIM || (int64_t)c.n_head * c.dim_v > MODEL_MAX_DIM)
        return err_set(err, SL_E_FORMAT, c.arch->name, "%d heads of %d are more than %d values",
                       c.n_head, c.dim_k, MODEL_MAX_DIM);
    c.rms_eps = (float)eps;
    c.attn_scale = 1.0f / sqrtf((float)c.dim_k);
    *out = c;
    return 0;
}
