/* pack.c: `sluice pack`: experts contiguous on the drive, optionally requantised. */
#include "cli/pack.h"

#include "cli/commands.h"
#include "cli/opts.h"
#include "cli/outfile.h"
#include "cli/stop.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/sys.h"

#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define MIB  1048576.0
#define ROOM ((uint64_t)1 << 20) /* bytes that stay free for manifests */

#define AT(field) offsetof(struct pack_args, field)

static const struct opt_row ROWS[] = {
    {"-o --output", OPT_STR, AT(output), "DIR", 0, 0, NULL, NULL, NULL,
     "Directory of the trees; it is made if need be", "Output", NULL},
    {"--4bit", OPT_FLAG, AT(q4), NULL, 0, 0, NULL, NULL, NULL,
     "Lossy: requantise the experts to Q4_K (4.5 bits a weight), in packed_experts/", "Type", NULL},
    {"--q3", OPT_FLAG, AT(q3), NULL, 0, 0, NULL, NULL, NULL,
     "Lossy: requantise the experts to Q3_K (3.44 bits), in packed_experts_Q3/", "Type", NULL},
    {"--2bit", OPT_FLAG, AT(q2), NULL, 0, 0, NULL, NULL, NULL,
     "Lossy: requantise the experts to Q2_K (2.63 bits), in packed_experts_2bit/", "Type", NULL},
    {"-t --threads", OPT_INT, AT(threads), "N", 0, 1024, "0", "0: the usable CPUs", "threads",
     "Threads that requantise", "Work", NULL},
    {"--verify", OPT_FLAG, AT(verify), NULL, 0, 0, NULL, NULL, NULL,
     "Write nothing: make every expert again and compare it, and the checksums, with the tree",
     "Work", NULL},
    {"--dry-run", OPT_FLAG, AT(dry_run), NULL, 0, 0, NULL, NULL, NULL,
     "Write nothing: print the sizes, and whether there is room", "Work", NULL},
};

static const struct opt_cmd PACK_CMD = {
    .name = "pack",
    .summary = "experts side by side on the drive, optionally requantised",
    .operands = "MODEL",
    .min_operands = 1,
    .max_operands = 1,
    .about =
        "Copies a model's routed experts into files of one layer each, where the matrices of one "
        "expert lie side by side and each expert starts on a page: it then takes one read instead "
        "of three. Without a type the bytes are the model's own, and a run with --packed gives the "
        "same text. With a type they are requantised, which loses precision; every output of a run "
        "with such a tree says so.\n\n"
        "The model stays where it is, and is still needed: the trees hold only the experts. Beside "
        "them DIR gets manifest.json, with checksums as sha256sum prints them, and a link "
        "model.gguf (not of a split model, whose parts find each other by their names). A call "
        "that was interrupted goes on where it was when it is repeated.",
    .rows = ROWS,
    .n_rows = sizeof ROWS / sizeof ROWS[0],
    .examples = "sluice pack model.gguf -o packed\n"
                "sluice pack model.gguf -o packed --q3 --dry-run\n"
                "sluice run -m packed/model.gguf --packed packed -p 'Once upon a time'\n"
                "sluice run -m packed/model.gguf --q3-experts -p 'Once upon a time'\n",
};

struct pack {
    const struct pack_args *args;
    const char *model;
    struct pack_source src;
    struct pack_state state;
    struct pack_bar bar;
    char identity[SHA256_HEX];
};

static double mib(uint64_t bytes)
{
    return (double)bytes / MIB;
}

static enum sl_packed kind_of(const struct pack_args *a)
{
    return a->q4   ? SL_PACKED_4BIT
           : a->q3 ? SL_PACKED_Q3
           : a->q2 ? SL_PACKED_2BIT
                   : SL_PACKED_LOSSLESS;
}

/* ---- The model ---- */

