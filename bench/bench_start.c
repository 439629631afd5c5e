/* How long a model takes to start: until it is loaded, until its first canvas has settled, and
 * until the program has printed its first byte, the linking of its libraries included.
 *
 *     bench_start -m MODEL [--program DGEMMA] [--prompt TEXT] [--rounds N]
 *                 [--max-load MS] [--max-canvas MS] [--max-program MS]
 *
 * Prints the best of the rounds, and the least processor time, which says more on a machine that
 * has other work. A wall time above its limit ends it with status 1. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/error.h"
#include "dgemma.h"

typedef struct figure {
    const char *what;
    double wall, cpu; /* seconds, the least of all rounds */
    bool measured;
    int limit; /* ms; 0: none */
} figure;

typedef struct bench {
    const char *model, *program, *prompt;
    int n_round;
    figure load, canvas, run;
} bench;

static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void note(figure *f, double wall, double cpu)
{
    if (!f->measured || wall < f->wall)
        f->wall = wall;
    if (!f->measured || cpu < f->cpu)
        f->cpu = cpu;
    f->measured = true;
}

static bool settled(dgemma_request *r)
{
    for (dgemma_event e; dgemma_request_wait(r, &e, -1);)
        if (e.kind == DGEMMA_EVENT_BLOCK)
            return true;
    return false;
}

static dgemma_status start_library(bench *b, dgemma_error *err)
{
    dgemma_engine *e;
    dgemma_engine_options opt = dgemma_engine_defaults();
    opt.model_path = b->model;
    double wall = dg_clock_now(), cpu = cpu_now();
    dgemma_status st = dgemma_engine_open(&e, &opt, err);
    if (st)
        return st;
    note(&b->load, dg_clock_now() - wall, cpu_now() - cpu);
    dgemma_request *r = NULL;
    dgemma_request_options ask = dgemma_request_defaults(e);
    ask.chat_prompt = b->prompt;
    st = dgemma_request_submit(&r, e, &ask, err);
    if (!st && settled(r))
        note(&b->canvas, dg_clock_now() - wall, cpu_now() - cpu);
    else if (!st)
        st = dg_fail(err, DGEMMA_E_INTERNAL, "no canvas has settled");
    dgemma_request_free(r);
    dgemma_engine_close(e);
    return st;
}

static void become_program(const bench *b, int out)
{
    dup2(out, STDOUT_FILENO);
    execl(b->program, b->program, "run", "--quiet", "-m", b->model, "-p", b->prompt, (char *)NULL);
    _exit(127);
}

static dgemma_status start_program(bench *b, dgemma_error *err)
{
    int end[2], status;
    char text[256];
    if (pipe(end) != 0)
        return dg_fail(err, DGEMMA_E_IO, "no pipe");
    double wall = dg_clock_now();
    pid_t pid = fork();
    if (pid == 0)
        become_program(b, end[1]);
    close(end[1]);
    bool printed = pid > 0 && read(end[0], text, sizeof text) > 0;
    wall = dg_clock_now() - wall;
    while (printed && read(end[0], text, sizeof text) > 0)
        ;
    close(end[0]);
    struct rusage used;
    bool well = pid > 0 && wait4(pid, &status, 0, &used) == pid && status == 0;
    if (!printed || !well)
        return dg_fail(err, DGEMMA_E_IO, "%s did not answer", b->program);
    note(&b->run, wall,
         (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
             1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec));
    return DGEMMA_OK;
}

/* False: it took longer than allowed. */
static bool print(const figure *f)
{
    bool late = f->limit && 1e3 * f->wall > f->limit;
    if (f->measured)
        printf("%-30s%8.1f ms, processor %7.1f ms\n", f->what, 1e3 * f->wall, 1e3 * f->cpu);
    if (late)
        printf("FAILED: %s took more than %d ms\n", f->what, f->limit);
    return !late;
}

static bool read_options(bench *b, int argc, char **argv)
{
    static const struct option names[] = {
        {"model", 1, NULL, 'm'},       {"program", 1, NULL, 'g'},
        {"prompt", 1, NULL, 'p'},      {"rounds", 1, NULL, 'n'},
        {"max-load", 1, NULL, 'l'},    {"max-canvas", 1, NULL, 'c'},
        {"max-program", 1, NULL, 'x'}, {0},
    };
    for (int c; (c = getopt_long(argc, argv, "m:", names, NULL)) != -1;) {
        const char **text = c == 'm' ? &b->model : c == 'g' ? &b->program : &b->prompt;
        int *number = c == 'n'   ? &b->n_round
                      : c == 'l' ? &b->load.limit
                      : c == 'c' ? &b->canvas.limit
                                 : &b->run.limit;
        if (c == '?')
            return false;
        if (c == 'm' || c == 'g' || c == 'p')
            *text = optarg;
        else if ((*number = atoi(optarg)) < 1)
            return false;
    }
    return b->model && optind == argc;
}

int main(int argc, char **argv)
{
    bench b = {.prompt = "What is the capital of France?",
               .n_round = 5,
               .load = {.what = "load"},
               .canvas = {.what = "load to first canvas"},
               .run = {.what = "dgemma run to first byte"}};
    if (!read_options(&b, argc, argv)) {
        fputs("usage: bench_start -m MODEL [--program DGEMMA] [--prompt TEXT] [--rounds N]\n"
              "       [--max-load MS] [--max-canvas MS] [--max-program MS]\n",
              stderr);
        return 2;
    }
    dgemma_error err = {0};
    dgemma_status st = DGEMMA_OK;
    for (int i = 0; !st && i < b.n_round; i++)
        st = start_library(&b, &err);
    for (int i = 0; !st && b.program && i < b.n_round; i++)
        st = start_program(&b, &err);
    if (st) {
        fprintf(stderr, "bench_start: %s\n", err.msg);
        return 2;
    }
    bool in_time = print(&b.load);
    in_time = print(&b.canvas) && in_time;
    return print(&b.run) && in_time ? 0 : 1;
}
