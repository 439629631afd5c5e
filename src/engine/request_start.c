#include "engine/request_start.h"
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "engine/prompt.h"

/* Of a canvas of 256, 128 for a gap of unknown length and the rest for what stands around it; a
 * passage that keeps its length may have 192. Of the rest what stands behind has three quarters at
 * most, unless there is less before. */
enum { QUARTERS = 4, GAP_QUARTERS = 2, PASSAGE_QUARTERS = 3, BEHIND_QUARTERS = 3 };

static dgemma_status check_canvas(const dgemma_engine *e, const dgemma_request_options *o,
                                  dgemma_error *err)
{
    int n_vocab = e->loaded.cfg.n_vocab;
    bool pinned = false;
    if (o->n_canvas > (size_t)e->n_context)
        return dg_fail(err, DGEMMA_E_LIMIT, "canvas: %zu tokens, the context has %d", o->n_canvas,
                       e->n_context);
    for (size_t i = 0; i < o->n_canvas; i++) {
        bool pin = o->pinned && o->pinned[i];
        if (o->canvas[i] < -1 || o->canvas[i] >= n_vocab)
            return dg_fail(err, DGEMMA_E_ARG,
                           "canvas: token %d at %zu is not in the vocabulary of %d",
                           (int)o->canvas[i], i, n_vocab);
        if (pin && o->canvas[i] < 0)
            return dg_fail(err, DGEMMA_E_ARG, "canvas: nothing is known of %zu, which is pinned",
                           i);
        pinned = pinned || pin || (o->strength == 0 && o->canvas[i] >= 0);
    }
    if (pinned && o->n_logprobs >= 0)
        return dg_fail(err, DGEMMA_E_ARG, "n_logprobs goes with no pinned tokens");
    return DGEMMA_OK;
}

static dgemma_status check_gap(const dgemma_engine *e, const dgemma_request_options *o,
                               dgemma_error *err)
{
    bool ours = !o->chat_prompt && !o->messages && !o->raw_prompt && !o->tokens && !o->prompt;
    if (o->canvas)
        return dg_fail(err, DGEMMA_E_ARG, "a suffix goes with no canvas");
    if (o->raw_prompt || o->tokens)
        return dg_fail(err, DGEMMA_E_ARG,
                       "a suffix goes with a chat prompt, with messages or without a prompt");
    if (o->thinking || o->tools)
        return dg_fail(err, DGEMMA_E_ARG, "a suffix goes with no thinking and no tools");
    if (o->instruction && !ours && !o->prompt)
        return dg_fail(err, DGEMMA_E_ARG, "an instruction goes with no prompt of one's own");
    if (o->keep_length && (!o->passage || !*o->passage))
        return dg_fail(err, DGEMMA_E_ARG, "keep_length needs a passage");
    if (!o->keep_length && o->strength != 1)
        return dg_fail(err, DGEMMA_E_ARG,
                       "strength is %g: a gap whose length is to be found starts as noise, at 1",
                       (double)o->strength);
    return dg_need_tokenizer(e, err);
}

dgemma_status dg_request_start_check(const dgemma_engine *e, const dgemma_request_options *o,
                                     dgemma_error *err)
{
    if (!(o->strength >= 0 && o->strength <= 1))
        return dg_fail(err, DGEMMA_E_ARG, "strength is %g: 0 to 1 are possible",
                       (double)o->strength);
    if ((o->canvas || o->suffix) && o->constraint)
        return dg_fail(err, DGEMMA_E_ARG, "a constraint goes with no %s",
                       o->canvas ? "canvas" : "suffix");
    if ((o->canvas || o->suffix) && o->read)
        return dg_fail(err, DGEMMA_E_ARG, "a read goes with no canvas and no suffix");
    if (!o->suffix && (o->passage || o->instruction || o->keep_length))
        return dg_fail(err, DGEMMA_E_ARG, "passage, instruction and keep_length go with a suffix");
    if ((!o->canvas && (o->n_canvas || o->pinned)) || (o->canvas && !o->n_canvas))
        return dg_fail(err, DGEMMA_E_ARG, "the canvas is empty");
    if (o->suffix)
        return check_gap(e, o, err);
    return o->canvas ? check_canvas(e, o, err) : DGEMMA_OK;
}

static dgemma_status start_canvas(dgemma_request *r, const dgemma_request_options *o,
                                  dgemma_error *err)
{
    size_t n = o->n_canvas;
    r->given = dg_array(n, sizeof *r->given);
    r->pinned = dg_calloc(n, sizeof *r->pinned);
    if (!r->given || !r->pinned)
        return dg_fail(err, DGEMMA_E_NOMEM, "no memory for a canvas of %zu tokens", n);
    memcpy(r->given, o->canvas, n * sizeof *r->given);
    if (o->pinned)
        memcpy(r->pinned, o->pinned, n);
    r->cfg.start =
        (dg_start){.token = r->given, .pinned = r->pinned, .n = (int)n, .strength = o->strength};
    return DGEMMA_OK;
}

