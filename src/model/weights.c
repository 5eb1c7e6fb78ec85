#include "model/vectors.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "model/arch/arch.h"

/* State of binding. Vectors are counted first and placed when loaded: until then a `const float *`
 * field holds NULL and its address waits in `wait`. */
struct binder {
    struct model *m;
    struct sl_err *err;
};

static const struct gguf_tensor *find(struct binder *b, int il, const char *name, char *full,
                                      size_t n)
{
    if (il >= 0)
        snprintf(full, n, "blk.%d.%s", il, name);
    else
        snprintf(full, n, "%s", name);
    return gguf_find_tensor(b->m->gguf, full);
}

static int bad_shape(struct binder *b, const struct gguf_tensor *t, uint64_t d0, uint64_t d1,
                     uint64_t d2)
{
    return err_set(b->err, SL_E_FORMAT, t->name,
                   "tensor %s is %llu x %llu x %llu, the metadata says %llu x %llu x %llu", t->name,
                   (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
                   (unsigned long long)t->dims[2], (unsigned long long)d0, (unsigned long long)d1,
                   (unsigned long long)d2);
}

static int missing(struct binder *b, const char *full)
{
    return err_set(b->err, SL_E_FORMAT, full, "tensor %s is missing", full);
}

/* A matrix of n_expert x n_out rows of n_in values (n_expert 1: an ordinary one). */
static int bind_matrix(struct binder *b, int il, const char *name, int n_in, int n_out,
                       int n_expert, bool optional, struct weight *w)
{
    char full[64];
    const struct gguf_tensor *t = find(b, il, name, full, sizeof full);
    if (!t)
        return optional ? 0 : missing(b, full);
    if (t->dims[0] != (uint64_t)n_in || t->dims[1] != (uint64_t)n_out ||
        t->dims[2] != (uint64_t)n_expert || t->dims[3] != 1)
        return bad_shape(b, t, (uint64_t)n_in, (uint64_t)n_out, (uint64_t)n_expert);
    const struct mat_kernel *k = &b->m->kernels.mat[t->type];
    if (k->act == ACT_NONE)
        return err_set(b->err, SL_E_UNSUPPORTED, t->name,
                       "tensor %s has type %s, which has no product: it cannot be computed with",
                       t->name, quant_type_info(t->type)->name);
    *w = (struct weight){.tensor = t,
                         .kernel = k,
                         .n_in = n_in,
                         .n_out = n_out,
                         .row_bytes = quant_row_bytes(t->type, t->dims[0])};
    return 0;
}

/* Is there a vector of n values? Types other than floats are refused: nobody quantises norms. */
static int check_vector(struct binder *b, int il, const char *name, int n, bool optional,
                        const struct gguf_tensor **out)
{
    char full[64];
    const struct gguf_tensor *t = find(b, il, name, full, sizeof full);
    *out = t;
    if (!t)
        return optional ? 0 : missing(b, full);
    if (t->dims[0] != (uint64_t)n || t->dims[1] != 1 || t->dims[2] != 1 || t->dims[3] != 1)
        return bad_shape(b, t, (uint64_t)n, 1, 1);
    if (t->type != QT_F32 && t->type != QT_F16 && t->type != QT_BF16)
        return err_set(b->err, SL_E_UNSUPPORTED, t->name,
                       "tensor %s has type %s, expected F32, F16 or BF16", t->name,
                       quant_type_info(t->type)->name);
    return 0;
}

/* The vectors of a model are visited twice with the same calls: to count and check, and to list. */
struct vector_walk {
    struct binder b;
    struct vector_read *list; /* NULL: only count */
    int n;
    size_t used; /* floats, each vector padded to 16 */
};

static int vector(struct vector_walk *w, int il, const char *name, int n, bool optional,
                  const float **slot)
{
    const struct gguf_tensor *t;
    int rc = check_vector(&w->b, il, name, n, optional, &t);
    if (rc < 0 || !t)
        return rc;
    if (w->list) {
        float *to = w->b.m->vectors + w->used;
        w->list[w->n] = (struct vector_read){t, to};
        *slot = to;
    }
    w->n++;
    w->used += (size_t)size_up((uint64_t)n, 16);
    return 0;
}

static int bias(struct vector_walk *w, int il, const char *name, struct weight *of)
{
    return of->tensor ? vector(w, il, name, of->n_out, true, &of->bias) : 0;
}

/* A matrix NAME.weight may come with NAME.scale: n floats that multiply what it gives (NVFP4
 * files). */
static int scale(struct vector_walk *w, struct weight *of, int n)
{
    static const char tail[] = ".weight", instead[] = ".scale";
    if (!of->tensor)
        return 0;
    size_t len = strlen(of->tensor->name), cut = sizeof tail - 1;
    char full[64];
    if (len < cut || strcmp(of->tensor->name + len - cut, tail) != 0 || len >= sizeof full)
        return 0;
    snprintf(full, sizeof full, "%.*s%s", (int)(len - cut), of->tensor->name, instead);
    return vector(w, -1, full, n, true, &of->scale);
}

static int layer_scales(struct vector_walk *w, int il)
{
    struct layer *l = &w->b.m->layers[il];
    struct weight *plain[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down, &l->router};
    struct weight *experts[] = {&l->gate_exps, &l->up_exps, &l->down_exps};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof plain / sizeof *plain; i++)
        rc = scale(w, plain[i], 1);
    for (size_t i = 0; rc == 0 && i < sizeof experts / sizeof *experts; i++)
        rc = scale(w, experts[i], w->b.m->cfg.n_expert);
    return rc;
}

