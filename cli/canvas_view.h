/* The canvas on a terminal: a frame that is redrawn in place while it settles, below text that is
 * finished and stays. Everything is written into a buffer; who sends it, in one piece, is the
 * caller.
 *
 * Rows of the frame end with a newline of their own and lines are not wrapped by the terminal while
 * it is drawn, so its height never depends on how wide the terminal thinks a character is. Words
 * stay whole: one that reaches the edge goes to the next row, also when its beginning was finished
 * and shown before the rest came. */
#ifndef DG_CLI_CANVAS_VIEW_H
#define DG_CLI_CANVAS_VIEW_H

#include "base/buf.h"

typedef enum cli_style {
    CLI_SETTLED,
    CLI_UNSETTLED,
    CLI_THOUGHT,
    CLI_THOUGHT_UNSETTLED,
    CLI_STATUS,
    CLI_N_STYLE
} cli_style;

enum { CLI_WORD_MAX = 512, CLI_KNOWN_ROWS = 256 };

/* A piece of the canvas; any bytes. */
typedef struct cli_span {
    const char *text;
    size_t len;
    cli_style style;
} cli_span;

typedef struct cli_canvas_view {
    int columns, rows; /* of the screen */
    bool color; /* without it unsettled places are dots, and nothing is sent to change colours */
    bool plain; /* a terminal that can move no cursor: it wraps by itself */
    int column; /* where the finished text ends: the frame begins there */
    int drawn;  /* rows between there and the cursor; -1 when there is no frame */
    /* The word that the finished text ends in, as it was sent, to take it to the next row with. */
    char word[CLI_WORD_MAX];
    size_t n_word;
    int word_cells; /* 0: it ends with no word; -1: with one that is too long to be moved */
    unsigned short row_cells[CLI_KNOWN_ROWS]; /* how far the frame's rows reach */
} cli_canvas_view;

void cli_view_init(cli_canvas_view *v, int columns, int rows, bool color);

/* All return false when *out is full; what is in it must then not be sent. */

/* The frame becomes this, with the line `status` below it. Rows that the screen has no room for are
 * left out. */
bool cli_view_frame(cli_canvas_view *v, const cli_span *spans, size_t n, const char *status,
                    dg_buf *out);

/* Takes the frame away. */
bool cli_view_erase(cli_canvas_view *v, dg_buf *out);

/* Takes the frame away and adds to the finished text. */
bool cli_view_text(cli_canvas_view *v, const char *text, size_t len, cli_style style, dg_buf *out);

/* The screen has another size now. Rows that have become too long are taken to be wrapped, as most
 * terminals do, so that all of the frame is gone. The text goes on in a new row: nobody knows how
 * the terminal has moved what was there. */
bool cli_view_resize(cli_canvas_view *v, int columns, int rows, dg_buf *out);

#endif
