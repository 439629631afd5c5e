#include "write_progress.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/file.h"
#include "cells.h"

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

void write_progress_begin(write_progress *p, const char *what)
{
    struct sigaction act = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGHUP, &act, NULL);
    *p = (write_progress){.what = what, .start = dg_clock_now(), .terminal = isatty(STDERR_FILENO)};
}

bool write_progress_show(write_progress *p, double fraction)
{
    enum { WIDTH = 30 };
    double now = dg_clock_now();
    if (interrupted)
        return false;
    if (!p->terminal || now - p->start < 1 || now - p->shown < 0.2)
        return true;
    char bar[WIDTH + 1];
    for (int i = 0; i < WIDTH; i++)
        bar[i] = i < (int)(fraction * WIDTH) ? '#' : '.';
    bar[WIDTH] = '\0';
    fprintf(stderr, "\r%s [%s] %3.0f %%, %.0f s left ", p->what, bar, 100 * fraction,
            (now - p->start) * (1 - fraction) / fraction);
    p->shown = now;
    p->drawn = true;
    return true;
}

void write_progress_hide(write_progress *p)
{
    if (p->drawn)
        fputs("\r\033[K", stderr);
    p->drawn = false;
}

void write_progress_interrupted(const char *command, const char *path)
{
    fprintf(stderr, "dgemma %s: interrupted: ", command);
    cli_safe_write(stderr, path, strlen(path));
    fputs(dg_file_exists(path) ? " is what it was before\n"
                               : " was not finished, and nothing stays under that name\n",
          stderr);
}
