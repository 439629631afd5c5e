/* A program on a pseudo-terminal with a screen that can be looked at. */
#ifndef DG_TESTS_PTY_SESSION_H
#define DG_TESTS_PTY_SESSION_H

#include <sys/types.h>
#include <termios.h>
#include "vt_screen.h"

typedef struct pty_session {
    pid_t pid;
    int master, slave;
    struct termios before; /* as the program found them */
    bool ended;
    int status; /* of waitpid, once it has ended */
    vt_screen screen;
} pty_session;

/* Starts argv on a terminal of this size. `env`: "NAME=value" words on top of the environment,
 * "NAME=" takes one away; NULL at the end. */
void pty_start(pty_session *p, int columns, int rows, const char *const *env, char *const *argv);
void pty_send(pty_session *p, const char *keys);
void pty_resize(pty_session *p, int columns, int rows);

/* Scrollback and screen have this text, whatever blanks and line ends are between its words;
 * without `words`, also inside of them. */
bool pty_shows(const pty_session *p, const char *text, bool words);

/* Reads what comes until the transcript has `text` in it, up to some seconds; false when it does
 * not. */
bool pty_wait_text(pty_session *p, const char *text);
/* Until the program waits for a line, with nothing typed yet. */
bool pty_wait_prompt(pty_session *p);
/* The same as pty_wait_text, from a byte of the transcript on. */
bool pty_wait_new(pty_session *p, size_t from, const char *text);
/* Until a frame is on the screen: an answer is being drawn. */
bool pty_wait_frames(pty_session *p, int n);
/* For a loop that reads until something is on the screen:
 *     for (double end = pty_patience(); !there && pty_look_again(p, end);) */
double pty_patience(void);
bool pty_look_again(pty_session *p, double end);
/* Until Ctrl-Z has stopped it; false when it does not. */
bool pty_wait_stop(pty_session *p);
/* Until nothing has come for a while: on a slow machine that says little. */
void pty_settle(pty_session *p);
/* Until the program has ended; false when it does not. */
bool pty_wait_end(pty_session *p);

size_t pty_length(const pty_session *p); /* of the transcript */
struct termios pty_modes(const pty_session *p);
bool pty_modes_are_back(const pty_session *p);
void pty_dump(pty_session *p);  /* the screen, for a person */
void pty_close(pty_session *p); /* kills what still runs */

#endif