static int layer_vectors(struct vector_walk *w, int il)
{
    struct layer *l = &w->b.m->layers[il];
    const struct model_config *c = &w->b.m->cfg;
    bool qk = c->arch->qk_norm;
    int rc;
    if ((rc = vector(w, il, "attn_norm.weight", c->n_embd, false, &l->attn_norm)) < 0 ||
        (rc = vector(w, il, "ffn_norm.weight", c->n_embd, false, &l->ffn_norm)) < 0 ||
        (qk && (rc = vector(w, il, "attn_q_norm.weight", c->dim_k, false, &l->q_norm)) < 0) ||
        (qk && (rc = vector(w, il, "attn_k_norm.weight", c->dim_k, false, &l->k_norm)) < 0) ||
        (rc = bias(w, il, "attn_q.bias", &l->q)) < 0 ||
        (rc = bias(w, il, "attn_k.bias", &l->k)) < 0 ||
        (rc = bias(w, il, "attn_v.bias", &l->v)) < 0 ||
        (rc = bias(w, il, "attn_output.bias", &l->o)) < 0 ||
        (rc = bias(w, il, "ffn_gate.bias", &l->gate)) < 0 ||
        (rc = bias(w, il, "ffn_up.bias", &l->up)) < 0 ||
        (rc = bias(w, il, "ffn_down.bias", &l->down)) < 0)
        return rc;
    return 0;
}

static int all_vectors(struct vector_walk *w)
{
    struct model *m = w->b.m;
    const struct model_config *c = &m->cfg;
    int rc = vector(w, -1, "output_norm.weight", c->n_embd, false, &m->output_norm);
    if (rc == 0)
        rc = scale(w, &m->embd, 1);
    if (rc == 0 && m->head.tensor != m->embd.tensor)
        rc = scale(w, &m->head, 1);
    else if (rc == 0)
        m->head.scale = m->embd.scale;
    for (int il = 0; rc == 0 && il < c->n_layer; il++)
        if ((rc = layer_vectors(w, il)) == 0)
            rc = layer_scales(w, il);
    return rc;
}

static int bind_ffn(struct binder *b, int il)
{
    const struct model_config *c = &b->m->cfg;
    struct layer *l = &b->m->layers[il];
    char full[64];
    int rc;
    if (c->n_expert == 0 ||
        (!c->arch->must_route && !find(b, il, "ffn_gate_inp.weight", full, sizeof full))) {
        if (c->n_ff == 0)
            return err_set(b->err, SL_E_FORMAT, c->arch->name,
                           "metadata key %s.feed_forward_length is missing", c->arch->name);
        if ((rc = bind_matrix(b, il, "ffn_gate.weight", c->n_embd, c->n_ff, 1, false, &l->gate)) <
                0 ||
            (rc = bind_matrix(b, il, "ffn_up.weight", c->n_embd, c->n_ff, 1, false, &l->up)) < 0 ||
            (rc = bind_matrix(b, il, "ffn_down.weight", c->n_ff, c->n_embd, 1, false, &l->down)) <
                0)
            return rc;
        return 0;
    }
    if (find(b, il, "ffn_gate.0.weight", full, sizeof full))
        return err_set(
            b->err, SL_E_UNSUPPORTED, full,
            "%s: one tensor per expert is a layout of early files; convert the model again to "
            "get merged ffn_*_exps tensors",
            full);
    int ff = c->n_ff_expert, n = c->n_expert;
    if ((rc = bind_matrix(b, il, "ffn_gate_inp.weight", c->n_embd, n, 1, false, &l->router)) < 0 ||
        (rc = bind_matrix(b, il, "ffn_gate_exps.weight", c->n_embd, ff, n, false, &l->gate_exps)) <
            0 ||
        (rc = bind_matrix(b, il, "ffn_up_exps.weight", c->n_embd, ff, n, false, &l->up_exps)) < 0 ||
        (rc = bind_matrix(b, il, "ffn_down_exps.weight", ff, c->n_embd, n, false, &l->down_exps)) <
            0)
        return rc;
    if (l->gate_exps.kernel->act != l->up_exps.kernel->act)
        return err_set(b->err, SL_E_UNSUPPORTED, l->gate_exps.tensor->name,
                       "block %d: gate and up experts have types (%s, %s) whose activations differ",
                       il, quant_type_info(l->gate_exps.tensor->type)->name,
                       quant_type_info(l->up_exps.tensor->type)->name);
    l->gate_stride = l->gate_exps.row_bytes * (size_t)ff;
    l->up_stride = l->up_exps.row_bytes * (size_t)ff;
    l->down_stride = l->down_exps.row_bytes * (size_t)c->n_embd;
    return 0;
}

