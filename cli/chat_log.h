/* A conversation: messages in OpenAI's form, which is also how they are saved. */
#ifndef DG_CLI_CHAT_LOG_H
#define DG_CLI_CHAT_LOG_H

#include <jansson.h>
#include "base/buf.h"
#include "base/error.h"

typedef struct cli_chat_log {
    json_t *messages; /* the system message, if there is one, is the first */
    json_t *pictures; /* parts for the next message */
} cli_chat_log;

bool cli_log_init(cli_chat_log *log); /* false: out of memory */
void cli_log_clear(cli_chat_log *log);

size_t cli_log_count(const cli_chat_log *log);
size_t cli_log_pictures(const cli_chat_log *log); /* waiting for the next message */

/* Forgets everything but the system message. */
dgemma_status cli_log_forget(cli_chat_log *log, dgemma_error *err);

/* NULL or "": there is none any more. */
dgemma_status cli_log_set_system(cli_chat_log *log, const char *text, dgemma_error *err);
const char *cli_log_system(const cli_chat_log *log); /* NULL: none */

/* A picture for the next message, read from a file and kept as a data: URL. */
dgemma_status cli_log_add_picture(cli_chat_log *log, const char *path, dgemma_error *err);

/* The user's message takes the pictures that wait. */
dgemma_status cli_log_add_user(cli_chat_log *log, const char *text, size_t len, dgemma_error *err);
dgemma_status cli_log_add_assistant(cli_chat_log *log, const dg_buf *text, const dg_buf *thinking,
                                    dgemma_error *err);

/* The text of the answer that the conversation ends with; NULL: there is none. */
const char *cli_log_last_answer(const cli_chat_log *log);
/* It becomes another text; thoughts stay. */
dgemma_status cli_log_set_answer(cli_chat_log *log, const dg_buf *text, dgemma_error *err);
/* The conversation in front of it, with `how` behind the user's last words if it says something:
 * for the caller to free(). NULL: out of memory. */
char *cli_log_text_before(const cli_chat_log *log, const char *how);

/* Takes away what came after the last message of the user; false: there is none. */
bool cli_log_back_to_user(cli_chat_log *log);
/* Takes the last message away; its pictures wait for the next one if they are kept. */
void cli_log_drop_last(cli_chat_log *log, bool keep_pictures);

/* The array as text, for the caller to free(); NULL: out of memory. */
char *cli_log_text(const cli_chat_log *log);

/* A file is replaced as a whole or stays as it was, and keeps its mode; of a link, the file that it
 * leads to. What is there and no regular file is refused. */
dgemma_status cli_log_save(const cli_chat_log *log, const char *path, dgemma_error *err);
/* The conversation becomes that of the file: an array of messages, or an object with it under
 * "messages". On a mistake it stays as it was. */
dgemma_status cli_log_load(cli_chat_log *log, const char *path, dgemma_error *err);

#endif
