/* What the model is shown. The system turn has the questions, numbered, with their options behind
 * labels; the canvas has a line for each, "q1: A", in which the label alone is noise. A label is
 * one token, at one place: whether that is so is found out by tokenising the line with each of
 * them. */
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/error.h"
#include "decide/decide_internal.h"

/* ---- tokens ---- */

/* The one token of a marker, -1: it is none. */
static dgemma_status marker(const decide_layout *l, const char *text, int32_t *id,
                            dgemma_error *err)
{
    int32_t ids[4];
    size_t n = 0;
    dgemma_status st = dgemma_tokenize(l->engine, text, strlen(text), true, ids, 4, &n, err);
    *id = !st && n == 1 ? ids[0] : -1;
    return st == DGEMMA_E_LIMIT ? DGEMMA_OK : st;
}

dgemma_status decide_layout_init(decide_layout *l, dgemma_engine *e, dgemma_error *err)
{
    dgemma_model_info info;
    dgemma_engine_info(e, &info);
    *l = (decide_layout){.engine = e, .canvas_length = info.canvas_length};
    if (!info.has_chat_template)
        return dg_fail(err, DGEMMA_E_UNSUPPORTED,
                       "decisions need a chat template, which the model lacks");
    dgemma_status st = marker(l, "<turn|>", &l->close, err);
    if (!st)
        st = marker(l, "<pad>", &l->pad, err);
    if (!st)
        st = marker(l, "\n", &l->newline, err);
    if (!st)
        st = marker(l, "<|channel>", &l->think_open, err);
    if (!st)
        st = marker(l, "<channel|>", &l->think_close, err);
    l->pad = l->pad < 0 ? l->close : l->pad;
    if (st || info.chat_template[0] == 'a' || l->think_open < 0 || l->think_close < 0)
        return st; /* revision a closes an empty thought in the prompt */
    static const char empty[] = "<|channel>thought\n<channel|>";
    size_t n = 0;
    st = dgemma_tokenize(e, empty, sizeof empty - 1, true, l->head, DECIDE_HEAD, &n, err);
    l->n_head = st ? 0 : (int)n;
    return st;
}

/* ---- labels ---- */

/* Labels in the order in which they are tried: A to Z, a to z, then pairs, then small threes;
 * false: there are no more. */
static bool candidate(char text[DECIDE_LABEL], size_t k)
{
    enum { LETTERS = 26, PAIRS = 26 * 26, THREES = 26 * 26 * 26 };
    static const char first[] = {'A', 'a', 'A', 'a'}, second[] = {'A', 'a', 'a', 'A'};
    memset(text, 0, DECIDE_LABEL);
    if (k < 2 * LETTERS) {
        text[0] = (char)((k < LETTERS ? 'A' : 'a') + (int)(k % LETTERS));
        return true;
    }
    k -= 2 * LETTERS;
    if (k < 4 * PAIRS) {
        text[0] = (char)(first[k / PAIRS] + (int)(k % PAIRS / LETTERS));
        text[1] = (char)(second[k / PAIRS] + (int)(k % LETTERS));
        return true;
    }
    k -= 4 * PAIRS;
    for (int i = 2; i >= 0; i--, k /= LETTERS)
        text[i] = (char)('a' + (int)(k % LETTERS));
    return k == 0;
}

/* The line of question number `number` with a label; 0 tokens: it has too many. */
static dgemma_status line_of(const decide_layout *l, size_t number, const char *label,
                             int32_t ids[DECIDE_LINE], int *n, dgemma_error *err)
{
    char text[32];
    size_t got = 0;
    int len = snprintf(text, sizeof text, "q%zu: %s\n", number + 1, label);
    dgemma_status st =
        dgemma_tokenize(l->engine, text, (size_t)len, false, ids, DECIDE_LINE, &got, err);
    *n = st ? 0 : (int)got;
    return st == DGEMMA_E_LIMIT ? DGEMMA_OK : st;
}

/* Takes the label, if it makes a line that differs from the first label's in one token, at the same
 * place as all before. No other label is that token: tokens say what the text was. */