static int bind_layer(struct binder *b, int il)
{
    const struct model_config *c = &b->m->cfg;
    struct layer *l = &b->m->layers[il];
    int q = c->n_head * c->dim_k, k = c->n_head_kv * c->dim_k, v = c->n_head_kv * c->dim_v, rc;
    if ((rc = bind_matrix(b, il, "attn_q.weight", c->n_embd, q, 1, false, &l->q)) < 0 ||
        (rc = bind_matrix(b, il, "attn_k.weight", c->n_embd, k, 1, false, &l->k)) < 0 ||
        (rc = bind_matrix(b, il, "attn_v.weight", c->n_embd, v, 1, false, &l->v)) < 0 ||
        (rc = bind_matrix(b, il, "attn_output.weight", c->n_head * c->dim_v, c->n_embd, 1, false,
                          &l->o)) < 0)
        return rc;
    return bind_ffn(b, il);
}

static int bind_all(struct binder *b)
{
    struct model *m = b->m;
    const struct model_config *c = &m->cfg;
    int rc = bind_matrix(b, -1, "token_embd.weight", c->n_embd, c->n_vocab, 1, false, &m->embd);
    if (rc < 0 ||
        (rc = bind_matrix(b, -1, "output.weight", c->n_embd, c->n_vocab, 1, true, &m->head)) < 0)
        return rc;
    if (!m->head.tensor)
        m->head = m->embd;
    for (int il = 0; il < c->n_layer; il++)
        if ((rc = bind_layer(b, il)) < 0)
            return rc;
    struct vector_walk w = {.b = *b};
    if ((rc = all_vectors(&w)) < 0)
        return rc;
    m->vector_floats = w.used;
    m->n_vectors = w.n;
    const struct gguf_tensor *t; /* per-dimension divisors of the frequencies, Llama 3.1's way */
    return check_vector(b, -1, "rope_freqs.weight", c->n_rot / 2, true, &t);
}

int model_bind(const struct gguf *g, enum kern_level max_level, struct model **out,
               struct sl_err *err)
{
    *out = NULL;
    struct model_config cfg;
    int rc = model_config_read(g, &cfg, err);
    if (rc < 0)
        return rc;
    struct model *m = mem_calloc(1, sizeof *m);
    if (!m)
        return err_set(err, SL_E_MEM, "model", "no memory for the model's description");
    m->cfg = cfg;
    m->gguf = g;
    kernels_init(&m->kernels, max_level);
    m->layers = mem_calloc((size_t)cfg.n_layer, sizeof *m->layers);
    m->rope_freqs = mem_calloc((size_t)cfg.n_rot / 2, sizeof *m->rope_freqs);
    if (!m->layers || !m->rope_freqs) {
        rc = err_set(err, SL_E_MEM, "model", "no memory for %d layers", cfg.n_layer);
    } else {
        struct binder b = {m, err};
        rc = bind_all(&b);
    }
    if (rc < 0)
        model_free(&m);
    *out = m;
    return rc;
}

void model_free(struct model **pm)
{
    struct model *m = pm ? *pm : NULL;
    if (!m)
        return;
    model_end_loading(m);
    for (int i = 0; i < m->n_files; i++)
        io_file_close(&m->files[i]);
    mem_free(m->files);
    mem_unmap(m->anon, m->anon_bytes);
    mem_free(m->vectors);
    mem_free(m->rope_freqs);
    mem_free(m->layers);
    mem_free(m);
    *pm = NULL;
}

/* ---- Sizes ---- */

uint64_t model_token_expert_bytes(const struct model *m)
{
    uint64_t n = 0;
    for (int il = 0; il < m->cfg.n_layer; il++) {
        const struct layer *l = &m->layers[il];
        n += (l->gate_stride + l->up_stride + l->down_stride) * (uint64_t)m->cfg.n_expert_used;
    }
    return n;
}

