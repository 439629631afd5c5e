#include "line_input.h"
#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/utf8.h"
#include "cells.h"
#include "terminal.h"

enum { HISTORY_LINES = 1000, PROMPT_CELLS = 2 };

struct cli_line_input {
    EditLine *edit; /* NULL: lines are read as they are */
    History *history;
    char *history_path; /* NULL: it is not kept */
    bool color, continued;
    bool quoted;      /* between three quotation marks */
    bool was_empty;   /* the line that a signal has ended */
    int columns;      /* of the screen, when the line was last drawn */
    int signal;       /* what ended the line that is being read */
    char ahead[4096]; /* read and not used yet, where there is no editor */
    size_t n_ahead, at;
};

/* ---- history ---- */

/* $XDG_STATE_HOME/dgemma/history, or the same under ~/.local/state; the folders are made. */
static char *find_history(void)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char *base = state && state[0] == '/' ? dg_strdup(state)
                 : home && home[0] == '/' ? dg_path_join(home, ".local/state")
                                          : NULL;
    char *folder = base ? dg_path_join(base, "dgemma") : NULL;
    char *path = folder ? dg_path_join(folder, "history") : NULL;
    for (char *slash = folder ? strchr(folder + 1, '/') : NULL; slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(folder, 0700);
        *slash = '/';
    }
    if (folder)
        mkdir(folder, 0700);
    dg_free(folder);
    dg_free(base);
    return path;
}

static void open_history(cli_line_input *in, bool keep)
{
    HistEvent event;
    in->history = history_init();
    if (!in->history)
        return;
    history(in->history, &event, H_SETSIZE, HISTORY_LINES);
    history(in->history, &event, H_SETUNIQUE, 1);
    in->history_path = keep ? find_history() : NULL;
    if (in->history_path)
        history(in->history, &event, H_LOAD, in->history_path);
    el_set(in->edit, EL_HIST, history, in->history);
}

/* ---- keys ---- */