/* Tokens of the passage, as they stand behind the prompt's own. */
static dgemma_status encode_passage(dg_tokens *out, const dgemma_request *r, const dgemma_engine *e,
                                    const char *passage, dgemma_error *err)
{
    dg_buf text;
    dg_buf_init(&text, DG_ENCODE_MAX_TEXT);
    bool ok = true;
    for (int i = 0; ok && i < r->prompt->n_blank; i++)
        ok = dg_buf_puts(&text, " ");
    ok = ok && dg_buf_puts(&text, passage);
    dgemma_status st =
        ok ? dg_tokenizer_encode(e->loaded.tokenizer, text.data, text.len, 0, out, err)
           : dg_fail(err, DGEMMA_E_LIMIT, "the passage is too long, or memory is out");
    dg_buf_clear(&text);
    return st;
}

/* Tokens of the suffix; of a long one only its beginning is looked at, and *cut is set. */
static dgemma_status encode_suffix(dg_tokens *out, const dgemma_engine *e, const char *suffix,
                                   int room, bool *cut, dgemma_error *err)
{
    enum { LONGEST = 64 }; /* bytes of a token, more than nearly all have */
    size_t len = strlen(suffix), enough = ((size_t)room + 1) * LONGEST;
    *cut = len > enough;
    if (*cut)
        for (len = enough; len && ((unsigned char)suffix[len] & 0xC0) == 0x80;)
            len--;
    return dg_tokenizer_encode(e->loaded.tokenizer, suffix, len, 0, out, err);
}

/* The end of a turn as the model learnt it. */
static int32_t turn_close(const dgemma_engine *e)
{
    int32_t id = dg_tokenizer_added_id(e->loaded.tokenizer, "<turn|>");
    return id >= 0 || !e->loaded.cfg.n_stop ? id : e->loaded.cfg.stop_token[0];
}

static dgemma_status start_gap(dgemma_request *r, const dgemma_engine *e,
                               const dgemma_request_options *o, dgemma_error *err)
{
    dg_infill *f = &r->infill;
    int n_canvas = dg_min(r->cfg.canvas_length, r->cfg.n_context - r->cfg.n_prompt);
    bool cut;
    dg_tokens given;
    dg_tokens_init(&given, DG_ENCODE_MAX_TEXT);
    *f = (dg_infill){
        .close = turn_close(e), .pad = e->loaded.cfg.pad_token, .strength = o->strength};
    dgemma_status st = o->keep_length ? encode_passage(&given, r, e, o->passage, err) : DGEMMA_OK;
    int n_passage = (int)given.n, longest = n_canvas * PASSAGE_QUARTERS / QUARTERS;
    f->length = n_passage;
    f->most = dg_min(dg_min(o->max_tokens, n_canvas * GAP_QUARTERS / QUARTERS), DG_GAP_MOST);
    if (!st && n_passage > dg_min(longest, o->max_tokens))
        st = dg_fail(err, DGEMMA_E_LIMIT,
                     "a passage of %d tokens: at most %d can be written anew at a time", n_passage,
                     dg_min(longest, o->max_tokens));
    if (!st && !o->keep_length && f->most < 1)
        st = dg_fail_context(err, (size_t)r->cfg.n_context, (size_t)r->cfg.n_prompt, true);
    int room = n_canvas - (n_passage ? n_passage : f->most) - 1;
    if (!st)
        st = encode_suffix(&given, e, o->suffix, room, &cut, err);
    if (st) {
        dg_tokens_clear(&given);
        return st;
    }
    int n_suffix = (int)given.n - n_passage, n_prefix = r->prompt->n_prefix;
    int behind = dg_max(room - n_prefix, room * BEHIND_QUARTERS / QUARTERS);
    r->given = given.ids; /* now the request's */
    f->whole = !cut && n_suffix <= behind;
    f->n_after = dg_min(n_suffix, behind);
    f->n_before = dg_min(n_prefix, room - f->n_after);
    r->cfg.n_prompt -= f->n_before;
    f->before = r->cfg.prompt + r->cfg.n_prompt;
    f->known = n_passage ? r->given : NULL;
    f->after = n_suffix ? r->given + n_passage : NULL;
    r->cfg.infill = f;
    r->answer.n_blank = r->prompt->n_blank;
    return DGEMMA_OK;
}

dgemma_status dg_request_start(dgemma_request *r, const dgemma_engine *e,
                               const dgemma_request_options *o, dgemma_error *err)
{
    if (o->suffix)
        return start_gap(r, e, o, err);
    return o->canvas ? start_canvas(r, o, err) : DGEMMA_OK;
}
