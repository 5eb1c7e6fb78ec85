/* main.c: which command is meant, by the first word or by the name under which the program was
 * called; help and the manual page. */
#include "cli/commands.h"
#include "cli/env.h"
#include "cli/run.h"
#include "sluice.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

struct command {
    const char *name;
    int (*fn)(int argc, char **argv);
    const char *summary;
};

static const struct command COMMANDS[] = {
    {"run", cmd_run, "one prompt, one answer"},
    {"plan", cmd_plan, "will it fit, how fast, which flags, before loading"},
    {"info", cmd_info, "what is in a model file"},
    {"tokenize", cmd_tokenize, "text to token ids"},
    {"replay", cmd_replay, "cache policies on a recorded routing"},
    {"bench", cmd_bench, "a model's speed by a fixed protocol, or the speed of the kernels"},
    {"iobench", cmd_iobench, "the drive at the engine's request sizes"},
    {"cachebench", cmd_cachebench, "expert reads that the page cache serves"},
    {"pack", cmd_pack, "experts side by side on the drive, optionally requantised"},
    {"ppl", cmd_ppl, "perplexity of a text"},
};
enum { N_COMMANDS = sizeof COMMANDS / sizeof COMMANDS[0] };

/* Names of the program that stand for one command; any other name takes the command from the first
 * word. Ends with a NULL program. */
static const struct {
    const char *program, *command;
} PROGRAMS[] = {
    {"cachebench", "cachebench"},
    {"infer", "run"}, /* with defaults of their own: run_names.c */
    {"bmoe-cli", "run"},
    {NULL, NULL},
};

static const struct command *find_command(const char *name)
{
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(COMMANDS[i].name, name) == 0)
            return &COMMANDS[i];
    }
    return NULL;
}

static const struct command *command_of_program(const char *argv0)
{
    const char *slash = strrchr(argv0, '/');
    const char *base = slash != NULL ? slash + 1 : argv0;
    for (size_t i = 0; PROGRAMS[i].program != NULL; i++) {
        if (strcmp(PROGRAMS[i].program, base) == 0)
            return find_command(PROGRAMS[i].command);
    }
    return NULL;
}

static void print_usage(FILE *out)
{
    fprintf(out,
            "sluice %s: run Mixture-of-Experts models that are larger than memory\n\n"
            "usage: sluice COMMAND [options]\n\n",
            SL_VERSION);
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-12s%s\n", COMMANDS[i].name, COMMANDS[i].summary);
    fprintf(out, "  %-12sthis list; 'sluice help COMMAND' or 'sluice COMMAND --help' for one\n\n",
            "help");
    fprintf(out, "  sluice --version prints the version\n");
}

/* The sections that the commands print of their own tables. */
static int print_sections(const char *form)
{
    int rc = 0;
    for (int i = 0; i < N_COMMANDS && rc == 0; i++) {
        char name[32], flag[32];
        snprintf(name, sizeof name, "%s", COMMANDS[i].name);
        snprintf(flag, sizeof flag, "--help=%s", form);
        char *argv[] = {name, flag, NULL};
        rc = COMMANDS[i].fn(2, argv);
    }
    return rc;
}

#define NAMES_SAY                                                                                  \
    "Links to the program under these names stand for one command; with infer, a directory's "     \
    "packed experts are read without an option, and the directory is $SLUICE_MODEL_DIR or "        \
    "./model "                                                                                     \
    "where none is named."

static void print_names(bool man)
{
    char defaults[256];
    const char *name;
    const char *const before = man ? ".TP\n.B " : "| `",
                      *const between = man ? "\nsluice " : "` | `sluice ",
                      *const after = man ? "\n" : "` |\n";
    printf("%scachebench%scachebench%s", before, between, after);
    for (int i = 0; (name = run_names_at(i, defaults, sizeof defaults)) != NULL; i++)
        printf("%s%s%srun %s%s", before, name, between, defaults, after);
}

