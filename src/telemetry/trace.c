#include "telemetry/trace.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_FILE    ((size_t)1 << 30)
#define MAX_LINE    4096
#define MAX_LAYERS  4096
#define MAX_BANK    (1 << 20) /* experts of all layers */
#define MAX_K       1024
#define MAX_STEP    (1 << 30)
#define MAX_EXPERT  ((int64_t)1 << 40) /* bytes of one expert */
#define MAX_COLUMNS 64

enum column { TURN, PHASE, STEP, LAYER, SLOT, EXPERT, WEIGHT, N_COLUMNS };
static const char *const COLUMNS[N_COLUMNS] = {"turn", "phase",  "step",  "layer",
                                               "slot", "expert", "weight"};

struct parser {
    const char *name;
    const char *at, *end;   /* what is left of the text */
    const char *line, *eol; /* the line, without its end */
    int64_t number;         /* of the line, from 1 */
    struct trace *t;
    size_t visit_room;
    int64_t choice_room;
    int where[N_COLUMNS]; /* a column's place in a row */
    int n_fields;         /* of a row */
    struct sl_err *err;
};

static int fail(const struct parser *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static int fail(const struct parser *p, const char *fmt, ...)
{
    char msg[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    return err_file(p->err, SL_E_FORMAT, p->name, 0, "line %lld: %s", (long long)p->number, msg);
}

/* ---- Lines and numbers ---- */

/* 1: there is a line, 0: the text is at its end. */
static int next_line(struct parser *p)
{
    if (p->at == p->end)
        return 0;
    const char *nl = memchr(p->at, '\n', (size_t)(p->end - p->at));
    p->line = p->at;
    p->eol = nl ? nl : p->end;
    p->at = nl ? nl + 1 : p->end;
    p->number++;
    if (p->eol > p->line && p->eol[-1] == '\r')
        p->eol--;
    if (p->eol - p->line > MAX_LINE)
        return fail(p, "longer than %d characters", MAX_LINE);
    return 1;
}

/* A decimal integer of [s, e), whole, in [0, most]. */
static bool read_int(const char *s, const char *e, int64_t most, int64_t *out)
{
    int64_t v = 0;
    if (s == e)
        return false;
    for (; s < e; s++) {
        if (*s < '0' || *s > '9' || *s - '0' > most || v > (most - (*s - '0')) / 10)
            return false;
        v = v * 10 + (*s - '0');
    }
    *out = v;
    return true;
}

static double power_of_ten(int n)
{
    double x = 1, b = n < 0 ? 0.1 : 10;
    for (n = n < 0 ? -n : n; n; n >>= 1, b *= b)
        x = n & 1 ? x * b : x;
    return x;
}

/* A decimal number of [s, e), whole; not by strtod, which obeys the locale. Finite as a float. */
static bool read_number(const char *s, const char *e, float *out)
{
    bool minus = s < e && *s == '-';
    double v = 0;
    int digits = 0, scale = 0;
    int64_t ten = 0;
    s += minus;
    for (bool point = false; s < e && (*s == '.' || (*s >= '0' && *s <= '9')); s++) {
        if (*s == '.' && point)
            return false;
        if (*s == '.') {
            point = true;
            continue;
        }
        v = v * 10 + (*s - '0');
        digits++;
        scale -= point;
    }
    if (s < e && (*s == 'e' || *s == 'E')) {
        bool down = ++s < e && *s == '-';
        s += s < e && (*s == '-' || *s == '+');
        if (!read_int(s, e, 400, &ten))
            return false;
        ten = down ? -ten : ten;
        s = e;
    }
    v = v * power_of_ten(scale + (int)ten);
    *out = (float)(minus ? -v : v);
    return s == e && digits > 0 && digits < 40 && v < 3e38;
}

/* ---- The preamble ---- */

static bool is(const char *s, const char *e, const char *word)
{
    size_t n = strlen(word);
    return (size_t)(e - s) == n && memcmp(s, word, n) == 0;
}

static void copy_text(char *to, size_t room, const char *s, const char *e)
{
    size_t n = (size_t)(e - s) < room - 1 ? (size_t)(e - s) : room - 1;
    memcpy(to, s, n);
    to[n] = 0;
}

static int read_shape(const struct parser *p, const char *s, const char *e, int64_t most,
                      const char *what, int *out)
{
    int64_t v;
    if (*out)
        return fail(p, "%s is given again", what);
    if (!read_int(s, e, most, &v) || v == 0)
        return fail(p, "%s is not a number from 1 to %lld", what, (long long)most);
    *out = (int)v;
    return 0;
}

/* Values of one preamble line. */
struct pairs {
    int64_t layer, bytes; /* -1: not there */
};

static int take_pair(struct parser *p, const char *s, const char *eq, const char *e,
                     struct pairs *got)
{
    struct trace *t = p->t;
    const char *v = eq + 1;
    if (is(s, eq, "n_layer"))
        return read_shape(p, v, e, MAX_LAYERS, "n_layer", &t->n_layers);
    if (is(s, eq, "n_expert"))
        return read_shape(p, v, e, MAX_BANK, "n_expert", &t->n_experts);
    if (is(s, eq, "n_expert_used"))
        return read_shape(p, v, e, MAX_K, "n_expert_used", &t->top_k);
    if (is(s, eq, "model"))
        copy_text(t->model, sizeof t->model, v, e);
    else if (is(s, eq, "arch"))
        copy_text(t->arch, sizeof t->arch, v, e);
    else if (is(s, eq, "layer") && !read_int(v, e, MAX_LAYERS - 1, &got->layer))
        return fail(p, "layer is not a number below %d", MAX_LAYERS);
    else if (is(s, eq, "expert_bytes") && !read_int(v, e, MAX_EXPERT, &got->bytes))
        return fail(p, "expert_bytes is not a number of at most %lld", (long long)MAX_EXPERT);
    return 0;
}

/* The shapes are known and make sense; room for the layers. */
static int make_layers(struct parser *p)
{
    struct trace *t = p->t;
    if (t->expert_bytes)
        return 0;
    if (!t->n_layers || !t->n_experts || !t->top_k)
        return fail(p, "n_layer, n_expert and n_expert_used must come before this line");
    if (t->top_k > t->n_experts)
        return fail(p, "%d of %d experts per token is impossible", t->top_k, t->n_experts);
    if ((int64_t)t->n_layers * t->n_experts > MAX_BANK)
        return fail(p, "%d layers of %d experts are more than the %d that are supported",
                    t->n_layers, t->n_experts, MAX_BANK);
    t->expert_bytes = mem_calloc((size_t)t->n_layers, sizeof *t->expert_bytes);
    return t->expert_bytes
               ? 0
               : err_set(p->err, SL_E_MEM, p->name, "no memory for the trace %s", p->name);
}

static int parse_preamble_line(struct parser *p)
{
    struct pairs got = {-1, -1};
    const char *s = p->line + 1;
    while (s < p->eol) {
        const char *e = memchr(s, ' ', (size_t)(p->eol - s));
        e = e ? e : p->eol;
        const char *eq = memchr(s, '=', (size_t)(e - s));
        int rc = eq ? take_pair(p, s, eq, e, &got) : 0;
        if (rc < 0)
            return rc;
        s = e < p->eol ? e + 1 : e;
    }
    if (got.layer < 0)
        return 0;
    int rc = make_layers(p);
    if (rc < 0)
        return rc;
    if (got.layer >= p->t->n_layers)
        return fail(p, "there is no layer %lld", (long long)got.layer);
    if (got.bytes < 0)
        return fail(p, "layer %lld has no expert_bytes", (long long)got.layer);
    p->t->expert_bytes[got.layer] = (uint64_t)got.bytes;
    return 0;
}

/* ---- Rows ---- */

static const char *field_end(const struct parser *p, const char *s)
{
    const char *e = memchr(s, ',', (size_t)(p->eol - s));
    return e ? e : p->eol;
}

static int parse_columns(struct parser *p)
{
    for (int c = 0; c < N_COLUMNS; c++)
        p->where[c] = -1;
    const char *s = p->line;
    for (int i = 0; i < MAX_COLUMNS; i++) {
        const char *e = field_end(p, s);
        for (int c = 0; c < N_COLUMNS; c++)
            if (p->where[c] < 0 && is(s, e, COLUMNS[c]))
                p->where[c] = i;
        p->n_fields = i + 1;
        if (e == p->eol)
            break;
        s = e + 1;
    }
    for (int c = 0; c < N_COLUMNS; c++)
        if (p->where[c] < 0)
            return fail(p, "there is no column '%s'", COLUMNS[c]);
    return make_layers(p);
}

struct row {
    int64_t v[N_COLUMNS]; /* but the weight */
    float weight;
};

static int parse_row(const struct parser *p, struct row *r)
{
    const struct trace *t = p->t;
    const int64_t most[N_COLUMNS] = {MAX_STEP,        1, MAX_STEP, t->n_layers - 1, t->top_k - 1,
                                     t->n_experts - 1};
    const char *s = p->line;
    for (int i = 0; i < p->n_fields; i++) {
        const char *e = field_end(p, s);
        for (int c = 0; c < WEIGHT; c++)
            if (p->where[c] == i && !read_int(s, e, most[c], &r->v[c]))
                return fail(p, "%s is not a number from 0 to %lld", COLUMNS[c], (long long)most[c]);
        if (p->where[WEIGHT] == i && !read_number(s, e, &r->weight))
            return fail(p, "weight is not a finite number");
        if (e == p->eol && i + 1 < p->n_fields)
            return fail(p, "%d fields, the header has %d", i + 1, p->n_fields);
        s = e < p->eol ? e + 1 : e;
    }
    if (t->expert_bytes[r->v[LAYER]] == 0)
        return fail(p, "the preamble gives layer %lld no expert_bytes", (long long)r->v[LAYER]);
    return 0;
}

static int no_memory(const struct parser *p)
{
    return err_set(p->err, SL_E_MEM, p->name, "no memory for the trace %s", p->name);
}

static int add_visit(struct parser *p, const struct row *r)
{
    struct trace *t = p->t;
    if (t->n_visits == p->visit_room) {
        size_t room = p->visit_room ? 2 * p->visit_room : 1024;
        struct trace_visit *v = mem_realloc(t->visit, room * sizeof *v);
        if (!v)
            return no_memory(p);
        t->visit = v;
        p->visit_room = room;
    }
    t->visit[t->n_visits++] = (struct trace_visit){.turn = (int32_t)r->v[TURN],
                                                   .step = (int32_t)r->v[STEP],
                                                   .layer = (int32_t)r->v[LAYER],
                                                   .phase = (uint8_t)r->v[PHASE],
                                                   .first = t->n_choices};
    return 0;
}

static int add_choice(struct parser *p, const struct row *r)
{
    struct trace *t = p->t;
    if (t->n_choices == p->choice_room) {
        int64_t room = p->choice_room ? 2 * p->choice_room : 4096;
        int32_t *e = mem_realloc(t->expert, (size_t)room * sizeof *e);
        if (!e)
            return no_memory(p);
        t->expert = e;
        float *w = mem_realloc(t->weight, (size_t)room * sizeof *w);
        if (!w)
            return no_memory(p);
        t->weight = w;
        p->choice_room = room;
    }
    struct trace_visit *v = &t->visit[t->n_visits - 1];
    for (int i = 0; i < v->k; i++)
        if (t->expert[v->first + i] == r->v[EXPERT])
            return fail(p, "expert %lld is chosen twice", (long long)r->v[EXPERT]);
    t->expert[t->n_choices] = (int32_t)r->v[EXPERT];
    t->weight[t->n_choices++] = r->weight;
    v->k++;
    return 0;
}

static int take_row(struct parser *p)
{
    struct trace *t = p->t;
    struct row r = {{0}, 0};
    int rc = parse_row(p, &r);
    if (rc < 0)
        return rc;
    const struct trace_visit *v = t->n_visits ? &t->visit[t->n_visits - 1] : NULL;
    bool same = v && r.v[SLOT] > 0 && v->turn == r.v[TURN] && v->phase == r.v[PHASE] &&
                v->step == r.v[STEP] && v->layer == r.v[LAYER];
    if (r.v[SLOT] != (same ? v->k : 0))
        return fail(p, "slot %lld comes where slot %d was expected", (long long)r.v[SLOT],
                    same ? v->k : 0);
    if (!same && (rc = add_visit(p, &r)) < 0)
        return rc;
    return add_choice(p, &r);
}

/* ---- All of it ---- */

static int parse_lines(struct parser *p)
{
    bool columns = false;
    int rc = next_line(p);
    if (rc <= 0 || !is(p->line, p->eol, "# route_trace v1")) {
        p->number = 1;
        return rc < 0 ? rc : fail(p, "not a recorded routing: '# route_trace v1' is expected");
    }
    while ((rc = next_line(p)) > 0) {
        if (p->line == p->eol)
            continue;
        if (*p->line == '#' && columns)
            continue; /* a trailer */
        rc = *p->line == '#' ? parse_preamble_line(p) : !columns ? parse_columns(p) : take_row(p);
        if (rc < 0)
            return rc;
        columns = columns || *p->line != '#';
    }
    if (rc == 0 && p->t->n_visits == 0)
        return fail(p, "the trace ends without a row of routing");
    return rc;
}

int trace_parse(const char *text, size_t n, const char *name, struct trace **out,
                struct sl_err *err)
{
    *out = NULL;
    struct parser p = {.name = name, .at = text, .end = text + n, .err = err};
    p.t = mem_calloc(1, sizeof *p.t);
    int rc = p.t ? parse_lines(&p) : no_memory(&p);
    if (rc < 0)
        trace_free(&p.t);
    *out = p.t;
    return rc;
}

static int read_all(int fd, const char *path, char *text, size_t n, struct sl_err *err)
{
    for (size_t got = 0; got < n;) {
        ssize_t r = read(fd, text + got, n - got);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return err_file(err, SL_E_IO, path, errno, "cannot read");
        if (r == 0)
            return err_file(err, SL_E_IO, path, 0, "became shorter while it was read");
        got += (size_t)r;
    }
    return 0;
}

int trace_read(const char *path, struct trace **out, struct sl_err *err)
{
    *out = NULL;
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO is refused, not waited for */
    if (fd < 0)
        return err_file(err, SL_E_IO, path, errno, "cannot open");
    int rc = 0;
    char *text = NULL;
    if (fstat(fd, &st) < 0)
        rc = err_file(err, SL_E_IO, path, errno, "cannot read");
    else if (!S_ISREG(st.st_mode))
        rc = err_file(err, SL_E_IO, path, 0, "not a regular file");
    else if ((uint64_t)st.st_size > MAX_FILE)
        rc = err_file(err, SL_E_UNSUPPORTED, path, 0, "a trace of more than %zu MiB",
                      MAX_FILE >> 20);
    else if (!(text = mem_alloc((size_t)st.st_size)))
        rc = err_file(err, SL_E_MEM, path, 0, "no memory to read it");
    else
        rc = read_all(fd, path, text, (size_t)st.st_size, err);
    close(fd);
    if (rc == 0)
        rc = trace_parse(text, (size_t)st.st_size, path, out, err);
    mem_free(text);
    return rc;
}

void trace_free(struct trace **t)
{
    if (!t || !*t)
        return;
    mem_free((*t)->expert_bytes);
    mem_free((*t)->visit);
    mem_free((*t)->expert);
    mem_free((*t)->weight);
    mem_free(*t);
    *t = NULL;
}
