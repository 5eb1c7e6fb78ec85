/* commands.h: the subcommands. argv[0] is the command's name; the result is the exit status. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

int cmd_run(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_replay(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_iobench(int argc, char **argv);
int cmd_cachebench(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_ppl(int argc, char **argv);
int cmd_pack(int argc, char **argv);

#endif
