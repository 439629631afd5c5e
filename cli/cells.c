#include "cells.h"
#include <string.h>
#include "base/utf8.h"
#include "cell_table.h"

enum { REPLACEMENT = 0xFFFD };

static bool in_table(const cell_range *table, size_t n, uint32_t c)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (c > table[mid].last)
            lo = mid + 1;
        else if (c < table[mid].first)
            hi = mid;
        else
            return true;
    }
    return false;
}

#define IN_TABLE(table, c) in_table(table, sizeof table / sizeof table[0], c)

int cli_char_width(uint32_t c)
{
    if (c < 0x300)
        return c >= 0x20 && c != 0x7F;
    if (IN_TABLE(cells_zero, c))
        return 0;
    return IN_TABLE(cells_wide, c) ? 2 : 1;
}

/* Embeddings, overrides and isolates: one left open would turn whatever comes after it. */
static bool turns_direction(uint32_t c)
{
    return (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

/* What is shown in place of c. */
static uint32_t safe_form(uint32_t c)
{
    if (c < 0x20)
        return 0x2400 + c; /* the pictures of control characters: ESC, BEL, … */
    if (c == 0x7F)
        return 0x2421;
    if (c >= 0x80 && c < 0xA0)
        return REPLACEMENT; /* some terminals obey these as they do escapes */
    if (c == 0x2028 || c == 0x2029)
        return ' ';
    return c;
}

size_t cli_cell_next(const char *s, size_t n, cli_cell *out)
{
    *out = (cli_cell){0};
    uint32_t c;
    size_t used = dg_utf8_decode(s, n, &c);
    if (!used) {
        c = REPLACEMENT;
        used = 1;
    }
    if (c == '\n' || c == '\t') {
        out->newline = c == '\n';
        out->tab = c == '\t';
        return used;
    }
    if (turns_direction(c) || (c == '\r' && n > 1 && s[1] == '\n'))
        return used;
    c = safe_form(c);
    out->len = dg_utf8_encode(out->text, c);
    out->width = cli_char_width(c);
    out->rtl = c >= 0x590 && IN_TABLE(cells_rtl, c);
    return used;
}

bool cli_safe_append(dg_buf *out, const char *s, size_t n)
{
    cli_cell cell;
    for (size_t i = 0; i < n;) {
        i += cli_cell_next(s + i, n - i, &cell);
        if (cell.newline || cell.tab ? !dg_buf_append(out, cell.newline ? "\n" : "\t", 1)
                                     : !dg_buf_append(out, cell.text, cell.len))
            return false;
    }
    return true;
}

void cli_safe_write(FILE *out, const char *s, size_t n)
{
    cli_cell cell;
    for (size_t i = 0; i < n;) {
        i += cli_cell_next(s + i, n - i, &cell);
        if (cell.newline || cell.tab)
            fputc(cell.newline ? '\n' : '\t', out);
        else
            fwrite(cell.text, 1, cell.len, out);
    }
}