static dgemma_status try_label(const decide_layout *l, decide_question *q, size_t number,
                               const char *text, size_t *n_label, dgemma_error *err)
{
    int32_t ids[DECIDE_LINE];
    int n, differ = 0, at = -1;
    dgemma_status st = line_of(l, number, text, ids, &n, err);
    if (st || !n)
        return st;
    if (!*n_label) {
        memcpy(q->line, ids, sizeof q->line);
        q->n_line = n;
        q->slot = -1;
    } else {
        for (int i = 0; n == q->n_line && i < n; i++)
            if (ids[i] != q->line[i]) {
                differ++;
                at = i;
            }
        if (differ != 1 || (q->slot >= 0 && at != q->slot))
            return DGEMMA_OK;
        q->slot = at;
        q->labels[0].id = q->line[at];
    }
    decide_label *to = &q->labels[(*n_label)++];
    memcpy(to->text, text, strlen(text) + 1);
    to->id = at >= 0 ? ids[at] : -1;
    return DGEMMA_OK;
}

/* All of `text`, or none: *n_label is 0 then. */
static dgemma_status try_all(const decide_layout *l, decide_question *q, size_t number,
                             const char *const *text, size_t *n_label, dgemma_error *err)
{
    dgemma_status st = DGEMMA_OK;
    *n_label = 0;
    for (size_t i = 0; !st && i < q->n_options; i++)
        st = try_label(l, q, number, text[i], n_label, err);
    if (*n_label < q->n_options)
        *n_label = 0;
    return st;
}

/* As many letters as it has options. What stood the test for another question is tried first. */
static dgemma_status try_letters(const decide_layout *l, decide_question *q, size_t number,
                                 const decide_question *like, size_t *n_label, dgemma_error *err)
{
    dgemma_status st = DGEMMA_OK;
    char text[DECIDE_LABEL];
    *n_label = 0;
    for (size_t i = 0; !st && like && i < like->n_options && *n_label < q->n_options; i++)
        st = try_label(l, q, number, like->labels[i].text, n_label, err);
    if (*n_label < q->n_options)
        *n_label = 0;
    for (size_t k = 0; !st && *n_label < q->n_options && candidate(text, k); k++)
        st = try_label(l, q, number, text, n_label, err);
    return st;
}

