/* A bar for files that take a while to write, and the way out of it: Ctrl-C, SIGTERM and a closed
 * terminal ask the writer to give up. */
#ifndef DG_CLI_WRITE_PROGRESS_H
#define DG_CLI_WRITE_PROGRESS_H

#include <stdbool.h>

typedef struct write_progress {
    const char *what; /* is being done: "writing" */
    double start, shown;
    bool terminal, drawn;
} write_progress;

/* From now on signals are waited for. */
void write_progress_begin(write_progress *p, const char *what);

/* Draws, where it is a terminal and took a second already. False: give up. */
bool write_progress_show(write_progress *p, double fraction);

void write_progress_hide(write_progress *p);

/* Says that the writer gave up, and what there is under the name of what it wrote. */
void write_progress_interrupted(const char *command, const char *path);

#endif