/* One character, whose bytes come one by one. 0: the end. */
static int read_utf8(wchar_t *out)
{
    char bytes[4];
    size_t n = 0;
    uint32_t c;
    for (;;) {
        ssize_t got = read(STDIN_FILENO, bytes + n, 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return (int)got;
        n++;
        if (dg_utf8_decode(bytes, n, &c))
            break;
        if (dg_utf8_partial(bytes, n) != n) {
            c = 0xFFFD;
            break;
        }
    }
    *out = (wchar_t)c;
    return 1;
}

/* Cells of the prompt and of what stands before the cursor. */
static int cells_before_cursor(const cli_line_input *in, int columns)
{
    const LineInfo *info = el_line(in->edit);
    size_t n = (size_t)(info->cursor - info->buffer);
    int cells = PROMPT_CELLS;
    cli_cell cell;
    for (size_t i = 0; i < n; cells += cell.width) {
        i += cli_cell_next(info->buffer + i, n - i, &cell);
        if (cell.newline) /* of what was pasted */
            cells = (cells / columns + 1) * columns;
    }
    return cells;
}

/* The line again, in its place. Some terminals wrap it anew when their size changes, others do not:
 * the smaller of the two distances to its beginning leaves everything above it alone. */
static void redraw(cli_line_input *in)
{
    int columns, rows;
    cli_terminal_size(&columns, &rows);
    int wider = columns > in->columns ? columns : in->columns;
    int cells = cells_before_cursor(in, wider > 0 ? wider : 1);
    char move[32];
    if (wider > 0 && cells / wider > 0) {
        snprintf(move, sizeof move, "\033[%dA", cells / wider);
        cli_terminal_write(move, strlen(move));
    }
    cli_terminal_write("\r\033[J", 4);
    in->columns = columns;
    el_resize(in->edit);
    el_set(in->edit, EL_REFRESH);
}

/* libedit's way to the keyboard: signals are seen here, between two keys. */
static int read_key(EditLine *edit, wchar_t *out)
{
    cli_line_input *in = NULL;
    el_get(edit, EL_CLIENTDATA, &in);
    for (;;) {
        int number = cli_terminal_wait(STDIN_FILENO, -1);
        if (!number)
            return read_utf8(out);
        if (number == SIGTSTP)
            cli_terminal_suspend();
        if (number == SIGWINCH || number == SIGTSTP) {
            redraw(in);
            continue;
        }
        const LineInfo *info = el_line(edit);
        in->was_empty = info->lastchar == info->buffer;
        in->signal = number;
        errno = EINTR;
        return -1;
    }
}

/* Pasted text up to the mark at its end, as it is but for control characters; line ends become part
 * of the message. */
static unsigned char paste(EditLine *edit, wint_t key)
{
    static const wchar_t end[] = L"\033[201~";
    enum { PIECE = 256 };
    wchar_t text[PIECE + 1], c;
    size_t n = 0, matched = 0;
    (void)key;
    while (matched < sizeof end / sizeof end[0] - 1) {
        if (el_wgetc(edit, &c) != 1)
            return CC_EOF;
        matched = c == end[matched] ? matched + 1 : c == end[0];
        if (matched)
            continue;
        if (c == '\r')
            c = '\n';
        if (c == '\n' || c == '\t' || (c >= ' ' && c != 0x7F))
            text[n++] = c;
        if (n == PIECE) {
            text[n] = 0;
            el_winsertstr(edit, text);
            n = 0;
        }
    }
    text[n] = 0;
    if (n)
        el_winsertstr(edit, text);
    return CC_REFRESH;
}

/* '\1' on both sides of what takes no place. */
static char *prompt(EditLine *edit)
{
    static char plain[] = "> ", more[] = "| ", bright[] = "\1\033[1m\1>\1\033[0m\1 ";
    cli_line_input *in = NULL;
    el_get(edit, EL_CLIENTDATA, &in);
    return in->continued ? more : in->color ? bright : plain;
}

/* Keys that libedit leaves alone, by what terminals send for them. */
static void bind_keys(EditLine *edit)
{
    static const char *const keys[][2] = {
        {"\\e[3~", "ed-delete-next-char"}, {"\\e[1~", "ed-move-to-beg"},
        {"\\e[4~", "ed-move-to-end"},      {"\\e[H", "ed-move-to-beg"},
        {"\\e[F", "ed-move-to-end"},       {"\\eOH", "ed-move-to-beg"},
        {"\\eOF", "ed-move-to-end"},       {"\\e[1;5C", "em-next-word"},
        {"\\e[1;5D", "ed-prev-word"},      {"^R", "em-inc-search-prev"},
        {"\\e[A", "ed-prev-history"},      {"\\e[B", "ed-next-history"},
        {"\\e[C", "ed-next-char"},         {"\\e[D", "ed-prev-char"},
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        el_set(edit, EL_BIND, keys[i][0], keys[i][1], NULL);
}

static bool open_editor(cli_line_input *in, bool keep_history)
{
    /* Text is UTF-8 here whatever the locale says; libedit needs one that agrees. */
    if (!setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1)
        setlocale(LC_CTYPE, "C.UTF-8");
    in->edit = el_init("dgemma", stdin, stdout, stderr);
    if (!in->edit)
        return false;
    el_set(in->edit, EL_CLIENTDATA, in);
    el_set(in->edit, EL_EDITOR, "emacs");
    el_set(in->edit, EL_SIGNAL, 0);
    el_wset(in->edit, EL_GETCFN, read_key);
    el_set(in->edit, EL_PROMPT_ESC, prompt, '\1');
    bind_keys(in->edit);
    /* wide: of the others libedit makes copies that it never frees */
    el_wset(in->edit, EL_ADDFN, L"dgemma-paste", L"Inserts what is pasted", paste);
    el_set(in->edit, EL_BIND, "\\e[200~", "dgemma-paste", NULL);
    open_history(in, keep_history);
    el_source(in->edit, NULL);
    return true;
}

cli_line_input *cli_line_open(bool keep_history, bool color)
{
    cli_line_input *in = dg_calloc(1, sizeof *in);
    if (!in)
        return NULL;
    in->color = color;
    if (cli_terminal_interactive() && !open_editor(in, keep_history)) {
        cli_line_close(in);
        return NULL;
    }
    return in;
}

void cli_line_close(cli_line_input *in)
{
    if (!in)
        return;
    HistEvent event;
    if (in->history_path)
        history(in->history, &event, H_SAVE, in->history_path);
    if (in->edit)
        el_end(in->edit);
    if (in->history)
        history_end(in->history);
    dg_free(in->history_path);
    dg_free(in);
}

/* ---- lines ---- */

static cli_line_end signalled(cli_line_input *in)
{
    if (in->signal != SIGINT)
        return CLI_LINE_KILLED;
    return in->was_empty && !in->continued ? CLI_LINE_NOTHING : CLI_LINE_INTERRUPTED;
}

static cli_line_end read_edited(cli_line_input *in, dg_buf *out)
{
    int n = 0, rows;
    cli_terminal_size(&in->columns, &rows);
    el_resize(in->edit); /* the size may have changed while an answer was drawn */
    cli_terminal_begin_line();
    const char *line = el_gets(in->edit, &n);
    cli_terminal_end_line();
    if (!line || n <= 0) {
        cli_terminal_write("\r\n", 2); /* the cursor was behind what had been typed */
        return in->signal ? signalled(in) : CLI_LINE_EOF;
    }
    HistEvent event;
    if (in->history && line[strspn(line, " \t\n")])
        history(in->history, &event, H_ENTER, line);
    return dg_buf_append(out, line, strlen(line)) ? CLI_LINE_OK : CLI_LINE_TOO_LONG;
}

/* Bytes to go on with; false at the end of the file, or when a signal came. */
static bool read_ahead(cli_line_input *in)
{
    while (in->at == in->n_ahead) {
        int number = cli_terminal_wait(STDIN_FILENO, -1);
        if (number == SIGTSTP)
            cli_terminal_suspend();
        if (number && number != SIGTSTP && number != SIGWINCH) {
            in->signal = number;
            return false;
        }
        if (number)
            continue;
        ssize_t got = read(STDIN_FILENO, in->ahead, sizeof in->ahead);
        if (got == 0 || (got < 0 && errno != EINTR))
            return false;
        in->at = 0;
        in->n_ahead = got > 0 ? (size_t)got : 0;
    }
    return true;
}

/* What is too long is read to its end, so that the rest is not taken for a message. */
static cli_line_end read_plain(cli_line_input *in, dg_buf *out)
{
    bool fits = true;
    size_t start = out->len;
    while (read_ahead(in)) {
        char c = in->ahead[in->at++];
        fits = fits && dg_buf_append(out, &c, 1);
        if (c == '\n')
            return fits ? CLI_LINE_OK : CLI_LINE_TOO_LONG;
    }
    if (in->signal)
        return signalled(in);
    return !fits ? CLI_LINE_TOO_LONG : out->len > start ? CLI_LINE_OK : CLI_LINE_EOF;
}

static bool ends_in(const dg_buf *line, char c)
{
    return line->len && line->data[line->len - 1] == c;
}

/* Takes the newline off, a carriage return before it, for files come from Windows too, and a
 * backslash before that; true when there was one. */
static bool trim(dg_buf *line)
{
    if (ends_in(line, '\n')) {
        line->len--;
        if (ends_in(line, '\r'))
            line->len--;
    }
    bool more = ends_in(line, '\\');
    if (more)
        line->data[line->len - 1] = '\n';
    else if (line->data)
        line->data[line->len] = '\0';
    return more;
}

static const char quotes[] = "\"\"\"";
enum { N_QUOTE = sizeof quotes - 1 };

/* The text between the quotes; a message that begins with a slash gets two, as when it is typed. */
static void unquote(dg_buf *line, size_t end)
{
    size_t start = N_QUOTE;
    if (start < end && line->data[start] == '/')
        line->data[--start] = '/';
    line->len = end - start;
    memmove(line->data, line->data + start, line->len);
    line->data[line->len] = '\0';
}

/* Inside quotes the message ends with the line that ends in them. */
static bool quote_goes_on(dg_buf *line)
{
    size_t end = line->len;
    while (end && strchr(" \t\r\n", line->data[end - 1]))
        end--;
    if (end < 2 * N_QUOTE || memcmp(line->data + end - N_QUOTE, quotes, N_QUOTE) != 0)
        return true;
    unquote(line, end - N_QUOTE);
    return false;
}

/* Whether the next line is part of the message too. */
static bool goes_on(cli_line_input *in, dg_buf *line)
{
    if (!in->continued && line->len >= N_QUOTE && !memcmp(line->data, quotes, N_QUOTE))
        in->quoted = true;
    return in->quoted ? quote_goes_on(line) : trim(line);
}

cli_line_end cli_line_read(cli_line_input *in, dg_buf *out, int *killed_by)
{
    dg_buf_clear(out);
    in->signal = 0;
    in->continued = in->quoted = false;
    cli_line_end end;
    do {
        end = in->edit ? read_edited(in, out) : read_plain(in, out);
        in->continued = end == CLI_LINE_OK && goes_on(in, out);
    } while (in->continued);
    *killed_by = in->signal;
    if (end == CLI_LINE_EOF && out->len) { /* the file ended after a backslash, or inside quotes */
        if (in->quoted)
            unquote(out, out->len);
        else
            out->data[--out->len] = '\0';
        end = CLI_LINE_OK;
    }
    return end;
}