static int open_files(struct pack_source *s, struct sl_err *err)
{
    int n = gguf_n_shards(s->gguf), rc = 0;
    s->files = mem_calloc((size_t)n, sizeof *s->files);
    if (!s->files)
        return err_set(err, SL_E_MEM, "pack", "no memory for %d files", n);
    for (int i = 0; rc == 0 && i < n; i++) {
        rc = io_file_open(gguf_shard_path(s->gguf, i), true, &s->files[i], err);
        if (rc == 0)
            io_file_drop_behind(s->files[i], true);
    }
    return rc;
}

static int open_all(struct pack *p, struct sl_err *err)
{
    struct packed_tree *tree;
    int cpus = sys_usable_cpus(""), threads = (int)p->args->threads;
    size_t page = mem_page_size();
    int rc = gguf_open(p->model, &p->src.gguf, err);
    if (rc < 0 || (rc = open_files(&p->src, err)) < 0 ||
        (rc = packed_plan(p->src.gguf, kind_of(p->args), page > PACKED_PAGE ? page : PACKED_PAGE,
                          &tree, err)) < 0)
        return rc;
    if ((rc = packed_identify(p->src.gguf, p->src.files, p->identity, err)) < 0) {
        packed_free(&tree);
        return rc;
    }
    if ((rc = pack_state_open(p->args->output, p->model, p->src.gguf, p->identity, &tree, &p->state,
                              err)) < 0)
        return rc;
    return pool_create(threads > 0 ? threads : cpus, &p->src.pool, err);
}

static void close_all(struct pack *p)
{
    pack_state_close(&p->state);
    pool_destroy(&p->src.pool);
    for (int i = 0; p->src.files && i < gguf_n_shards(p->src.gguf); i++)
        io_file_close(&p->src.files[i]);
    mem_free(p->src.files);
    gguf_close(&p->src.gguf);
}

/* ---- --dry-run ---- */

static uint64_t source_bytes(const struct packed_tree *t)
{
    uint64_t n = 0;
    for (int i = 0; i < t->n_layers; i++)
        for (int j = 0; j < t->layer[i].n_parts; j++)
            n += t->layer[i].part[j].source->bytes;
    return n;
}

static uint64_t padding_bytes(const struct packed_tree *t)
{
    uint64_t n = 0;
    for (int i = 0; i < t->n_layers; i++) {
        const struct packed_layer *l = &t->layer[i];
        const struct packed_part *last = &l->part[l->n_parts - 1];
        n += (l->stride - last->at - last->bytes) * l->n_experts;
    }
    return n;
}

static int refuse_room(const struct pack *p, uint64_t need, uint64_t room, struct sl_err *err)
{
    return err_file(err, SL_E_IO, p->args->output, 0,
                    "not enough room: %.1f MiB are to be written, %.1f MiB are free", mib(need),
                    mib(room));
}

static int dry_run(const struct pack *p, struct sl_err *err)
{
    const struct packed_tree *t = p->state.tree;
    uint64_t from = source_bytes(t), to = packed_tree_bytes(t), left = pack_state_left(&p->state);
    uint64_t room;
    bool known = pack_state_room(p->args->output, &room);
    printf("model     %s, %.1f MiB\n", p->model, mib(gguf_file_bytes(p->src.gguf)));
    printf("tree      %s/%s, %s\n", p->args->output, packed_folder(t->kind),
           t->kind == SL_PACKED_LOSSLESS ? "lossless" : packed_kind_name(t->kind));
    printf("layers    %d, the first with %llu experts of %llu bytes, %llu apart\n", t->n_layers,
           (unsigned long long)t->layer[0].n_experts,
           (unsigned long long)(t->layer[0].part[t->layer[0].n_parts - 1].at +
                                t->layer[0].part[t->layer[0].n_parts - 1].bytes),
           (unsigned long long)t->layer[0].stride);
    printf("experts   %.1f MiB in the model, %.1f MiB in the tree (%.1f%%), of these %.1f MiB to "
           "fill pages\n",
           mib(from), mib(to), from ? 100 * (double)to / (double)from : 0, mib(padding_bytes(t)));
    printf("to write  %.1f MiB\n", mib(left));
    if (known)
        printf("free      %.1f MiB\n", mib(room));
    return known && left + ROOM > room ? refuse_room(p, left + ROOM, room, err) : 0;
}

/* ---- Packing ---- */

