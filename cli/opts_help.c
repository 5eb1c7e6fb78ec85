/* opts_help.c: an option table as text for the terminal, as roff for the manual page and as
 * Markdown for docs/cli.md. */
#include "cli/opts.h"

#include <string.h>

enum { WIDTH = 100, INDENT = 30 };

/* ---- What is common to the three forms ------------------------------------------------------ */

/* "-m, --model FILE"; a switch shows as "--overlap, --no-overlap". */
static void row_names(const struct opt_row *row, char *buf, size_t size)
{
    size_t n = 0;
    const char *p = row->names;
    buf[0] = '\0';
    while (*p != '\0' && n < size) {
        size_t len = strcspn(p, " ");
        n += (size_t)snprintf(buf + n, size - n, "%s%.*s", n > 0 ? ", " : "", (int)len, p);
        if (row->type == OPT_SWITCH && strncmp(p, "--", 2) == 0 && n < size)
            n += (size_t)snprintf(buf + n, size - n, ", --no-%.*s", (int)len - 2, p + 2);
        p += len;
        while (*p == ' ')
            p++;
    }
    if (row->type == OPT_ENUM) {
        const struct opt_word *w = row->words;
        for (; w != NULL && w->name != NULL && n < size; w++)
            n += (size_t)snprintf(buf + n, size - n, "%s%s", w == row->words ? " " : "|", w->name);
    } else if (row->arg != NULL && n < size) {
        n += (size_t)snprintf(buf + n, size - n, " %s", row->arg);
        const struct opt_word *w = row->words;
        for (; w != NULL && w->name != NULL && n < size; w++)
            n += (size_t)snprintf(buf + n, size - n, "|%s", w->name);
    }
}

/* "default 4, 1 to 64 reads"; empty where there is nothing to say. */
static void row_facts(const struct opt_row *row, char *buf, size_t size)
{
    size_t n = 0;
    const char *def = row->def_say != NULL ? row->def_say : row->def;
    buf[0] = '\0';
    if (def == NULL && (row->type == OPT_INT || row->type == OPT_FLOAT || row->type == OPT_SIZE))
        def = "0";
    if (def != NULL && def[0] != '\0')
        n = (size_t)snprintf(buf, size, "default %s", def);
    if (n < size && row->min != row->max && (row->type == OPT_INT || row->type == OPT_FLOAT)) {
        n += (size_t)snprintf(buf + n, size - n, "%s", n > 0 ? "; " : "");
        if (row->max >= 1e9 && n < size)
            n += (size_t)snprintf(buf + n, size - n, "%.10g or more", row->min);
        else if (n < size)
            n += (size_t)snprintf(buf + n, size - n, "%.10g to %.10g", row->min, row->max);
    }
    if (row->unit != NULL && n < size)
        n += (size_t)snprintf(buf + n, size - n, "%s%s", n > 0 ? " " : "", row->unit);
}

/* ---- Terminal ------------------------------------------------------------------------------- */

/* Wrap text at WIDTH columns, each line after the first indented; col: where the cursor stands. */
static void put_wrapped(const char *text, int col, int indent, FILE *out)
{
    while (*text != '\0') {
        int len = (int)strcspn(text, " \n");
        if (col > indent && col + 1 + len > WIDTH) {
            fprintf(out, "\n%*s", indent, "");
            col = indent;
        } else if (col > indent) {
            fputc(' ', out);
            col++;
        }
        fprintf(out, "%.*s", len, text);
        col += len;
        text += len;
        if (text[0] == '\n' && text[1] == '\n') {
            fprintf(out, "\n\n%*s", indent, "");
            col = indent;
        }
        text += strspn(text, " \n");
    }
    fputc('\n', out);
}

static void text_rows(const struct opt_cmd *cmd, FILE *out)
{
    const char *group = NULL;
    char names[256], facts[256], line[1024];
    for (size_t i = 0; i < cmd->n_rows; i++) {
        const struct opt_row *row = &cmd->rows[i];
        if (group == NULL || strcmp(group, row->group) != 0) {
            group = row->group;
            fprintf(out, "\n%s:\n", group);
        }
        row_names(row, names, sizeof names);
        row_facts(row, facts, sizeof facts);
        snprintf(line, sizeof line, "%s%s%s%s", row->help, facts[0] ? " (" : "", facts,
                 facts[0] ? ")" : "");
        int n = fprintf(out, "  %s", names);
        if (n + 2 > INDENT)
            fprintf(out, "\n%*s", INDENT, "");
        else
            fprintf(out, "%*s", INDENT - n, "");
        put_wrapped(line, INDENT, INDENT, out);
    }
}