static void packed_cache_layer(const struct layer *l, struct cache_layer *r)
{
    size_t gate_up = l->gate_stride + l->up_stride;
    r->n_parts = 1;
    r->part[0] = (struct cache_part){
        .file = l->packed, .stride = l->packed_stride, .bytes = gate_up + l->down_stride};
    r->n_views = 3;
    r->view_at[1] = l->gate_stride;
    r->view_at[2] = gate_up;
}

void model_cache_layers(const struct model *m, struct cache_layer *rows)
{
    for (int il = 0; il < m->cfg.n_layer; il++) {
        const struct layer *l = &m->layers[il];
        struct cache_layer *r = &rows[il];
        memset(r, 0, sizeof *r);
        if (!l->router.tensor)
            continue;
        const struct weight *w[3] = {&l->gate_exps, &l->up_exps, &l->down_exps};
        size_t stride[3] = {l->gate_stride, l->up_stride, l->down_stride};
        r->n_experts = m->cfg.n_expert;
        r->top_k = m->cfg.n_expert_used;
        if (l->packed) {
            packed_cache_layer(l, r);
            continue;
        }
        r->n_parts = 3;
        for (int p = 0; p < 3; p++)
            r->part[p] = (struct cache_part){.file = m->files[w[p]->tensor->shard],
                                             .offset = w[p]->tensor->offset,
                                             .stride = stride[p],
                                             .bytes = stride[p]};
    }
}

/* ---- Files and vectors ---- */

int model_open_files(struct model *m, bool direct, struct sl_err *err)
{
    int n = gguf_n_shards(m->gguf), rc;
    m->files = mem_calloc((size_t)n, sizeof *m->files);
    if (!m->files)
        return err_set(err, SL_E_MEM, "model", "no memory for %d files", n);
    for (int i = 0; i < n; i++) {
        if ((rc = io_file_open(gguf_shard_path(m->gguf, i), direct, &m->files[i], err)) < 0)
            return rc;
        m->n_files = i + 1;
        if (io_file_size(m->files[i]) != gguf_shard_size(m->gguf, i))
            return err_set(err, SL_E_IO, gguf_shard_path(m->gguf, i),
                           "%s changed its size while it was opened", gguf_shard_path(m->gguf, i));
    }
    return 0;
}

/* A position is at most 2^30 and angles are reduced in binary64: beyond this bound a frequency is
 * no number that a model was trained with. */
static int scale_freq(struct model *m, int i, double factor, struct sl_err *err)
{
    double f = m->rope_freqs[i] / m->cfg.rope_linear / factor;
    if (!(f >= -1e6 && f <= 1e6))
        return err_set(err, SL_E_FORMAT, "RoPE",
                       "RoPE frequency %d is %g: rope.scaling.factor %g or rope_freqs.weight %g "
                       "makes no sense",
                       i, f, m->cfg.rope_yarn ? m->cfg.yarn.factor : m->cfg.rope_linear, factor);
    m->rope_freqs[i] = f;
    return 0;
}

static int read_vectors(struct model *m, struct io_reader *reader, int in_flight,
                        struct vector_read *list, float *factor, struct sl_err *err)
{
    const struct gguf_tensor *t = gguf_find_tensor(m->gguf, "rope_freqs.weight");
    struct vector_walk w = {.b = {m, err}, .list = list};
    int rc = all_vectors(&w);
    if (rc == 0 && t)
        list[w.n++] = (struct vector_read){t, factor};
    if (rc == 0)
        rc = vectors_read(m, list, w.n, reader, in_flight, err);
    const struct model_config *c = &m->cfg;
    kern_rope_freqs(c->rope_base, c->n_rot, m->rope_freqs);
    if (c->rope_yarn)
        kern_rope_yarn(&c->yarn, c->rope_base, c->n_rot, m->rope_freqs);
    for (int i = 0; rc == 0 && i < c->n_rot / 2; i++)
        rc = scale_freq(m, i, t ? (double)factor[i] : 1.0, err);
    return rc;
}

int model_load_vectors(struct model *m, struct io_reader *reader, int in_flight, struct sl_err *err)
{
    if (!m->files)
        return err_set(err, SL_E_INTERNAL, "model", "vectors are read before files are open");
    m->vectors = mem_calloc(m->vector_floats, sizeof(float));
    struct vector_read *list = mem_calloc((size_t)m->n_vectors + 1, sizeof *list);
    float *factor = mem_calloc((size_t)m->cfg.n_rot / 2, sizeof *factor);
    int rc = m->vectors && list && factor
                 ? read_vectors(m, reader, in_flight, list, factor, err)
                 : err_set(err, SL_E_MEM, "model", "no memory for norms and biases");
    mem_free(factor);
    mem_free(list);
    return rc;
}
