/* Text as cells of a terminal: how wide a character is, and what is safe to send. Pure functions of
 * their arguments; no locale is asked. */
#ifndef DG_CLI_CELLS_H
#define DG_CLI_CELLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "base/buf.h"

/* Columns of a character: 0 (joins the one before it), 1 or 2. */
int cli_char_width(uint32_t c);

/* One character as it may be sent to a terminal: never a control character, never an escape, never
 * a mark that turns the direction of what follows. */
typedef struct cli_cell {
    char text[4];
    size_t len; /* 0: nothing is to be shown */
    int width;
    bool newline, tab; /* instead of text; where they lead is the caller's business */
    bool rtl;          /* a letter written from right to left */
} cli_cell;

/* The character at s[0 … n), n >= 1; returns the bytes it took. Control characters become their
 * pictures, bytes that are no UTF-8 the replacement character. */
size_t cli_cell_next(const char *s, size_t n, cli_cell *out);

/* The whole text made safe, with its newlines and tabs. False: *out is full. */
bool cli_safe_append(dg_buf *out, const char *s, size_t n);
void cli_safe_write(FILE *out, const char *s, size_t n);

#endif
