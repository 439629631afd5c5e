/* Where the model is that comes with dgemma, when a command names none. */
#include <limits.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "cli.h"

/* The folder of the installed model; the Makefile says another where PREFIX is another. */
#ifndef DGEMMA_DATADIR
#define DGEMMA_DATADIR "/usr/local/share/dgemma"
#endif

#define POCKET "pocket.gguf"

/* The folder of the running program, without a slash at its end; false when the system does not
 * tell. */
static bool program_folder(char *out, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", out, size - 1);
    if (n <= 0 || (size_t)n >= size - 1)
        return false;
    out[n] = '\0';
    char *slash = strrchr(out, '/');
    if (!slash)
        return false;
    *slash = '\0';
    return true;
}

static bool find_model(const char **path, bool quiet)
{
    /* from build/dgemma, from build/CONFIGURATION/dgemma, from PREFIX/bin/dgemma */
    static const char *const places[] = {"../models/pocket/" POCKET, "../../models/pocket/" POCKET,
                                         "../share/dgemma/" POCKET};
    enum { N_PLACE = sizeof places / sizeof places[0] };
    static char found[N_PLACE + 1][PATH_MAX + 64]; /* outlives the options that point to it */
    if (*path) {
        cli_guard_model(*path);
        return true;
    }

    char folder[PATH_MAX];
    size_t n = 0;
    bool known = program_folder(folder, sizeof folder);
    for (size_t i = 0; known && i < N_PLACE; i++)
        snprintf(found[n++], sizeof found[0], "%s/%s", folder, places[i]);
    snprintf(found[n++], sizeof found[0], "%s", DGEMMA_DATADIR "/" POCKET);
    for (size_t i = 0; i < n; i++)
        if (dg_file_exists(found[i])) {
            if (!quiet)
                fprintf(stderr, "dgemma: no model was named; the pocket model answers: %s\n",
                        found[i]);
            *path = found[i];
            cli_guard_model(*path);
            return true;
        }
    fputs("dgemma: no model was named (-m), and the pocket model is in none of its places:\n",
          stderr);
    for (size_t i = 0; i < n; i++)
        fprintf(stderr, "    %s\n", found[i]);
    return false;
}

bool cli_model_or_default(const char **path)
{
    return find_model(path, false);
}

bool cli_model_quietly(const char **path)
{
    return find_model(path, true);
}

const char *cli_model_name(char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        path[--n] = '\0';
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}
