/* opts.c: the parser. What it refuses, it names: the option, the value and what would be right. */
#include "cli/opts.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Numbers -------------------------------------------------------------------------------- */

bool opts_parse_int(const char *s, int64_t *out)
{
    const char *digits = *s == '-' || *s == '+' ? s + 1 : s;
    if (*digits < '0' || *digits > '9') /* strtoll would skip blanks */
        return false;
    char *end;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (errno != 0 || *end != '\0')
        return false;
    *out = v;
    return true;
}

/* Digits with an optional decimal fraction, then an optional K, M, G or T. The fraction is cut to
 * nine digits and the product is rounded down to a byte. */
bool opts_parse_size(const char *s, uint64_t *out)
{
    uint64_t whole = 0, frac = 0, scale = 1;
    const char *p = s;
    if (*p < '0' || *p > '9')
        return false;
    for (; *p >= '0' && *p <= '9'; p++) {
        if (__builtin_mul_overflow(whole, 10u, &whole) ||
            __builtin_add_overflow(whole, (uint64_t)(*p - '0'), &whole))
            return false;
    }
    if (*p == '.') {
        p++;
        if (*p < '0' || *p > '9')
            return false;
        for (; *p >= '0' && *p <= '9'; p++) {
            if (scale < 1000000000) {
                frac = frac * 10 + (uint64_t)(*p - '0');
                scale *= 10;
            }
        }
    }
    static const char suffix[] = "KMGT";
    uint64_t unit = 1;
    if (*p != '\0') {
        const char *at = strchr(suffix, *p >= 'a' && *p <= 'z' ? *p - 'a' + 'A' : *p);
        if (at == NULL || p[1] != '\0')
            return false;
        unit = (uint64_t)1 << (10 * (at - suffix + 1));
    } else if (scale != 1) {
        return false; /* no fractions of a byte */
    }
    uint64_t v;
    if (__builtin_mul_overflow(whole, unit, &v) || v > INT64_MAX)
        return false;
    /* frac < 10^9 and unit <= 2^40 stay below 2^70: in floating point, exact enough for a byte */
    *out = v + (uint64_t)((double)frac / (double)scale * (double)unit);
    return *out <= INT64_MAX;
}

bool opts_parse_float(const char *s, double *out)
{
    const char *p = *s == '-' || *s == '+' ? s + 1 : s;
    if ((*p < '0' || *p > '9') && *p != '.') /* keeps out blanks, inf, nan */
        return false;
    if (strspn(p, "0123456789.eE+-") != strlen(p)) /* and hexadecimal */
        return false;
    char *end;
    errno = 0;
    double v = strtod(s, &end);
    if (*end != '\0' || end == s || !isfinite(v))
        return false;
    *out = v;
    return true;
}

bool opts_next_word(const char **at, char *word, size_t size)
{
    if (!*at)
        return false;
    const size_t n = strcspn(*at, ",");
    snprintf(word, size, "%.*s", (int)(n < size ? n : size - 1), *at);
    *at = (*at)[n] ? *at + n + 1 : NULL;
    return true;
}

/* ---- Names ---------------------------------------------------------------------------------- */

/* Edit distance, a swap of neighbours counting as one; lengths are cut to 47. */
static int name_distance(const char *a, const char *b)
{
    enum { MAX = 48 };
    int d[3][MAX];
    int na = (int)strnlen(a, MAX - 1), nb = (int)strnlen(b, MAX - 1);
    for (int j = 0; j <= nb; j++)
        d[0][j] = j;
    for (int i = 1; i <= na; i++) {
        int *row = d[i % 3], *up = d[(i + 2) % 3], *up2 = d[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= nb; j++) {
            int best = up[j - 1] + (a[i - 1] != b[j - 1]);
            if (up[j] + 1 < best)
                best = up[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                up2[j - 2] + 1 < best)
                best = up2[j - 2] + 1;
            row[j] = best;
        }
    }
    return d[na % 3][nb];
}

const char *opts_nearest(const char *s, const char *const *names, size_t n)
{
    const char *best = NULL;
    size_t len = strlen(s);
    int limit = len < 4 ? 1 : len < 8 ? 2 : 3;
    for (size_t i = 0; i < n; i++) {
        int dist = name_distance(s, names[i]);
        if (dist <= limit) {
            limit = dist - 1;
            best = names[i];
        }
    }
    return best;
}

