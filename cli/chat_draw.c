#include "chat_draw.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "terminal.h"

enum { FRAME_MAX = 16 << 20, WIDE_STATUS = 60 /* columns that the long line needs */ };

void cli_draw_init(cli_chat_draw *d, const dgemma_engine *engine)
{
    static const char *const names[CLI_N_MARKER] = {"<pad>", "<eos>", "<turn|>", "<|channel>",
                                                    "<channel|>"};
    *d = (cli_chat_draw){.engine = engine};
    dg_buf_init(&d->out, FRAME_MAX);
    for (int i = 0; i < CLI_N_MARKER; i++) {
        int32_t id[4];
        size_t n = 0;
        bool known = !dgemma_tokenize(engine, names[i], strlen(names[i]), true, id, 4, &n, NULL);
        d->marker[i] = known && n == 1 ? id[0] : -1;
    }
}

void cli_draw_clear(cli_chat_draw *d)
{
    dg_buf_clear(&d->out);
}

/* What was collected, in one piece. */
static bool send(cli_chat_draw *d, bool ok)
{
    ok = ok && cli_terminal_write(d->out.data ? d->out.data : "", d->out.len);
    d->out.len = 0;
    return ok;
}

/* ---- the canvas ---- */

static int marker_of(const cli_chat_draw *d, int32_t id)
{
    for (int i = 0; i < CLI_N_MARKER; i++)
        if (id >= 0 && d->marker[i] == id)
            return i;
    return CLI_N_MARKER;
}

typedef struct draft {
    cli_span *spans; /* their texts belong to the library */
    size_t n;
} draft;

/* A thought begins with the name of its channel, which is no part of it. */
static size_t drop_channel_name(char *text, size_t len)
{
    static const char name[] = "thought\n";
    size_t n = sizeof name - 1;
    if (len < n || memcmp(text, name, n) != 0)
        return len;
    memmove(text, text + n, len - n);
    return len - n;
}

static bool add_span(const cli_chat_draw *d, draft *f, const int32_t *ids, size_t n,
                     cli_style style, bool opens_thought)
{
    char *text;
    size_t len;
    if (dgemma_detokenize(d->engine, ids, n, &text, &len, NULL))
        return false;
    if (opens_thought)
        len = drop_channel_name(text, len);
    f->spans[f->n++] = (cli_span){text, len, style};
    return true;
}

/* Runs of tokens of the same kind, up to the end of the turn: a character whose bytes are spread
 * over several tokens is whole wherever it can be. */
static bool make_spans(const cli_chat_draw *d, const dgemma_event *e, draft *f)
{
    bool thought = d->in_thought;
    for (size_t i = 0, end; i < e->n_tokens; i = end) {
        int marker = marker_of(d, e->tokens[i]);
        end = i + 1;
        if (marker == CLI_MARK_TURN_END || marker == CLI_MARK_EOS)
            break;
        if (marker == CLI_MARK_THOUGHT || marker == CLI_MARK_THOUGHT_END)
            thought = marker == CLI_MARK_THOUGHT;
        if (marker != CLI_N_MARKER)
            continue;
        while (end < e->n_tokens && e->accepted[end] == e->accepted[i] &&
               marker_of(d, e->tokens[end]) == CLI_N_MARKER)
            end++;
        if (thought && d->hide_thinking)
            continue;
        cli_style settled = thought ? CLI_THOUGHT : CLI_SETTLED;
        cli_style unsettled = thought ? CLI_THOUGHT_UNSETTLED : CLI_UNSETTLED;
        bool opens = i > 0 && marker_of(d, e->tokens[i - 1]) == CLI_MARK_THOUGHT;
        if (!add_span(d, f, e->tokens + i, end - i, e->accepted[i] ? settled : unsettled, opens))
            return false;
    }
    return true;
}

static bool draw_draft(cli_chat_draw *d, const dgemma_event *e)
{
    size_t n_settled = 0;
    for (size_t i = 0; i < e->n_tokens; i++)
        n_settled += e->accepted[i] != 0;
    char status[128];
    if (d->view.columns > WIDE_STATUS)
        snprintf(status, sizeof status, "block %d, step %d: %zu of %zu settled, entropy %.3f",
                 e->block + 1, e->step + 1, n_settled, e->n_tokens, (double)e->mean_entropy);
    else
        snprintf(status, sizeof status, "step %d.%d: %zu/%zu settled", e->block + 1, e->step + 1,
                 n_settled, e->n_tokens);

    draft f = {.spans = dg_array(e->n_tokens + 1, sizeof *f.spans)};
    bool ok =
        f.spans && make_spans(d, e, &f) && cli_view_frame(&d->view, f.spans, f.n, status, &d->out);
    for (size_t i = 0; i < f.n; i++)
        dgemma_free((void *)f.spans[i].text);
    dg_free(f.spans);
    return send(d, ok);
}