struct writing {
    struct pack *p;
    struct outfile *f;
};

static int write_piece(void *user, uint64_t offset, const uint8_t *data, size_t n,
                       struct sl_err *err)
{
    struct writing *w = user;
    (void)offset; /* rises */
    int rc = outfile_write(w->f, data, n, err);
    if (rc == 0)
        pack_bar_add(&w->p->bar, n);
    return rc;
}

static int pack_layer(struct pack *p, struct packed_layer *l, struct sl_err *err)
{
    char path[PATH_MAX];
    struct writing w = {.p = p};
    if (!packed_layer_path(p->args->output, p->state.tree->kind, l->block, path, sizeof path))
        return err_set(err, SL_E_ARG, "-o", "-o: the path is too long");
    int rc = outfile_open_regular(path, "-o", &w.f, err);
    if (rc < 0)
        return rc;
    if ((rc = pack_make_layer(&p->src, l, write_piece, &w, l->sha256, err)) < 0 ||
        (rc = outfile_sync(w.f, err)) < 0) {
        outfile_discard(&w.f);
        return rc;
    }
    if ((rc = outfile_commit(&w.f, err)) < 0)
        return rc;
    l->done = true;
    return pack_state_save(&p->state, err);
}

/* Is nothing left to do? Says so. */
static bool say_packed(const struct pack *p)
{
    if (pack_state_left(&p->state) > 0 || !p->state.listed)
        return false;
    fprintf(stderr, "%s/%s is packed already; --verify checks it\n", p->args->output,
            packed_folder(p->state.tree->kind));
    return true;
}

static int pack_all(struct pack *p, int *todo, struct sl_err *err)
{
    struct packed_tree *t = p->state.tree;
    int rc = pack_state_begin(&p->state, err);
    if (rc < 0)
        return rc;
    for (int i = 0; i < t->n_layers; i++)
        *todo += !t->layer[i].done;
    if (*todo < t->n_layers)
        fprintf(stderr, "%d of %d layers are packed already\n", t->n_layers - *todo, t->n_layers);
    pack_bar_start(&p->bar, "packing", pack_state_left(&p->state), *todo);
    for (int i = 0; rc == 0 && i < t->n_layers; i++)
        if (!t->layer[i].done && (rc = pack_layer(p, &t->layer[i], err)) == 0)
            pack_bar_layer(&p->bar);
    pack_bar_end(&p->bar);
    return rc;
}

static int do_pack(struct pack *p, struct sl_err *err)
{
    uint64_t left = pack_state_left(&p->state), room;
    /* The parts of a split set find each other by their names: a link would need another. */
    const char *model = gguf_n_shards(p->src.gguf) == 1 ? p->model : NULL;
    int rc = model ? pack_state_check_link(p->args->output, model, err) : 0, todo = 0;
    if (rc < 0)
        return rc;
    if (say_packed(p))
        return 0;
    if (pack_state_room(p->args->output, &room) && left + ROOM > room)
        return refuse_room(p, left + ROOM, room, err);
    if ((rc = pack_state_lock(&p->state, err)) < 0)
        return rc;
    if (say_packed(p)) /* by a call that held the lock before */
        return 0;
    left = pack_state_left(&p->state);
    rc = pack_all(p, &todo, err);
    if (rc == 0)
        rc = pack_state_finish(&p->state, model, err);
    if (rc == 0) {
        char spent[32];
        pack_bar_time(clock_now() - p->bar.start, spent, sizeof spent);
        fprintf(stderr, "packed %d layers, %.1f MiB (%s) in %s\n", todo, mib(left),
                packed_kind_name(p->state.tree->kind), spent);
    }
    return rc;
}

/* ---- --verify ---- */

struct checking {
    struct pack *p;
    const struct packed_layer *l;
    struct io_file *f;
    uint8_t *buf;
    size_t room;
};