/* Walk the names of a row: copies the next one into buf and moves *p on; false at the end. */
static bool next_name(const char **p, char *buf, size_t size)
{
    while (**p == ' ')
        (*p)++;
    size_t n = strcspn(*p, " ");
    if (n == 0 || n >= size)
        return false;
    memcpy(buf, *p, n);
    buf[n] = '\0';
    *p += n;
    return true;
}

/* Does the row answer to this name? *off is set for the --no- form of a switch. */
static bool row_has_name(const struct opt_row *row, const char *name, bool *off)
{
    char buf[64];
    const char *p = row->names;
    *off = false;
    while (next_name(&p, buf, sizeof buf)) {
        if (strcmp(buf, name) == 0)
            return true;
        if (row->type == OPT_SWITCH && strncmp(name, "--no-", 5) == 0 &&
            strncmp(buf, "--", 2) == 0 && strcmp(buf + 2, name + 5) == 0) {
            *off = true;
            return true;
        }
    }
    return false;
}

static const struct opt_row *find_row(const struct opt_cmd *cmd, const char *name, bool *off)
{
    for (size_t i = 0; i < cmd->n_rows; i++) {
        if (row_has_name(&cmd->rows[i], name, off))
            return &cmd->rows[i];
    }
    return NULL;
}

static int fail_unknown(const struct opt_cmd *cmd, const char *name, struct sl_err *err)
{
    static const char *const help = "--help";
    const char *best = opts_nearest(name, &help, 1);
    char keep[64] = "", buf[64], neg[64];
    int limit = best != NULL ? name_distance(name, best) : 99;
    if (best != NULL)
        snprintf(keep, sizeof keep, "%s", best);
    for (size_t i = 0; i < cmd->n_rows; i++) {
        const char *p = cmd->rows[i].names;
        while (next_name(&p, buf, sizeof buf)) {
            if (buf[1] == '-')
                snprintf(neg, sizeof neg, "--no-%.56s", buf + 2);
            else
                neg[0] = '\0';
            const char *both[2] = {buf, neg};
            const char *near = opts_nearest(name, both, cmd->rows[i].type == OPT_SWITCH ? 2 : 1);
            if (near != NULL && name_distance(name, near) < limit) {
                limit = name_distance(name, near);
                snprintf(keep, sizeof keep, "%s", near);
            }
        }
    }
    if (keep[0] != '\0')
        return err_set(err, SL_E_ARG, name, "unknown option %s; did you mean %s?", name, keep);
    return err_set(err, SL_E_ARG, name, "unknown option %s; '%s%s --help' lists them", name,
                   cmd->program ? "" : "sluice ", cmd->name);
}

/* ---- Values --------------------------------------------------------------------------------- */

static void words_join(const struct opt_word *words, const char *sep, char *buf, size_t size)
{
    size_t n = 0;
    buf[0] = '\0';
    for (; words != NULL && words->name != NULL && n < size; words++)
        n += (size_t)snprintf(buf + n, size - n, "%s%s", n > 0 ? sep : "", words->name);
}

static bool word_find(const struct opt_word *words, const char *s, int64_t *out)
{
    for (; words != NULL && words->name != NULL; words++) {
        if (strcmp(words->name, s) == 0) {
            *out = words->value;
            return true;
        }
    }
    return false;
}

static bool in_range(const struct opt_row *row, double v)
{
    return row->min == row->max || (v >= row->min && v <= row->max);
}

