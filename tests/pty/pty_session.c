#include "pty_session.h"
#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utmp.h>
#include "base/clock.h"

enum { PATIENCE = 300, QUIET_MS = 150 }; /* seconds: of a slow machine, under a sanitizer */

static void set_environment(const char *const *env)
{
    for (; *env; env++) {
        char name[256];
        const char *equals = strchr(*env, '=');
        snprintf(name, sizeof name, "%.*s", (int)(equals - *env), *env);
        if (equals[1])
            setenv(name, equals + 1, 1);
        else
            unsetenv(name);
    }
}

void pty_start(pty_session *p, int columns, int rows, const char *const *env, char *const *argv)
{
    memset(p, 0, sizeof *p);
    vt_init(&p->screen, columns, rows);
    struct winsize size = {.ws_col = (unsigned short)columns, .ws_row = (unsigned short)rows};
    if (openpty(&p->master, &p->slave, NULL, NULL, &size) != 0)
        abort();
    tcgetattr(p->slave, &p->before);
    p->pid = fork();
    if (p->pid < 0)
        abort();
    if (p->pid == 0) {
        close(p->master);
        login_tty(p->slave);
        set_environment(env);
        execv(argv[0], argv);
        _exit(127);
    }
}

static void reap(pty_session *p, int flags)
{
    if (!p->ended && waitpid(p->pid, &p->status, flags) == p->pid)
        p->ended = true;
}

/* Reads once; false when nothing came in that time, or nothing can come any more. */
static bool pump(pty_session *p, int timeout_ms)
{
    struct pollfd fd = {.fd = p->master, .events = POLLIN};
    if (poll(&fd, 1, timeout_ms) <= 0)
        return false;
    char bytes[4096];
    ssize_t n = read(p->master, bytes, sizeof bytes);
    if (n <= 0)
        return false;
    vt_write(&p->screen, bytes, (size_t)n);
    return true;
}

void pty_send(pty_session *p, const char *keys)
{
    size_t n = strlen(keys);
    while (n) {
        ssize_t done = write(p->master, keys, n);
        if (done <= 0)
            return;
        keys += done;
        n -= (size_t)done;
        pump(p, 0);
    }
}

void pty_resize(pty_session *p, int columns, int rows)
{
    while (pump(p, 0))
        ;
    struct winsize size = {.ws_col = (unsigned short)columns, .ws_row = (unsigned short)rows};
    vt_resize(&p->screen, columns, rows);
    ioctl(p->master, TIOCSWINSZ, &size);
}

size_t pty_length(const pty_session *p)
{
    dg_buf text;
    vt_transcript(&p->screen, &text);
    size_t n = text.len;
    dg_buf_clear(&text);
    return n;
}

static bool has_text(const pty_session *p, size_t from, const char *wanted)
{
    dg_buf text;
    vt_transcript(&p->screen, &text);
    bool found = text.data && from <= text.len && strstr(text.data + from, wanted);
    dg_buf_clear(&text);
    return found;
}

/* Blanks and line ends in a row become one blank, with which words are whole wherever a row ends,
 * or none. */
static void squeeze(const char *text, bool words, dg_buf *out)
{
    dg_buf_init(out, 64 << 20);
    for (const char *c = text; *c; c++) {
        bool blank = strchr(" \n\r", *c) != NULL;
        if (!blank || (words && out->len && out->data[out->len - 1] != ' '))
            dg_buf_append(out, blank ? " " : c, 1);
    }
    while (out->len && out->data[out->len - 1] == ' ')
        out->data[--out->len] = '\0';
}

bool pty_shows(const pty_session *p, const char *text, bool words)
{
    dg_buf all, shown, wanted;
    vt_transcript(&p->screen, &all);
    squeeze(all.data ? all.data : "", words, &shown);
    squeeze(text, words, &wanted);
    bool found = shown.data && wanted.data && strstr(shown.data, wanted.data);
    dg_buf_clear(&all);
    dg_buf_clear(&shown);
    dg_buf_clear(&wanted);
    return found;
}

bool pty_wait_new(pty_session *p, size_t from, const char *text)
{
    for (double end = pty_patience(); dg_clock_now() < end;) {
        if (has_text(p, from, text))
            return true;
        reap(p, WNOHANG);
        if (!pump(p, 100) && p->ended)
            break;
    }
    return has_text(p, from, text);
}

bool pty_wait_text(pty_session *p, const char *text)
{
    return pty_wait_new(p, 0, text);
}

bool pty_wait_prompt(pty_session *p)
{
    vt_screen *s = &p->screen;
    for (double end = pty_patience(); dg_clock_now() < end;) {
        if (s->x == 2 && !strcmp(vt_row_text(s, s->y), ">") && !(pty_modes(p).c_lflag & ICANON))
            return true;
        pump(p, 20);
    }
    return false;
}

bool pty_wait_frames(pty_session *p, int n)
{
    int wanted = p->screen.n_frame + n;
    for (double end = pty_patience(); p->screen.n_frame < wanted && pty_look_again(p, end);)
        ;
    return p->screen.n_frame >= wanted;
}

void pty_settle(pty_session *p)
{
    while (pump(p, QUIET_MS))
        ;
}

double pty_patience(void)
{
    return dg_clock_now() + PATIENCE;
}

bool pty_look_again(pty_session *p, double end)
{
    pump(p, 20);
    return dg_clock_now() < end;
}

bool pty_wait_stop(pty_session *p)
{
    int status;
    for (double end = pty_patience(); pty_look_again(p, end);)
        if (waitpid(p->pid, &status, WUNTRACED | WNOHANG) == p->pid)
            return WIFSTOPPED(status);
    return false;
}

bool pty_wait_end(pty_session *p)
{
    for (double end = pty_patience(); dg_clock_now() < end && !p->ended;) {
        if (!pump(p, 20))
            usleep(10000);
        reap(p, WNOHANG);
    }
    while (p->ended && pump(p, 0))
        ;
    return p->ended;
}

struct termios pty_modes(const pty_session *p)
{
    struct termios now = {0};
    tcgetattr(p->slave, &now);
    return now;
}

bool pty_modes_are_back(const pty_session *p)
{
    struct termios now = pty_modes(p);
    return now.c_iflag == p->before.c_iflag && now.c_oflag == p->before.c_oflag &&
           now.c_cflag == p->before.c_cflag && now.c_lflag == p->before.c_lflag &&
           !memcmp(now.c_cc, p->before.c_cc, sizeof now.c_cc);
}

void pty_dump(pty_session *p)
{
    dg_buf text;
    vt_transcript(&p->screen, &text);
    printf("---- %d x %d, cursor %d,%d ----\n%s\n----\n", p->screen.columns, p->screen.rows,
           p->screen.x, p->screen.y, text.data ? text.data : "");
    dg_buf_clear(&text);
}

void pty_close(pty_session *p)
{
    reap(p, WNOHANG);
    if (!p->ended) {
        kill(p->pid, SIGKILL);
        reap(p, 0);
    }
    close(p->master);
    close(p->slave);
    vt_clear(&p->screen);
}
