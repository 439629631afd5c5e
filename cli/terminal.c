#include "terminal.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

/* Colours off, lines wrap, updates are shown, the cursor is there. */
#define RESTORE "\033[0m\033[?7h\033[?2026l\033[?25h"

#define PASTE_ON  "\033[?2004h"
#define PASTE_OFF "\033[?2004l"

static const int told[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP};
/* All others that end a program, unless nobody can catch them. */
static const int fatal[] = {SIGSEGV,   SIGBUS,  SIGFPE,  SIGILL,  SIGABRT, SIGTRAP,
                            SIGSYS,    SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2, SIGALRM,
                            SIGVTALRM, SIGPROF, SIGXCPU, SIGXFSZ};

enum { N_TOLD = sizeof told / sizeof told[0], N_FATAL = sizeof fatal / sizeof fatal[0] };

/* Handlers reach these; everything in them is set before the handlers are. */
static struct {
    bool open, has_modes;
    struct termios modes; /* as they were found */
    int pipe[2];          /* a byte for each signal that came, its number */
    struct sigaction old_told[N_TOLD], old_fatal[N_FATAL];
    volatile sig_atomic_t answering, drawing, pasting;
} terminal;

/* ---- signals ---- */

static void on_signal(int number)
{
    int saved = errno;
    unsigned char byte = (unsigned char)number;
    /* a full pipe means that plenty wait to be seen already */
    if (write(terminal.pipe[1], &byte, 1) < 0)
        errno = saved;
    errno = saved;
}

/* Only calls that are safe in a handler. */
static void restore(void)
{
    if (terminal.drawing && write(STDOUT_FILENO, RESTORE, sizeof RESTORE - 1) < 0)
        terminal.drawing = 0;
    if (terminal.pasting && write(STDOUT_FILENO, PASTE_OFF, sizeof PASTE_OFF - 1) < 0)
        terminal.pasting = 0;
    if (terminal.has_modes)
        tcsetattr(STDIN_FILENO, TCSANOW, &terminal.modes);
}

/* An instruction that cannot be done: it is tried again when the handler returns. */
static bool is_fault(int number, const siginfo_t *info)
{
    return info->si_code > 0 &&
           (number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL);
}

/* Then the signal does what it did before: kill, or let a sanitizer report. A fault happens again
 * by itself; all others must be sent again. */
static void on_fatal(int number, siginfo_t *info, void *context)
{
    (void)context;
    restore();
    for (int i = 0; i < N_FATAL; i++)
        sigaction(fatal[i], &terminal.old_fatal[i], NULL);
    if (!is_fault(number, info))
        raise(number);
}

/* Sets the handler, unless the signal is ignored: nohup, or whoever did that, meant it. */
static void handle(int number, const struct sigaction *act, struct sigaction *old)
{
    sigaction(number, act, old);
    if (old->sa_handler == SIG_IGN)
        sigaction(number, old, NULL);
}

static bool open_pipe(void)
{
    if (pipe(terminal.pipe) != 0)
        return false;
    for (int i = 0; i < 2; i++) {
        fcntl(terminal.pipe[i], F_SETFL, O_NONBLOCK);
        fcntl(terminal.pipe[i], F_SETFD, FD_CLOEXEC);
    }
    return true;
}

bool cli_terminal_open(void)
{
    if (terminal.open)
        return true;
    if (!open_pipe())
        return false;
    terminal.has_modes = tcgetattr(STDIN_FILENO, &terminal.modes) == 0;
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    for (int i = 0; i < N_TOLD; i++)
        handle(told[i], &act, &terminal.old_told[i]);
    act = (struct sigaction){.sa_sigaction = on_fatal, .sa_flags = SA_SIGINFO};
    for (int i = 0; i < N_FATAL; i++)
        handle(fatal[i], &act, &terminal.old_fatal[i]);
    terminal.open = true;
    return true;
}

void cli_terminal_close(void)
{
    if (!terminal.open)
        return;
    restore();
    for (int i = 0; i < N_TOLD; i++)
        sigaction(told[i], &terminal.old_told[i], NULL);
    for (int i = 0; i < N_FATAL; i++)
        sigaction(fatal[i], &terminal.old_fatal[i], NULL);
    close(terminal.pipe[0]);
    close(terminal.pipe[1]);
    terminal.open = false;
}

int cli_terminal_wait(int fd, double seconds)
{
    struct pollfd fds[] = {{.fd = terminal.pipe[0], .events = POLLIN},
                           {.fd = fd, .events = POLLIN}};
    int timeout = seconds < 0 ? -1 : seconds > 3600 ? 3600000 : (int)(seconds * 1e3 + 0.5);
    while (poll(fds, fd < 0 ? 1 : 2, timeout) < 0 && errno == EINTR)
        ;
    unsigned char byte;
    return read(terminal.pipe[0], &byte, 1) == 1 ? byte : 0;
}

bool cli_terminal_readable(double seconds)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&in, 1, (int)(seconds * 1e3)) != 0;
}

/* ---- modes ---- */

bool cli_terminal_interactive(void)
{
    return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

void cli_terminal_size(int *columns, int *rows)
{
    struct winsize size;
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col && size.ws_row;
    *columns = known ? size.ws_col : 80;
    *rows = known ? size.ws_row : 24;
}

bool cli_terminal_moves(void)
{
    const char *term = getenv("TERM");
    return term && *term && strcmp(term, "dumb") != 0;
}

void cli_terminal_begin_line(void)
{
    terminal.pasting = cli_terminal_moves();
    if (terminal.pasting)
        cli_terminal_write(PASTE_ON, sizeof PASTE_ON - 1);
}

void cli_terminal_end_line(void)
{
    if (terminal.pasting)
        cli_terminal_write(PASTE_OFF, sizeof PASTE_OFF - 1);
    terminal.pasting = 0;
}

void cli_terminal_begin_answer(bool drawn)
{
    static const char hide[] = "\033[?25l";
    terminal.answering = 1;
    terminal.drawing = drawn;
    if (terminal.has_modes) {
        struct termios quiet = terminal.modes;
        quiet.c_lflag &= ~(tcflag_t)(ECHO | ICANON); /* Ctrl-C and Ctrl-Z stay signals … */
        quiet.c_lflag |= NOFLSH; /* … that cut no row which is on its way, and lose no keys */
        tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
    }
    if (drawn)
        cli_terminal_write(hide, sizeof hide - 1);
}

void cli_terminal_end_answer(void)
{
    restore();
    terminal.answering = terminal.drawing = 0;
}

void cli_terminal_suspend(void)
{
    struct termios now;
    bool known = tcgetattr(STDIN_FILENO, &now) == 0;
    restore();
    raise(SIGSTOP);
    if (terminal.answering)
        cli_terminal_begin_answer(terminal.drawing);
    else if (known)
        tcsetattr(STDIN_FILENO, TCSANOW, &now);
    if (terminal.pasting)
        cli_terminal_begin_line();
}

bool cli_terminal_write(const char *data, size_t n)
{
    while (n) {
        ssize_t done = write(STDOUT_FILENO, data, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0 && errno == EAGAIN) { /* somebody made the terminal non-blocking */
            poll(&(struct pollfd){.fd = STDOUT_FILENO, .events = POLLOUT}, 1, 1000);
            continue;
        }
        if (done <= 0)
            return false;
        data += done;
        n -= (size_t)done;
    }
    return true;
}
