/* Shows an answer while it comes: the canvas live on a terminal, or only what is finished. */
#ifndef DG_CLI_CHAT_DRAW_H
#define DG_CLI_CHAT_DRAW_H

#include "canvas_view.h"
#include "dgemma.h"

typedef enum cli_marker {
    CLI_MARK_PAD,
    CLI_MARK_EOS,
    CLI_MARK_TURN_END,
    CLI_MARK_THOUGHT,
    CLI_MARK_THOUGHT_END,
    CLI_N_MARKER
} cli_marker;

typedef struct cli_chat_draw {
    const dgemma_engine *engine;
    bool terminal; /* standard output is one: what goes there is made safe */
    bool live;     /* draw the canvas */
    bool plain;    /* it can move no cursor */
    bool color, hide_thinking;
    int columns, rows; /* of the screen, when it was last asked */
    cli_canvas_view view;
    dg_buf out;                   /* what is sent next */
    int32_t marker[CLI_N_MARKER]; /* -1: the model has no such token */
    bool in_thought;              /* where the block begins */
    bool begun;                   /* something finished was shown */
    dgemma_event_kind last;
} cli_chat_draw;

void cli_draw_init(cli_chat_draw *d, const dgemma_engine *engine);
void cli_draw_clear(cli_chat_draw *d);

void cli_draw_begin(cli_chat_draw *d); /* an answer */
/* False: standard output is gone, or memory is. */
bool cli_draw_event(cli_chat_draw *d, const dgemma_event *e);
/* What is drawn gets the size that the screen has now; resized: whatever it had. */
bool cli_draw_keep_up(cli_chat_draw *d);
bool cli_draw_resized(cli_chat_draw *d);
/* The frame is gone, and the cursor is at the beginning of a line. */
bool cli_draw_end(cli_chat_draw *d);

#endif
