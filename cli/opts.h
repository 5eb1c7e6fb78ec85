/* opts.h: command-line options from one table.
 *
 * A command describes its options in an array of struct opt_row; the parser, `--help`, the man page
 * and docs/cli.md all read that array, so they cannot disagree. Parsed values land in a struct of
 * the command, at the row's offset, as one of three C types:
 *   int64_t      OPT_FLAG, OPT_SWITCH, OPT_INT, OPT_SIZE, OPT_ENUM
 *   double       OPT_FLOAT
 *   const char * OPT_STR, OPT_LIST (points into argv; NULL when not given and without default)
 *
 * Typical use, at the top of a command:
 *   struct info_args a;
 *   struct opt_seen seen;
 *   int rc = opts_begin(&INFO_CMD, argc, argv, &a, &seen);
 *   if (rc != OPTS_GO)
 *       return rc;                     (--help was printed, or the one-line error)
 */
#ifndef CLI_OPTS_H
#define CLI_OPTS_H

#include "base/err.h"

#include <stdio.h>

#define OPTS_MAX_ROWS 96
#define OPTS_GO       (-1) /* opts_begin: go on */
#define EXIT_FAILED   1    /* the work failed */
#define EXIT_USAGE    2    /* the command line is wrong */

enum opt_type {
    OPT_FLAG,   /* --x: 1, else the default 0 */
    OPT_SWITCH, /* --x: 1, --no-x: 0; a default of "auto" is -1 */
    OPT_INT,    /* decimal integer, or one of words */
    OPT_SIZE,   /* bytes, with K, M, G, T as powers of 1024; 1.5G is allowed; or one of words */
    OPT_FLOAT,  /* finite decimal number */
    OPT_STR,
    OPT_ENUM, /* one of words */
    OPT_LIST, /* integers in [min, max] separated by commas, or @FILE; kept as text */
};

/* A word and the number it stands for; arrays end with a NULL name. */
struct opt_word {
    const char *name;
    int64_t value;
};

struct opt_row {
    const char *names; /* as typed, separated by blanks: "-n --n-predict --tokens" */
    enum opt_type type;
    size_t offset;       /* of the value in the command's struct */
    const char *arg;     /* name of the value in help: "FILE"; NULL for flags and enums */
    double min, max;     /* numbers: inclusive range; min == max: no bounds but those of the type */
    const char *def;     /* default, parsed like a given value; NULL: 0, 0.0 or NULL */
    const char *def_say; /* what help shows as default when def alone says too little; else NULL */
    const char *unit;    /* "tokens", "MiB"; NULL: none */
    const char *help;    /* one or two sentences, no full stop at the end */
    const char *group;   /* heading in help; rows of a group stand together */
    const struct opt_word *words;
};

struct opt_cmd {
    const char *name;     /* "run" */
    const char *summary;  /* one line for the list of commands, no full stop */
    const char *operands; /* "FILE", "[FILE...]" in the usage line; NULL: none */
    int min_operands, max_operands;
    const char *about; /* paragraphs for --help and the manual, separated by an empty line */
    const struct opt_row *rows;
    size_t n_rows;
    bool program;         /* called by its name alone, not as "sluice NAME" */
    const char *examples; /* lines "command # what it does"; may be NULL */
};

/* What the command line contained. */
struct opt_seen {
    bool given[OPTS_MAX_ROWS]; /* by row */
    char **operands;           /* points into argv, which is reordered */
    int n_operands;
};

enum opts_help_form { OPTS_HELP_TEXT, OPTS_HELP_MAN, OPTS_HELP_MARKDOWN };

/* Set defaults and parse argv[1..]. 0, or SL_E_ARG with one line in err; 1: help was asked for, in
 * *form (--help, -h; --help=man and --help=markdown serve the documentation). */
int opts_parse(const struct opt_cmd *cmd, int argc, char **argv, void *values,
               struct opt_seen *seen, enum opts_help_form *form, struct sl_err *err);
/* opts_parse, then: print help to stdout and return 0, or print "sluice: ..." to stderr and return
 * EXIT_USAGE, or return OPTS_GO. */
int opts_begin(const struct opt_cmd *cmd, int argc, char **argv, void *values,
               struct opt_seen *seen);
/* Was the option with this name (any of its names) on the command line? */
bool opts_given(const struct opt_cmd *cmd, const struct opt_seen *seen, const char *name);
/* Every option of the table and its value as it would be typed ("" where there is none), under its
 * long name without dashes. */
void opts_each_value(const struct opt_cmd *cmd, const void *values,
                     void (*fn)(void *user, const char *name, const char *value), void *user);
/* Print help in any form. */
void opts_help(const struct opt_cmd *cmd, enum opts_help_form form, FILE *out);

/* Numbers as the table understands them; false unless all of s is one. */
bool opts_parse_int(const char *s, int64_t *out);
bool opts_parse_size(const char *s, uint64_t *out);
bool opts_parse_float(const char *s, double *out);

/* The next word of a list separated by commas, cut to size, and *at moved on; false at the end. An
 * empty word is a word, which nothing matches. */
bool opts_next_word(const char **at, char *word, size_t size);

/* The name among n candidates that s was probably meant to be; NULL: none is near. */
const char *opts_nearest(const char *s, const char *const *names, size_t n);

/* "sluice: MSG" on stderr; returns EXIT_FAILED. */
int opts_fail(const struct sl_err *err);

#endif