/* In the largest unit that says it in whole numbers. */
static void size_say(double bytes, char *buf, size_t size)
{
    static const char units[] = "KMG";
    int unit = -1;
    while (unit < 2 && bytes >= 1024 && fmod(bytes, 1024) == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(buf, size, "%.0f%.*s", bytes, unit >= 0, unit >= 0 ? &units[unit] : "");
}

/* A range as text that goes on after "a number": " from 0 to 64", ", at least 1M". */
static void range_say(const struct opt_row *row, char *buf, size_t size)
{
    char lo[32], hi[32];
    if (row->type == OPT_SIZE) {
        size_say(row->min, lo, sizeof lo);
        size_say(row->max, hi, sizeof hi);
    } else {
        snprintf(lo, sizeof lo, "%.15g", row->min);
        snprintf(hi, sizeof hi, "%.15g", row->max);
    }
    if (row->max >= (row->type == OPT_SIZE ? 1e12 : 1e9) && row->type != OPT_LIST)
        snprintf(buf, size, ", at least %s", lo);
    else
        snprintf(buf, size, "%s from %s to %s",
                 row->type == OPT_LIST || row->type == OPT_SIZE ? "," : "", lo, hi);
}

static int fail_value(const struct opt_row *row, const char *name, const char *value,
                      struct sl_err *err)
{
    static const char *const wanted[] = {
        [OPT_INT] = "a whole number", [OPT_SIZE] = "a size such as 512M or 8G",
        [OPT_FLOAT] = "a number",     [OPT_LIST] = "whole numbers separated by commas, or @FILE",
        [OPT_ENUM] = "one of",        [OPT_STR] = "",
    };
    char words[256], range[96] = "";
    words_join(row->words, ", ", words, sizeof words);
    if (row->type == OPT_ENUM)
        return err_set(err, SL_E_ARG, name, "%s: '%s' is not one of %s", name, value, words);
    if (row->min != row->max)
        range_say(row, range, sizeof range);
    return err_set(err, SL_E_ARG, name, "%s: '%s' is not %s%s%s%s", name, value, wanted[row->type],
                   range, words[0] != '\0' ? ", or " : "", words);
}

static bool list_ok(const struct opt_row *row, const char *s)
{
    if (*s == '@')
        return s[1] != '\0';
    do {
        char num[24];
        int64_t v;
        size_t n = strcspn(s, ",");
        if (n == 0 || n >= sizeof num)
            return false;
        memcpy(num, s, n);
        num[n] = '\0';
        if (!opts_parse_int(num, &v) || !in_range(row, (double)v))
            return false;
        s += n;
    } while (*s++ == ',');
    return true;
}

static bool value_parse(const struct opt_row *row, const char *s, void *values)
{
    void *at = (char *)values + row->offset;
    int64_t i;
    uint64_t u;
    double d;
    switch (row->type) {
    case OPT_FLAG:
    case OPT_SWITCH:
        i = strcmp(s, "on") == 0 ? 1 : strcmp(s, "auto") == 0 ? -1 : 0;
        if (i == 0 && strcmp(s, "off") != 0) /* a table's default that says something else */
            return false;
        break;
    case OPT_INT:
        if (!word_find(row->words, s, &i) && (!opts_parse_int(s, &i) || !in_range(row, (double)i)))
            return false;
        break;
    case OPT_SIZE:
        if (!word_find(row->words, s, &i)) {
            if (!opts_parse_size(s, &u) || !in_range(row, (double)u))
                return false;
            i = (int64_t)u;
        }
        break;
    case OPT_ENUM:
        if (!word_find(row->words, s, &i))
            return false;
        break;
    case OPT_FLOAT:
        if (!opts_parse_float(s, &d) || !in_range(row, d))
            return false;
        memcpy(at, &d, sizeof d);
        return true;
    case OPT_LIST:
        if (!list_ok(row, s))
            return false;
        memcpy(at, &s, sizeof s);
        return true;
    case OPT_STR:
    default:
        memcpy(at, &s, sizeof s);
        return true;
    }
    memcpy(at, &i, sizeof i);
    return true;
}

static int set_defaults(const struct opt_cmd *cmd, void *values, struct sl_err *err)
{
    for (size_t i = 0; i < cmd->n_rows; i++) {
        const struct opt_row *row = &cmd->rows[i];
        const int64_t zero = 0;
        const double none = 0;
        const char *null = NULL;
        char *at = (char *)values + row->offset;
        if (row->def != NULL) {
            if (!value_parse(row, row->def, values))
                return err_set(err, SL_E_INTERNAL, row->names, "default '%s' of %s is no value",
                               row->def, row->names);
        } else if (row->type == OPT_FLOAT) {
            memcpy(at, &none, sizeof none);
        } else if (row->type == OPT_STR || row->type == OPT_LIST) {
            memcpy(at, &null, sizeof null);
        } else {
            memcpy(at, &zero, sizeof zero);
        }
    }
    return SL_OK;
}

/* ---- The command line ----------------------------------------------------------------------- */

/* One option at argv[*i]; moves *i past a separate value. */
static int parse_option(const struct opt_cmd *cmd, int argc, char **argv, int *i, void *values,
                        struct opt_seen *seen, struct sl_err *err)
{
    char name[64];
    const char *arg = argv[*i], *value = NULL;
    size_t n = strlen(arg);
    if (arg[1] == '-' && strchr(arg, '=') != NULL) {
        value = strchr(arg, '=') + 1;
        n = (size_t)(value - 1 - arg);
    }
    if (n >= sizeof name)
        return err_set(err, SL_E_ARG, NULL, "unknown option %.60s...", arg);
    memcpy(name, arg, n);
    name[n] = '\0';
    bool off;
    const struct opt_row *row = find_row(cmd, name, &off);
    if (row == NULL)
        return fail_unknown(cmd, name, err);
    seen->given[row - cmd->rows] = true;
    if (row->type == OPT_FLAG || row->type == OPT_SWITCH) {
        if (value != NULL)
            return err_set(err, SL_E_ARG, name, "%s takes no value", name);
        value_parse(row, off ? "off" : "on", values);
        return SL_OK;
    }
    if (value == NULL) {
        if (*i + 1 >= argc)
            return err_set(err, SL_E_ARG, name, "%s wants a value", name);
        value = argv[++*i];
    }
    if (!value_parse(row, value, values))
        return fail_value(row, name, value, err);
    return SL_OK;
}

static bool help_form(const char *arg, enum opts_help_form *form)
{
    if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0)
        *form = OPTS_HELP_TEXT;
    else if (strcmp(arg, "--help=man") == 0)
        *form = OPTS_HELP_MAN;
    else if (strcmp(arg, "--help=markdown") == 0)
        *form = OPTS_HELP_MARKDOWN;
    else
        return false;
    return true;
}

