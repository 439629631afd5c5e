/* A model runs from its files as they lie on the disk. When one is cut short meanwhile, reading
 * what is gone is a SIGBUS: the engine goes on with zeros and fails what runs, and where there is
 * no engine yet, the program ends with a line that names the model. */
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>
#include "cli.h"

static struct {
    const char *path;
    _Atomic(dgemma_engine *) engine;
    struct sigaction old;
} guard;

static void say(const char *text)
{
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        return; /* nobody is left to be told */
}

/* Only calls that are safe in a handler. */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    (void)context;
    bool gone = info->si_code == BUS_ADRERR; /* what was mapped is not there */
    dgemma_engine *engine = atomic_load(&guard.engine);
    if (gone && engine && dgemma_engine_patch(engine, info->si_addr))
        return;
    if (gone && !engine) {
        say("dgemma: ");
        say(guard.path);
        say(": a file of the model was cut short while it was read\n");
        _exit(EXIT_FAILED);
    }
    sigaction(SIGBUS, &guard.old, NULL); /* a fault happens again by itself */
    if (info->si_code <= 0)
        raise(number);
}

void cli_guard_model(const char *path)
{
    bool first = !guard.path;
    guard.path = path;
    struct sigaction act = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    if (first)
        sigaction(SIGBUS, &act, &guard.old);
}

void cli_guard_engine(dgemma_engine *engine)
{
    atomic_store(&guard.engine, engine);
}
