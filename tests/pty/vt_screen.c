#include "vt_screen.h"
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include "base/utf8.h"

void vt_init(vt_screen *s, int columns, int rows)
{
    memset(s, 0, sizeof *s);
    if (!setlocale(LC_CTYPE, "C.UTF-8")) /* for wcwidth */
        abort();
    s->columns = columns;
    s->rows = rows;
    s->autowrap = s->cursor_visible = true;
    dg_buf_init(&s->scrollback, 64 << 20);
}

void vt_clear(vt_screen *s)
{
    dg_buf_clear(&s->scrollback);
    dg_buf_clear(&s->text);
}

static void mistake(vt_screen *s, const char *what, const char *text, size_t n)
{
    if (s->mistake[0])
        return;
    int at = snprintf(s->mistake, sizeof s->mistake, "%s:", what);
    for (size_t i = 0; i < n && (size_t)at + 5 < sizeof s->mistake; i++)
        at += snprintf(s->mistake + at, sizeof s->mistake - (size_t)at, " %02X",
                       (unsigned char)text[i]);
}

/* ---- rows ---- */

static void append_row(const vt_screen *s, const vt_row *row, dg_buf *out)
{
    size_t end = out->len;
    bool ok = true;
    for (int x = 0; x < s->columns; x++) {
        const vt_cell *cell = &row->cell[x];
        if (cell->text[0])
            ok = ok && dg_buf_puts(out, cell->text);
        else if (cell->width || !x || row->cell[x - 1].width < 2)
            ok = ok && dg_buf_puts(out, " ");
        if (cell->text[0] && strcmp(cell->text, " ") != 0)
            end = out->len;
    }
    if (!row->wrapped) {
        out->len = out->data ? end : 0;
        ok = ok && dg_buf_puts(out, "\n");
    }
    if (!ok)
        abort();
}

static void scroll(vt_screen *s)
{
    append_row(s, &s->row[0], &s->scrollback);
    memmove(&s->row[0], &s->row[1], (size_t)(s->rows - 1) * sizeof s->row[0]);
    memset(&s->row[s->rows - 1], 0, sizeof s->row[0]);
    s->last_y -= s->last_y > 0;
}

static void line_feed(vt_screen *s)
{
    s->pending_wrap = false;
    if (s->y == s->rows - 1)
        scroll(s);
    else
        s->y++;
}

/* Columns [from, to) of a row become blank; a wide character that loses a half is gone. */
static void erase(vt_screen *s, int y, int from, int to)
{
    vt_row *row = &s->row[y];
    if (from > 0 && row->cell[from].width == 0 && row->cell[from - 1].width == 2)
        from--;
    memset(&row->cell[from], 0, (size_t)(to - from) * sizeof row->cell[0]);
    if (to == s->columns)
        row->wrapped = false;
}

const char *vt_row_text(vt_screen *s, int y)
{
    dg_buf *text = &s->text;
    text->max = 1 << 20;
    text->len = 0;
    vt_row row = s->row[y];
    row.wrapped = false;
    append_row(s, &row, text);
    text->data[--text->len] = '\0';
    return text->data;
}

void vt_transcript(const vt_screen *s, dg_buf *out)
{
    dg_buf_init(out, 64 << 20);
    if (s->scrollback.len && !dg_buf_append(out, s->scrollback.data, s->scrollback.len))
        abort();
    for (int y = 0; y < s->rows; y++)
        append_row(s, &s->row[y], out);
    while (out->len && out->data[out->len - 1] == '\n')
        out->data[--out->len] = '\0';
}

/* ---- characters ---- */

/* To the character that was printed last. */
static void join(vt_screen *s, const char *text, size_t n)
{
    vt_cell *cell = &s->row[s->last_y].cell[s->last_x];
    size_t len = strlen(cell->text);
    if (len && len + n < VT_CELL)
        memcpy(cell->text + len, text, n);
}

static void insert_blank(vt_screen *s, int n)
{
    vt_cell *cells = s->row[s->y].cell;
    n = n > s->columns - s->x ? s->columns - s->x : n;
    memmove(cells + s->x + n, cells + s->x, (size_t)(s->columns - s->x - n) * sizeof *cells);
    memset(cells + s->x, 0, (size_t)n * sizeof *cells);
}

