/* info_read.c: collects from metadata and tensor directory what `sluice info` prints. */
#include "cli/info.h"

#include <stdio.h>
#include <string.h>

/* ARCH.key as one number or an array of numbers; of another type it counts as absent. */
static void read_dim(const struct info *f, const char *key, struct dim *out)
{
    char full[160];
    snprintf(full, sizeof full, "%.*s.%s", f->arch.n > 80 ? 80 : (int)f->arch.n,
             f->arch.p ? f->arch.p : "", key);
    *out = (struct dim){0};
    int64_t v;
    if (gguf_get_i64(f->g, full, &v, NULL) == 1) {
        *out = (struct dim){true, v, v};
        return;
    }
    struct gguf_arr *a;
    if (gguf_arr_open(f->g, full, &a, NULL) != 1)
        return;
    while (gguf_arr_next_i64(a, &v)) {
        if (!out->known || v < out->min)
            out->min = v;
        if (!out->known || v > out->max)
            out->max = v;
        out->known = true;
    }
    gguf_arr_close(&a);
}

static void read_str(const struct gguf *g, const char *key, struct gguf_str *out)
{
    if (gguf_get_str(g, key, out, NULL) != 1)
        *out = (struct gguf_str){NULL, 0};
}

static uint64_t array_length(const struct gguf *g, const char *key, bool *has)
{
    enum gguf_type elem;
    uint64_t n = 0;
    *has = gguf_get_arr(g, key, &elem, &n, NULL) == 1;
    return *has ? n : 0;
}

static void read_metadata(struct info *f)
{
    const struct gguf *g = f->g;
    read_str(g, "general.architecture", &f->arch);
    read_str(g, "general.name", &f->name);
    read_dim(f, "block_count", &f->layers);
    read_dim(f, "embedding_length", &f->embd);
    read_dim(f, "attention.head_count", &f->heads);
    read_dim(f, "attention.head_count_kv", &f->kv_heads);
    if (!f->kv_heads.known)
        f->kv_heads = f->heads;
    read_dim(f, "attention.key_length", &f->head_size);
    if (!f->head_size.known && f->embd.known && f->heads.known && f->heads.min > 0)
        f->head_size = (struct dim){true, f->embd.min / f->heads.max, f->embd.max / f->heads.min};
    read_dim(f, "feed_forward_length", &f->ff);
    read_dim(f, "expert_count", &f->experts);
    read_dim(f, "expert_used_count", &f->experts_used);
    read_dim(f, "expert_feed_forward_length", &f->expert_ff);
    read_dim(f, "context_length", &f->context);
    read_str(g, "tokenizer.ggml.model", &f->tok_model);
    read_str(g, "tokenizer.ggml.pre", &f->tok_pre);
    bool has_merges;
    f->n_tokens = array_length(g, "tokenizer.ggml.tokens", &f->has_tokens);
    f->n_merges = array_length(g, "tokenizer.ggml.merges", &has_merges);
    read_str(g, "tokenizer.chat_template", &f->chat);
    f->has_chat = f->chat.p != NULL;
    static const char mark[] = "<|im_start|>";
    f->chatml = f->has_chat && memmem(f->chat.p, f->chat.n, mark, sizeof mark - 1) != NULL;
}

/* The stacked matrices of the routed experts, blk.N.ffn_{gate,up,down,gate_up}_exps.weight. What an
 * expert has beside them (biases, scales) is small and counts as dense. */
bool info_is_expert(const struct gguf_tensor *t)
{
    static const char end[] = "_exps.weight";
    size_t n = strlen(t->name), k = sizeof end - 1;
    return n > k && strcmp(t->name + n - k, end) == 0 && t->n_dims >= 3;
}

static void read_tensors(struct info *f)
{
    int layers = 0;
    for (size_t i = 0; i < gguf_n_tensors(f->g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(f->g, i);
        f->params += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
        f->type_bytes[t->type] += t->bytes;
        f->type_tensors[t->type]++;
        if (!info_is_expert(t)) {
            f->dense_bytes += t->bytes;
            continue;
        }
        f->expert_bytes += t->bytes;
        layers += strstr(t->name, "ffn_down_exps") != NULL;
        uint64_t one = t->bytes / t->dims[2];
        int64_t used = f->experts_used.known ? f->experts_used.max : 0;
        if (used > 0)
            f->token_bytes += (uint64_t)used < t->dims[2] ? one * (uint64_t)used : t->bytes;
    }
    f->expert_layers = layers;
}

void info_read(struct info *f, const struct gguf *g)
{
    memset(f, 0, sizeof *f);
    f->g = g;
    read_metadata(f);
    read_tensors(f);
}
