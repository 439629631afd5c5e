/* What the subcommands of the `dgemma` program share. */
#ifndef DG_CLI_CLI_H
#define DG_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "base/buf.h"
#include "dgemma.h"

/* Exit codes. */
enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

/* One option of a subcommand. `value` names the argument in the help ("N"); NULL: a switch. */
typedef struct cli_option {
    char letter;      /* 0: none */
    const char *name; /* without the dashes */
    const char *value;
    const char *help; /* one line; NULL: a heading, whose text is `name` */
    bool (*set)(void *target,
                const char *text); /* false: the text is not acceptable; switches get "" */
    void *target;
} cli_option;

/* A number as people write them: neither hexadecimal nor a word such as "inf". One that is too
 * large for a float becomes infinite. */
bool cli_read_decimal(const char *text, float *value);

/* Setters for the usual targets. */
bool cli_set_string(void *target, const char *text); /* const char ** */
bool cli_set_switch(void *target, const char *text); /* bool * */
bool cli_set_int(void *target, const char *text);    /* int *, not negative */
bool cli_set_count(void *target, const char *text);  /* int *, 1 or more */
bool cli_set_float(void *target, const char *text);  /* float *, finite */
bool cli_set_seed(void *target, const char *text);   /* uint64_t * */

/* Parses argv[1 …): options anywhere, "--" ends them. Words that are none go to rest[0 … *n_rest),
 * at most max_rest. On a mistake a message has been printed, and false is returned. */
bool cli_parse(const char *command, const cli_option *options, size_t n_option, int argc,
               char **argv, const char **rest, size_t max_rest, size_t *n_rest);

/* --help: the text, then the table of options. */
void cli_print_help(const char *usage, const cli_option *options, size_t n_option);

/* "1, 2 3" to ids in memory of the caller's (dg_free); a message has been printed when it is false.
 */
bool cli_parse_ids(const char *command, const char *text, int32_t **out, size_t *n);

/* Where no model was named, *path becomes that of the pocket model, which comes with dgemma, and a
 * line on stderr says so. False: it is nowhere; the places looked at have been printed. */
bool cli_model_or_default(const char **path);
bool cli_model_quietly(const char **path); /* without that line */

/* The part of a path that names the model, in it; slashes at its end are taken off. */
const char *cli_model_name(char *path);

/* From now on, a file of this model that is cut short while it is in use is no end by a signal:
 * what runs on the engine fails, and before there is one the program ends with a line about it.
 * The path must stay; the engine is forgotten (NULL) before it is closed. */
void cli_guard_model(const char *path);
void cli_guard_engine(dgemma_engine *engine);

/* One more, of a program with several; and it is about to be closed. Any thread. */
void cli_guard_also(dgemma_engine *engine);
void cli_unguard(dgemma_engine *engine);

/* Shows on a terminal how far loading is, once it has taken a second. */
typedef struct cli_progress {
    double start;
    bool bar_drawn;
    dgemma_progress_fn *next; /* who was to be told before, and still is; or NULL */
    void *next_user;
} cli_progress;
void cli_progress_attach(cli_progress *p, dgemma_engine_options *opt);
void cli_progress_end(cli_progress *p);

/* "READY=1", "STOPPING=1" to the service manager, where one listens. */
void cli_notify(const char *state);

/* A socket that a service manager opened for this process, and the address that it listens on. */
typedef struct cli_socket {
    int fd; /* 0: there is none */
    char host[64];
} cli_socket;

/* False: there is something that is none, and a message. */
bool cli_given_socket(cli_socket *out);

/* "dgemma: message" on stderr; returns the exit code for the status. */
int cli_fail(const dgemma_error *err);

/* A file's text, which goes to the model: a NUL byte would cut it short, and is refused. "-" is
 * standard input. */
dgemma_status cli_read_text(dg_buf *out, const char *path, dgemma_error *err);

/* The message with the file in front that it is about; "-" is standard input. */
void cli_name_file(dgemma_error *err, const char *path);

/* The message with the library's names as they are typed here: "t_min" is "--t-min". */
void cli_name_options(dgemma_error *err);

/* Says on stderr what of the model is not used as it came. */
void cli_warn_of_model(const dgemma_engine_options *opt, const dgemma_model_info *info);

/* One line of statistics; "stop", "length", …; a / b, 0 for nothing at all; what a word gets behind
 * so many: "s", but for one. */
void cli_print_stats(FILE *out, const dgemma_stats *st);
const char *cli_end_name(dgemma_end end);
double cli_per(double a, double b);
const char *cli_plural(long n);

/* JSON text of a string, quotes included. */
void cli_json_string(FILE *out, const char *text, size_t len);

/* The subcommands. */
int cmd_run(int argc, char **argv);
int cmd_chat(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_batch(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_constrain(int argc, char **argv);
int cmd_decide(int argc, char **argv);
int cmd_infill(int argc, char **argv);
int cmd_edit(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_quantize(int argc, char **argv);
int cmd_imatrix(int argc, char **argv);
int cmd_synth(int argc, char **argv);
int cmd_devices(int argc, char **argv);
int cmd_verify(int argc, char **argv);

#endif