static bool draw_progress(cli_chat_draw *d, const dgemma_event *e)
{
    char status[64];
    snprintf(status, sizeof status,
             d->view.columns > WIDE_STATUS ? "reading: %d of %d tokens" : "reading: %d of %d",
             e->n_done, e->n_total);
    return send(d, cli_view_frame(&d->view, NULL, 0, status, &d->out));
}

static void follow_thought(cli_chat_draw *d, const dgemma_event *e)
{
    for (size_t i = 0; i < e->n_tokens; i++) {
        int marker = marker_of(d, e->tokens[i]);
        if (marker == CLI_MARK_THOUGHT || marker == CLI_MARK_THOUGHT_END)
            d->in_thought = marker == CLI_MARK_THOUGHT;
    }
}

/* ---- finished text ---- */

static bool show(cli_chat_draw *d, const char *text, size_t len, cli_style style)
{
    if (d->terminal)
        return cli_view_text(&d->view, text, len, style, &d->out);
    FILE *out = style == CLI_THOUGHT ? stderr : stdout;
    return fwrite(text, 1, len, out) == len && fflush(out) == 0;
}

static bool show_string(cli_chat_draw *d, const char *text, cli_style style)
{
    return show(d, text, strlen(text), style);
}

/* Between thoughts, answer and calls; where thoughts cannot be dimmed they are announced. In a pipe
 * they have a way of their own, and the answer goes on as if they were not there. */
static bool separate(cli_chat_draw *d, dgemma_event_kind kind)
{
    bool ok = true, changes = d->last != kind, thinking = kind == DGEMMA_EVENT_THINKING;
    cli_style before = d->last == DGEMMA_EVENT_THINKING ? CLI_THOUGHT : CLI_SETTLED;
    if (d->begun && changes && (d->terminal || before == CLI_THOUGHT))
        ok = show_string(d, "\n\n", before);
    if (thinking && changes && !d->color)
        ok = ok && show_string(d, "[thinking] ", CLI_THOUGHT);
    d->last = kind;
    d->begun = true;
    return ok;
}

static bool show_text(cli_chat_draw *d, const dgemma_event *e)
{
    bool thinking = e->kind == DGEMMA_EVENT_THINKING;
    cli_style style = thinking ? CLI_THOUGHT : CLI_SETTLED;
    if (thinking && d->hide_thinking)
        return true;
    bool ok = separate(d, e->kind) && show(d, e->text, e->text_len, style);
    return send(d, ok);
}

static bool show_call(cli_chat_draw *d, const dgemma_event *e)
{
    bool ok = separate(d, e->kind) && show_string(d, e->tool_name, CLI_SETTLED) &&
              show_string(d, "(", CLI_SETTLED) && show(d, e->text, e->text_len, CLI_SETTLED) &&
              show_string(d, ")", CLI_SETTLED);
    return send(d, ok);
}

/* ---- one answer ---- */

void cli_draw_begin(cli_chat_draw *d)
{
    cli_terminal_size(&d->columns, &d->rows);
    cli_view_init(&d->view, d->columns, d->rows, d->color);
    d->view.plain = d->plain;
    d->in_thought = d->begun = false;
    d->last = DGEMMA_EVENT_END;
}

/* The signal may come after the next step: what is drawn always has the screen's own size. */
bool cli_draw_keep_up(cli_chat_draw *d)
{
    int columns, rows;
    cli_terminal_size(&columns, &rows);
    return !d->terminal || (columns == d->columns && rows == d->rows) || cli_draw_resized(d);
}

bool cli_draw_event(cli_chat_draw *d, const dgemma_event *e)
{
    if (!cli_draw_keep_up(d))
        return false;
    switch (e->kind) {
    case DGEMMA_EVENT_PROMPT:
        return !d->live || draw_progress(d, e);
    case DGEMMA_EVENT_DRAFT:
        return !d->live || draw_draft(d, e);
    case DGEMMA_EVENT_BLOCK:
        follow_thought(d, e);
        return true;
    case DGEMMA_EVENT_THINKING:
    case DGEMMA_EVENT_TEXT:
        return show_text(d, e);
    case DGEMMA_EVENT_TOOL_CALL:
        return show_call(d, e);
    case DGEMMA_EVENT_READ:
    case DGEMMA_EVENT_END:
        break;
    }
    return true;
}

bool cli_draw_resized(cli_chat_draw *d)
{
    if (!d->terminal)
        return true;
    cli_terminal_size(&d->columns, &d->rows);
    return send(d, cli_view_resize(&d->view, d->columns, d->rows, &d->out));
}

bool cli_draw_end(cli_chat_draw *d)
{
    if (!d->terminal)
        return show_string(d, "\n", CLI_SETTLED);
    bool ok = cli_view_erase(&d->view, &d->out);
    if (d->view.column)
        ok = ok && show_string(d, "\n", CLI_SETTLED);
    return send(d, ok);
}
