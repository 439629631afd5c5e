#include "text/output_parser.h"
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "text/call_syntax.h"
#include "text/json_tree.h"
#include "text/output_events.h"

/* ---- states ---- */

typedef enum state {
    STATE_START,    /* nothing but blanks so far: a thought may begin without its token */
    STATE_HEADER,   /* in the first line of a turn that the model opened itself */
    STATE_TEXT,     /* the answer */
    STATE_CHANNEL,  /* in the name of a channel */
    STATE_THINKING, /* until <channel|> */
    STATE_NAMED,    /* a thought, perhaps, after a spelled name: if <channel|> comes */
    STATE_TAGGED,   /* likewise after a spelled <think>: if </think> comes, or <channel|> */
    STATE_CALL,
    STATE_DONE
} state;

enum {
    MAX_NAME = 64,   /* bytes of a role or of a channel's name */
    MAX_BLANK = 4096 /* bytes of white space that may wait for a text to follow */
};

/* Tokens that mean something, -1 for those that the tokenizer lacks. */
typedef struct markers {
    int32_t channel_open, channel_close, call_open, call_close;
    int32_t response_open, quote, turn_open, turn_close, eos;
} markers;

struct dg_output_parser {
    markers markers;
    dg_output_events events;
    state state;
    bool blank; /* nothing but white space since this state began, all of it in `held` */
    dg_decoder decoder;
    dg_buf decoded;
    dg_buf held;       /* text whose meaning is not known yet; in CALL the whole call */
    size_t n_given;    /* CALL: bytes at its beginning that the prompt wrote */
    size_t n_opening;  /* NAMED, TAGGED: bytes of it up to where the thought would begin */
    size_t n_searched; /* TAGGED: bytes of it in which no tag closes */
};

static void end(dg_output_parser *p, int32_t token)
{
    dg_output_events_end(&p->events, token);
    p->state = STATE_DONE;
}

/* ---- text that is held ---- */

static void drop_held(dg_output_parser *p, size_t n)
{
    if (n)
        memmove(p->held.data, p->held.data + n, p->held.len - n);
    p->held.len -= n;
}

static void add_held(dg_output_parser *p, dg_output_kind kind, size_t n)
{
    dg_output_events_add(&p->events, kind, p->held.data, n);
    drop_held(p, n);
}

static size_t count_blank(const dg_buf *b)
{
    size_t n = 0;
    while (n < b->len && dg_output_is_space(b->data[n]))
        n++;
    return n;
}

static bool is_blank(const dg_buf *b)
{
    return count_blank(b) == b->len;
}

static void begin(dg_output_parser *p, state next)
{
    p->state = next;
    p->blank = true;
}

/* White space waits for what follows it: between structures it is nothing. */
static bool still_blank(dg_output_parser *p)
{
    p->blank = p->blank && is_blank(&p->held) && p->held.len < MAX_BLANK;
    return p->blank;
}

/* Whether what is held from `at` begins with the word, 1, could still, 0, or does not, -1. */
static int matches(const dg_output_parser *p, size_t at, const char *word)
{
    size_t n = strlen(word), have = p->held.len - at;
    size_t both = have < n ? have : n;
    if (both && memcmp(p->held.data + at, word, both) != 0)
        return -1;
    return have >= n;
}

/* Models left without the opening token have begun with the channel's name, or with the tag that
 * other models use. Answers begin so as well: it is a thought only once something closes it. */
static bool step_start(dg_output_parser *p)
{
    static const char name[] = "thought\n", tag[] = "<think>";
    size_t at = count_blank(&p->held);
    int is_name = matches(p, at, name), is_tag = matches(p, at, tag);
    if (is_name > 0 || is_tag > 0) {
        p->n_opening = p->n_searched = at + (is_name > 0 ? sizeof name : sizeof tag) - 1;
        begin(p, is_name > 0 ? STATE_NAMED : STATE_TAGGED);
        return true;
    }
    if ((is_name == 0 || is_tag == 0) && at < MAX_BLANK)
        return false;
    begin(p, STATE_TEXT);
    return true;
}

