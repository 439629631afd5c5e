/* A model runs from its files as they lie on the disk. When one is cut short meanwhile, reading
 * what is gone is a SIGBUS: the engine goes on with zeros and fails what runs, and where there is
 * no engine yet, the program ends with a line that names the model. */
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>
#include "cli.h"

enum { MAX_ENGINES = 256 /* as many as a server may have */ };

static struct {
    const char *path;
    _Atomic(dgemma_engine *) engine[MAX_ENGINES];
    atomic_int n_inside; /* handlers that look at them */
    struct sigaction old;
} guard;

static void say(const char *text)
{
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        return; /* nobody is left to be told */
}

/* True: the address was in a file of an engine; *any: there is one. */
static bool patch(const void *address, bool *any)
{
    bool patched = false;
    *any = false;
    atomic_fetch_add(&guard.n_inside, 1);
    for (size_t i = 0; i < MAX_ENGINES && !patched; i++) {
        dgemma_engine *engine = atomic_load(&guard.engine[i]);
        *any = *any || engine;
        patched = engine && dgemma_engine_patch(engine, address);
    }
    atomic_fetch_sub(&guard.n_inside, 1);
    return patched;
}

/* Only calls that are safe in a handler. */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    (void)context;
    bool gone = info->si_code == BUS_ADRERR; /* what was mapped is not there */
    bool any = false;
    if (gone && patch(info->si_addr, &any))
        return;
    if (gone && !any) {
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
    atomic_store(&guard.engine[0], engine);
}

void cli_guard_also(dgemma_engine *engine)
{
    for (size_t i = 0; i < MAX_ENGINES; i++) {
        dgemma_engine *none = NULL;
        if (atomic_compare_exchange_strong(&guard.engine[i], &none, engine))
            return;
    }
}

/* A handler on another thread may be looking at it: it is through in no time. */
void cli_unguard(dgemma_engine *engine)
{
    for (size_t i = 0; i < MAX_ENGINES; i++) {
        dgemma_engine *own = engine;
        atomic_compare_exchange_strong(&guard.engine[i], &own, NULL);
    }
    while (atomic_load(&guard.n_inside))
        sched_yield();
}