static void print(vt_screen *s, const char *text, size_t n, int width)
{
    if (s->pending_wrap || s->x + width > s->columns) {
        if (s->autowrap) {
            s->row[s->y].wrapped = true;
            line_feed(s);
            s->x = 0;
        } else
            s->x = s->columns - width;
    }
    s->pending_wrap = false;
    if (s->insert)
        insert_blank(s, width);
    erase(s, s->y, s->x, s->x + width);
    vt_cell *cell = &s->row[s->y].cell[s->x];
    memcpy(cell->text, text, n);
    cell->text[n] = '\0';
    cell->width = (unsigned char)width;
    cell->attributes = (unsigned char)s->attributes;
    s->last_x = s->x;
    s->last_y = s->y;
    s->x += width;
    if (s->x == s->columns) {
        s->x--;
        s->pending_wrap = s->autowrap;
    }
}

static void character(vt_screen *s, uint32_t c, const char *text, size_t n)
{
    s->seen_dot |= c == 0xB7;
    if (c >= 0x80 && c < 0xA0) {
        mistake(s, "control character", text, n);
        return;
    }
    int width = wcwidth((wchar_t)c);
    if (width == 0)
        join(s, text, n);
    else
        print(s, text, n, width < 0 ? 1 : width);
}

static void control(vt_screen *s, char c)
{
    switch (c) {
    case '\r':
        s->x = 0;
        s->pending_wrap = false;
        break;
    case '\n':
        line_feed(s);
        break;
    case '\b':
        s->x -= s->x > 0 && !s->pending_wrap;
        s->pending_wrap = false;
        break;
    case '\t':
        s->x = (s->x / 8 + 1) * 8 < s->columns ? (s->x / 8 + 1) * 8 : s->columns - 1;
        break;
    case '\a':
        break;
    default:
        mistake(s, "control character", &c, 1);
    }
}

/* ---- escapes ---- */

static int clamp(int v, int lo, int hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

static void set_private(vt_screen *s, int mode, bool on)
{
    switch (mode) {
    case 7:
        s->autowrap = on;
        s->pending_wrap = false;
        break;
    case 25:
        s->cursor_visible = on;
        break;
    case 2004:
        s->pasting = on;
        break;
    case 2026:
        s->n_frame += s->synchronized && !on;
        s->synchronized = on;
        break;
    default:
        mistake(s, "unknown mode", s->input, s->n_input);
    }
}

static void set_attributes(vt_screen *s, const int *args, int n)
{
    for (int i = 0; i < n; i++) {
        int a = args[i];
        if (a == 0)
            s->attributes = 0;
        else if (a == 1)
            s->attributes |= VT_BOLD;
        else if (a == 2)
            s->attributes |= VT_DIM;
        else if (a >= 30 && a <= 37)
            s->attributes |= VT_COLOR;
        else
            mistake(s, "unknown attribute", s->input, s->n_input);
    }
    s->seen_dim |= (s->attributes & VT_DIM) != 0;
    s->seen_color |= (s->attributes & VT_COLOR) != 0;
}

static void erase_display(vt_screen *s, int kind)
{
    if (kind != 0 && kind != 2)
        mistake(s, "unknown erasure", s->input, s->n_input);
    erase(s, s->y, kind ? 0 : s->x, s->columns);
    for (int y = kind ? 0 : s->y + 1; y < s->rows; y++)
        erase(s, y, 0, s->columns);
}

static void delete_cells(vt_screen *s, int n)
{
    vt_cell *cells = s->row[s->y].cell;
    n = clamp(n, 1, s->columns - s->x);
    memmove(cells + s->x, cells + s->x + n, (size_t)(s->columns - s->x - n) * sizeof *cells);
    memset(cells + s->columns - n, 0, (size_t)n * sizeof *cells);
}

static void obey(vt_screen *s, bool private, const int *args, int n, char final)
{
    int first = args[0] ? args[0] : 1;
    if (private && (final == 'h' || final == 'l')) {
        for (int i = 0; i < n; i++)
            set_private(s, args[i], final == 'h');
        return;
    }
    if (final != 'm')
        s->pending_wrap = false;
    switch (private ? '?' : final) {
    case 'A':
        s->y = clamp(s->y - first, 0, s->rows - 1);
        break;
    case 'B':
        s->y = clamp(s->y + first, 0, s->rows - 1);
        break;
    case 'C':
        s->x = clamp(s->x + first, 0, s->columns - 1);
        break;
    case 'D':
        s->x = clamp(s->x - first, 0, s->columns - 1);
        break;
    case 'G':
        s->x = clamp(first - 1, 0, s->columns - 1);
        break;
    case 'H':
        s->y = clamp(first - 1, 0, s->rows - 1);
        s->x = clamp(n > 1 ? args[1] - 1 : 0, 0, s->columns - 1);
        break;
    case 'J':
        erase_display(s, args[0]);
        break;
    case 'K':
        if (args[0])
            mistake(s, "unknown erasure", s->input, s->n_input);
        erase(s, s->y, s->x, s->columns);
        break;
    case 'P':
        delete_cells(s, first);
        break;
    case '@':
        insert_blank(s, first);
        break;
    case 'h':
    case 'l':
        if (args[0] != 4)
            mistake(s, "unknown mode", s->input, s->n_input);
        s->insert = final == 'h';
        break;
    case 'm':
        set_attributes(s, args, n);
        break;
    default:
        mistake(s, "unknown escape", s->input, s->n_input);
    }
}

/* The escape in s->input, complete up to its last byte. */
static void escape(vt_screen *s)
{
    int args[8] = {0}, n = 1;
    size_t i = 2;
    bool private = s->input[i] == '?';
    for (i += private; i + 1 < s->n_input; i++) {
        char c = s->input[i];
        if (c >= '0' && c <= '9' && args[n - 1] < 100000)
            args[n - 1] = 10 * args[n - 1] + (c - '0');
        else if (c == ';' && n < 8)
            n++;
        else {
            mistake(s, "unknown escape", s->input, s->n_input);
            return;
        }
    }
    obey(s, private, args, n, s->input[s->n_input - 1]);
}

/* Looks at what has come; true when it is used up. */
static bool take_input(vt_screen *s)
{
    char last = s->input[s->n_input - 1];
    uint32_t c;
    if (s->input[0] == '\033') {
        if (s->n_input == 1 || (s->n_input == 2 && last == '['))
            return false;
        if (s->n_input == 2)
            mistake(s, "unknown escape", s->input, s->n_input);
        else if ((unsigned char)last < 0x40 && s->n_input < sizeof s->input)
            return false;
        else
            escape(s);
        return true;
    }
    if ((unsigned char)s->input[0] < 0x20 || s->input[0] == 0x7F)
        control(s, s->input[0]);
    else if (dg_utf8_decode(s->input, s->n_input, &c))
        character(s, c, s->input, s->n_input);
    else if (dg_utf8_partial(s->input, s->n_input) == s->n_input)
        return false;
    else
        mistake(s, "not UTF-8", s->input, s->n_input);
    return true;
}

void vt_write(vt_screen *s, const char *data, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        s->input[s->n_input++] = data[i];
        if (take_input(s))
            s->n_input = 0;
    }
}