/* The roles that a turn may name. */
static bool is_role(const char *line, size_t len)
{
    static const char *const roles[] = {"model",  "assistant", "user",
                                        "system", "developer", "tool"};
    while (len && dg_output_is_space(line[len - 1]))
        len--;
    for (size_t i = 0; i < DG_COUNT(roles); i++)
        if (dg_text_is((dg_text){line, len}, roles[i]))
            return true;
    return !len;
}

/* A first line that names nobody is the answer itself. */
static bool step_header(dg_output_parser *p)
{
    const char *line_end = p->held.len ? memchr(p->held.data, '\n', p->held.len) : NULL;
    if (!line_end && p->held.len <= MAX_NAME)
        return false;
    size_t n = line_end ? (size_t)(line_end - p->held.data) : 0;
    if (line_end && is_role(p->held.data, n))
        drop_held(p, n + 1);
    p->state = STATE_START;
    return true;
}

static bool step_text(dg_output_parser *p)
{
    if (!still_blank(p))
        add_held(p, DG_OUTPUT_TEXT, p->held.len);
    return false;
}

/* One word, or nothing. */
static bool is_channel_name(const char *line, size_t len)
{
    while (len && dg_output_is_space(line[len - 1]))
        len--;
    while (len && dg_output_is_space(line[0]))
        line++, len--;
    for (size_t i = 0; i < len; i++) {
        char c = line[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'))
            return false;
    }
    return true;
}

/* Whatever a channel is called, it is not the answer. A first line that cannot be its name is the
 * thought itself, its name forgotten. */
static bool step_channel(dg_output_parser *p)
{
    const char *line_end = p->held.len ? memchr(p->held.data, '\n', p->held.len) : NULL;
    if (!line_end && p->held.len <= MAX_NAME)
        return false;
    size_t n = line_end ? (size_t)(line_end - p->held.data) : 0;
    if (line_end && is_channel_name(p->held.data, n))
        drop_held(p, n + 1);
    begin(p, STATE_THINKING);
    return true;
}

/* The line's end before the close belongs to the format. */
static void add_thought(dg_output_parser *p, size_t n, bool closed)
{
    size_t kept = n && p->held.data[n - 1] == '\n' ? n - 1 : n;
    add_held(p, DG_OUTPUT_THINKING, kept);
    if (closed)
        drop_held(p, n - kept);
}

static bool step_thinking(dg_output_parser *p)
{
    if (!still_blank(p))
        add_thought(p, p->held.len, false);
    return false;
}

/* Something closed what a spelled name or tag had opened, n bytes into what is held: a token, which
 * ends it, or a tag, which is no blank. */
static void end_spelled(dg_output_parser *p, size_t n)
{
    n -= p->n_opening;
    drop_held(p, p->n_opening);
    size_t blank = count_blank(&p->held);
    if (p->state == STATE_TAGGED || blank == n) {
        drop_held(p, blank);
        n -= blank;
    }
    add_thought(p, n, true);
}

/* So much without a close: an answer that begins like a thought. */
static bool step_spelled(dg_output_parser *p)
{
    if (p->held.len <= DG_OUTPUT_MAX_CALL)
        return false;
    begin(p, STATE_TEXT);
    return true;
}

static bool step_tagged(dg_output_parser *p)
{
    static const char tag[] = "</think>";
    const size_t n_tag = sizeof tag - 1;
    const char *found =
        memmem(p->held.data + p->n_searched, p->held.len - p->n_searched, tag, n_tag);
    if (found) {
        end_spelled(p, (size_t)(found - p->held.data));
        drop_held(p, n_tag);
        begin(p, STATE_TEXT);
        return true;
    }
    size_t unsure = n_tag - 1; /* the tag may have begun */
    if (p->held.len > p->n_searched + unsure)
        p->n_searched = p->held.len - unsure;
    return step_spelled(p);
}

static void step(dg_output_parser *p)
{
    bool more = true;
    while (more && !p->events.status) {
        switch (p->state) {
        case STATE_START:
            more = step_start(p);
            break;
        case STATE_HEADER:
            more = step_header(p);
            break;
        case STATE_TEXT:
            more = step_text(p);
            break;
        case STATE_CHANNEL:
            more = step_channel(p);
            break;
        case STATE_THINKING:
            more = step_thinking(p);
            break;
        case STATE_NAMED:
            more = step_spelled(p);
            break;
        case STATE_TAGGED:
            more = step_tagged(p);
            break;
        case STATE_CALL:
        case STATE_DONE:
            more = false;
            break;
        }
    }
}

/* ---- calls ---- */

/* The model wrote something of the call that the prompt had opened: what others wrote is no call of
 * its own. */
static bool says_more(const dg_output_parser *p)
{
    size_t n = p->n_given;
    while (n < p->held.len && dg_output_is_space(p->held.data[n]))
        n++;
    return !p->n_given || n < p->held.len;
}

static void end_call(dg_output_parser *p, bool finished)
{
    dg_text body = {p->held.data, p->held.len};
    if (says_more(p))
        dg_output_events_calls(&p->events, body, finished);
    else
        dg_output_events_broken_call(&p->events, body);
    p->held.len = p->n_given = 0;
    begin(p, STATE_TEXT);
}

static void add_to_call(dg_output_parser *p, const char *text, size_t len)
{
    if (p->held.len + len <= DG_OUTPUT_MAX_CALL) {
        dg_output_events_need(&p->events, dg_buf_append(&p->held, text, len));
        return;
    }
    dg_output_events_broken_call(&p->events, (dg_text){p->held.data, p->held.len});
    dg_output_events_broken_call(&p->events, (dg_text){text, len});
    p->held.len = p->n_given = 0;
    begin(p, STATE_TEXT);
}

/* ---- tokens ---- */

static void feed(dg_output_parser *p, const char *text, size_t len)
{
    if (!len || p->events.status)
        return;
    if (p->state == STATE_CALL) {
        add_to_call(p, text, len);
        return;
    }
    dg_output_events_need(&p->events, dg_buf_append(&p->held, text, len));
    step(p);
}

static void feed_decoded(dg_output_parser *p, bool ok)
{
    dg_output_events_need(&p->events, ok);
    feed(p, p->decoded.data, p->decoded.len);
    p->decoded.len = 0;
}

static void flush_decoder(dg_output_parser *p)
{
    feed_decoded(p, dg_decoder_flush(&p->decoder, &p->decoded));
}

/* The token goes on with something else than the end of the turn: a call, a thought, an answer. */
static bool goes_on(const dg_output_parser *p, int32_t token)
{
    const markers *m = &p->markers;
    return token >= 0 &&
           (token == m->channel_open || token == m->channel_close || token == m->call_open);
}

/* Structure ends here: what was held becomes what it can be at most. `token`: the one that comes,
 * -1 for the end of all. */
static void close_segment(dg_output_parser *p, int32_t token)
{
    flush_decoder(p);
    size_t n = p->held.len, blank = count_blank(&p->held);
    switch (p->state) {
    case STATE_CALL:
        end_call(p, token >= 0);
        return;
    case STATE_START: /* a bare name before <channel|> is that of an empty thought */
        if (blank < n &&
            !(token >= 0 && token == p->markers.channel_close && matches(p, blank, "thought") > 0))
            add_held(p, DG_OUTPUT_TEXT, n);
        break;
    case STATE_CHANNEL:
        if (!is_channel_name(p->held.data, n))
            add_held(p, DG_OUTPUT_THINKING, n);
        break;
    case STATE_NAMED:
    case STATE_TAGGED:
        if (goes_on(p, token))
            end_spelled(p, n);
        else
            add_held(p, DG_OUTPUT_TEXT, n);
        break;
    case STATE_HEADER:
        if (!is_role(p->held.data, n))
            add_held(p, DG_OUTPUT_TEXT, n);
        break;
    case STATE_TEXT:
    case STATE_THINKING:
    case STATE_DONE:
        break;
    }
    p->held.len = 0;
}

static void on_turn_open(dg_output_parser *p, int32_t id)
{
    if (p->state == STATE_START && is_blank(&p->held)) {
        p->held.len = 0;
        p->state = STATE_HEADER;
        return;
    }
    close_segment(p, id); /* a turn of somebody else's: not for us */
    end(p, id);
}

static void on_quote(dg_output_parser *p)
{
    const char in_call = DG_CALL_QUOTE;
    flush_decoder(p);
    feed(p, p->state == STATE_CALL ? &in_call : "\"", 1);
}

static void on_token(dg_output_parser *p, int32_t id)
{
    const markers *m = &p->markers;
    if (id < 0 || p->state == STATE_DONE)
        return;
    if (id == m->channel_open) {
        close_segment(p, id);
        p->state = STATE_CHANNEL;
    } else if (id == m->channel_close) {
        if (p->state == STATE_CALL || p->state == STATE_TEXT)
            return; /* closes nothing */
        close_segment(p, id);
        begin(p, STATE_TEXT);
    } else if (id == m->call_open) {
        close_segment(p, id);
        p->state = STATE_CALL;
    } else if (id == m->call_close) {
        if (p->state == STATE_CALL)
            close_segment(p, id);
    } else if (id == m->turn_close || id == m->eos || id == m->response_open) {
        close_segment(p, id);
        end(p, id);
    } else if (id == m->turn_open) {
        on_turn_open(p, id);
    } else if (id == m->quote) {
        on_quote(p);
    } else { /* other special tokens have no text */
        feed_decoded(p, dg_decoder_push(&p->decoder, id, &p->decoded));
    }
}

/* ---- life ---- */

dgemma_status dg_output_parser_create(dg_output_parser **out, const dg_tokenizer *t,
                                      const dg_output_options *options, dg_output_fn *on_event,
                                      void *user, dgemma_error *err)
{
    dg_output_parser *p = dg_calloc(1, sizeof *p);
    *out = p;
    if (!p)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory for an output parser");
    dg_output_events_init(&p->events, on_event, user);
    begin(p, options && options->in_thought ? STATE_THINKING : STATE_START);
    if (options && options->in_text) {
        p->state = STATE_TEXT;
        p->blank = false;
    }
    p->markers = (markers){
        .channel_open = dg_tokenizer_added_id(t, "<|channel>"),
        .channel_close = dg_tokenizer_added_id(t, "<channel|>"),
        .call_open = dg_tokenizer_added_id(t, "<|tool_call>"),
        .call_close = dg_tokenizer_added_id(t, "<tool_call|>"),
        .response_open = dg_tokenizer_added_id(t, "<|tool_response>"),
        .quote = dg_tokenizer_added_id(t, "<|\"|>"),
        .turn_open = dg_tokenizer_added_id(t, "<|turn>"),
        .turn_close = dg_tokenizer_added_id(t, "<turn|>"),
        .eos = dg_tokenizer_added_id(t, "<eos>"),
    };
    dg_decoder_init(&p->decoder, t, false);
    /* Above what the limits let through: a failure is one of memory. */
    dg_buf_init(&p->decoded, 2 * DG_PIECE_MAX);
    dg_buf_init(&p->held, 2 * (size_t)DG_OUTPUT_MAX_CALL);
    return DGEMMA_OK;
}

void dg_output_parser_free(dg_output_parser *p)
{
    if (!p)
        return;
    dg_buf_clear(&p->decoded);
    dg_buf_clear(&p->held);
    dg_output_events_clear(&p->events);
    dg_free(p);
}

static dgemma_status report(const dg_output_parser *p, dgemma_error *err)
{
    if (p->events.status == DGEMMA_E_CANCELLED)
        return dg_fail(err, p->events.status, "stopped by its receiver");
    if (p->events.status)
        return dg_fail(err, p->events.status, "out of memory for the model's output");
    return DGEMMA_OK;
}

dgemma_status dg_output_parser_push(dg_output_parser *p, const int32_t *ids, size_t n,
                                    dgemma_error *err)
{
    for (size_t i = 0; i < n && !p->events.status; i++)
        on_token(p, ids[i]);
    dg_output_events_send(&p->events);
    return report(p, err);
}

dgemma_status dg_output_parser_open(dg_output_parser *p, const int32_t *ids, size_t n,
                                    dgemma_error *err)
{
    dgemma_status st = dg_output_parser_push(p, ids, n, err);
    if (p->state == STATE_CALL)
        p->n_given = p->held.len;
    return st;
}

dgemma_status dg_output_parser_finish(dg_output_parser *p, dgemma_error *err)
{
    if (p->state != STATE_DONE && !p->events.status) {
        close_segment(p, -1);
        end(p, -1);
    }
    return report(p, err);
}