static int check_piece(void *user, uint64_t offset, const uint8_t *data, size_t n,
                       struct sl_err *err)
{
    struct checking *c = user;
    for (size_t at = 0; at < n;) {
        size_t take = n - at < c->room ? n - at : c->room, i = 0;
        int rc = io_file_read_any(c->f, c->buf, offset + at, take, err);
        if (rc < 0)
            return rc;
        while (i < take && c->buf[i] == data[at + i])
            i++;
        if (i < take)
            return err_file(
                err, SL_E_FORMAT, io_file_path(c->f), 0,
                "differs from the model at byte %llu (expert %llu): remove it and pack again",
                (unsigned long long)(offset + at + i),
                (unsigned long long)((offset + at + i) / c->l->stride));
        at += take;
    }
    pack_bar_add(&c->p->bar, n);
    return 0;
}

static int verify_layer(struct pack *p, const struct packed_layer *l, struct sl_err *err)
{
    char path[PATH_MAX];
    uint8_t sha[SHA256_BYTES];
    struct checking c = {.p = p, .l = l, .room = (size_t)1 << 20};
    if (!packed_layer_path(p->args->output, p->state.tree->kind, l->block, path, sizeof path))
        return err_set(err, SL_E_ARG, "-o", "-o: the path is too long");
    if (!l->done)
        return err_file(err, SL_E_FORMAT, path, 0, "is missing or not whole: pack again");
    int rc = io_file_open(path, true, &c.f, err);
    if (rc < 0)
        return rc;
    io_file_drop_behind(c.f, true);
    c.buf = mem_alloc(c.room);
    rc = c.buf ? pack_make_layer(&p->src, l, check_piece, &c, sha, err)
               : err_set(err, SL_E_MEM, "pack", "no memory");
    if (rc == 0 && memcmp(sha, l->sha256, sizeof sha) != 0)
        rc = err_file(err, SL_E_FORMAT, path, 0,
                      "has another checksum than the manifest says: remove it and pack again");
    mem_free(c.buf);
    io_file_close(&c.f);
    return rc;
}

static int do_verify(struct pack *p, struct sl_err *err)
{
    const struct packed_tree *t = p->state.tree;
    int rc = 0;
    if (!p->state.listed)
        return err_file(err, SL_E_ARG, p->args->output, 0, "has no finished tree %s to verify",
                        packed_folder(t->kind));
    pack_bar_start(&p->bar, "verifying", packed_tree_bytes(t), t->n_layers);
    for (int i = 0; rc == 0 && i < t->n_layers; i++)
        if ((rc = verify_layer(p, &t->layer[i], err)) == 0)
            pack_bar_layer(&p->bar);
    pack_bar_end(&p->bar);
    if (rc == 0)
        printf("%s/%s: %d layers, %.1f MiB, %s: as packed from this model\n", p->args->output,
               packed_folder(t->kind), t->n_layers, mib(packed_tree_bytes(t)),
               packed_kind_name(t->kind));
    return rc;
}

static int check_args(const struct pack_args *a, struct sl_err *err)
{
    if (!a->output || a->output[0] == '\0')
        return err_set(err, SL_E_ARG, "-o", "no directory: give one with -o DIR");
    if (a->q4 + a->q3 + a->q2 > 1)
        return err_set(err, SL_E_ARG, "--4bit", "--4bit, --q3 and --2bit exclude each other");
    if (a->verify && a->dry_run)
        return err_set(err, SL_E_ARG, "--verify", "--verify and --dry-run exclude each other");
    return 0;
}

int cmd_pack(int argc, char **argv)
{
    struct pack_args args;
    struct opt_seen seen;
    struct sl_err err;
    int rc = opts_begin(&PACK_CMD, argc, argv, &args, &seen);
    if (rc != OPTS_GO)
        return rc;
    if (check_args(&args, &err) < 0) {
        opts_fail(&err);
        return EXIT_USAGE;
    }
    struct pack p = {.args = &args, .model = seen.operands[0], .state = {.lock = -1}};
    stop_install();
    rc = open_all(&p, &err);
    if (rc == 0)
        rc = args.dry_run  ? dry_run(&p, &err)
             : args.verify ? do_verify(&p, &err)
                           : do_pack(&p, &err);
    close_all(&p);
    return rc < 0 ? opts_fail(&err) : 0;
}