int opts_parse(const struct opt_cmd *cmd, int argc, char **argv, void *values,
               struct opt_seen *seen, enum opts_help_form *form, struct sl_err *err)
{
    int n_operands = 0;
    memset(seen, 0, sizeof *seen);
    if (cmd->n_rows > OPTS_MAX_ROWS)
        return err_set(err, SL_E_INTERNAL, cmd->name, "the option table is too long");
    int rc = set_defaults(cmd, values, err);
    if (rc < 0)
        return rc;
    seen->operands = argv + 1; /* operands are moved to the front as they are met */
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            while (++i < argc)
                seen->operands[n_operands++] = argv[i];
        } else if (help_form(argv[i], form)) {
            return 1;
        } else if (argv[i][0] != '-' || argv[i][1] == '\0') { /* "-" alone: standard input */
            seen->operands[n_operands++] = argv[i];
        } else {
            rc = parse_option(cmd, argc, argv, &i, values, seen, err);
            if (rc < 0)
                return rc;
        }
    }
    seen->n_operands = n_operands;
    if (n_operands > cmd->max_operands)
        return err_set(err, SL_E_ARG, NULL, "unexpected argument '%s'; '%s%s --help' tells more",
                       seen->operands[cmd->max_operands], cmd->program ? "" : "sluice ", cmd->name);
    if (n_operands < cmd->min_operands)
        return err_set(err, SL_E_ARG, NULL, "usage: sluice %s [options] %s", cmd->name,
                       cmd->operands);
    return SL_OK;
}

bool opts_given(const struct opt_cmd *cmd, const struct opt_seen *seen, const char *name)
{
    bool off;
    const struct opt_row *row = find_row(cmd, name, &off);
    return row != NULL && seen->given[row - cmd->rows];
}

int opts_fail(const struct sl_err *err)
{
    fprintf(stderr, "sluice: %s\n", err->msg);
    return EXIT_FAILED;
}

int opts_begin(const struct opt_cmd *cmd, int argc, char **argv, void *values,
               struct opt_seen *seen)
{
    struct sl_err err;
    enum opts_help_form form = OPTS_HELP_TEXT;
    int rc = opts_parse(cmd, argc, argv, values, seen, &form, &err);
    if (rc > 0) {
        opts_help(cmd, form, stdout);
        return 0; /* main notices what could not be written */
    }
    if (rc == SL_OK)
        return OPTS_GO;
    opts_fail(&err);
    return EXIT_USAGE;
}
