#include "canvas_view.h"
#include <stdio.h>
#include <string.h>
#include "cells.h"

enum { MIN_COLUMNS = 2, MAX_COLUMNS = 10000, TAB = 8 };

#define SYNC_ON  "\033[?2026h" /* the terminal shows nothing before SYNC_OFF; others ignore it */
#define SYNC_OFF "\033[?2026l"
#define WRAP_OFF "\033[?7l"
#define WRAP_ON  "\033[?7h"
#define ISOLATE  "\xE2\x81\xA8" /* U+2068: what follows chooses its own direction … */
#define POP      "\xE2\x81\xA9" /* U+2069: … until here */
#define DOT      "\xC2\xB7"

static const char *const style_on[CLI_N_STYLE] = {
    [CLI_SETTLED] = "",        [CLI_UNSETTLED] = "\033[2;36m",
    [CLI_THOUGHT] = "\033[2m", [CLI_THOUGHT_UNSETTLED] = "\033[2;35m",
    [CLI_STATUS] = "\033[2m",
};

static int clamp(int v, int lo, int hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

static void set_size(cli_canvas_view *v, int columns, int rows)
{
    v->columns = clamp(columns, MIN_COLUMNS, MAX_COLUMNS);
    v->rows = clamp(rows, 1, MAX_COLUMNS);
}

/* Whatever comes next begins a word. */
static void forget_word(cli_canvas_view *v)
{
    v->n_word = 0;
    v->word_cells = 0;
}

void cli_view_init(cli_canvas_view *v, int columns, int rows, bool color)
{
    *v = (cli_canvas_view){.color = color, .drawn = -1};
    set_size(v, columns, rows);
}

/* ---- painting a frame ---- */

typedef struct painter {
    cli_canvas_view *view;
    dg_buf *out;
    int column, row, n_row; /* rows that may be used */
    cli_style style;        /* what the terminal is set to */
    bool isolated;          /* inside right-to-left letters */
    bool in_word;           /* the last cell was part of one */
    bool full, failed;
    const cli_span *end; /* of the spans that are painted: a word may reach into the next one */
} painter;

static void put(painter *p, const char *text, size_t n)
{
    if (!dg_buf_append(p->out, text, n))
        p->failed = true;
}

static void puts_to(painter *p, const char *text)
{
    put(p, text, strlen(text));
}

static void set_style(painter *p, cli_style style)
{
    if (p->view->color && strcmp(style_on[p->style], style_on[style]) != 0) {
        puts_to(p, "\033[0m");
        puts_to(p, style_on[style]);
    }
    p->style = style;
}

static void set_isolated(painter *p, bool on)
{
    if (p->isolated != on)
        puts_to(p, on ? ISOLATE : POP);
    p->isolated = on;
}

/* Not after a full row: the cursor stands on its last character then. */
static void erase_rest(painter *p, const char *escape)
{
    if (p->column < p->view->columns)
        puts_to(p, escape);
}

/* How far this row reaches, for the day the screen becomes narrower. */
static void note_row(painter *p)
{
    if (p->row < CLI_KNOWN_ROWS)
        p->view->row_cells[p->row] = (unsigned short)p->column;
}

/* Goes to the next row, unless this was the last one there is room for. */
static bool next_row(painter *p)
{
    set_isolated(p, false);
    if (p->row + 1 >= p->n_row) {
        p->full = true;
        return false;
    }
    erase_rest(p, "\033[K");
    puts_to(p, "\r\n");
    note_row(p);
    p->row++;
    p->column = 0;
    return true;
}

/* Letters of the other direction are shut off from what stands around them, so that a terminal that
 * orders a line by direction moves nothing but them. */
static bool stays_isolated(const painter *p, const cli_cell *cell)
{
    bool neutral =
        cell->len == 1 && !((cell->text[0] | 0x20) >= 'a' && (cell->text[0] | 0x20) <= 'z');
    return cell->rtl || (p->isolated && (cell->width == 0 || neutral));
}

static void paint_cell(painter *p, const cli_cell *cell, bool dots)
{
    if (p->column + cell->width > p->view->columns && !next_row(p))
        return;
    set_isolated(p, !dots && stays_isolated(p, cell));
    if (!dots || (cell->len == 1 && cell->text[0] == ' '))
        put(p, cell->text, cell->len);
    else
        for (int i = 0; i < cell->width; i++)
            puts_to(p, DOT);
    p->column += cell->width;
}

static bool is_blank(const cli_cell *cell)
{
    return cell->newline || cell->tab || (cell->len == 1 && cell->text[0] == ' ');
}

/* Letters that stay together; wide ones may part anywhere. */
static bool is_letter(const cli_cell *cell)
{
    return cell->len && cell->width < 2 && !is_blank(cell);
}

/* Cells of the word that begins at byte `at` of a span and may reach into the next ones; counting
 * ends beyond the width of the screen. */
static int word_cells(const painter *p, const cli_span *span, size_t at)
{
    int cells = 0;
    cli_cell cell;
    for (; span < p->end && cells <= p->view->columns; span++, at = 0)
        while (at < span->len && cells <= p->view->columns) {
            at += cli_cell_next(span->text + at, span->len - at, &cell);
            if (cell.len && !is_letter(&cell))
                return cells;
            if (cell.newline || cell.tab)
                return cells;
            cells += cell.width;
        }
    return cells;
}

/* A word that does not fit into the rest of the row, but into one of its own, gets that. */
static void break_before_word(painter *p, const cli_span *span, size_t at)
{
    int cells = word_cells(p, span, at);
    if (p->column && p->column + cells > p->view->columns && cells <= p->view->columns)
        next_row(p);
}

static void paint_span(painter *p, const cli_span *span)
{
    static const cli_cell blank = {.text = " ", .len = 1, .width = 1};
    bool unsettled = span->style == CLI_UNSETTLED || span->style == CLI_THOUGHT_UNSETTLED;
    bool dots = unsettled && !p->view->color;
    cli_cell cell;
    set_style(p, span->style);
    for (size_t i = 0, at; i < span->len && !p->full && !p->failed;) {
        at = i;
        i += cli_cell_next(span->text + i, span->len - i, &cell);
        if (is_letter(&cell) && !p->in_word)
            break_before_word(p, span, at);
        if (p->full)
            break;
        p->in_word = cell.len || is_blank(&cell) ? is_letter(&cell) : p->in_word;
        if (cell.newline)
            next_row(p);
        else if (cell.tab)
            do
                paint_cell(p, &blank, false);
            while (p->column % TAB && p->column < p->view->columns);
        else if (cell.len && !(is_blank(&cell) && p->column >= p->view->columns))
            paint_cell(p, &cell, dots); /* a blank at the edge is what the row ends with */
    }
}

/* Back to where the finished text ends. */
static void go_home(painter *p)
{
    char move[32];
    if (p->view->drawn > 0) {
        snprintf(move, sizeof move, "\033[%dA", p->view->drawn);
        puts_to(p, move);
    }
    puts_to(p, "\r");
    if (p->view->column) {
        snprintf(move, sizeof move, "\033[%dC", p->view->column);
        puts_to(p, move);
    }
}

/* The row below, cut before the edge: what is behind and below it can then be erased. */
static void paint_status(painter *p, const char *status)
{
    cli_canvas_view narrow = *p->view;
    p->full = false;
    p->n_row = p->view->rows - 1;
    if (p->view->rows < 3 || !next_row(p))
        return;
    narrow.columns--;
    p->n_row = p->row + 1;
    cli_span span = {status, strlen(status), CLI_STATUS};
    painter line = *p;
    line.view = &narrow;
    line.end = &span + 1;
    line.in_word = true; /* cut at the edge, wherever that is */
    paint_span(&line, &span);
    line.view = p->view;
    line.end = p->end;
    *p = line;
}

/* The row is full, and the word goes on: it is taken to the next row, unless it has this one for
 * itself. */
static void move_word(cli_canvas_view *v, painter *p)
{
    char move[32];
    int start = v->column - v->word_cells;
    if (v->word_cells < 0 || start <= 0)
        return;
    if (v->word_cells) {
        snprintf(move, sizeof move, "\r\033[%dC\033[K", start);
        puts_to(p, move);
    }
    puts_to(p, "\r\n");
    put(p, v->word, v->n_word);
    v->column = v->word_cells;
}

/* A row that is not full, with the word that may go on. */
static void begin_row(cli_canvas_view *v, painter *p)
{
    move_word(v, p);
    if (v->column < v->columns)
        return;
    puts_to(p, "\r\n");
    v->column = 0;
    v->word_cells = -1;
}

bool cli_view_frame(cli_canvas_view *v, const cli_span *spans, size_t n, const char *status,
                    dg_buf *out)
{
    painter p = {.view = v,
                 .out = out,
                 .style = CLI_SETTLED,
                 .in_word = v->word_cells != 0,
                 .end = n ? spans + n : spans};
    /* one row for the status; one stays free, so that the frame never pushes its own first row out
     */
    p.n_row = clamp(v->rows - 2, 1, v->rows);
    puts_to(&p, SYNC_ON);
    if (v->drawn >= 0)
        go_home(&p);
    else if (v->column >= v->columns) /* the row is full, and the terminal waits with its wrap */
        begin_row(v, &p);
    puts_to(&p, WRAP_OFF);
    p.column = v->column;
    for (size_t i = 0; i < n && !p.full; i++)
        paint_span(&p, &spans[i]);
    set_isolated(&p, false);
    paint_status(&p, status);
    set_isolated(&p, false);
    set_style(&p, CLI_SETTLED);
    erase_rest(&p, "\033[J");
    if (p.column && p.column < v->columns)
        puts_to(&p, "\b"); /* on a character: it stays with it, however rows are wrapped anew */
    puts_to(&p, WRAP_ON SYNC_OFF);
    note_row(&p);
    v->drawn = p.row;
    return !p.failed;
}

bool cli_view_erase(cli_canvas_view *v, dg_buf *out)
{
    painter p = {.view = v, .out = out};
    if (v->drawn >= 0) {
        go_home(&p);
        puts_to(&p, "\033[J");
    }
    v->drawn = -1;
    return !p.failed;
}

/* ---- finished text ---- */

/* As the terminal moves its cursor for a character. */
static void advance(cli_canvas_view *v, int width)
{
    v->column = v->column + width > v->columns ? width : v->column + width;
}

static void put_tab(cli_canvas_view *v, painter *p)
{
    do {
        puts_to(p, " ");
        advance(v, 1);
    } while (v->column % TAB && v->column < v->columns);
    forget_word(v);
}

static void keep_letter(cli_canvas_view *v, const cli_cell *cell)
{
    if (v->word_cells < 0 || v->n_word + cell->len > sizeof v->word) {
        v->word_cells = -1;
        return;
    }
    memcpy(v->word + v->n_word, cell->text, cell->len);
    v->n_word += cell->len;
    v->word_cells += cell->width;
}

static void put_cell(cli_canvas_view *v, painter *p, const cli_cell *cell)
{
    if (!v->plain && is_blank(cell) && v->column >= v->columns) {
        forget_word(v); /* what the row ends with */
        return;
    }
    if (!v->plain && is_letter(cell) && v->column + cell->width > v->columns)
        move_word(v, p);
    put(p, cell->text, cell->len);
    advance(v, cell->width);
    if (is_letter(cell))
        keep_letter(v, cell);
    else
        forget_word(v);
}

bool cli_view_text(cli_canvas_view *v, const char *text, size_t len, cli_style style, dg_buf *out)
{
    if (!cli_view_erase(v, out))
        return false;
    painter p = {.view = v, .out = out, .style = CLI_SETTLED};
    cli_cell cell;
    set_style(&p, style);
    for (size_t i = 0; i < len && !p.failed;) {
        i += cli_cell_next(text + i, len - i, &cell);
        if (cell.newline) {
            puts_to(&p, "\r\n");
            v->column = 0;
            forget_word(v);
        } else if (cell.tab)
            put_tab(v, &p);
        else if (cell.len)
            put_cell(v, &p, &cell);
    }
    set_style(&p, CLI_SETTLED);
    return !p.failed;
}

/* Rows between the frame's beginning and the cursor on a screen of so many columns. */
static int rows_on(const cli_canvas_view *v, int columns)
{
    int rows = -(v->column / columns);
    for (int i = 0; i <= v->drawn; i++) {
        int cells = i < CLI_KNOWN_ROWS && v->row_cells[i] ? v->row_cells[i] : 1;
        rows += (cells - 1) / columns + (i < v->drawn);
    }
    return rows > v->drawn ? rows : v->drawn;
}

bool cli_view_resize(cli_canvas_view *v, int columns, int rows, dg_buf *out)
{
    bool inside = v->column > 0;
    set_size(v, columns, rows);
    v->drawn = clamp(rows_on(v, v->columns), -1, v->rows - 1);
    v->column %= v->columns;
    bool ok = cli_view_erase(v, out);
    v->column = 0;
    forget_word(v);
    return ok && (!inside || dg_buf_puts(out, "\r\n"));
}
