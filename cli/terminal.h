/* The terminal as a resource: its size, its modes, the signals that belong to it. One for the
 * process, because signals are.
 *
 * Whatever ends the program, the terminal gets its modes, its cursor and its colours back: a normal
 * end through cli_terminal_close, a signal that kills through the handlers installed here. */
#ifndef DG_CLI_TERMINAL_H
#define DG_CLI_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include "base/buf.h"

/* Remembers the modes and takes over SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP and those of a
 * crash. False: the system refused. */
bool cli_terminal_open(void);
void cli_terminal_close(void);

/* Both standard input and standard output are a terminal. */
bool cli_terminal_interactive(void);

/* Columns and rows of standard output; 80 and 24 when it has none. */
void cli_terminal_size(int *columns, int *rows);

/* The next signal that arrived and was not taken yet, 0 when there is none. Waits for one or for
 * something to read from `fd` (-1: nothing), up to `seconds` (negative: for ever); 0 also means
 * that there is something to read, or that the time is over. */
int cli_terminal_wait(int fd, double seconds);

/* Something can be read from standard input, if only its end; waits up to `seconds`. Needs no
 * cli_terminal_open. */
bool cli_terminal_readable(double seconds);

/* One that can move its cursor: TERM is set, and not to "dumb". */
bool cli_terminal_moves(void);

/* While a line is typed: what is pasted comes between marks, so that its line ends are no Enter. */
void cli_terminal_begin_line(void);
void cli_terminal_end_line(void);

/* While an answer comes: keys are not echoed and wait for the next line; the cursor is hidden if
 * the answer is drawn. */
void cli_terminal_begin_answer(bool drawn);
void cli_terminal_end_answer(void);

/* Gives the terminal back, stops the process as Ctrl-Z asks for, and sets the terminal up again
 * when it goes on. */
void cli_terminal_suspend(void);

/* All of it to standard output, in one call where the system takes it. False: it is gone. */
bool cli_terminal_write(const char *data, size_t n);

#endif
