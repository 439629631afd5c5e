/* A terminal's screen, as far as dgemma uses one: what it shows can then be compared with what it
 * should. A control character or an escape that is not known here is remembered as a mistake. */
#ifndef DG_TESTS_VT_SCREEN_H
#define DG_TESTS_VT_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include "base/buf.h"

enum { VT_COLUMNS = 400, VT_ROWS = 100, VT_CELL = 28 };

typedef enum vt_attribute { VT_BOLD = 1, VT_DIM = 2, VT_COLOR = 4 } vt_attribute;

typedef struct vt_cell {
    char text[VT_CELL];              /* a character and what joins it; "" is blank */
    unsigned char width, attributes; /* width 0: the right half of a wide one */
} vt_cell;

typedef struct vt_row {
    vt_cell cell[VT_COLUMNS];
    bool wrapped; /* the text goes on in the next row */
} vt_row;

typedef struct vt_screen {
    int columns, rows, x, y;
    int last_x, last_y; /* the character that was printed last */
    bool pending_wrap, autowrap, cursor_visible, synchronized, insert;
    bool reflows, pasting; /* pasting: what is pasted is asked for between marks */
    unsigned attributes;
    int n_frame;                         /* updates that were shown as a whole */
    bool seen_dim, seen_color, seen_dot; /* at any time; dot: U+00B7 */
    char mistake[128];                   /* "": none */
    dg_buf scrollback;                   /* rows that have left at the top, as text */
    dg_buf text;                         /* of the row that was asked for last */
    char input[64];                      /* an escape or a character whose end has not come yet */
    size_t n_input;
    vt_row row[VT_ROWS];
} vt_screen;

void vt_init(vt_screen *s, int columns, int rows);
void vt_clear(vt_screen *s);
void vt_write(vt_screen *s, const char *data, size_t n);
/* As xterm does: rows are cut or made longer, nothing moves but what has no room at the top. As
 * most others do, when `reflows` is set: rows that have become too long are wrapped, and joined
 * again when there is room. */
void vt_resize(vt_screen *s, int columns, int rows);

/* One row without blanks at its end; valid until the next call. */
const char *vt_row_text(vt_screen *s, int y);
/* Scrollback and screen as one text: rows that were wrapped are joined, blanks at the end of lines
 * and empty lines at the end are left out. The caller clears *out. */
void vt_transcript(const vt_screen *s, dg_buf *out);

#endif
