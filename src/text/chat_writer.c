#include "text/chat_writer.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "text/python_text.h"

void dg_chat_fail_full(dg_chat_writer *w, const dg_buf *b)
{
    if (w->status)
        return;
    if (b->len > b->max / 2)
        w->status = dg_fail(w->err, DGEMMA_E_LIMIT, "the prompt is longer than %zu bytes", b->max);
    else
        w->status = dg_fail(w->err, DGEMMA_E_NOMEM, "out of memory for the prompt");
}

void dg_chat_put(dg_chat_writer *w, dg_text text)
{
    if (w->status || !text.len)
        return;
    if (text.len > DG_PROMPT_MAX_TEXT)
        w->status = dg_fail(w->err, DGEMMA_E_LIMIT, "a text of %zu bytes, a prompt may have %d",
                            text.len, DG_PROMPT_MAX_TEXT);
    else if (!dg_buf_append(&w->prompt->text, text.data, text.len))
        dg_chat_fail_full(w, &w->prompt->text);
}

void dg_chat_puts(dg_chat_writer *w, const char *s)
{
    dg_chat_put(w, (dg_text){s, strlen(s)});
}

/* Room for one more; false when memory is out. */
static bool grow(void **array, size_t *cap, size_t n, size_t size)
{
    if (n < *cap)
        return true;
    size_t more = *cap ? *cap * 2 : 64;
    void *bigger = dg_array_resize(*array, more, size);
    if (!bigger)
        return false;
    *array = bigger;
    *cap = more;
    return true;
}

void dg_chat_mark(dg_chat_writer *w, const char *marker)
{
    dg_prompt *p = w->prompt;
    size_t start = p->text.len;
    dg_chat_puts(w, marker);
    if (w->status)
        return;
    void *marks = p->marks;
    if (!grow(&marks, &p->cap_mark, p->n_mark, sizeof *p->marks)) {
        dg_chat_fail_full(w, &w->prompt->text);
        return;
    }
    p->marks = marks;
    p->marks[p->n_mark++] = (dg_prompt_mark){start, p->text.len - start};
}

void dg_chat_slot(dg_chat_writer *w, dg_part_kind kind, size_t message, size_t part)
{
    static const char *const markers[] = {[DG_PART_IMAGE] = "<|image|>",
                                          [DG_PART_AUDIO] = "<|audio|>",
                                          [DG_PART_VIDEO] = "<|video|>"};
    dg_prompt *p = w->prompt;
    dg_chat_mark(w, markers[kind]);
    if (w->status)
        return;
    void *slots = p->slots;
    if (!grow(&slots, &p->cap_slot, p->n_slot, sizeof *p->slots)) {
        dg_chat_fail_full(w, &w->prompt->text);
        return;
    }
    p->slots = slots;
    p->slots[p->n_slot++] =
        (dg_prompt_slot){.kind = kind, .message = message, .part = part, .mark = p->n_mark - 1};
}

void dg_chat_str(dg_chat_writer *w, const dg_json *v)
{
    if (!w->status && !dg_python_str(&w->prompt->text, v))
        dg_chat_fail_full(w, &w->prompt->text);
}

void dg_chat_upper(dg_chat_writer *w, const dg_json *v)
{
    dg_buf text;
    dg_buf_init(&text, DG_PROMPT_MAX_TEXT);
    if (!w->status && !(dg_python_str(&text, v) &&
                        dg_python_upper(&w->prompt->text, (dg_text){text.data, text.len})))
        dg_chat_fail_full(w, &w->prompt->text);
    dg_buf_clear(&text);
}

void dg_chat_quoted(dg_chat_writer *w, dg_text text)
{
    dg_chat_mark(w, "<|\"|>");
    dg_chat_put(w, text);
    dg_chat_mark(w, "<|\"|>");
}

/* ---- values ---- */

static int compare_members(const void *va, const void *vb)
{
    const dg_json *a = *(const dg_json *const *)va, *b = *(const dg_json *const *)vb;
    int order = dg_python_compare_lower(a->key, b->key);
    return order ? order : (a > b) - (a < b); /* a tree's values lie in the document's order */
}

dg_chat_sorted dg_chat_sort(dg_chat_writer *w, const dg_json *object)
{
    dg_chat_sorted s = {0};
    if (w->status || !object->n_child)
        return s;
    s.at = dg_array(object->n_child, sizeof *s.at);
    if (!s.at) {
        dg_chat_fail_full(w, &w->prompt->text);
        return s;
    }
    for (const dg_json *m = object->child; m; m = m->next)
        s.at[s.n++] = m;
    qsort(s.at, s.n, sizeof *s.at, compare_members);
    return s;
}

void dg_chat_members(dg_chat_writer *w, const dg_json *object, bool quote_keys)
{
    dg_chat_sorted members = dg_chat_sort(w, object);
    for (size_t i = 0; i < members.n; i++) {
        dg_chat_puts(w, i ? "," : "");
        if (quote_keys)
            dg_chat_quoted(w, members.at[i]->key);
        else
            dg_chat_put(w, members.at[i]->key);
        dg_chat_puts(w, ":");
        dg_chat_value(w, members.at[i], quote_keys);
    }
    dg_free(members.at);
}

static void put_list(dg_chat_writer *w, const dg_json *list, bool quote_keys)
{
    dg_chat_puts(w, "[");
    for (const dg_json *m = list->child; m && !w->status; m = m->next) {
        dg_chat_value(w, m, quote_keys);
        dg_chat_puts(w, m->next ? "," : "");
    }
    dg_chat_puts(w, "]");
}

void dg_chat_value(dg_chat_writer *w, const dg_json *v, bool quote_keys)
{
    switch (v->kind) {
    case DG_JSON_NULL:
        dg_chat_puts(w, w->revision == DG_CHAT_REVISION_A ? "None" : "null");
        break;
    case DG_JSON_FALSE:
        dg_chat_puts(w, "false");
        break;
    case DG_JSON_TRUE:
        dg_chat_puts(w, "true");
        break;
    case DG_JSON_INT:
    case DG_JSON_REAL:
        dg_chat_str(w, v);
        break;
    case DG_JSON_STRING:
        dg_chat_quoted(w, v->text);
        break;
    case DG_JSON_ARRAY:
        put_list(w, v, quote_keys);
        break;
    case DG_JSON_OBJECT:
        dg_chat_puts(w, "{");
        dg_chat_members(w, v, quote_keys);
        dg_chat_puts(w, "}");
        break;
    }
}