static dgemma_status label_one(const decide_layout *l, decide_question *q, size_t number,
                               const decide_question *like, dgemma_error *err)
{
    static const char *const words[] = {"yes", "no"};
    static const char *const digits[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
    size_t n = 0;
    dgemma_status st = DGEMMA_OK;
    q->labels = dg_calloc(q->n_options, sizeof *q->labels);
    if (!q->labels)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    if (q->kind != DGEMMA_QUESTION_CHOICE)
        st = try_all(l, q, number, q->kind == DGEMMA_QUESTION_SCORE ? digits : words, &n, err);
    if (!st && !n)
        st = try_letters(l, q, number, like, &n, err);
    if (!st && n < q->n_options)
        st = dg_fail(err, DGEMMA_E_UNSUPPORTED,
                     "question %zu has %zu options: the model's vocabulary has labels of one token "
                     "for %zu",
                     number + 1, q->n_options, n);
    return st;
}

dgemma_status decide_label_all(const decide_layout *l, decide_question *q, size_t n,
                               dgemma_error *err)
{
    dgemma_status st = DGEMMA_OK;
    const decide_question *longest = NULL;
    for (size_t i = 0; !st && i < n; i++) {
        if (q[i].n_options < 2)
            continue;
        st = label_one(l, &q[i], i, longest, err);
        if (q[i].kind == DGEMMA_QUESTION_CHOICE &&
            (!longest || q[i].n_options > longest->n_options))
            longest = &q[i];
    }
    return st;
}

/* ---- prompts ---- */

static bool put_option(dg_buf *out, const char *label, const dgemma_option *o, const char *name)
{
    bool ok = dg_buf_puts(out, label);
    if (name)
        ok = ok && dg_buf_puts(out, " = ") && dg_buf_puts(out, name);
    if (o && o->description && *o->description)
        ok = ok && dg_buf_puts(out, name ? " (" : " = ") && dg_buf_puts(out, o->description) &&
             (!name || dg_buf_puts(out, ")"));
    return ok && dg_buf_puts(out, "\n");
}

static bool put_question(dg_buf *out, const decide_question *q, size_t number, size_t order)
{
    static const char *const words[] = {"yes", "no"};
    char head[32];
    snprintf(head, sizeof head, "\nq%zu: ", number + 1);
    bool ok = dg_buf_puts(out, head) && dg_buf_puts(out, q->text) && dg_buf_puts(out, "\n");
    for (size_t i = 0; ok && i < q->n_options; i++) {
        size_t option = decide_turned(q, i, order);
        const dgemma_option *o = q->options ? &q->options[option] : NULL;
        const char *name = q->kind == DGEMMA_QUESTION_YES_NO ? words[option] : o ? o->name : NULL;
        bool said = name && !strcmp(name, q->labels[i].text);
        ok = put_option(out, q->labels[i].text, o, said ? NULL : name);
    }
    return ok;
}

bool decide_instructions(dg_buf *out, const decide_question *q, const size_t *list, size_t n,
                         size_t order)
{
    bool ok =
        dg_buf_puts(out, "Answer the questions about what the user shows you. Write one line "
                         "for each question: its number, a colon, and the label of the answer "
                         "that fits best. Write nothing else.\n");
    for (size_t i = 0; ok && i < n; i++)
        ok = put_question(out, &q[list[i]], list[i], order);
    return ok;
}

static bool put_json_text(dg_buf *out, const char *text)
{
    bool ok = dg_buf_puts(out, "\"");
    for (const char *c = text; ok && *c; c++) {
        char escaped[8];
        unsigned char byte = (unsigned char)*c;
        if (byte == '"' || byte == '\\')
            snprintf(escaped, sizeof escaped, "\\%c", byte);
        else if (byte < 0x20)
            snprintf(escaped, sizeof escaped, "\\u%04x", byte);
        else
            snprintf(escaped, sizeof escaped, "%c", byte);
        ok = dg_buf_puts(out, escaped);
    }
    return ok && dg_buf_puts(out, "\"");
}

bool decide_message(dg_buf *out, const char *text, size_t n_media)
{
    bool ok = dg_buf_puts(out, "[{\"role\":\"user\",\"content\":[");
    for (size_t i = 0; ok && i < n_media; i++)
        ok = dg_buf_puts(out, "{\"type\":\"image\"},");
    return ok && dg_buf_puts(out, "{\"type\":\"text\",\"text\":") && put_json_text(out, text) &&
           dg_buf_puts(out, "}]}]");
}

/* ---- canvases ---- */

size_t decide_fit(const decide_layout *l, const decide_question *q, const size_t *list, size_t n,
                  bool thought)
{
    int width = (thought ? 0 : l->n_head) + 1, most = dg_min(DECIDE_WIDTH, l->canvas_length);
    size_t fit = 0;
    while (fit < n && width + q[list[fit]].n_line <= most)
        width += q[list[fit++]].n_line;
    return fit;
}

int decide_fill(const decide_layout *l, const decide_question *q, const size_t *list, size_t n,
                bool thought, int32_t *tokens, int *slots)
{
    int at = thought ? 0 : l->n_head;
    memcpy(tokens, l->head, (size_t)at * sizeof *tokens);
    for (size_t i = 0; i < n; i++) {
        const decide_question *k = &q[list[i]];
        memcpy(tokens + at, k->line, (size_t)k->n_line * sizeof *tokens);
        slots[i] = at + k->slot;
        tokens[slots[i]] = -1;
        at += k->n_line;
    }
    at -= l->newline >= 0 && tokens[at - 1] == l->newline; /* behind the last line the turn ends */
    tokens[at++] = l->close;
    int width = dg_min((at + DECIDE_ROUND - 1) / DECIDE_ROUND * DECIDE_ROUND,
                       dg_max(at, dg_min(DECIDE_WIDTH, l->canvas_length)));
    while (at < width)
        tokens[at++] = l->pad;
    return width;
}
