/* run_out.c: the files of a run for tests and scripts; all little-endian, without headers.
 *   --logits-out   float32[P + n][n_vocab]: row i is what the model says after position i
 *   --experts-out  int32 rows: position, block, the k expert ids ascending (-1 behind the last
 * where some were dropped); by position, then block
 *   --ids-out      int32[P + n]: the prompt's ids, then the generated ones
 * for a prompt of P and n generated tokens; the last generated token is evaluated too. */
#include "cli/outfile.h"
#include "cli/run.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the files are little-endian and written as they lie in memory"
#endif

struct run_out {
    struct outfile *logits, *experts, *ids;
    int n_vocab;
    int32_t *rows; /* expert rows of the running eval, row_len numbers each */
    size_t n_rows, cap_rows;
    int row_len;
    int code; /* first failure inside an observer, which cannot return one */
    struct sl_err err;
};

int run_out_open(const struct run_args *a, struct run_out **out, struct sl_err *err)
{
    int rc = SL_OK;
    struct run_out *o = mem_calloc(1, sizeof *o);
    *out = o;
    if (o == NULL)
        return err_set(err, SL_E_MEM, NULL, "no memory for output files");
    if (a->logits_out != NULL)
        rc = outfile_open(a->logits_out, "--logits-out", &o->logits, err);
    if (rc == SL_OK && a->experts_out != NULL)
        rc = outfile_open(a->experts_out, "--experts-out", &o->experts, err);
    if (rc == SL_OK && a->ids_out != NULL)
        rc = outfile_open(a->ids_out, "--ids-out", &o->ids, err);
    if (rc < 0)
        run_out_close(out);
    return rc;
}

static void on_logits(void *user, int pos, const float *logits)
{
    struct run_out *o = user;
    (void)pos; /* positions rise one by one */
    if (o->code == SL_OK)
        o->code = outfile_write(o->logits, logits, (size_t)o->n_vocab * sizeof *logits, &o->err);
}

static void on_experts(void *user, int pos, int block, const int32_t *ids, int k)
{
    struct run_out *o = user;
    if (o->code < 0)
        return;
    if (o->n_rows == o->cap_rows) {
        size_t cap = o->cap_rows > 0 ? 2 * o->cap_rows : 256;
        void *p = mem_realloc(o->rows, cap * (size_t)o->row_len * sizeof *o->rows);
        if (p == NULL) {
            o->code = err_set(&o->err, SL_E_MEM, "--experts-out", "no memory for expert rows");
            return;
        }
        o->rows = p;
        o->cap_rows = cap;
    }
    int32_t *row = o->rows + o->n_rows++ * (size_t)o->row_len;
    row[0] = pos;
    row[1] = block;
    for (int i = 0; i < o->row_len - 2; i++)
        row[2 + i] = i < k ? ids[i] : -1;
}

void run_out_observe(struct run_out *o, struct sl_session *s, const struct sl_model_info *info)
{
    o->n_vocab = info->n_vocab;
    o->row_len = info->n_expert_run + 2;
    struct sl_observer obs = {.user = o};
    if (o->logits != NULL)
        obs.on_logits = on_logits;
    if (o->experts != NULL)
        obs.on_experts = on_experts;
    if (o->logits != NULL || o->experts != NULL)
        sl_session_observe(s, &obs);
}

static int row_order(const void *x, const void *y)
{
    const int32_t *a = x, *b = y;
    if (a[0] != b[0])
        return a[0] < b[0] ? -1 : 1;
    return (a[1] > b[1]) - (a[1] < b[1]);
}

int run_out_step(struct run_out *o, struct sl_err *err)
{
    if (o->code == SL_OK && o->n_rows > 0) {
        size_t size = (size_t)o->row_len * sizeof *o->rows;
        qsort(o->rows, o->n_rows, size, row_order);
        o->code = outfile_write(o->experts, o->rows, o->n_rows * size, &o->err);
        o->n_rows = 0;
    }
    if (o->code < 0 && err != NULL)
        *err = o->err;
    return o->code;
}

int run_out_commit(struct run_out *o, const int32_t *ids, size_t n, struct sl_err *err)
{
    int rc = SL_OK;
    if (o->ids != NULL)
        rc = outfile_write(o->ids, ids, n * sizeof *ids, err);
    struct outfile **all[] = {&o->logits, &o->experts, &o->ids};
    for (int i = 0; i < 3 && rc == SL_OK; i++) {
        if (*all[i] != NULL)
            rc = outfile_commit(all[i], err);
    }
    return rc;
}

void run_out_close(struct run_out **op)
{
    struct run_out *o = *op;
    *op = NULL;
    if (o == NULL)
        return;
    outfile_discard(&o->logits);
    outfile_discard(&o->experts);
    outfile_discard(&o->ids);
    mem_free(o->rows);
    mem_free(o);
}