static void help_text(const struct opt_cmd *cmd, FILE *out)
{
    const char *sluice = cmd->program ? "" : "sluice ";
    fprintf(out, "%s%s: %s\n\nusage: %s%s [options]%s%s\n\n", sluice, cmd->name, cmd->summary,
            sluice, cmd->name, cmd->operands ? " " : "", cmd->operands ? cmd->operands : "");
    if (cmd->about != NULL)
        put_wrapped(cmd->about, 0, 0, out);
    text_rows(cmd, out);
    fprintf(out, "\nSizes: K, M, G and T are powers of 1024. --help prints this.\n");
    if (cmd->examples != NULL) {
        fprintf(out, "\nexamples:\n");
        for (const char *p = cmd->examples; *p != '\0';) {
            int len = (int)strcspn(p, "\n");
            fprintf(out, "  %.*s\n", len, p);
            p += len + (p[len] == '\n');
        }
    }
}

/* ---- Manual page ---------------------------------------------------------------------------- */

/* Text with roff's special characters escaped; an empty line becomes a paragraph. */
static void put_roff(const char *s, FILE *out)
{
    bool start = true;
    for (; *s != '\0'; s++) {
        if (s[0] == '\n' && s[1] == '\n') {
            fputs("\n.PP\n", out);
            s++;
            start = true;
            continue;
        }
        if (start && (*s == '.' || *s == '\''))
            fputs("\\&", out);
        if (*s == '\\')
            fputs("\\e", out);
        else if (*s == '-')
            fputs("\\-", out);
        else
            fputc(*s, out);
        start = *s == '\n';
    }
}

static void help_man(const struct opt_cmd *cmd, FILE *out)
{
    char names[256], facts[256];
    const char *group = NULL;
    fprintf(out, ".SH SLUICE ");
    for (const char *p = cmd->name; *p != '\0'; p++)
        fputc(*p >= 'a' && *p <= 'z' ? *p - 'a' + 'A' : *p, out);
    fprintf(out, "\n.B sluice %s\n[options]%s%s\n.PP\n", cmd->name, cmd->operands ? " " : "",
            cmd->operands ? cmd->operands : "");
    put_roff(cmd->about != NULL ? cmd->about : cmd->summary, out);
    fputc('\n', out);
    for (size_t i = 0; i < cmd->n_rows; i++) {
        const struct opt_row *row = &cmd->rows[i];
        if (group == NULL || strcmp(group, row->group) != 0) {
            group = row->group;
            fprintf(out, ".SS %s\n", group);
        }
        row_names(row, names, sizeof names);
        row_facts(row, facts, sizeof facts);
        fputs(".TP\n.B ", out);
        put_roff(names, out);
        fputc('\n', out);
        put_roff(row->help, out);
        if (facts[0] != '\0') {
            fputs(" (", out);
            put_roff(facts, out);
            fputc(')', out);
        }
        fputs(".\n", out);
    }
    if (cmd->examples != NULL) {
        fputs(".SS Examples\n.nf\n", out);
        put_roff(cmd->examples, out);
        fputs(".fi\n", out);
    }
}

/* ---- Markdown ------------------------------------------------------------------------------- */

static void put_cell(const char *s, FILE *out)
{
    for (; *s != '\0'; s++) {
        if (*s == '|')
            fputs("\\|", out);
        else if (*s == '<')
            fputs("&lt;", out);
        else
            fputc(*s, out);
    }
}

static void help_markdown(const struct opt_cmd *cmd, FILE *out)
{
    char names[256], facts[256];
    const char *group = NULL;
    fprintf(out, "## sluice %s\n\n    sluice %s [options]%s%s\n\n%s\n", cmd->name, cmd->name,
            cmd->operands ? " " : "", cmd->operands ? cmd->operands : "",
            cmd->about != NULL ? cmd->about : cmd->summary);
    for (size_t i = 0; i < cmd->n_rows; i++) {
        const struct opt_row *row = &cmd->rows[i];
        if (group == NULL || strcmp(group, row->group) != 0) {
            group = row->group;
            fprintf(out,
                    "\n### %s\n\n| option | meaning | default and range |\n| --- | --- | --- |\n",
                    group);
        }
        row_names(row, names, sizeof names);
        row_facts(row, facts, sizeof facts);
        fputs("| `", out);
        put_cell(names, out);
        fputs("` | ", out);
        put_cell(row->help, out);
        fputs(" | ", out);
        put_cell(facts, out);
        fputs(" |\n", out);
    }
    if (cmd->examples != NULL) {
        fputs("\nExamples:\n\n", out);
        for (const char *p = cmd->examples; *p != '\0';) {
            int len = (int)strcspn(p, "\n");
            fprintf(out, "    %.*s\n", len, p);
            p += len + (p[len] == '\n');
        }
    }
    fputc('\n', out);
}

void opts_help(const struct opt_cmd *cmd, enum opts_help_form form, FILE *out)
{
    if (form == OPTS_HELP_MAN)
        help_man(cmd, out);
    else if (form == OPTS_HELP_MARKDOWN)
        help_markdown(cmd, out);
    else
        help_text(cmd, out);
}
