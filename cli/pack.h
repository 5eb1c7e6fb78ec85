/* pack.h: what the files of `sluice pack` share. */
#ifndef CLI_PACK_H
#define CLI_PACK_H

#include "model/packed.h"
#include "thread/pool.h"

struct pack_args {
    const char *output;
    int64_t q3, q2, q4, threads, verify, dry_run;
};

/* ---- pack_work.c: a layer's bytes, made from the model ---- */

/* The model and what works on it; belongs to the command. */
struct pack_source {
    struct gguf *gguf;
    struct io_file **files; /* one per shard */
    struct pool *pool;
};

/* n bytes of a layer's file from `offset` on, in rising order. Thread 0 calls it. */
typedef int pack_sink(void *user, uint64_t offset, const uint8_t *data, size_t n,
                      struct sl_err *err);
/* Make the layer's file piece by piece: it is hashed while sink takes it. Holds one expert at
 * least, a few tens of MiB otherwise, never more than the layer. */
int pack_make_layer(const struct pack_source *src, const struct packed_layer *l, pack_sink *sink,
                    void *user, uint8_t sha256[SHA256_BYTES], struct sl_err *err);

/* ---- pack_state.c: the directory: manifest, unfinished trees, room ---- */

struct pack_state {
    const char *dir;
    struct packed_manifest *manifest; /* of finished trees, and the source's name and identity */
    struct packed_tree *tree;         /* the one in hand; layers that are done are marked */
    bool listed;                      /* the manifest has it: it was whole once */
    struct packed_manifest source;    /* the model's name and identity, no trees */
    int lock;                         /* of the directory; -1: none */
};

/* Look at what dir holds of this tree, which is taken over: finished layers, a manifest. identity:
 * of the model at path. Refuses a directory that holds another model's trees, or the same folder
 * with another type. Writes nothing. */
int pack_state_open(const char *dir, const char *path, const struct gguf *g, const char *identity,
                    struct packed_tree **tree, struct pack_state *s, struct sl_err *err);
void pack_state_close(struct pack_state *s);
uint64_t pack_state_left(const struct pack_state *s); /* bytes of layers that are not done */
/* Bytes that may be written where dir is or will be; false: not known. */
bool pack_state_room(const char *dir, uint64_t *bytes);
/* Make the directories, keep other calls out of them until the state is closed, and look again:
 * another one may have written since pack_state_open. What killed calls left half written is
 * removed. */
int pack_state_lock(struct pack_state *s, struct sl_err *err);
/* From now on the tree is an unfinished one. */
int pack_state_begin(struct pack_state *s, struct sl_err *err);
/* The layers that are done are known to a later call. */
int pack_state_save(const struct pack_state *s, struct sl_err *err);
/* All layers are done: the manifest lists the tree, model.gguf names the model (NULL: no link). */
int pack_state_finish(struct pack_state *s, const char *model, struct sl_err *err);
/* SL_E_ARG when DIR/model.gguf is a file of its own that is not this model. */
int pack_state_check_link(const char *dir, const char *model, struct sl_err *err);

/* ---- pack_lock.c ---- */

/* Refuses where another process holds the lock of dir. folder: of the tree in it. */
int pack_lock_take(const char *dir, const char *folder, int *lock, struct sl_err *err);
void pack_lock_release(int *lock);

/* ---- pack_bar.c ---- */

struct pack_bar {
    const char *what; /* "packing" */
    uint64_t done, total;
    int layer, n_layers; /* the running one, from 1 */
    double start, shown;
    bool terminal;
};
void pack_bar_start(struct pack_bar *b, const char *what, uint64_t total, int n_layers);
void pack_bar_add(struct pack_bar *b, uint64_t bytes);
void pack_bar_layer(struct pack_bar *b); /* the next layer is done */
void pack_bar_end(struct pack_bar *b);   /* removes the bar */
/* "1 h 05 min", "3 min 20 s", "12 s" */
void pack_bar_time(double seconds, char *buf, size_t size);

#endif
