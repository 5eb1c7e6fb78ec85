/* info.c: `sluice info`: what is in a model file. Only headers are read, so that it answers at once
 * and also for models that this version does not run. */
#include "cli/info.h"
#include "cli/commands.h"
#include "cli/opts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct info_args {
    int64_t tensors, json;
};

static const struct opt_row ROWS[] = {
    {.names = "--tensors",
     .type = OPT_FLAG,
     .offset = offsetof(struct info_args, tensors),
     .help = "List every tensor: name, type, shape, bytes, where its data begin",
     .group = "output"},
    {.names = "--json",
     .type = OPT_FLAG,
     .offset = offsetof(struct info_args, json),
     .help = "Print one JSON object; what the file does not say is null",
     .group = "output"},
};

static const struct opt_cmd INFO_CMD = {
    .name = "info",
    .summary = "what is in a model file",
    .operands = "FILE",
    .min_operands = 1,
    .max_operands = 1,
    .about =
        "Prints architecture, shapes, tensor types, the bytes of dense weights and of experts, "
        "the bytes of the experts that one token routes to, context, tokenizer and chat "
        "template. FILE is a GGUF file, or the first of a split set.",
    .rows = ROWS,
    .n_rows = sizeof ROWS / sizeof ROWS[0],
    .examples = "sluice info model.gguf            # a summary\n"
                "sluice info model.gguf --tensors  # and every tensor\n"
                "sluice info model.gguf --json     # for programs\n",
};

static void label(const char *name)
{
    printf("%-15s", name);
}

/* Strings of the file end up on a terminal. */
static void print_str(struct gguf_str s)
{
    size_t n = s.n > 200 ? 200 : s.n;
    for (size_t i = 0; i < n; i++) {
        unsigned char ch = (unsigned char)s.p[i];
        putchar(ch < 0x20 || ch == 0x7f ? '?' : ch);
    }
    if (n < s.n)
        printf("...");
}

static void print_dim(const struct dim *d)
{
    if (!d->known)
        printf("?");
    else if (d->min == d->max)
        printf("%" PRId64, d->min);
    else
        printf("%" PRId64 " to %" PRId64, d->min, d->max);
}

static void print_bytes(uint64_t n)
{
    printf("%" PRIu64 " bytes (%.2f MiB)", n, (double)n / 1048576);
}

static void print_head(const struct info *f, const char *path)
{
    label("file");
    print_str((struct gguf_str){path, strlen(path)});
    printf(", ");
    print_bytes(gguf_file_bytes(f->g));
    printf("\n");
    label("format");
    printf("GGUF version %u, %zu metadata keys, %zu tensors, %d shard%s\n",
           (unsigned)gguf_version(f->g), gguf_n_kv(f->g), gguf_n_tensors(f->g), gguf_n_shards(f->g),
           gguf_n_shards(f->g) == 1 ? "" : "s");
    label("architecture");
    if (f->arch.p)
        print_str(f->arch);
    else
        printf("not given");
    printf("\n");
    if (f->name.p) {
        label("name");
        print_str(f->name);
        printf("\n");
    }
}

static void print_shapes(const struct info *f)
{
    label("parameters");
    printf("%" PRIu64, f->params);
    if (f->params)
        printf(" (%.2f bits each)",
               8 * (double)(f->dense_bytes + f->expert_bytes) / (double)f->params);
    printf("\n");
    if (f->layers.known || f->embd.known) {
        label("layers");
        print_dim(&f->layers);
        printf(", embedding ");
        print_dim(&f->embd);
        printf(", feed-forward ");
        print_dim(&f->ff);
        printf("\n");
    }
    if (f->heads.known) {
        label("attention");
        print_dim(&f->heads);
        printf(" heads, ");
        print_dim(&f->kv_heads);
        printf(" key/value heads, head size ");
        print_dim(&f->head_size);
        printf("\n");
    }
    label("experts");
    if (f->experts.known && f->experts.max > 0) {
        print_dim(&f->experts);
        printf(" in each of %d layers, ", f->expert_layers);
        print_dim(&f->experts_used);
        printf(" used, width ");
        print_dim(f->expert_ff.known ? &f->expert_ff : &f->ff);
        printf("\n");
    } else {
        printf("none\n");
    }
    label("context");
    print_dim(&f->context);
    printf(" tokens\n");
}

static void print_text(const struct info *f)
{
    label("tokenizer");
    if (f->tok_model.p) {
        print_str(f->tok_model);
        printf(", pre-tokenizer ");
        print_str(f->tok_pre.p ? f->tok_pre : (struct gguf_str){"not given", 9});
        printf(", %" PRIu64 " tokens, %" PRIu64 " merges\n", f->n_tokens, f->n_merges);
    } else {
        printf("none\n");
    }
    label("chat template");
    if (f->has_chat)
        printf("%s, %zu bytes\n", f->chatml ? "ChatML" : "not ChatML", f->chat.n);
    else
        printf("none\n");
}

static void print_weights(const struct info *f)
{
    label("dense weights");
    print_bytes(f->dense_bytes);
    printf("\n");
    label("expert weights");
    print_bytes(f->expert_bytes);
    printf("\n");
    label("a token routes");
    print_bytes(f->token_bytes);
    printf("\n");
    for (int t = 0; t < QT_COUNT; t++) {
        if (!f->type_tensors[t])
            continue;
        printf("  %-8s %6zu tensors  ", quant_type_info((uint32_t)t)->name, f->type_tensors[t]);
        print_bytes(f->type_bytes[t]);
        printf("\n");
    }
}

static void print_tensors(const struct info *f)
{
    printf("\n%-40s %-8s %-24s %14s %16s %s\n", "tensor", "type", "shape", "bytes", "offset",
           "shard");
    for (size_t i = 0; i < gguf_n_tensors(f->g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(f->g, i);
        char shape[96];
        int n = snprintf(shape, sizeof shape, "%" PRIu64, t->dims[0]);
        for (int d = 1; d < t->n_dims; d++)
            n += snprintf(shape + n, sizeof shape - (size_t)n, " x %" PRIu64, t->dims[d]);
        printf("%-40s %-8s %-24s %14" PRIu64 " %16" PRIu64 " %5d\n", t->name,
               quant_type_info(t->type)->name, shape, t->bytes, t->offset, t->shard + 1);
    }
}

int cmd_info(int argc, char **argv)
{
    struct info_args args;
    struct opt_seen seen;
    int rc = opts_begin(&INFO_CMD, argc, argv, &args, &seen);
    if (rc != OPTS_GO)
        return rc;
    const char *path = seen.operands[0];
    struct gguf *g;
    struct sl_err err = {0};
    if (gguf_open(path, &g, &err) < 0)
        return opts_fail(&err);
    struct info f;
    info_read(&f, g);
    rc = 0;
    if (args.json) {
        if (!info_print_json(&f, args.tensors)) {
            err_set(&err, SL_E_IO, NULL, "standard output: the JSON text could not be written");
            rc = opts_fail(&err);
        }
    } else {
        print_head(&f, path);
        print_shapes(&f);
        print_text(&f);
        print_weights(&f);
        if (args.tensors)
            print_tensors(&f);
    }
    gguf_close(&g);
    return rc;
}
