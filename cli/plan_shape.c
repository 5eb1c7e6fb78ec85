/* plan_shape.c: what a forecast has to know of a model, from its file's directory. */
#include "cli/plan.h"

#include <stdio.h>
#include <string.h>

static void add_tensor(struct forecast_weights *w, const struct gguf_tensor *t)
{
    w->bytes[t->type] += t->bytes;
    w->macs += (double)t->dims[0] * (double)t->dims[1] * (double)t->dims[2];
}

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static uint64_t read_number(const struct gguf *g, const char *arch, const char *key, uint64_t other)
{
    char full[160];
    uint64_t v;
    snprintf(full, sizeof full, "%s.%s", arch, key);
    return gguf_get_u64(g, full, &v, NULL) == 1 && v < 1 << 20 ? v : other;
}

static void read_attention(const struct gguf *g, struct forecast_shape *out)
{
    struct gguf_str s;
    char arch[64] = "";
    if (gguf_get_str(g, "general.architecture", &s, NULL) == 1)
        snprintf(arch, sizeof arch, "%.*s", (int)(s.n < 63 ? s.n : 63), s.p);
    const uint64_t blocks = read_number(g, arch, "block_count", 0);
    const uint64_t heads = read_number(g, arch, "attention.head_count", 0);
    const uint64_t embd = read_number(g, arch, "embedding_length", 0);
    const uint64_t dim = read_number(g, arch, "attention.key_length", heads > 0 ? embd / heads : 0);
    out->n_block = (int)blocks;
    out->attention_macs = 2.0 * (double)blocks * (double)heads * (double)dim;
}

void plan_read_shape(const struct gguf *g, int top_k, struct forecast_shape *out,
                     struct plan_tensors *tensors)
{
    memset(out, 0, sizeof *out);
    *tensors = (struct plan_tensors){0};
    const struct gguf_tensor *head = gguf_find_tensor(g, "output.weight");
    const struct gguf_tensor *embd = gguf_find_tensor(g, "token_embd.weight");
    int routers = 0;
    uint64_t n_expert = 0;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (t->type >= QT_COUNT || t == embd || t == head || t->n_dims < 2)
            continue;
        const bool expert = ends_with(t->name, "_exps.weight");
        add_tensor(expert ? &out->bank : &out->layers, t);
        (*(expert ? &tensors->n_bank : &tensors->n_dense))++;
        if (expert && t->dims[2] > n_expert)
            n_expert = t->dims[2];
        routers += ends_with(t->name, "ffn_gate_inp.weight");
    }
    tensors->n_dense += (embd != NULL) + (head != NULL);
    tensors->embd_bytes = embd ? embd->bytes : 0;
    if (!head)
        head = embd;
    if (head && head->type < QT_COUNT)
        add_tensor(&out->head, head);
    if (top_k > 0 && routers > 0 && n_expert > 0 && n_expert <= 1 << 20) {
        out->n_layer = routers;
        out->n_expert = (int)n_expert;
        out->top_k = top_k;
    }
    read_attention(g, out);
}