/* Cells of a row up to its last character. */
static int row_length(const vt_screen *s, const vt_row *row)
{
    int n = row->wrapped ? s->columns : 0;
    for (int x = 0; x < s->columns; x++)
        if (row->cell[x].text[0])
            n = x + 1 > n ? x + 1 : n;
    return n;
}

/* The rows again, in lines of `columns` cells. */
static void reflow(vt_screen *s, int columns)
{
    vt_screen old = *s;
    int last = old.rows - 1, x = 0, y = 0;
    while (last > old.y && !row_length(&old, &old.row[last]))
        last--;
    memset(s->row, 0, sizeof s->row);
    s->columns = columns;
    for (int from = 0; from <= last; from++) {
        int n = row_length(&old, &old.row[from]);
        for (int i = 0; i < n || (from == old.y && i <= old.x); i++) {
            if (x == columns) {
                s->row[y].wrapped = true;
                x = 0;
                y++;
            }
            if (y == s->rows) {
                scroll(s);
                y--;
                s->y--;
            }
            if (from == old.y && i == old.x) {
                s->x = x;
                s->y = y;
            }
            if (i < n)
                s->row[y].cell[x++] = old.row[from].cell[i];
        }
        if (!old.row[from].wrapped) {
            x = 0;
            y++;
        }
    }
}

void vt_resize(vt_screen *s, int columns, int rows)
{
    if (s->reflows) {
        s->rows = rows > s->rows ? rows : s->rows;
        reflow(s, columns);
    }
    while (s->y >= rows) {
        scroll(s);
        s->y--;
    }
    for (int y = 0; y < VT_ROWS; y++) {
        int keep = y < s->rows && y < rows ? (columns < s->columns ? columns : s->columns) : 0;
        memset(&s->row[y].cell[keep], 0, (size_t)(VT_COLUMNS - keep) * sizeof(vt_cell));
        if (!keep)
            s->row[y].wrapped = false;
    }
    s->columns = columns;
    s->rows = rows;
    s->x = clamp(s->x, 0, columns - 1);
    s->pending_wrap = false;
}
