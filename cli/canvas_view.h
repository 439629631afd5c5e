/* The canvas on a terminal: a frame that is redrawn in place while it settles, below text that is
 * finished and stays. Everything is written into a buffer; who sends it, in one piece, is the
 * caller.
 *
 * Rows of the frame end with a newline of their own and lines are not wrapped by the terminal while
 * it is drawn, so its height never depends on how wide the terminal thinks a character is. Finished
 * text is left to the terminal's own wrapping: it can be copied as it was written. */
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

/* A piece of the canvas; any bytes. */
typedef struct cli_span {
    const char *text;
    size_t len;
    cli_style style;
} cli_span;

typedef struct cli_canvas_view {
    int columns, rows; /* of the screen */
    bool color; /* without it unsettled places are dots, and nothing is sent to change colours */
    int column; /* where the finished text ends: the frame begins there */
    int drawn;  /* rows between there and the cursor; -1 when there is no frame */
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

/* The screen has another size now. The text goes on in a new row: nobody knows how the terminal has
 * moved what was there. */
bool cli_view_resize(cli_canvas_view *v, int columns, int rows, dg_buf *out);

#endif
