/* Messages as a person types them: with line editing and a history on a terminal, line by line from
 * anything else. */
#ifndef DG_CLI_LINE_INPUT_H
#define DG_CLI_LINE_INPUT_H

#include "base/buf.h"

typedef struct cli_line_input cli_line_input;

typedef enum cli_line_end {
    CLI_LINE_OK,
    CLI_LINE_EOF,         /* Ctrl-D, or the end of the file */
    CLI_LINE_INTERRUPTED, /* Ctrl-C: what was typed is forgotten */
    CLI_LINE_NOTHING,     /* Ctrl-C where nothing was typed */
    CLI_LINE_KILLED,      /* SIGTERM or SIGHUP: time to leave */
    CLI_LINE_TOO_LONG,
} cli_line_end;

/* cli_terminal_open comes first. The history is read from and written to the user's state folder,
 * unless `keep_history` is off. NULL: out of memory. */
cli_line_input *cli_line_open(bool keep_history, bool color);
void cli_line_close(cli_line_input *in); /* NULL is fine */

/* One message into *out, which is emptied first: a line, and the next one too while a line ends in
 * a backslash, or all between three quotation marks; line ends that are pasted belong to it. The
 * signal is in *killed_by after CLI_LINE_KILLED. */
cli_line_end cli_line_read(cli_line_input *in, dg_buf *out, int *killed_by);

#endif
