/* info.h: what `sluice info` found, shared by its files. */
#ifndef CLI_INFO_H
#define CLI_INFO_H

#include "gguf/gguf.h"
#include "quant/quant.h"

/* A number of the metadata, or one number for each layer. */
struct dim {
    bool known;
    int64_t min, max;
};

struct info {
    const struct gguf *g;
    struct gguf_str arch, name, tok_model, tok_pre, chat;
    struct dim layers, embd, heads, kv_heads, head_size, ff, experts, experts_used, expert_ff,
        context;
    uint64_t n_tokens, n_merges;
    bool has_tokens, has_chat, chatml;
    uint64_t params, dense_bytes, expert_bytes, token_bytes;
    int expert_layers;
    uint64_t type_bytes[QT_COUNT];
    size_t type_tensors[QT_COUNT];
};

/* g: borrowed; the strings point into it. */
void info_read(struct info *f, const struct gguf *g);
bool info_is_expert(const struct gguf_tensor *t);

/* One JSON object on stdout; false when it could not be made or written. */
bool info_print_json(const struct info *f, bool tensors);

#endif
