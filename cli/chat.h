/* The state of `dgemma chat`, for its loop (cmd_chat.c) and its commands (chat_command.c). */
#ifndef DG_CLI_CHAT_H
#define DG_CLI_CHAT_H

#include "chat_draw.h"
#include "chat_log.h"
#include "request_args.h"

typedef struct cli_chat {
    cli_request_args args; /* commands change them as they go */
    dgemma_engine *engine;
    dgemma_model_info info;
    cli_chat_log log;
    cli_chat_draw draw;
    int pace_ms;       /* how long a step stays on the screen, at least */
    bool interactive;  /* a person types */
    bool leave;        /* /exit */
    bool ask_again;    /* /retry: the last message of the user waits for its answer */
    char *passage;     /* /rewrite: of the last answer, this is to be written anew, */
    char *how;         /* like this; both owned, NULL: nothing is */
    char *saved;       /* the file that the conversation was last saved to; NULL: none */
    bool failed;       /* something that was asked could not be done */
    dgemma_stats last; /* of the last answer */
    int n_answer;
    long n_output;
    double seconds;
} cli_chat;

/* A line for the person: on standard output when one is there, on standard error else. Made safe.
 */
void cli_chat_say(const cli_chat *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The same for what could not be done, which is kept in mind: a script that talks through a pipe
 * sees no line, it sees the exit code. */
void cli_chat_fail(cli_chat *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Obeys a line that starts with a slash. */
void cli_chat_command(cli_chat *c, const char *line);

#endif