static int print_man(void)
{
    printf(".\\\" Made by 'sluice help --man'; edit the option tables in cli/ instead.\n"
           ".TH SLUICE 1 \"\" \"sluice %s\" \"User Commands\"\n"
           ".SH NAME\nsluice \\- run Mixture\\-of\\-Experts models that are larger than memory\n"
           ".SH SYNOPSIS\n.B sluice\n.I COMMAND\n[options]\n.SH COMMANDS\n",
           SL_VERSION);
    for (int i = 0; i < N_COMMANDS; i++)
        printf(".TP\n.B %s\n%s\n", COMMANDS[i].name, COMMANDS[i].summary);
    int rc = print_sections("man");
    printf(".SH OTHER NAMES\n" NAMES_SAY "\n");
    print_names(true);
    printf(".SH ENVIRONMENT\n");
    for (const struct env_row *e = env_rows(); e->name != NULL; e++)
        printf(".TP\n.B %s\n%s.\n", e->name, e->help);
    printf(".SH EXIT STATUS\n.TP\n.B 0\nAll went well.\n"
           ".TP\n.B 1\nThe work failed; one line on standard error says what, where and what to "
           "do.\n"
           ".TP\n.B 2\nThe command line is wrong.\n"
           ".TP\n.B 130\nStopped by Ctrl\\-C after the current token.\n");
    return rc;
}

static int print_markdown(void)
{
    printf("# Command line\n\n<!-- Made by 'sluice help --markdown'; edit the option tables in "
           "cli/ instead. -->\n\nSizes K, M, G and T are powers of 1024. Generated text alone goes "
           "to standard output;\nthe mode line, progress and the report go to standard error.\n\n");
    int rc = print_sections("markdown");
    printf("## Other names\n\n" NAMES_SAY "\n\n| name | stands for |\n| --- | --- |\n");
    print_names(false);
    printf("\n## Environment\n\n| variable | meaning |\n| --- | --- |\n");
    for (const struct env_row *e = env_rows(); e->name != NULL; e++)
        printf("| `%s` | %s |\n", e->name, e->help);
    printf("\nAn option on the command line beats the environment.\n\n## Exit status\n\n"
           "| status | meaning |\n| --- | --- |\n| 0 | all went well |\n"
           "| 1 | the work failed; one line on standard error says why |\n"
           "| 2 | the command line is wrong |\n"
           "| 130 | stopped by Ctrl-C after the current token |\n");
    return rc;
}

static int unknown_command(const char *name)
{
    const char *names[N_COMMANDS + 1];
    for (int i = 0; i < N_COMMANDS; i++)
        names[i] = COMMANDS[i].name;
    names[N_COMMANDS] = "help";
    const char *near = opts_nearest(name, names, N_COMMANDS + 1);
    struct sl_err err; /* err_set keeps control characters off the terminal */
    if (near != NULL)
        err_set(&err, SL_E_ARG, NULL, "unknown command '%.60s'; did you mean %s?", name, near);
    else
        err_set(&err, SL_E_ARG, NULL, "unknown command '%.60s'; 'sluice help' lists them", name);
    opts_fail(&err);
    return EXIT_USAGE;
}

static int cmd_help(int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--man") == 0)
        return print_man();
    if (strcmp(argv[1], "--markdown") == 0)
        return print_markdown();
    const struct command *c = find_command(argv[1]);
    if (c == NULL)
        return unknown_command(argv[1]);
    char flag[] = "--help";
    char *sub[] = {argv[1], flag, NULL};
    return c->fn(2, sub);
}

static int dispatch(int argc, char **argv)
{
    const struct command *c = argc > 0 ? command_of_program(argv[0]) : NULL;
    if (c != NULL)
        return c->fn(argc, argv);
    if (argc < 2) {
        print_usage(stderr);
        return EXIT_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--version") == 0) {
        printf("sluice %s\n", SL_VERSION);
        return 0;
    }
    if (strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        return cmd_help(argc - 1, argv + 1);
    c = find_command(word);
    return c != NULL ? c->fn(argc - 1, argv + 1) : unknown_command(word);
}

/* A standard stream that was closed would give its number to the next file that is opened: text
 * would go into an output file. Opened the wrong way round, so that its use still fails. */
static void keep_standard_numbers(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) == -1)
            (void)!open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv)
{
    keep_standard_numbers();
    int rc = dispatch(argc, argv);
    /* A full disk or a closed pipe may show only now. */
    if ((fflush(stdout) != 0 || ferror(stdout)) && rc == 0) {
        fprintf(stderr, "sluice: standard output: cannot write\n");
        rc = EXIT_FAILED;
    }
    return rc;
}
