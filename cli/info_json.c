/* info_json.c: `sluice info --json`. Integers alone, so that no locale can touch them. */
#include "cli/info.h"
#include "cli/json_text.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *json_text(struct gguf_str s)
{
    return json_text_make_n(s.p, s.n);
}

static json_t *json_dim(const struct dim *d)
{
    if (!d->known)
        return json_null();
    if (d->min == d->max)
        return json_integer(d->min);
    return json_pack("{s:I,s:I}", "min", (json_int_t)d->min, "max", (json_int_t)d->max);
}

static json_t *json_types(const struct info *f)
{
    json_t *all = json_array();
    for (int t = 0; t < QT_COUNT; t++)
        if (f->type_tensors[t])
            json_array_append_new(all, json_pack("{s:s,s:I,s:I}", "type",
                                                 quant_type_info((uint32_t)t)->name, "tensors",
                                                 (json_int_t)f->type_tensors[t], "bytes",
                                                 (json_int_t)f->type_bytes[t]));
    return all;
}

static json_t *json_shards(const struct info *f)
{
    json_t *all = json_array();
    for (int i = 0; i < gguf_n_shards(f->g); i++)
        json_array_append_new(all, json_pack("{s:o,s:I}", "path",
                                             json_text_make(gguf_shard_path(f->g, i)), "bytes",
                                             (json_int_t)gguf_shard_size(f->g, i)));
    return all;
}

static json_t *json_tensors(const struct info *f)
{
    json_t *all = json_array();
    for (size_t i = 0; i < gguf_n_tensors(f->g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(f->g, i);
        json_t *shape = json_array();
        for (int d = 0; d < t->n_dims; d++)
            json_array_append_new(shape, json_integer((json_int_t)t->dims[d]));
        json_array_append_new(
            all, json_pack("{s:o,s:s,s:o,s:I,s:I,s:i,s:b}", "name", json_text_make(t->name), "type",
                           quant_type_info(t->type)->name, "shape", shape, "bytes",
                           (json_int_t)t->bytes, "offset", (json_int_t)t->offset, "shard", t->shard,
                           "expert", info_is_expert(t)));
    }
    return all;
}

static json_t *json_tokenizer(const struct info *f)
{
    if (!f->tok_model.p)
        return json_null();
    return json_pack("{s:o,s:o,s:I,s:I}", "model", json_text(f->tok_model), "pre",
                     json_text(f->tok_pre), "tokens", (json_int_t)f->n_tokens, "merges",
                     (json_int_t)f->n_merges);
}

static json_t *json_chat(const struct info *f)
{
    if (!f->has_chat)
        return json_null();
    return json_pack("{s:b,s:I}", "chatml", f->chatml, "bytes", (json_int_t)f->chat.n);
}

static json_t *json_info(const struct info *f, bool tensors)
{
    const struct {
        const char *key;
        json_t *value;
    } rows[] = {
        {"architecture", json_text(f->arch)},
        {"name", json_text(f->name)},
        {"gguf_version", json_integer(gguf_version(f->g))},
        {"file_bytes", json_integer((json_int_t)gguf_file_bytes(f->g))},
        {"shards", json_shards(f)},
        {"parameters", json_integer((json_int_t)f->params)},
        {"layers", json_dim(&f->layers)},
        {"embedding", json_dim(&f->embd)},
        {"feed_forward", json_dim(&f->ff)},
        {"heads", json_dim(&f->heads)},
        {"kv_heads", json_dim(&f->kv_heads)},
        {"head_size", json_dim(&f->head_size)},
        {"experts", json_dim(&f->experts)},
        {"experts_used", json_dim(&f->experts_used)},
        {"expert_feed_forward", json_dim(&f->expert_ff)},
        {"expert_layers", json_integer(f->expert_layers)},
        {"context", json_dim(&f->context)},
        {"tokenizer", json_tokenizer(f)},
        {"chat_template", json_chat(f)},
        {"dense_bytes", json_integer((json_int_t)f->dense_bytes)},
        {"expert_bytes", json_integer((json_int_t)f->expert_bytes)},
        {"token_expert_bytes", json_integer((json_int_t)f->token_bytes)},
        {"types", json_types(f)},
        {"tensors", tensors ? json_tensors(f) : NULL},
    };
    json_t *j = json_object();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].value)
            json_object_set_new(j, rows[i].key, rows[i].value);
    return j;
}

bool info_print_json(const struct info *f, bool tensors)
{
    json_t *j = json_info(f, tensors);
    bool ok = j && json_dumpf(j, stdout, JSON_INDENT(2)) == 0 && putchar('\n') != EOF;
    json_decref(j);
    return ok;
}
