/* opts_value.c: values of an option table, back as text. */
#include "cli/opts.h"

#include <string.h>

static const char *word_of(const struct opt_word *words, int64_t v)
{
    for (; words != NULL && words->name != NULL; words++) {
        if (words->value == v)
            return words->name;
    }
    return NULL;
}

/* The first long name, without its dashes; a row without one goes under its first name. */
static void name_of(const struct opt_row *row, char *buf, size_t size)
{
    const char *p = strstr(row->names, "--");
    p = p != NULL ? p + 2 : row->names + strspn(row->names, "-");
    snprintf(buf, size, "%.*s", (int)strcspn(p, " "), p);
}

static const char *value_of(const struct opt_row *row, const void *values, char *buf, size_t size)
{
    const char *at = (const char *)values + row->offset, *s;
    int64_t i;
    double d;
    switch (row->type) {
    case OPT_STR:
    case OPT_LIST:
        memcpy(&s, at, sizeof s);
        return s != NULL ? s : "";
    case OPT_FLOAT:
        memcpy(&d, at, sizeof d);
        snprintf(buf, size, "%.9g", d);
        return buf;
    case OPT_FLAG:
    case OPT_SWITCH:
        memcpy(&i, at, sizeof i);
        return i > 0 ? "on" : i == 0 ? "off" : "auto";
    case OPT_INT:
    case OPT_SIZE:
    case OPT_ENUM:
        break;
    }
    memcpy(&i, at, sizeof i);
    if ((s = word_of(row->words, i)) != NULL)
        return s;
    snprintf(buf, size, "%lld", (long long)i);
    return buf;
}

void opts_each_value(const struct opt_cmd *cmd, const void *values,
                     void (*fn)(void *user, const char *name, const char *value), void *user)
{
    char name[64], value[64];
    for (size_t i = 0; i < cmd->n_rows; i++) {
        const struct opt_row *row = &cmd->rows[i];
        name_of(row, name, sizeof name);
        fn(user, name, value_of(row, values, value, sizeof value));
    }
}
